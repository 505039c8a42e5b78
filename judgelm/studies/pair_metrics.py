"""Metrics for labelled pairs, with intervals: agreement, position bias, probabilities, and a score histogram.

Source: Gneiting and Raftery (2007), Strictly Proper Scoring Rules, Prediction, and Estimation.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from judgelm.metrics.agreement import LABELS, confusion, confusion_cells, position_cells, scores_of_confusion
from judgelm.metrics.resampling import Estimate, Resampling, estimate, mean, ratio, share, widened
from judgelm.records import Judgment, Winner
from judgelm.studies.pair_labels import JoinedPair, order_labels, winner_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionEstimates:
    """Consistency and position bias over two orders; the first three shares sum to 1."""

    consistency: Estimate
    toward_first: Estimate
    toward_second: Estimate
    delta: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMetrics:
    """Metrics with failures either excluded or counted as ties.

    Attributes:
        majority: agreement if `majority_label`, the most frequent label, is always predicted.
        gain: accuracy minus `majority`, resampled together.
        confusion: counts by label (row) and verdict (column), in the order of `LABELS`.
        position: None unless pairs were judged in both orders.
        decided: accuracy on pairs whose label has a winner.
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
    decided: Estimate | None = None


def pair_metrics(
    pairs: Sequence[JoinedPair], resampling: Resampling, *, failure: int | None = None
) -> PairMetrics | None:
    """Compute all metrics; None if there are no pairs.

    `failure` replaces missing labels of the judge or of an order; None excludes these pairs.
    """
    pairs = [pair for pair in pairs if pair.judged is not None or failure is not None]
    if not pairs:
        return None
    truth = np.array([pair.truth for pair in pairs])
    judged = np.array([failure if pair.judged is None else pair.judged for pair in pairs])
    clusters = [pair.cluster for pair in pairs]
    matrix = confusion(truth, judged)
    commonest = int(np.argmax(matrix.sum(axis=1)))

    def scores(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        matrices = sums.reshape(-1, 3, 3)
        agreement = scores_of_confusion(matrices)
        majority = matrices[:, commonest].sum(axis=1) / matrices.sum(axis=(1, 2))
        winners = matrices[:, [0, 2]]
        decided = ratio(winners[:, 0, 0] + winners[:, 1, 2], winners.sum(axis=(1, 2)))
        return np.column_stack([agreement, majority, agreement[:, 0] - majority, decided])

    accuracy, precision, recall, f1, majority, gain, decided = estimate(
        confusion_cells(truth, judged), scores, clusters, resampling
    )
    winner_clusters = [pair.cluster for pair in pairs if pair.truth != 0]
    return PairMetrics(
        n=len(pairs),
        accuracy=widened(accuracy, clusters),
        precision=precision,
        recall=recall,
        f1=f1,
        majority_label=winner_of(LABELS[commonest]),
        majority=widened(majority, clusters),
        gain=gain,
        confusion=tuple(tuple(row) for row in matrix.tolist()),
        position=_position(pairs, resampling, failure),
        decided=widened(replace(decided, n=len(winner_clusters)), winner_clusters) if winner_clusters else None,
    )


def position_estimates(
    given: NDArray[np.int_], swapped: NDArray[np.int_], clusters: Sequence[Hashable], resampling: Resampling
) -> PositionEstimates:
    """Estimate position bias from labels in sample order, as in `position_cells`."""
    cells = position_cells(given, swapped)
    steady, first, second = (share(column > 0, clusters, resampling) for column in cells.T)

    def leaning(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.abs(sums[:, 1:2] - sums[:, 2:3]) / sums.sum(axis=1, keepdims=True), dtype=np.float64)

    [delta] = estimate(cells, leaning, clusters, resampling)
    if delta.low == delta.high:  # delta is 0 or 1 because all pairs are alike
        delta = widened(delta, clusters)
    return PositionEstimates(consistency=steady, toward_first=first, toward_second=second, delta=delta)


def _position(pairs: Sequence[JoinedPair], resampling: Resampling, failure: int | None) -> PositionEstimates | None:
    paired = []
    for pair in pairs:
        labels = [failure if label is None else label for label in order_labels(pair.orders)]
        if len(labels) == 2 and None not in labels:
            paired.append((*labels, pair.cluster))
    if not paired:
        return None
    given, swapped, clusters = zip(*paired, strict=True)
    return position_estimates(np.array(given), np.array(swapped), clusters, resampling)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilityScores:
    """Brier score and log loss over `n` pairs with a probability and a label with a winner; lower is better.

    `tied_labels` is the number of excluded pairs labelled as ties, and `without` the number without a probability.
    """

    n: int
    tied_labels: int
    without: int
    brier: Estimate | None
    log_loss: Estimate | None


def score_probabilities(rows: Sequence[JoinedPair], resampling: Resampling) -> ProbabilityScores | None:
    """Score the recorded P(first better); None if there are no probabilities."""
    known = [row for row in rows if row.judgment.probability is not None]
    if not known:
        return None
    decided = [row for row in known if row.truth != 0]
    brier = log_loss = None
    if decided:
        probability = np.array([row.judgment.probability for row in decided], dtype=np.float64)
        losses = proper_losses(np.array([row.truth > 0 for row in decided]), probability)
        brier, log_loss = (mean(loss, [row.cluster for row in decided], resampling) for loss in losses.T)
    return ProbabilityScores(
        n=len(decided),
        tied_labels=len(known) - len(decided),
        without=len(rows) - len(known),
        brier=brier,
        log_loss=log_loss,
    )


def proper_losses(first_better: NDArray[np.bool_], probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return squared error and log loss per pair, shape (n, 2); their means equal scikit-learn's scores.

    As in scikit-learn, probabilities are clipped by one float64 epsilon, so the maximum log loss is 36.
    """
    of_outcome = np.where(first_better, probability, 1 - probability)
    epsilon = np.finfo(np.float64).eps
    return np.column_stack([(1 - of_outcome) ** 2, -np.log(np.clip(of_outcome, epsilon, 1 - epsilon))])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreHistogram:
    """Histogram of scores by answer position.

    `not_finite` is the number of orders excluded because a score is not finite (`inf 5` in the original parser).
    """

    edges: tuple[float, ...]
    first: tuple[int, ...]
    second: tuple[int, ...]
    mean_first: float
    mean_second: float
    not_finite: int = 0


def _score_edges(lowest: float, highest: float) -> NDArray[np.float64]:
    low, high = np.floor(lowest + 0.5) - 0.5, np.floor(highest + 0.5) + 0.5
    return np.arange(low, high + 1) if high - low <= 50 else np.linspace(low, high, 21)


def score_histogram(judgments: Sequence[Judgment]) -> ScoreHistogram | None:
    """Build a histogram over all orders, or over pairs graded individually; None if there are no finite scores."""
    pairs = [
        pair
        for judgment in judgments
        for pair in ([order.scores for order in judgment.compared] if judgment.compared else [judgment.scores])
    ]
    shown = [pair[:2] for pair in pairs if pair is not None and len(pair) > 1]
    written = np.array(shown, dtype=np.float64).reshape(-1, 2)
    scores = written[np.isfinite(written).all(axis=1)]
    if not len(scores):
        return None
    edges = _score_edges(scores.min(), scores.max())
    first, second = (np.histogram(scores[:, position], bins=edges)[0].tolist() for position in (0, 1))
    mean_first, mean_second = scores.mean(axis=0).tolist()
    return ScoreHistogram(
        edges=tuple(edges.tolist()),
        first=tuple(first),
        second=tuple(second),
        mean_first=mean_first,
        mean_second=mean_second,
        not_finite=len(written) - len(scores),
    )
