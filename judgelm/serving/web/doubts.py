"""Reasons why a verdict may be wrong, in words: a flip with the order, one order only, a cut text, a close call."""

from collections.abc import Iterator

from judgelm.records import Judgment, PairVerdict
from judgelm.serving.web.markup import notice, sentences
from judgelm.serving.web.runs import flips

CLOSE_THRESHOLD = 0.1
"""Largest distance of P(first better) from 0.5 that counts as close: the default of `--close-threshold`."""

_NONE = (
    "No sign against this verdict: both orders agree, no text was cut, and the probability is not close to 0.5. "
    "The judge can still be wrong."
)


def doubts(judgment: Judgment) -> list[str]:
    """The reasons for doubt of a judgment, the most serious first; none for a failure, which is no verdict."""
    if judgment.verdict is None:
        return []
    pair = isinstance(judgment.verdict, PairVerdict)
    close = _of_probability(judgment) if pair else ()
    return [*_of_orders(judgment, pair=pair), *_of_cuts(judgment), *close]


def doubts_html(judgment: Judgment) -> str:
    """The reasons for doubt under a title; for a pair without any, a sentence that names the checks."""
    reasons = doubts(judgment)
    if reasons:
        return notice("Why this verdict may be wrong:", *reasons)
    checked = flips(judgment) is False and judgment.probability is not None
    return f'<div class="jl-small">{sentences([_NONE])}</div>' if checked else ""


def _of_orders(judgment: Judgment, *, pair: bool) -> Iterator[str]:
    flipped = flips(judgment)
    if flipped:
        yield "The orders disagree: the verdict depends on which answer stands first, so do not rely on it."
    elif pair and flipped is None and len(judgment.shown) == 1:
        yield "Only one order was judged, so the effect of the position is unknown."


def _of_cuts(judgment: Judgment) -> Iterator[str]:
    """A sentence for each answer that was cut, with the shortest part that the judge read."""
    read: dict[int, tuple[int, int]] = {}
    for shown in judgment.shown:
        for cut in shown.truncations:
            answer = shown.order[cut.answer] + 1
            tokens = (cut.tokens_after, cut.tokens_before)
            read[answer] = min(read.get(answer, tokens), tokens)
    for answer, (after, before) in sorted(read.items()):
        yield f"Answer {answer} was cut: the judge read {after:,} of its {before:,} tokens."


def _of_probability(judgment: Judgment) -> Iterator[str]:
    probability = judgment.probability
    if probability is not None and abs(probability - 0.5) <= CLOSE_THRESHOLD:
        yield f"The call is close: P(first better) {probability:.2f} is at most {CLOSE_THRESHOLD:g} from 0.5."
