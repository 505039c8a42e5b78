"""Figures of verdicts against labels.

A verdict is P(first better) in each order, put back in sample order; a baseline's orders are alike. A failed order has
NaN: such a pair is never right, and never a tie.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.human_labels.sets import Protocol
from judgelm.metrics.calibration import bin_edges, calibration_error, fit_temperature
from judgelm.metrics.resampling import Estimate, Resampling, mean, widened
from judgelm.studies.pair_metrics import PositionEstimates, position_estimates

Floats = NDArray[np.float64]
Labels = NDArray[np.int_]
BANDS = ((1.0, 1.1), (1.1, 1.5), (1.5, 3.0), (3.0, None))
"""Of the longer answer's characters over the shorter's: above the first number, in the first band from it, up to the
second."""

FITTED_ON = 100
_FAILED = 9
"""Label of a failed order or pair, which no true label equals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """P(first better) of n pairs as given and with the answers exchanged, both in sample order; NaN where failed."""

    given: Floats
    swapped: Floats

    @classmethod
    def of_baseline(cls, probability: Floats) -> "Verdicts":
        """Verdicts that do not depend on the order."""
        return cls(given=probability, swapped=probability)

    @property
    def probability(self) -> Floats:
        """Antisymmetrised P(first better), shape (n,)."""
        return (self.given + self.swapped) / 2

    def part(self, chosen: NDArray[np.int_]) -> "Verdicts":
        """Some of the pairs, by index."""
        return Verdicts(given=self.given[chosen], swapped=self.swapped[chosen])


def labels_by(probability: Floats, tie_threshold: float) -> Labels:
    """+1, 0, -1, shape (n,): a tie within the threshold around 0.5, its ends included; `_FAILED` for NaN."""
    lead = probability - 0.5
    named = np.where(np.abs(lead) <= tie_threshold + 1e-9, 0, np.sign(lead))
    return np.where(np.isnan(probability), _FAILED, named).astype(int)


def agreement_credits(verdicts: Verdicts, truth: Labels, tie_threshold: float) -> Floats:
    """1 where the verdict by P is the label, shape (n,)."""
    return _credit(labels_by(verdicts.probability, tie_threshold) == truth)


def decided_credits(probability: Floats, truth: Labels) -> Floats:
    """1 where P names the better answer, 0.5 where it is exactly 0.5; labels must name a winner."""
    right = np.where(probability == 0.5, 0.5, (probability > 0.5) == (truth > 0))
    return np.where(np.isnan(probability), 0.0, right).astype(np.float64)


def protocol_credits(verdicts: Verdicts, truth: Labels, protocol: Protocol, tie_threshold: float) -> Floats:
    """Each pair's credit by the authors' protocol, in [0, 1], shape (n,)."""
    given, swapped = labels_by(verdicts.given, tie_threshold), labels_by(verdicts.swapped, tie_threshold)
    if protocol == "conflict_is_tie":
        failed = (given == _FAILED) | (swapped == _FAILED)
        return _credit((np.where(given == swapped, given, 0) == truth) & ~failed)
    if protocol == "probability":
        return agreement_credits(verdicts, truth, tie_threshold)
    right = _credit(given == truth) + _credit(swapped == truth)
    if protocol == "mean_of_orders":
        return right / 2
    if protocol == "every_order":
        return _credit(right == 2)
    return _credit(right > _credit(given == -truth) + _credit(swapped == -truth))


def _credit(right: NDArray[np.bool_]) -> Floats:
    return right.astype(np.float64)


def share_of(credit: Floats, clusters: Sequence[Hashable], resampling: Resampling) -> Estimate:
    """Mean credit with its interval."""
    return widened(mean(credit, clusters, resampling), clusters)


def difference(first: Floats, second: Floats, clusters: Sequence[Hashable], resampling: Resampling) -> Estimate:
    """Mean of the first's credits minus the second's over the same pairs, resampled together."""
    return mean(first - second, clusters, resampling)


def fit_tie_threshold(probability: Floats, truth: Labels) -> float:
    """The tie threshold of the highest agreement; of several the smallest.

    Args:
        probability: shape (n,), P(first better) of labelled pairs that no figure is taken of.
        truth: shape (n,).
    """
    candidates = np.concatenate([[0.0], np.unique(np.abs(probability[~np.isnan(probability)] - 0.5))])
    hits = [(labels_by(probability, float(threshold)) == truth).sum() for threshold in candidates]
    return float(candidates[int(np.argmax(hits))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Expected calibration error over decided labels, ten bins.

    Attributes:
        before: of P as it is, over all decided pairs; `chance` is a calibrated judge's with these probabilities.
        temperature: fitted on `FITTED_ON` dev labels; None where none fits best, or there are no dev labels.
        after: with that temperature, over all decided pairs.
        own_temperature: fitted on as many labels of this set.
        own_after: with that temperature, over the pairs of other questions; None where fewer than 100 are left.
        own_chance: as `chance`, of `own_after`.
    """

    before: Estimate
    chance: float
    temperature: float | None = None
    after: Estimate | None = None
    own_temperature: float | None = None
    own_after: Estimate | None = None
    own_chance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Pairs whose label names a winner and whose verdict did not fail."""

    outcome: NDArray[np.bool_]
    probability: Floats
    questions: list[str]

    def part(self, chosen: NDArray[np.int_]) -> "Decided":
        """Some of the pairs, by index."""
        questions = [self.questions[index] for index in chosen]
        return Decided(outcome=self.outcome[chosen], probability=self.probability[chosen], questions=questions)


def decided(probability: Floats, truth: Labels, questions: Sequence[str]) -> Decided:
    """The pairs that calibration is about."""
    chosen = np.flatnonzero((truth != 0) & ~np.isnan(probability))
    return Decided(
        outcome=truth[chosen] > 0, probability=probability[chosen], questions=[questions[index] for index in chosen]
    )


def calibration(pairs: Decided, dev: Decided | None, resampling: Resampling) -> Calibration:
    """Calibration as it is, with a temperature from dev labels, and with one from labels of the set itself.

    A temperature has no intercept, so that exchanging the answers still gives 1 - p.
    """
    before, chance = _error(pairs, 1.0, resampling)
    fitted_values: dict[str, float | Estimate] = {}
    if dev is not None and (shared := _temperature(dev, resampling)) is not None:
        fitted_values |= {"temperature": shared, "after": _error(pairs, shared, resampling)[0]}
    fitted, rest = _own_split(pairs, resampling.seed)
    if rest.outcome.size >= FITTED_ON // 2 and (own := _temperature(fitted, resampling)) is not None:
        error, own_chance = _error(rest, own, resampling)
        fitted_values |= {"own_temperature": own, "own_after": error, "own_chance": own_chance}
    return Calibration(before=before, chance=chance, **fitted_values)  # type: ignore[arg-type]


def _own_split(pairs: Decided, seed: int) -> tuple[Decided, Decided]:
    """Whole questions, in an order that the seed decides, until `FITTED_ON` pairs are there; and the others."""
    names = np.array(sorted(set(pairs.questions)))
    rank = {name: index for index, name in enumerate(np.random.default_rng(seed).permutation(names).tolist())}
    order = np.argsort([rank[name] for name in pairs.questions], kind="stable")
    last = rank[pairs.questions[order[min(FITTED_ON, len(order)) - 1]]]
    inside = np.array([rank[name] <= last for name in pairs.questions])
    return pairs.part(np.flatnonzero(inside)), pairs.part(np.flatnonzero(~inside))


def _temperature(pairs: Decided, resampling: Resampling) -> float | None:
    temperature = fit_temperature(pairs.outcome, pairs.probability, pairs.questions, resampling)
    return None if temperature is None else temperature.value


def _error(pairs: Decided, temperature: float, resampling: Resampling) -> tuple[Estimate, float]:
    odds = np.log(np.clip(pairs.probability, 1e-6, 1 - 1e-6)) - np.log(np.clip(1 - pairs.probability, 1e-6, 1 - 1e-6))
    scaled = 1 / (1 + np.exp(-odds / temperature))
    result = calibration_error(pairs.outcome, scaled, bin_edges(10), pairs.questions, resampling)
    return result.error, result.by_chance


def position(verdicts: Verdicts, questions: Sequence[str], resampling: Resampling) -> PositionEstimates | None:
    """Consistency of both orders, each order's winner by its own P, and the lean of the rest; None without a pair."""
    chosen = np.flatnonzero(~np.isnan(verdicts.probability))
    if not chosen.size:
        return None
    given, swapped = (labels_by(side[chosen], 0.0) for side in (verdicts.given, verdicts.swapped))
    return position_estimates(given, swapped, [questions[index] for index in chosen], resampling)
