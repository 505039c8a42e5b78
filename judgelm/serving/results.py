"""What the judge's judgments say of a client's case: verdict, scores, probabilities and draws, out of distributions.

The judge's own scale, whatever it is, becomes 1 to 10. Where there is no distribution to rest on, the score line that
the judge wrote stands for all of it, and a note says so.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

from judgelm.dialects.contract import JudgeResult, JudgeTask
from judgelm.parsing.distribution import LEAST_ASSIGNED
from judgelm.records import GradeDistribution, Judgment, PairDistribution, Shown, Winner

_LOWEST, _HIGHEST = 1.0, 10.0
_DIGITS = 9
"""Of probabilities and scores: no noise of floats where a half, or a client's limit, decides."""

Line = tuple[tuple[float, ...], float]
"""Scores in the order that the client shows, and their probability."""


class Found(NamedTuple):
    """A finding, and what is to be known about it, in words."""

    finding: JudgeResult
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PromptScores:
    """What one prompt says, in the order that the client shows.

    Attributes:
        lines: score lines with their probabilities, which need not sum to 1.
        expected: mean of each answer's score.
        first_better: P(the first is better), ties counted half; of a pair.
        tie: P(both have the same score); of a pair.
        note: why this is the score line alone; empty where it is a distribution.
    """

    lines: tuple[Line, ...]
    expected: tuple[float, ...]
    first_better: float = 0.5
    tie: float = 0.0
    note: str = ""


def judge_result(case: JudgeTask, judgment: Judgment, *, scale: tuple[float, float], draws: int) -> Found:
    """What a judgment with a verdict says of a case.

    Args:
        case: what the client wants judged.
        judgment: of the question that `asking.questions_of` made of it; its `sample_id` seeds the draws.
        scale: lowest and highest score of the judge.
        draws: how many score lines to draw.
    """
    believed = [_prompt_scores(shown) for shown in judgment.shown if shown.scores is not None]
    notes = [case.doubt, *(one.note for one in believed), *(note for shown in judgment.shown for note in _notes(shown))]
    lines = _on_ten((line for one in believed for line in one.lines), scale)
    expected = tuple(_to_ten(_mean(column), scale) for column in zip(*(one.expected for one in believed), strict=True))
    pair = len(expected) == 2
    first_better = _mean([one.first_better for one in believed]) if pair else None
    tie = _mean([one.tie for one in believed]) if pair else None
    single = case.kind in ("grade", "label")
    above = [share for scores, share in lines if scores[0] > (_LOWEST + _HIGHEST) / 2]
    finding = JudgeResult(
        winner=None if first_better is None or tie is None else likeliest_winner(first_better, tie),
        scores=expected,
        first_better=first_better,
        tie=tie,
        draws=_drawn(lines, judgment.sample_id, draws),
        grades=tuple((score, share) for (score,), share in lines) if single else (),
        correct=round(fsum(above), _DIGITS) if single else None,
        reason=judgment.reason,
    )
    return Found(finding, tuple(dict.fromkeys(note for note in notes if note)))


def likeliest_winner(first_better: float, tie: float) -> Winner:
    """The likeliest of three: the first is better, the second is, or none; a tie where both are as likely.

    Args:
        first_better: P(the first is better), ties counted half, in [0, 1].
        tie: P(both have the same score), in [0, 1].
    """
    first, second = first_better - tie / 2, 1 - first_better - tie / 2
    lead = round(first - second, _DIGITS)
    if lead == 0 or round(tie - max(first, second), _DIGITS) > 0:
        return "tie"
    return 1 if lead > 0 else 2


def _prompt_scores(shown: Shown) -> _PromptScores:
    """What a prompt's distribution says, or its score line alone where there is none to rest on."""
    assert shown.scores is not None, "a prompt without scores says nothing"
    distribution = shown.distribution or shown.grades
    if distribution is not None and 1 - distribution.unassigned >= LEAST_ASSIGNED:
        return _of_pair(shown, distribution) if isinstance(distribution, PairDistribution) else _of_grades(distribution)
    scores = tuple(score for _, score in sorted(zip(shown.order, shown.scores, strict=True)))
    first, last = scores[0], scores[-1]
    return _PromptScores(
        lines=((scores, 1.0),),
        expected=scores,
        first_better=0.5 if first == last else float(first > last),
        tie=float(first == last),
        note=_why_alone(shown, distribution),
    )


def _why_alone(shown: Shown, distribution: PairDistribution | GradeDistribution | None) -> str:
    if distribution is not None:
        share = 1 - distribution.unassigned
        return f"score lines have {share:.2g} of the probability together; the one written stands for all"
    if len(shown.order) > 2:
        return "three and more answers are judged by the score line alone, without probabilities"
    return "the engine gives no probabilities; the score line written stands for all"


def _of_pair(shown: Shown, found: PairDistribution) -> _PromptScores:
    swapped = shown.order == (1, 0)
    first, second = found.expected
    listed = [(s1, s2, share) for s1, s2, share in found.likeliest] or [(first, second, 1.0)]
    whole = fsum(share for _, _, share in listed)
    return _PromptScores(
        lines=tuple(((s2, s1) if swapped else (s1, s2), share / whole) for s1, s2, share in listed),
        expected=(second, first) if swapped else (first, second),
        first_better=1 - found.first_better if swapped else found.first_better,
        tie=found.tie,
    )


def _of_grades(found: GradeDistribution) -> _PromptScores:
    listed = found.likeliest or ((found.expected, 1.0),)
    whole = fsum(share for _, share in listed)
    return _PromptScores(lines=tuple(((score,), share / whole) for score, share in listed), expected=(found.expected,))


def _notes(shown: Shown) -> list[str]:
    """What was cut, what is not exact, and why there is no reason."""
    notes = [f"an answer was cut from {one.tokens_before} to {one.tokens_after} tokens" for one in shown.truncations]
    distribution = shown.distribution or shown.grades
    if distribution is not None and distribution.approximation:
        notes.append(f"the probabilities are not exact: {distribution.approximation}")
    if (lack := shown.reason_failure) is not None:
        notes.append(f"the judge's reason: {lack.code}{f', {lack.why or lack.text}' if lack.why or lack.text else ''}")
    return notes


def _on_ten(lines: Iterable[Line], scale: tuple[float, float]) -> tuple[Line, ...]:
    """The lines of all prompts on 1 to 10, equal ones put together, likeliest first; their probabilities sum to 1."""
    shares: dict[tuple[float, ...], float] = {}
    for scores, share in lines:
        place = tuple(_to_ten(score, scale) for score in scores)
        shares[place] = shares.get(place, 0.0) + share
    whole = fsum(shares.values())
    return tuple(
        sorted(((scores, share / whole) for scores, share in shares.items()), key=lambda one: (-one[1], one[0]))
    )


def _to_ten(score: float, scale: tuple[float, float]) -> float:
    low, high = scale
    return round(_LOWEST + (score - low) / (high - low) * (_HIGHEST - _LOWEST), _DIGITS)


def _mean(values: Sequence[float]) -> float:
    return round(fsum(values) / len(values), _DIGITS)


def _drawn(lines: Sequence[Line], seed: str, count: int) -> tuple[tuple[float, ...], ...]:
    """Score lines by their probabilities; the first ones stay the same when more are drawn."""
    draw = random.Random(f"draws {seed}")
    return tuple(draw.choices([scores for scores, _ in lines], [share for _, share in lines], k=count))
