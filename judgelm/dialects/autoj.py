"""Auto-J's prompts, bare or within Llama 2's brackets: a final decision between two responses, or a rating in brackets.

JudgeBench sends the pairwise prompt without the query, by a slip of its own.

Source: Li et al. 2023, Generative Judge for Evaluating Alignment; GAIR-NLP/auto-j.
"""

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import ambiguity_note, lone_text, sample_of
from judgelm.dialects.text import (
    expected_grade,
    format_number,
    rescale,
    results_per_reply,
    scores_and_reason,
    winner_of_two,
)

_SCALE = (1.0, 10.0)
_DATA = "[BEGIN DATA]\n***\n[Query]: {question}\n***\n"
_PAIR = Pattern(_DATA + "[Response 1]: {first}\n***\n[Response 2]: {second}\n***\n[END DATA]\n\n", anywhere=True)
_SINGLE = Pattern(_DATA + "[Response]: {first}\n***\n[END DATA]\n\n", anywhere=True)
_DECISION = "final decision is Response 1 / Response 2 / Tie"
_RATING = "[[rating]]"


def _pair(asked: ChatRequest) -> JudgeTask | None:
    text = lone_text(asked)
    found = _PAIR.split(text) if text is not None and _DECISION in _behind(text) else None
    if found is None:
        return None
    return JudgeTask(
        dialect="autoj-pair",
        task="pair",
        sample=sample_of(found.values["question"], (found.values["first"], found.values["second"])),
        doubt=ambiguity_note(found),
    )


def _single(asked: ChatRequest) -> JudgeTask | None:
    text = lone_text(asked)
    found = _SINGLE.split(text) if text is not None and _RATING in _behind(text) else None
    if found is None:
        return None
    return JudgeTask(
        dialect="autoj-single",
        task="grade",
        sample=sample_of(found.values["question"], (found.values["first"],)),
        scale=_SCALE,
        doubt=ambiguity_note(found),
    )


def _behind(text: str) -> str:
    """The instructions behind the data."""
    return text.rpartition("\n***\n[END DATA]\n\n")[2]


def _render_pair(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    texts = []
    for one in results_per_reply(asked, finding):
        decision = "Tie" if one.winner == "tie" else f"Response {winner_of_two(case, one)}"
        texts.append(_with_words(f"So, the final decision is {decision}.", asked, one))
    return Reply(texts=tuple(texts))


def _render_single(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    texts = []
    for one in results_per_reply(asked, finding):
        rating = format_number(rescale(expected_grade(one), _SCALE))
        texts.append(_with_words(f"Rating: [[{rating}]]", asked, one))
    return Reply(texts=tuple(texts))


def _with_words(verdict: str, asked: ChatRequest, finding: JudgeResult) -> str:
    words = scores_and_reason(
        finding, None if asked.max_tokens is None else max(0, asked.max_tokens - len(verdict) - 2)
    )
    return f"{words}\n\n{verdict}" if words else verdict


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name="autoj-pair", recognise=_pair, render=_render_pair),
    Dialect(name="autoj-single", recognise=_single, render=_render_single),
)
