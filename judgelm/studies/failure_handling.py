"""The numbers of a set of labelled pairs, each with its interval, once failures have been dealt with."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from judgelm.metrics.agreement import LABELS, confusion, confusion_cells, scores_of_confusion
from judgelm.metrics.position import position_cells
from judgelm.metrics.resampling import Estimate, Resampling, estimate, share, widened
from judgelm.records import Winner
from judgelm.studies.order_labels import winner_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPair:
    """Integer labels in sample order; `given` and `swapped` are None unless both orders said something."""

    truth: int
    judged: int
    given: int | None
    swapped: int | None
    cluster: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionEstimates:
    """`metrics.position.PositionBias` with intervals; the first three shares sum to 1."""

    consistency: Estimate
    toward_first: Estimate
    toward_second: Estimate
    delta: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """Every number under one treatment of failures.

    Attributes:
        majority_label: the most frequent label of these pairs.
        majority: agreement of always answering that label.
        gain: accuracy minus `majority`, resampled together.
        confusion: counts; row i is the label `LABELS[i]`, column j the judge's answer `LABELS[j]`.
        position: None unless pairs were judged in both orders.
    """

    n: int
    accuracy: Estimate
    precision: Estimate
    recall: Estimate
    f1: Estimate
    majority_label: Winner
    majority: Estimate
    gain: Estimate
    confusion: tuple[tuple[int, ...], ...]
    position: PositionEstimates | None


def treat(pairs: Sequence[LabelledPair], how: Resampling) -> Treatment:
    """All numbers of these pairs.

    Intervals are bootstrap percentiles over clusters; a share of exactly 0 or 1 gets Wilson's (`resampling.widened`).

    Raises:
        ValueError: there is no pair.
    """
    truth, judged = np.array([pair.truth for pair in pairs]), np.array([pair.judged for pair in pairs])
    clusters = [pair.cluster for pair in pairs]
    matrix = confusion(truth, judged)
    commonest = int(np.argmax(matrix.sum(axis=1)))

    def scores(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        matrices = sums.reshape(-1, 3, 3)
        found = scores_of_confusion(matrices)
        majority = matrices[:, commonest].sum(axis=1) / matrices.sum(axis=(1, 2))
        return np.column_stack([found, majority, found[:, 0] - majority])

    accuracy, precision, recall, f1, majority, gain = estimate(confusion_cells(truth, judged), scores, clusters, how)
    return Treatment(
        n=len(pairs),
        accuracy=widened(accuracy, clusters),
        precision=precision,
        recall=recall,
        f1=f1,
        majority_label=winner_of(LABELS[commonest]),
        majority=widened(majority, clusters),
        gain=gain,
        confusion=tuple(tuple(row) for row in matrix.tolist()),
        position=_position(pairs, how),
    )


def position_estimates(
    given: NDArray[np.int_], swapped: NDArray[np.int_], clusters: Sequence[Hashable], how: Resampling
) -> PositionEstimates:
    """`metrics.position.position_bias` with intervals; labels and errors are its, clusters those of `treat`."""
    cells = position_cells(given, swapped)
    steady, first, second = (share(column > 0, clusters, how) for column in cells.T)
    [delta] = estimate(cells, _delta, clusters, how)
    if delta.low == delta.high:  # every pair behaves alike: 0 or 1
        delta = widened(delta, clusters)
    return PositionEstimates(consistency=steady, toward_first=first, toward_second=second, delta=delta)


def _position(pairs: Sequence[LabelledPair], how: Resampling) -> PositionEstimates | None:
    both = [(pair.given, pair.swapped, pair.cluster) for pair in pairs]
    kept = [(given, swapped, cluster) for given, swapped, cluster in both if given is not None and swapped is not None]
    if not kept:
        return None
    given, swapped = np.array([row[0] for row in kept]), np.array([row[1] for row in kept])
    return position_estimates(given, swapped, [row[2] for row in kept], how)


def _delta(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.abs(sums[:, 1:2] - sums[:, 2:3]) / sums.sum(axis=1, keepdims=True), dtype=np.float64)
