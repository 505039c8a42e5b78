"""Auto-J's prompts, bare or within Llama 2's brackets: a final decision between two responses, or a rating in brackets.

JudgeBench sends the pairwise prompt without the query, by a slip of its own.

Source: Li et al. 2023, Generative Judge for Evaluating Alignment; GAIR-NLP/auto-j.
"""

from judgelm.dialects.contract import Asked, Case, Dialect, Finding, Reply
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import doubt, lone_text, sample_of
from judgelm.dialects.text import expected_grade, explained, on_scale, per_reply, winner_of_two, written

_SCALE = (1.0, 10.0)
_DATA = "[BEGIN DATA]\n***\n[Query]: {question}\n***\n"
_PAIR = Pattern(_DATA + "[Response 1]: {first}\n***\n[Response 2]: {second}\n***\n[END DATA]\n\n", anywhere=True)
_SINGLE = Pattern(_DATA + "[Response]: {first}\n***\n[END DATA]\n\n", anywhere=True)
_DECISION = "final decision is Response 1 / Response 2 / Tie"
_RATING = "[[rating]]"


def _pair(asked: Asked) -> Case | None:
    text = lone_text(asked)
    found = _PAIR.split(text) if text is not None and _DECISION in _behind(text) else None
    if found is None:
        return None
    return Case(
        dialect="autoj-pair",
        task="pair",
        sample=sample_of(found.values["question"], (found.values["first"], found.values["second"])),
        doubt=doubt(found),
    )


def _single(asked: Asked) -> Case | None:
    text = lone_text(asked)
    found = _SINGLE.split(text) if text is not None and _RATING in _behind(text) else None
    if found is None:
        return None
    return Case(
        dialect="autoj-single",
        task="grade",
        sample=sample_of(found.values["question"], (found.values["first"],)),
        scale=_SCALE,
        doubt=doubt(found),
    )


def _behind(text: str) -> str:
    """The instructions behind the data."""
    return text.rpartition("\n***\n[END DATA]\n\n")[2]


def _render_pair(case: Case, asked: Asked, finding: Finding) -> Reply:
    texts = []
    for one in per_reply(asked, finding):
        decision = "Tie" if one.winner == "tie" else f"Response {winner_of_two(case, one)}"
        texts.append(_with_words(f"So, the final decision is {decision}.", asked, one))
    return Reply(texts=tuple(texts))


def _render_single(case: Case, asked: Asked, finding: Finding) -> Reply:
    texts = []
    for one in per_reply(asked, finding):
        rating = written(on_scale(expected_grade(one), _SCALE))
        texts.append(_with_words(f"Rating: [[{rating}]]", asked, one))
    return Reply(texts=tuple(texts))


def _with_words(verdict: str, asked: Asked, finding: Finding) -> str:
    words = explained(finding, None if asked.max_tokens is None else max(0, asked.max_tokens - len(verdict) - 2))
    return f"{words}\n\n{verdict}" if words else verdict


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name="autoj-pair", recognise=_pair, render=_render_pair),
    Dialect(name="autoj-single", recognise=_single, render=_render_single),
)
