"""Grades against reference grades: Pearson, Kendall, Spearman, and Cohen's kappa, each with n and an interval.

All four depend on the grades only through the table of how often each two occur together, and grades have few values:
a resample is a resampled table, and 2,000 of them take milliseconds where scipy would be called 2,000 times. The values
themselves are scipy's and scikit-learn's. (Thousands of grades that all differ make large tables.)
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from judgelm.metrics.resampling import Estimate, Resampling, bootstrap_sums, interval

_MOST_UNDEFINED = 0.05
"""Of a number's resamples; with more without a value the rest would describe other data."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeCorrelation:
    """Correlations and agreement of two sets of grades of the same answers; each None where undefined.

    Attributes:
        n: answers; each of the numbers rests on all of them.
        pearson: of the grades as they are.
        kendall: tau-b, which corrects for ties.
        spearman: with ties at their mean rank.
        kappa: Cohen's, unweighted: the same grade or not. None, too, where a grade is not whole.
        weighted_kappa: with quadratic weights, so that a grade two off costs four times one that is one off.
        why: what makes all of them undefined, in words; empty where they are defined.
    """

    n: int
    pearson: Estimate | None = None
    kendall: Estimate | None = None
    spearman: Estimate | None = None
    kappa: Estimate | None = None
    weighted_kappa: Estimate | None = None
    why: str = ""


def grade_correlation(
    grades: Sequence[float],
    reference: Sequence[float],
    categories: Sequence[float] | None,
    clusters: Sequence[Hashable] | None,
    resampling: Resampling,
) -> GradeCorrelation:
    """Correlations of grades with reference grades, and kappa with reference categories.

    Args:
        grades: n of them.
        reference: n numbers, such as the mean of several gradings.
        categories: n whole grades that kappa compares with, since a mean is no category; `reference` when None.
        clusters: n keys; answers of one key (one question) are resampled together. None resamples single answers.
        resampling: seed and number of resamples; those in which a number is undefined are left out of its interval,
            which is NaN where they are more than 5 %.

    Raises:
        ValueError: the lengths differ.

    Source: prometheus-eval, eval/utils.py (Pearson, Kendall, Spearman of mean scores); Cohen (1960, 1968) for kappa.
    """
    x, y = np.asarray(grades, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    z = y if categories is None else np.asarray(categories, dtype=np.float64)
    if not x.shape == y.shape == z.shape:
        raise ValueError(f"grades: expected as many of each, got {len(x)}, {len(y)} and {len(z)}")
    if len(x) < 2:
        return GradeCorrelation(n=len(x), why=f"{len(x)} grades; a correlation needs two and more")
    constant = [name for name, values in (("grades", x), ("reference", y)) if np.ptp(values) == 0]
    if constant:
        return GradeCorrelation(n=len(x), why=f"constant: {', '.join(constant)}")
    rows, columns, tables = _resampled(x, y, clusters, resampling)
    kappa, weighted_kappa = _kappas(x, z, clusters, resampling)
    return GradeCorrelation(
        n=len(x),
        pearson=_estimate(stats.pearsonr(x, y).statistic, pearsons(tables, rows, columns), len(x)),
        kendall=_estimate(stats.kendalltau(x, y).statistic, kendalls(tables), len(x)),
        spearman=_estimate(stats.spearmanr(x, y).statistic, spearmans(tables), len(x)),
        kappa=kappa,
        weighted_kappa=weighted_kappa,
    )


def _kappas(
    x: Floats, z: Floats, clusters: Sequence[Hashable] | None, resampling: Resampling
) -> tuple[Estimate | None, Estimate | None]:
    """Unweighted and quadratic; None where a grade is not whole, or the categories are constant."""
    if np.ptp(z) == 0 or any((values % 1 != 0).any() for values in (x, z)):
        return None, None
    both = np.concatenate([x, z])
    levels = np.arange(both.min(), both.max() + 1)  # the distance between grades counts, also of those nobody gave
    _, _, tables = _resampled(x, z, clusters, resampling, levels)

    def kappa(weights: Literal["quadratic"] | None) -> Estimate:
        value = cohen_kappa_score(x.astype(int), z.astype(int), labels=levels.astype(int), weights=weights)
        return _estimate(value, kappas(tables, quadratic=weights is not None), len(x))

    return kappa(None), kappa("quadratic")


def _resampled(
    x: Floats,
    y: Floats,
    clusters: Sequence[Hashable] | None,
    resampling: Resampling,
    levels: Floats | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Levels of both sides, and tables of resamples, shape (resamples, levels of x, levels of y)."""
    rows, columns = (np.unique(x), np.unique(y)) if levels is None else (levels, levels)
    cells = np.zeros((len(x), len(rows) * len(columns)))
    cells[np.arange(len(x)), np.searchsorted(rows, x) * len(columns) + np.searchsorted(columns, y)] = 1
    tables = bootstrap_sums(cells, clusters, resampling).reshape(-1, len(rows), len(columns))
    return rows, columns, tables


def _estimate(value: float, samples: Floats, n: int) -> Estimate:
    """The value with its interval, which is NaN where more than 5 % of the resamples have no value."""
    low = high = float("nan")
    if np.isnan(samples).mean() <= _MOST_UNDEFINED:
        low, high = interval(samples[~np.isnan(samples)])
    return Estimate(value=float(value), low=low, high=high, n=n)


def pearsons(tables: Floats, rows: Floats, columns: Floats) -> Floats:
    """Pearson's correlation of many tables of counts; NaN where one side is constant.

    Args:
        tables: shape (m, a, b).
        rows: shape (a,) or (m, a), the value of each row.
        columns: shape (b,) or (m, b).

    Returns:
        shape (m,).
    """
    total = tables.sum(axis=(1, 2))
    x, y = np.broadcast_to(rows, tables.shape[:2]), np.broadcast_to(columns, tables.shape[::2])
    by_row, by_column = tables.sum(axis=2), tables.sum(axis=1)
    x = x - ((by_row * x).sum(axis=1) / total)[:, None]
    y = y - ((by_column * y).sum(axis=1) / total)[:, None]
    spread = (by_row * x**2).sum(axis=1) * (by_column * y**2).sum(axis=1)
    varies = ((by_row > 0).sum(axis=1) > 1) & ((by_column > 0).sum(axis=1) > 1)
    out = np.full(len(tables), np.nan)
    np.divide(np.einsum("mij,mi,mj->m", tables, x, y), np.sqrt(np.where(varies, spread, 1)), out=out, where=varies)
    return out


def spearmans(tables: Floats) -> Floats:
    """Spearman's correlation, ties at their mean rank, of many tables whose levels ascend."""
    rows, columns = (counts.cumsum(axis=1) - counts / 2 for counts in (tables.sum(axis=2), tables.sum(axis=1)))
    return pearsons(tables, rows, columns)


def kendalls(tables: Floats) -> Floats:
    """Kendall's tau-b of many tables whose levels ascend; NaN where one side is constant."""
    total = tables.sum(axis=(1, 2))
    above = np.zeros_like(tables)  # of each cell, how many are in rows before it and columns before it
    above[:, 1:, 1:] = tables.cumsum(axis=1).cumsum(axis=2)[:, :-1, :-1]
    beside = np.zeros_like(tables)  # and how many in rows before it and columns behind it
    beside[:, 1:, :-1] = tables[:, :, ::-1].cumsum(axis=1).cumsum(axis=2)[:, :-1, -2::-1]
    balance = (tables * (above - beside)).sum(axis=(1, 2))
    pairs = total * (total - 1) / 2
    tied = [(counts * (counts - 1) / 2).sum(axis=1) for counts in (tables.sum(axis=2), tables.sum(axis=1))]
    scale = (pairs - tied[0]) * (pairs - tied[1])
    out = np.full(len(tables), np.nan)
    np.divide(balance, np.sqrt(np.where(scale > 0, scale, 1)), out=out, where=scale > 0)
    return out


def kappas(tables: Floats, *, quadratic: bool) -> Floats:
    """Cohen's kappa of many square tables over the same levels in steps of 1; NaN where one cell holds everything."""
    places = np.arange(tables.shape[1])
    apart = (places[:, None] - places) ** 2
    cost = apart if quadratic else (apart > 0).astype(np.float64)
    expected = np.einsum("mi,mj->mij", tables.sum(axis=2), tables.sum(axis=1)) / tables.sum(axis=(1, 2))[:, None, None]
    by_chance = (expected * cost).sum(axis=(1, 2))
    out = np.full(len(tables), np.nan)
    np.divide((tables * cost).sum(axis=(1, 2)), by_chance, out=out, where=by_chance > 0)
    return 1 - out
