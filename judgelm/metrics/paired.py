"""Two judges on the same pairs: how far apart they are, and how alike.

Both judged the same pairs, so their agreements are not independent and the difference is taken pair by pair. Labels
are +1 the first answer is better, 0 tie, -1 the second is better, as in `judgelm.metrics.agreement`.
"""

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.contingency_tables import mcnemar as mcnemar_test
from statsmodels.stats.proportion import proportion_confint

from judgelm.metrics.agreement import LABELS, confusion_cells
from judgelm.metrics.resampling import LEVEL, Estimate, Resampling, bootstrap_sums, mean

_MOST_UNDEFINED = 0.05
"""Of a kappa's resamples; with more without a value the rest would describe other data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McNemar:
    """Pairs that one of two judges alone gets right, and how likely so uneven a split is by chance.

    Attributes:
        p_value: two-sided and exact (binomial); 1 where no pair tells the judges apart. It takes pairs for
            independent: with several pairs of one question the clustered interval is the one to trust.
    """

    both: int
    only_first: int
    only_second: int
    neither: int
    p_value: float


def paired_difference(
    first: NDArray[np.bool_], second: NDArray[np.bool_], clusters: Sequence[Hashable] | None, resampling: Resampling
) -> Estimate:
    """Share of hits of the first judge minus that of the second, over the same pairs.

    Where no resample can differ from the value (the judges are right about the very same pairs, or one is right about
    all and the other about none) the interval's width is that of Wilson's for a share of 0 pairs that tell them apart.

    Args:
        first: shape (n,), whether the first judge is right; likewise `second`.
        second: shape (n,).
        clusters: as in `resampling.bootstrap_sums`.
        resampling: seed and number of resamples.

    Returns:
        A difference of shares, in [-1, 1].

    Raises:
        ValueError: shapes differ, or n is 0.
    """
    _check(first, second)
    values = first.astype(np.float64) - second
    difference = mean(values, clusters, resampling)
    if np.ptp(values) > 0:
        return difference
    units = first.size if clusters is None else len(set(clusters))
    _, most = proportion_confint(0, units, alpha=1 - LEVEL, method="wilson")
    low, high = max(-1.0, difference.value - most), min(1.0, difference.value + most)
    return Estimate(value=difference.value, low=float(low), high=float(high), n=difference.n)


def mcnemar(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> McNemar:
    """The exact test that two judges are right equally often.

    Args:
        first: shape (n,), whether the first judge is right; likewise `second`.
        second: shape (n,).

    Raises:
        ValueError: shapes differ, or n is 0.

    Source: McNemar (1947), Note on the sampling error of the difference between correlated proportions or percentages.
    """
    _check(first, second)
    both, neither = int((first & second).sum()), int((~first & ~second).sum())
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    p_value = float(mcnemar_test([[both, only_first], [only_second, neither]], exact=True).pvalue)
    return McNemar(both=both, only_first=only_first, only_second=only_second, neither=neither, p_value=p_value)


def cohens_kappa(
    first: NDArray[np.int_], second: NDArray[np.int_], clusters: Sequence[Hashable] | None, resampling: Resampling
) -> Estimate | None:
    """Agreement of two judges beyond what their label frequencies alone would give.

    Args:
        first: shape (n,), labels +1, 0, -1; likewise `second`.
        second: shape (n,).
        clusters: as in `resampling.bootstrap_sums`.
        resampling: seed and number of resamples.

    Returns:
        In [-1, 1], unweighted; None where it is undefined: both sides have one and the same label throughout. The
        interval leaves out resamples in which that happens, and is NaN where they are more than 5 %.

    Raises:
        ValueError: shapes differ, a value is no label, or n is 0.

    Source: Cohen (1960), A coefficient of agreement for nominal scales.
    """
    cells = confusion_cells(first, second)
    if np.union1d(first, second).size == 1:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a judge that gives one label throughout is no mistake of the caller's
        value = float(cohen_kappa_score(first, second, labels=LABELS))
    samples = kappas_of_confusion(bootstrap_sums(cells, clusters, resampling).reshape(-1, 3, 3))
    low = high = float("nan")
    if np.isnan(samples).mean() <= _MOST_UNDEFINED:
        low, high = np.nanquantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return Estimate(value=value, low=low, high=high, n=first.size)


def kappas_of_confusion(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cohen's kappa of many confusion matrices at once; NaN where a matrix has one cell alone.

    The same numbers as scikit-learn's `cohen_kappa_score` (a test compares them), without a call for each resample.

    Args:
        matrices: shape (m, k, k), counts.

    Returns:
        shape (m,).
    """
    totals = matrices.sum(axis=(1, 2))
    observed = np.trace(matrices, axis1=1, axis2=2) / totals
    expected = (matrices.sum(axis=1) * matrices.sum(axis=2)).sum(axis=1) / totals**2
    out = np.full(len(matrices), np.nan)
    np.divide(observed - expected, 1 - expected, out=out, where=expected < 1)
    return out


def _check(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> None:
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"judges: expected two arrays of one shape (n,), got {first.shape} and {second.shape}")
    if first.size == 0:
        raise ValueError("judges: no pair was judged by both; a difference over nothing is undefined")
