"""Auto-J's prompts, bare or within Llama 2's brackets: a final decision between two responses, or a rating in brackets.

JudgeBench sends the pairwise prompt without the query, by a slip of its own.

Source: Li et al. 2023, Generative Judge for Evaluating Alignment; GAIR-NLP/auto-j.
"""

from functools import partial

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, TaskKind
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import lone_text, task_from_split
from judgelm.dialects.text import (
    room_for_words,
    scores_and_reason,
)
from judgelm.dialects.verdicts import each_reply, grade_text, winner_of_two

_SCALE = (1.0, 10.0)
_DATA = "[BEGIN DATA]\n***\n[Query]: {question}\n***\n"
_PAIR = Pattern(_DATA + "[Response 1]: {first}\n***\n[Response 2]: {second}\n***\n[END DATA]\n\n", anywhere=True)
_SINGLE = Pattern(_DATA + "[Response]: {first}\n***\n[END DATA]\n\n", anywhere=True)
_DECISION = "final decision is Response 1 / Response 2 / Tie"
_RATING = "[[rating]]"


def _recognise(
    name: str, kind: TaskKind, pattern: Pattern, wanted: str, scale: tuple[float, float] | None, request: ChatRequest
) -> JudgeTask | None:
    """A task whose instructions behind the data hold what is `wanted`."""
    text = lone_text(request)
    if text is None or wanted not in text.rpartition("\n***\n[END DATA]\n\n")[2]:
        return None
    split = pattern.split(text)
    return None if split is None else task_from_split(name, kind, split, scale=scale)


def _decision(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    decision = "Tie" if result.winner == "tie" else f"Response {winner_of_two(task, result)}"
    return _with_words(f"So, the final decision is {decision}.", request, result)


def _rating(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    return _with_words(f"Rating: [[{grade_text(result, _SCALE)}]]", request, result)


def _with_words(verdict: str, request: ChatRequest, result: JudgeResult) -> str:
    words = scores_and_reason(result, room_for_words(request, len(verdict) + 2))
    return f"{words}\n\n{verdict}" if words else verdict


DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        name="autoj-pair",
        recognise=partial(_recognise, "autoj-pair", "pair", _PAIR, _DECISION, None),
        render=each_reply(_decision),
        templates=(_PAIR,),
    ),
    Dialect(
        name="autoj-single",
        recognise=partial(_recognise, "autoj-single", "grade", _SINGLE, _RATING, _SCALE),
        render=each_reply(_rating),
        templates=(_SINGLE,),
    ),
)
