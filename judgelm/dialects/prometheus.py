"""Prometheus's prompts: a grade of 1 to 5 by a rubric, or the better of two responses; with a reference or without.

The same pair prompt, with other instructions above it, is sent by RewardBench and by JudgeBench. All want the verdict
at the very end, behind `[RESULT]`, and know no tie.

Source: Kim et al. 2024, Prometheus 2; prometheus-eval/prometheus-eval.
"""

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply
from judgelm.dialects.patterns import Pattern, Split
from judgelm.dialects.recognition import ambiguity_note, sample_of, user_text
from judgelm.dialects.text import (
    expected_grade,
    format_number,
    rescale,
    results_per_reply,
    scores_and_reason,
    winner_of_two,
)

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


def _absolute(asked: ChatRequest) -> JudgeTask | None:
    found = _split(asked, _GRADED, _GRADE, _GRADE_BY_REFERENCE)
    if found is None:
        return None
    return JudgeTask(
        dialect="prometheus-absolute",
        task="grade",
        sample=sample_of(
            found.values["question"],
            (found.values["first"],),
            found.values.get("reference"),
            criterion=found.values["criterion"].strip("\n"),
        ),
        scale=_SCALE,
        doubt=ambiguity_note(found),
    )


def _relative(asked: ChatRequest) -> JudgeTask | None:
    found = _split(asked, _COMPARED, _PAIR, _PAIR_BY_REFERENCE)
    if found is None:
        return None
    return JudgeTask(
        dialect="prometheus-relative",
        task="pair",
        sample=sample_of(
            found.values["question"],
            (found.values["first"], found.values["second"]),
            found.values.get("reference"),
            criterion=found.values["criterion"].strip("\n"),
        ),
        doubt=ambiguity_note(found),
    )


def _split(asked: ChatRequest, heading: str, plain: Pattern, by_reference: Pattern) -> Split | None:
    text = user_text(asked)
    if text is None:
        return None
    description, found, rest = text.partition(heading)
    if not found or not description.lstrip("\n").startswith(_TASK) or _MARK not in description:
        return None
    rest = rest.rstrip(" \n")
    return (by_reference.split(rest) if _REFERENCE in description else None) or plain.split(rest)


def _render_absolute(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    texts = []
    for one in results_per_reply(asked, finding):
        texts.append(_reply(format_number(rescale(expected_grade(one), _SCALE, whole=True)), asked, one))
    return Reply(texts=tuple(texts))


def _render_relative(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    texts = [
        _reply("A" if winner_of_two(case, one) == 1 else "B", asked, one) for one in results_per_reply(asked, finding)
    ]
    return Reply(texts=tuple(texts))


def _reply(verdict: str, asked: ChatRequest, finding: JudgeResult) -> str:
    room = None if asked.max_tokens is None else max(0, asked.max_tokens - len("Feedback:  [RESULT] A"))
    words = scores_and_reason(finding, room) or "See the result."
    return f"Feedback: {words} {_MARK} {verdict}"


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name="prometheus-absolute", recognise=_absolute, render=_render_absolute),
    Dialect(name="prometheus-relative", recognise=_relative, render=_render_relative),
)
