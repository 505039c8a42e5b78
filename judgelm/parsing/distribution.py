"""The judge's probabilities of all score lines: what `probability`, expected scores and calibrated ties rest on.

An engine says how probable each score line is as the reply's beginning (`Completion.candidate_logprobs`); here that
becomes expected scores and P(first better). What no score line covers is reported as unassigned, never spread over
the others without saying so.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple

from judgelm.errors import ConfigError
from judgelm.records import GradeDistribution, PairDistribution, Winner

OrderRule = Literal["mean", "given", "tie", "probability"]
"""Two orders into one verdict: `mean` compares the mean scores, `given` takes the verdict of the given order (JudgeLM's
protocol; the swapped order serves consistency alone), `tie` calls a conflict a tie (PandaLM's protocol), `probability`
compares P(first better), the mean over the orders, with 0.5."""

LabelRule = Literal["as_judged", OrderRule]
"""Two orders into the label that is compared: an order rule, or `as_judged`, the verdict that the run decided on."""

MOST_VALUES = 100
"""Scores per answer; two answers have the square of it as score lines."""

LEAST_ASSIGNED = 0.5
"""With less probability on all score lines together, P(first better) would be an invention."""

_LEAST_LISTED = 1e-4


class ScoreLines(NamedTuple):
    """All score lines of a judge, in one order throughout.

    Attributes:
        values: the scores an answer can get, ascending.
        pairs: (s1, s2) of each line.
        texts: each line as training writes it: `8 6`, `8.5 6`.
    """

    values: tuple[float, ...]
    pairs: tuple[tuple[float, float], ...]
    texts: tuple[str, ...]


@cache
def score_lines(scale: tuple[float, float], step: float) -> ScoreLines:
    """Every line of two scores that are multiples of `step` on the judge's scale, both ends included.

    Raises:
        ConfigError: the step is not positive, or the scale holds fewer than 2 or more than `MOST_VALUES` of them.

    Example:
        >>> score_lines((1, 2), 1).texts
        ('1 1', '1 2', '2 1', '2 2')
    """
    low, high = scale
    if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(step) and step > 0):
        raise ConfigError(f"scale {low:g} to {high:g} in steps of {step:g}: the step must be a positive number")
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if not 2 <= last - first + 1 <= MOST_VALUES:
        raise ConfigError(
            f"scale {low:g} to {high:g} in steps of {step:g} holds {max(0, last - first + 1)} scores; a distribution "
            f"or a retry needs 2 to {MOST_VALUES}, so correct scale or step in the model's judge.json"
        )
    numbers = [f"{multiple * step:g}" for multiple in range(first, last + 1)]
    values = tuple(float(text) for text in numbers)
    return ScoreLines(
        values=values,
        pairs=tuple((s1, s2) for s1 in values for s2 in values),
        texts=tuple(f"{first} {second}" for first in numbers for second in numbers),
    )


def score_grammar(lines: ScoreLines) -> str:
    """A regular expression for exactly these lines, with the end of the line or without.

    The end is allowed, since a judge that has learned to write it would else be pushed from `8 1` to `8 10`.
    """
    numbers = sorted((f"{value:g}" for value in lines.values), key=len, reverse=True)
    score = "|".join(text.replace(".", r"\.") for text in numbers)
    return rf"({score}) ({score})\n?"


def pair_distribution(lines: ScoreLines, logprobs: Sequence[float], approximation: str = "") -> PairDistribution:
    """The distribution over score lines.

    Args:
        lines: n score lines.
        logprobs: shape (n,), natural logs of disjoint probabilities, as `Completion.candidate_logprobs`.
        approximation: in what they are not exact.

    Returns:
        Expected scores, `first_better` and `tie` are NaN where nothing is assigned: a mean of nothing is not 0. The
        probabilities of `likeliest` are rounded to six places, since they are most of a run file's bytes.

    Raises:
        ValueError: there are not as many log-probabilities as lines.

    Example:
        >>> distribution = pair_distribution(score_lines((1, 2), 1), [math.log(p) for p in (0.1, 0.2, 0.6, 0.1)])
        >>> round(distribution.first_better, 3), round(distribution.tie, 3)
        (0.7, 0.2)
    """
    masses = [(s1, s2, math.exp(logprob)) for (s1, s2), logprob in zip(lines.pairs, logprobs, strict=True)]
    assigned = math.fsum(mass for _, _, mass in masses)

    def mean(values: list[float]) -> float:
        return math.fsum(values) / assigned if assigned else math.nan

    tie = mean([mass for s1, s2, mass in masses if s1 == s2])
    listed = [(s1, s2, round(mass, 6)) for s1, s2, mass in masses if mass >= _LEAST_LISTED]
    return PairDistribution(
        expected=(mean([s1 * mass for s1, _, mass in masses]), mean([s2 * mass for _, s2, mass in masses])),
        first_better=min(mean([mass for s1, s2, mass in masses if s1 > s2]) + tie / 2, 1.0),  # min keeps a first NaN
        tie=tie,
        unassigned=max(0.0, 1 - assigned),
        likeliest=tuple(sorted(listed, key=lambda line: (-line[2], line))),
        approximation=approximation,
    )


def grade_distribution(scores: Sequence[float], logprobs: Sequence[float], approximation: str) -> GradeDistribution:
    """The distribution over the scores of one answer.

    Args:
        scores: shape (n,), the score that each candidate gives the answer; a score may occur several times.
        logprobs: shape (n,), as for `pair_distribution`.
        approximation: in what they are not exact.

    Returns:
        As for `pair_distribution`: `expected` is NaN where nothing is assigned.

    Raises:
        ValueError: there are not as many log-probabilities as scores.
    """
    masses: dict[float, float] = {}
    for score, logprob in zip(scores, logprobs, strict=True):
        masses[score] = masses.get(score, 0.0) + math.exp(logprob)
    assigned = math.fsum(masses.values())
    listed = [(score, round(mass, 6)) for score, mass in masses.items() if mass >= _LEAST_LISTED]
    return GradeDistribution(
        expected=math.fsum(score * mass for score, mass in masses.items()) / assigned if assigned else math.nan,
        unassigned=max(0.0, 1 - assigned),
        likeliest=tuple(sorted(listed, key=lambda line: (-line[1], line[0]))),
        approximation=approximation,
    )


def is_assigned(distribution: PairDistribution) -> bool:
    """True if the score lines have enough probability for P(first better) to mean something."""
    return 1 - distribution.unassigned >= LEAST_ASSIGNED


def antisymmetrised(orders: Sequence[tuple[tuple[int, ...], PairDistribution]]) -> float | None:
    """P(the sample's first answer is better), the mean over the orders shown; exchanging the answers gives 1 - p.

    Args:
        orders: (order, distribution in that order); `(1, 0)` showed the answers exchanged.

    Returns:
        In [0, 1]; None where there is no order, or where one has less than `LEAST_ASSIGNED` on its score lines.
    """
    if not orders or not all(is_assigned(distribution) for _, distribution in orders):
        return None
    first = [
        distribution.first_better if order == (0, 1) else 1 - distribution.first_better
        for order, distribution in orders
    ]
    return math.fsum(first) / len(first)


def winner_by(probability: float, tie_threshold: float) -> Winner:
    """The likelier winner; a tie within `tie_threshold` around 0.5, its ends included.

    Example:
        >>> winner_by(0.8, tie_threshold=0.05), winner_by(0.55, tie_threshold=0.05), winner_by(0.1, tie_threshold=0.05)
        (1, 'tie', 2)
    """
    lead = probability - 0.5
    if abs(lead) <= tie_threshold + 1e-9:  # 0.55 - 0.5 is a little more than 0.05
        return "tie"
    return 1 if lead > 0 else 2
