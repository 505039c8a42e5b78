"""A judge asked in both orders, counted as LLMBar's makers do, with the kappas that their file gets wrong."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from judgelm.metrics.paired import cohens_kappa
from judgelm.metrics.resampling import Estimate, Resampling, share


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoOrders:
    """Counts over both orders of n pairs. In the first four shares an unreadable order is wrong, and n is all pairs.

    Attributes:
        n: pairs.
        unreadable: orders without a verdict, of 2 n.
        given_right: share of pairs judged right as given; `swapped_right` with the answers exchanged.
        both_right: share judged right in both orders.
        equal: LLMBar's count: both orders say the same, and two unreadable ones do so, too.
        agree: share of the pairs read in both orders on which they say the same; None where there is none.
        kappa: Cohen's, between the two orders, over the pairs read in both; None where undefined.
        given_kappa: Cohen's, with the labels, over the pairs read as given; `swapped_kappa` likewise.
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
    """LLMBar's counts over both orders, and kappas over what could be read.

    The published `kappa_False` and `kappa_True` write a winner of 2 and an unreadable reply as 0 beside labels of 1 and
    2, so that a right 2 never agrees; `kappa_agreement` is right where every reply could be read.

    Args:
        given: n labels, +1, 0, -1, or None where the order could not be read; likewise `swapped`.
        swapped: of the exchanged answers, put back in sample order.
        truth: n labels.
        clusters: n keys; pairs of one key are resampled together.
        resampling: seed and number of resamples.

    Raises:
        ValueError: n is 0, or the lengths differ.

    Source: Zeng et al. 2024, LLMBar, LLMEvaluator/evaluate.py.
    """
    first, second, right = (_with_nan(labels) for labels in (given, swapped, truth))
    if not len(right) or not len(first) == len(second) == len(right) == len(clusters):
        raise ValueError(f"two orders: expected as many labels of each, got {len(first)}, {len(second)}, {len(right)}")
    neither = np.isnan(first) & np.isnan(second)
    readable = ~np.isnan(first) & ~np.isnan(second)

    def kappa(labels: NDArray[np.float64], others: NDArray[np.float64]) -> Estimate | None:
        rows = ~np.isnan(labels) & ~np.isnan(others)
        if not rows.any():
            return None
        return cohens_kappa(labels[rows].astype(int), others[rows].astype(int), _of(clusters, rows), resampling)

    return TwoOrders(
        n=len(right),
        unreadable=int(np.isnan(first).sum() + np.isnan(second).sum()),
        given_right=share(first == right, clusters, resampling),
        swapped_right=share(second == right, clusters, resampling),
        both_right=share((first == right) & (second == right), clusters, resampling),
        equal=share((first == second) | neither, clusters, resampling),
        agree=share((first == second)[readable], _of(clusters, readable), resampling) if readable.any() else None,
        kappa=kappa(first, second),
        given_kappa=kappa(first, right),
        swapped_kappa=kappa(second, right),
    )


def _with_nan(labels: Sequence[int | None]) -> NDArray[np.float64]:
    return np.array([np.nan if label is None else label for label in labels], dtype=np.float64)


def _of(clusters: Sequence[Hashable], rows: NDArray[np.bool_]) -> list[Hashable]:
    return [clusters[index] for index in np.flatnonzero(rows)]
