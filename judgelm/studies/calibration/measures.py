"""Measures of a set of probabilities, for `judgelm.studies.calibration.study`."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from judgelm.errors import ConfigError
from judgelm.metrics.calibration import (
    Bin,
    Binning,
    CalibrationError,
    Scaling,
    bin_edges,
    calibration_error,
    error_cells,
    errors_of_sums,
    reliability,
)
from judgelm.metrics.resampling import Estimate, Resampling, estimate
from judgelm.studies.pair_labels import JoinedPair
from judgelm.studies.pair_metrics import proper_losses


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOptions:
    """Options of the calibration study.

    Attributes:
        bins: of the reliability curve and the calibration error.
        binning: bins of equal width, or with as many pairs in each.
        fit_share: share of the questions that scalings are fitted on, in [0, 1); 0 fits none.
        resampling: seed (of the split, too) and number of resamples.
    """

    bins: int = 10
    binning: Binning = "uniform"
    fit_share: float = 0.5
    resampling: Resampling = field(default_factory=Resampling)

    def __post_init__(self) -> None:
        if not 0 <= self.fit_share < 1:
            raise ConfigError(f"fit share {self.fit_share}: expected a share of the questions, 0 to below 1")
        if self.bins < 2:
            raise ConfigError(f"bins {self.bins}: expected 2 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Pairs with a probability and a label that names a winner.

    Attributes:
        outcome: shape (n,), whether the first answer is better.
        probability: shape (n,), P(first better).
        clusters: n keys.
    """

    outcome: NDArray[np.bool_]
    probability: NDArray[np.float64]
    clusters: Sequence[Hashable]

    def part(self, indices: NDArray[np.int_]) -> "Slice":
        """Some of the pairs, by place."""
        return Slice(
            outcome=self.outcome[indices],
            probability=self.probability[indices],
            clusters=[self.clusters[index] for index in indices],
        )

    def scaled(self, scaling: Scaling) -> "Slice":
        """The same pairs with other probabilities."""
        return Slice(outcome=self.outcome, probability=scaling(self.probability), clusters=self.clusters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Scores of one set of probabilities; `overconfidence` is mean winner's probability minus share right."""

    name: str
    brier: Estimate
    log_loss: Estimate
    error: CalibrationError
    overconfidence: Estimate
    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """A scaling's numbers minus those without it, over the same pairs; below 0 is better."""

    name: str
    brier: Estimate
    log_loss: Estimate
    error: Estimate


def quality(name: str, pairs: Slice, options: CalibrationOptions) -> Quality:
    """All numbers of one set of probabilities."""
    resampling = options.resampling
    edges = bin_edges(pairs.probability, options.bins, options.binning)
    brier, log_loss, overconfidence = estimate(values(pairs), means, pairs.clusters, resampling)
    return Quality(
        name=name,
        brier=brier,
        log_loss=log_loss,
        error=calibration_error(pairs.outcome, pairs.probability, edges, pairs.clusters, resampling),
        overconfidence=overconfidence,
        bins=reliability(pairs.outcome, pairs.probability, edges, pairs.clusters, resampling),
    )


def values(pairs: Slice) -> NDArray[np.float64]:
    """Summands of resampling, shape (n, 4): squared error, log loss, winner's probability minus being right, 1.

    A probability of exactly 0.5 names no winner and is half right.
    """
    sure = np.maximum(pairs.probability, 1 - pairs.probability)
    right = np.where(pairs.probability == 0.5, 0.5, (pairs.probability > 0.5) == pairs.outcome)
    losses = proper_losses(pairs.outcome, pairs.probability)
    return np.column_stack([losses, sure - right, np.ones(pairs.outcome.size)])


def means(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means of all columns but the last, which counts."""
    return sums[:, :-1] / sums[:, -1:]


def gain(name: str, before: Slice, after: Slice, options: CalibrationOptions) -> Gain:
    """Differences resampled together; each side's bins are its own."""
    resampling = options.resampling
    losses = proper_losses(after.outcome, after.probability) - proper_losses(before.outcome, before.probability)
    counted = np.column_stack([losses, np.ones(before.outcome.size)])
    brier, log_loss = estimate(counted, means, before.clusters, resampling)
    cells = [
        error_cells(side.outcome, side.probability, bin_edges(side.probability, options.bins, options.binning))
        for side in (before, after)
    ]
    width = cells[0].shape[1]

    def difference(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return (errors_of_sums(sums[:, width:]) - errors_of_sums(sums[:, :width]))[:, None]

    [error] = estimate(np.hstack(cells), difference, before.clusters, resampling)
    return Gain(name=name, brier=brier, log_loss=log_loss, error=error)


def slice_of(rows: Sequence[JoinedPair]) -> Slice:
    """Rows with a probability and a label that is no tie, as arrays."""
    return Slice(
        outcome=np.array([row.truth > 0 for row in rows]),
        probability=np.array([row.judgment.probability for row in rows], dtype=np.float64),
        clusters=[row.cluster for row in rows],
    )
