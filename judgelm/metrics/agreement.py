"""Agreement of a judge with labels, annotators, and other judges, and between the two answer orders.

Labels are +1 (first answer better), 0 (tie), and -1 (second better), in arrays of shape (n,). Functions raise
`ValueError` for other labels, different shapes, or n = 0.
"""

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations, compress
from typing import NamedTuple

import numpy as np
from sklearn.metrics import cohen_kappa_score, confusion_matrix
from statsmodels.stats.contingency_tables import mcnemar as mcnemar_test
from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa
from statsmodels.stats.proportion import proportion_confint

from judgelm.metrics.correlation import kappas
from judgelm.metrics.resampling import (
    LEVEL,
    MAX_UNDEFINED,
    Clusters,
    Estimate,
    Flags,
    Floats,
    Ints,
    Resampling,
    bootstrap_sums,
    estimate,
    estimate_of,
    mean,
    ratio,
    share,
    widened,
)

LABELS = (1, 0, -1)
"""Order of rows and columns in confusion matrices: first better, tie, second better."""


def confusion(truth: Ints, predicted: Ints) -> Ints:
    """Count pairs by true label (row) and predicted label (column), in the order of `LABELS`; shape (3, 3)."""
    _check_labels(truth, predicted)
    return np.asarray(confusion_matrix(truth, predicted, labels=LABELS), dtype=np.int_)


def confusion_cells(truth: Ints, predicted: Ints) -> Floats:
    """One-hot encode the cell of each pair in the flattened confusion matrix, shape (n, 9)."""
    _check_labels(truth, predicted)
    return np.asarray(np.eye(9)[3 * (1 - truth) + (1 - predicted)], dtype=np.float64)


def scores_of_confusion(matrices: Floats) -> Floats:
    """Return accuracy and macro precision, recall, and F1, shape (m, 4), for confusion matrices of shape (m, 3, 3).

    As in scikit-learn, macro averages exclude labels that are neither true nor predicted for any pair. A label that is
    never predicted has precision 0.
    """
    hits = np.diagonal(matrices, axis1=1, axis2=2)
    in_truth, in_prediction = matrices.sum(axis=2), matrices.sum(axis=1)
    present = (in_truth + in_prediction) > 0
    scores = ratio(hits, in_prediction), ratio(hits, in_truth), ratio(2 * hits, in_truth + in_prediction)
    n_present = present.sum(axis=1)
    macro = [(np.nan_to_num(score) * present).sum(axis=1) / n_present for score in scores]
    return np.stack([hits.sum(axis=1) / matrices.sum(axis=(1, 2)), *macro], axis=1)


def _check_shapes(what: str, first: Ints | Flags | Floats, second: Ints | Flags | Floats) -> None:
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"{what}: expected two arrays of the same shape (n,), got {first.shape} and {second.shape}")
    if first.size == 0:
        raise ValueError(f"{what}: expected at least one pair")


def _check_labels(truth: Ints, predicted: Ints) -> None:
    _check_shapes("labels", truth, predicted)
    unknown = np.setdiff1d(np.union1d(truth, predicted), LABELS)
    if unknown.size:
        raise ValueError(f"labels: expected +1, 0, or -1, got {unknown.tolist()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanAgreement:
    """Agreement among annotators, and between judge and annotators.

    Attributes:
        human_human: mean share of annotator pairs that agree.
        judge_human: mean share of annotators that the judge agrees with, on the same pairs.
        fleiss_kappa: None if the number of votes varies or all votes are equal.
        annotators: minimum and maximum number of votes on a pair.
    """

    human_human: Estimate
    judge_human: Estimate
    difference: Estimate
    fleiss_kappa: float | None
    annotators: tuple[int, int]


def human_agreement(
    judged: Sequence[int], votes: Sequence[Sequence[int]], clusters: Clusters, resampling: Resampling
) -> HumanAgreement:
    """Compare agreement among annotators with agreement between judge and annotators."""
    if not votes or min(map(len, votes)) < 2:
        raise ValueError("votes: expected at least one pair, with two or more votes each")
    rows = [
        (np.mean([own == vote for vote in pair_votes]), np.mean([a == b for a, b in combinations(pair_votes, 2)]), 1.0)
        for own, pair_votes in zip(judged, votes, strict=True)
    ]
    judge, human, difference = estimate(np.array(rows), _means, clusters, resampling)
    return HumanAgreement(
        human_human=widened(human, clusters),
        judge_human=widened(judge, clusters),
        difference=difference,
        fleiss_kappa=_fleiss(votes),
        annotators=(min(map(len, votes)), max(map(len, votes))),
    )


def _means(sums: Floats) -> Floats:
    judge, human = sums[:, 0] / sums[:, 2], sums[:, 1] / sums[:, 2]
    return np.stack([judge, human, judge - human], axis=1)


def _fleiss(votes: Sequence[Sequence[int]]) -> float | None:
    alike = len({vote for pair_votes in votes for vote in pair_votes}) == 1
    if alike or len({len(pair_votes) for pair_votes in votes}) > 1:
        return None
    return float(fleiss_kappa(aggregate_raters(np.array(votes))[0]))


class McNemar(NamedTuple):
    """Numbers of pairs on which both judges, only one, or neither is right.

    The p-value is from the exact two-sided binomial test, which treats pairs as independent.
    """

    both: int
    only_first: int
    only_second: int
    neither: int
    p_value: float


def paired_difference(
    first: Flags | Floats, second: Flags | Floats, clusters: Clusters, resampling: Resampling
) -> Estimate:
    """Return the first judge's accuracy minus the second's.

    If the difference is the same for all pairs, the interval is based on Wilson's interval for 0 discordant pairs.
    """
    _check_shapes("judges", first, second)
    values = first.astype(np.float64) - second
    difference = mean(values, clusters, resampling)
    if np.ptp(values) > 0:
        return difference
    units = first.size if clusters is None else len(set(clusters))
    _, most = proportion_confint(0, units, alpha=1 - LEVEL, method="wilson")
    low, high = max(-1.0, difference.value - most), min(1.0, difference.value + most)
    return Estimate(value=difference.value, low=float(low), high=float(high), n=difference.n)


def mcnemar(first: Flags, second: Flags) -> McNemar:
    """Test whether two judges are right equally often.

    Source: McNemar (1947), Note on the sampling error of the difference between correlated proportions or percentages.
    """
    _check_shapes("judges", first, second)
    both, neither = int((first & second).sum()), int((~first & ~second).sum())
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    p_value = float(mcnemar_test([[both, only_first], [only_second, neither]], exact=True).pvalue)
    return McNemar(both=both, only_first=only_first, only_second=only_second, neither=neither, p_value=p_value)


def cohens_kappa(first: Ints, second: Ints, clusters: Clusters, resampling: Resampling) -> Estimate | None:
    """Return unweighted Cohen's kappa; None if all labels are equal.

    Resamples with only one label are excluded; if more than 5 % are excluded, the interval is NaN.

    Source: Cohen (1960), A coefficient of agreement for nominal scales.
    """
    cells = confusion_cells(first, second)
    if np.union1d(first, second).size == 1:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a judge that always gives one label is not an error
        value = float(cohen_kappa_score(first, second, labels=LABELS))
    samples = kappas(bootstrap_sums(cells, clusters, resampling).reshape(-1, 3, 3), quadratic=False)
    return estimate_of(value, samples, first.size, MAX_UNDEFINED)


def position_cells(given: Ints, swapped: Ints) -> Floats:
    """One-hot encode each pair as consistent, biased to the first position, or biased to the second; shape (n, 3).

    Labels are in sample order, so `given` equals `swapped` for an unbiased judge.

    Source: JudgeLM, section 3.2 and Table 4. In the original code, the mean of column 1 is `perfer_before_rate`.
    """
    _check_shapes("orders", given, swapped)
    return np.stack([swapped == given, swapped < given, swapped > given], axis=1).astype(np.float64)


class TwoOrders(NamedTuple):
    """Scores over both orders of n pairs; orders without a verdict count as wrong in the first three shares.

    Attributes:
        unreadable: number of orders without a verdict, out of 2 n.
        equal: agreement between the orders as counted by LLMBar, where two unreadable orders agree.
        agree: agreement between the orders if both have a verdict.
        kappa: Cohen's kappa between the orders if both have a verdict; the other kappas are with the labels.
    """

    n: int
    unreadable: int
    given_right: Estimate
    swapped_right: Estimate
    both_right: Estimate
    equal: Estimate
    agree: Estimate | None
    kappa: Estimate | None
    given_kappa: Estimate | None
    swapped_kappa: Estimate | None


def two_orders(
    given: Sequence[int | None],
    swapped: Sequence[int | None],
    truth: Sequence[int],
    clusters: Sequence[Hashable],
    resampling: Resampling,
) -> TwoOrders:
    """Compute LLMBar's scores and kappas over both orders.

    Verdicts are in sample order, or None if unreadable. LLMBar's `kappa_False` and `kappa_True` cannot distinguish a
    win for the second answer from an unreadable reply; these kappas can.

    Source: Zeng et al. 2024, LLMBar, LLMEvaluator/evaluate.py.
    """
    first, second, right = (_with_nan(labels) for labels in (given, swapped, truth))
    if not len(right) or not len(first) == len(second) == len(right) == len(clusters):
        raise ValueError(f"two orders: expected columns of equal length, got {len(first)}, {len(second)}, {len(right)}")
    neither = np.isnan(first) & np.isnan(second)
    readable = ~np.isnan(first) & ~np.isnan(second)
    read_keys = list(compress(clusters, readable))

    def kappa(labels: Floats, others: Floats) -> Estimate | None:
        rows = ~np.isnan(labels) & ~np.isnan(others)
        if not rows.any():
            return None
        keys = list(compress(clusters, rows))
        return cohens_kappa(labels[rows].astype(int), others[rows].astype(int), keys, resampling)

    return TwoOrders(
        n=len(right),
        unreadable=int(np.isnan(first).sum() + np.isnan(second).sum()),
        given_right=share(first == right, clusters, resampling),
        swapped_right=share(second == right, clusters, resampling),
        both_right=share((first == right) & (second == right), clusters, resampling),
        equal=share((first == second) | neither, clusters, resampling),
        agree=share((first == second)[readable], read_keys, resampling) if read_keys else None,
        kappa=kappa(first, second),
        given_kappa=kappa(first, right),
        swapped_kappa=kappa(second, right),
    )


def _with_nan(labels: Sequence[int | None]) -> Floats:
    return np.array([np.nan if label is None else label for label in labels], dtype=np.float64)
