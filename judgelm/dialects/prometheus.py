"""Prometheus's prompts: a grade of 1 to 5 by a rubric, or the better of two responses; with a reference or without.

The same pair prompt, with other instructions above it, is sent by RewardBench and by JudgeBench. All want the verdict
at the very end, behind `[RESULT]`, and know no tie.

Source: Kim et al. 2024, Prometheus 2; prometheus-eval/prometheus-eval.
"""

from functools import partial

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, TaskKind
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import task_from_split, user_text
from judgelm.dialects.text import (
    room_for_words,
    scores_and_reason,
)
from judgelm.dialects.verdicts import each_reply, grade_text, winner_of_two

_SCALE = (1.0, 5.0)
_TASK = "###Task Description:\n"
_FEEDBACK = "\n\n###Feedback:"
_MARK = "[RESULT]"
_REFERENCE = "a reference answer"  # the task's description says so where there is one

_GRADED = "\n\n###The instruction to evaluate:\n"
_RESPONSE = "{question}\n\n###Response to evaluate:\n{first}"
_GRADE = Pattern(_RESPONSE + "\n\n###Score Rubrics:\n{criterion}" + _FEEDBACK)
_GRADE_BY_REFERENCE = Pattern(
    _RESPONSE + "\n\n###Reference Answer (Score 5):\n{reference}\n\n###Score Rubrics:\n{criterion}" + _FEEDBACK
)

_COMPARED = "\n\n###Instruction:\n"
_RESPONSES = "{question}\n\n###Response A:\n{first}\n\n###Response B:\n{second}"
_PAIR = Pattern(_RESPONSES + "\n\n###Score Rubric:\n{criterion}" + _FEEDBACK)
_PAIR_BY_REFERENCE = Pattern(
    _RESPONSES + "\n\n###Reference Answer:\n{reference}\n\n###Score Rubric:\n{criterion}" + _FEEDBACK
)


def _recognise(
    name: str,
    kind: TaskKind,
    heading: str,
    patterns: tuple[Pattern, Pattern],
    scale: tuple[float, float] | None,
    request: ChatRequest,
) -> JudgeTask | None:
    """A task under the heading; of the patterns the second has a reference."""
    text = user_text(request)
    description, marker, rest = (text or "").partition(heading)
    if not marker or not description.lstrip("\n").startswith(_TASK) or _MARK not in description:
        return None
    plain, by_reference = patterns
    rest = rest.rstrip(" \n")
    split = (by_reference.split(rest) if _REFERENCE in description else None) or plain.split(rest)
    if split is None:
        return None
    return task_from_split(name, kind, split, scale=scale, criterion=split.values["criterion"].strip("\n"))


def _grade(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    return _text(grade_text(result, _SCALE, whole=True), request, result)


def _letter(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    return _text("A" if winner_of_two(task, result) == 1 else "B", request, result)


def _text(verdict: str, request: ChatRequest, result: JudgeResult) -> str:
    words = scores_and_reason(result, room_for_words(request, len("Feedback:  [RESULT] A"))) or "See the result."
    return f"Feedback: {words} {_MARK} {verdict}"


DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        name="prometheus-absolute",
        recognise=partial(_recognise, "prometheus-absolute", "grade", _GRADED, (_GRADE, _GRADE_BY_REFERENCE), _SCALE),
        render=each_reply(_grade),
        templates=(_GRADE, _GRADE_BY_REFERENCE),
    ),
    Dialect(
        name="prometheus-relative",
        recognise=partial(_recognise, "prometheus-relative", "pair", _COMPARED, (_PAIR, _PAIR_BY_REFERENCE), None),
        render=each_reply(_letter),
        templates=(_PAIR, _PAIR_BY_REFERENCE),
    ),
)
