"""Correlations between generation and judgment, judge and annotator labels, and grades and reference grades.

If a variable is constant, the correlation is None with a reason (Self-Reference prints 0.0000, QA-Judge NaN).
Point estimates are the same as in scipy and scikit-learn.

Source: Self-Reference, sections 4.3 and 5.2; QA-Judge, sections 5.1 and 6.3, Tables 2, 4, 7, and 10.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from judgelm.metrics.resampling import (
    LEVEL,
    MAX_UNDEFINED,
    Basis,
    Clusters,
    Estimate,
    Flags,
    Floats,
    Resampling,
    bootstrap_sums,
    defined_estimates,
    estimate_of,
    interval,
    ratio,
)

Band = Literal["weak", "moderate", "strong"]

WEAK_BELOW, STRONG_FROM = 0.3, 0.5
_EXACT = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """A correlation with two intervals; None if undefined.

    Attributes:
        estimate: value with the bootstrap percentile interval.
        fisher: value with Fisher's interval, which treats rows as independent; None at 1 and -1, or if n is too small.
        why: reason if undefined, otherwise empty.
        undefined_resamples: share of resamples excluded from the interval.
    """

    estimate: Estimate | None
    fisher: Estimate | None
    why: str = ""
    undefined_resamples: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationJudgment:
    """Equations 13 and 14 for one judge (G: own answer right, J: judgment right, A: agent's answer right)."""

    g_j: Correlation
    g_a: Correlation
    j_a: Correlation
    g_j_given_a: Correlation
    n: int


def band(value: float) -> Band:
    """Classify a partial correlation as weak (below 0.3, even if negative), moderate, or strong (at least 0.5).

    Source: Self-Reference, sections 4.3 and 5.2.
    """
    if value < WEAK_BELOW:
        return "weak"
    return "moderate" if value < STRONG_FROM else "strong"


def fisher_interval(value: float, n: int, controlled: int = 0, variance: float = 1.0) -> Estimate | None:
    """Add Fisher's z interval to a correlation; None at 1 and -1, or if n - 3 - controlled is below 1.

    `variance` is the variance of z times (n - 3 - controlled): 1.06 for Spearman's correlation (Fieller, Hartley,
    Pearson, 1957).

    Source: Fisher (1924), The distribution of the partial correlation coefficient.
    """
    if n - 3 - controlled < 1 or abs(value) > 1 - _EXACT:
        return None
    reach = float(stats.norm.ppf((1 + LEVEL) / 2)) * math.sqrt(variance / (n - 3 - controlled))
    z = math.atanh(value)
    return Estimate(value=value, low=math.tanh(z - reach), high=math.tanh(z + reach), n=n)


def generation_judgment(
    g: Floats, j: Floats, a: Floats, clusters: Clusters, resampling: Resampling
) -> GenerationJudgment:
    """Compute the pairwise correlations, and the partial correlation of G and J given A; values are 0 or 1.

    Source: Self-Reference, equations 13 and 14.
    """
    if not (g.shape == j.shape == a.shape and g.ndim == 1):
        raise ValueError(f"correlation: expected three arrays of shape (n,), got {g.shape}, {j.shape}, {a.shape}")
    names = {"G (judge's own answer right)": g, "J (judgment right)": j, "A (agent's answer right)": a}
    constant = [name if (len(values) == 0 or np.ptp(values) == 0) else "" for name, values in names.items()]
    samples = None if len(g) == 0 else _correlations(bootstrap_sums(_moments(g, j, a), clusters, resampling))

    def correlation(index: int, value: float, variables: tuple[int, ...]) -> Correlation:
        if why := _undefined(value, [constant[which] for which in variables], len(g)):
            return Correlation(estimate=None, fisher=None, why=why)
        assert samples is not None  # every row is defined
        return _with_intervals(value, samples[:, index], len(g), controlled=int(index == 3))

    plain = [math.nan if (value := pearson(x, y)) is None else value for x, y in ((g, j), (g, a), (j, a))]
    values = [*plain, float(_partial(*map(np.array, plain)))]
    pairs = ((0, 1), (0, 2), (1, 2), (0, 1, 2))
    g_j, g_a, j_a, partial_correlation = (
        correlation(index, values[index], variables) for index, variables in enumerate(pairs)
    )
    return GenerationJudgment(g_j=g_j, g_a=g_a, j_a=j_a, g_j_given_a=partial_correlation, n=len(g))


def partial_change(
    first: tuple[Floats, Floats, Floats],
    second: tuple[Floats, Floats, Floats],
    clusters: Clusters,
    resampling: Resampling,
) -> Estimate | None:
    """Return r_GJ|A of the second method minus r_GJ|A of the first; None if either is undefined.

    Source: Self-Reference, Table 4.
    """
    values = np.column_stack([_moments(*first), _moments(*second)])
    width = values.shape[1] // 2

    def change(sums: Floats) -> Floats:
        return _correlations(sums[:, width:])[:, 3:] - _correlations(sums[:, :width])[:, 3:]

    basis = Basis(rows=np.ones(len(values), dtype=np.bool_))
    [increase] = defined_estimates(values, change, [basis], clusters, resampling)
    return increase


def _undefined(value: float, constant: list[str], n: int) -> str:
    if n < 2:
        return f"{n} judged answers; a correlation requires at least two"
    if named := [name for name in constant if name]:
        return f"constant: {', '.join(named)}"
    return "" if math.isfinite(value) else "A determines G or J (a correlation of 1 or -1)"


def _with_intervals(value: float, samples: Floats, n: int, controlled: int) -> Correlation:
    defined = samples[np.isfinite(samples)]
    low, high = interval(defined) if defined.size else (-1.0, 1.0)
    return Correlation(
        estimate=Estimate(value=value, low=low, high=high, n=n),
        fisher=fisher_interval(value, n, controlled),
        undefined_resamples=1 - defined.size / samples.size,
    )


def _moments(g: Floats, j: Floats, a: Floats) -> Floats:
    return np.column_stack([np.ones(len(g)), g, j, a, g * g, j * j, a * a, g * j, g * a, j * a]).astype(np.float64)


def _correlations(sums: Floats) -> Floats:
    n, g, j, a, gg, jj, aa, gj, ga, ja = sums.T
    plain = (_pearson(n, g, j, gj, gg, jj), _pearson(n, g, a, ga, gg, aa), _pearson(n, j, a, ja, jj, aa))
    return np.column_stack([*plain, _partial(*plain)])


def _pearson(n: Floats, x: Floats, y: Floats, xy: Floats, xx: Floats, yy: Floats) -> Floats:
    spread, other = n * xx - x**2, n * yy - y**2
    varies = (spread > _EXACT) & (other > _EXACT)
    return ratio(n * xy - x * y, np.sqrt(np.where(varies, spread * other, 0)))


def _partial(r_gj: Floats, r_ga: Floats, r_ja: Floats) -> Floats:
    left = (1 - r_ga**2) * (1 - r_ja**2)
    return np.clip(ratio(r_gj - r_ga * r_ja, np.sqrt(np.where(left > _EXACT, left, 0))), -1.0, 1.0)


F1_THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Minimum F1 of a correct answer; QA-Judge uses 0.5 in Table 2 and all thresholds in Table 10."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """Labels of the same answers by annotators and by a judge or metric; True means correct."""

    human: Flags
    judged: Flags
    questions: Sequence[Hashable]

    def __post_init__(self) -> None:
        if self.human.ndim != 1 or not len(self.human) == len(self.judged) == len(self.questions):
            sizes = f"{len(self.human)}, {len(self.judged)} and {len(self.questions)}"
            raise ValueError(f"rated answers: expected human, judged, and questions of equal length, got {sizes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanCorrelation:
    """Mean of the `defined` correlations, and names of the groups without a correlation."""

    mean: Estimate | None
    defined: int
    undefined: tuple[str, ...]


def pearson(first: ArrayLike, second: ArrayLike) -> float | None:
    """Return Pearson's correlation; None if there are fewer than two values or either array is constant."""
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"correlation: expected two arrays of the same shape (n,), got {x.shape} and {y.shape}")
    if x.size < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(stats.pearsonr(x, y).statistic)


def correlation(rated: Rated, resampling: Resampling) -> Estimate | None:
    """Return Pearson's correlation; undefined resamples are excluded from the interval."""
    observed = pearson(rated.human, rated.judged)
    if observed is None:
        return None
    samples = _pearson(*bootstrap_sums(_sums(rated), rated.questions, resampling).T)
    return estimate_of(observed, samples, len(rated.human))


def mean_correlation(groups: Mapping[str, Rated], resampling: Resampling) -> MeanCorrelation:
    """Return the unweighted mean correlation over groups (answering models), as in Table 7.

    Undefined correlations are excluded, as in Table 2. All answers to a question are resampled together.
    """
    observed = {name: pearson(rated.human, rated.judged) for name, rated in groups.items()}
    defined = {name: value for name, value in observed.items() if value is not None}
    undefined = tuple(name for name, value in observed.items() if value is None)
    if not defined:
        return MeanCorrelation(mean=None, defined=0, undefined=undefined)
    blocks, questions = [], list[Hashable]()
    for index, name in enumerate(defined):
        block = np.zeros((len(groups[name].human), 6 * len(defined)))
        block[:, 6 * index : 6 * index + 6] = _sums(groups[name])
        blocks.append(block)
        questions += groups[name].questions
    sums = bootstrap_sums(np.concatenate(blocks), questions, resampling)
    means = np.mean([_pearson(*part.T) for part in np.split(sums, len(defined), axis=1)], axis=0)
    mean = estimate_of(float(np.mean(list(defined.values()))), means, len(questions))
    return MeanCorrelation(mean=mean, defined=len(defined), undefined=undefined)


def _sums(rated: Rated) -> Floats:
    x, y = rated.human.astype(np.float64), rated.judged.astype(np.float64)
    return np.stack([np.ones_like(x), x, y, x * y, x * x, y * y], axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeCorrelation:
    """Correlations and agreement between two sets of grades; None if undefined.

    Attributes:
        kendall: Kendall's tau-b.
        kappa: Cohen's kappa; None if a grade is not an integer. `weighted_kappa` has quadratic weights.
        why: reason if all values are undefined, otherwise empty.
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
    clusters: Clusters,
    resampling: Resampling,
) -> GradeCorrelation:
    """Correlate n grades with reference grades, and compute kappa.

    `categories` are integer reference grades for kappa; None uses `reference`. Undefined resamples are excluded; if
    more than 5 % are undefined, the interval is NaN.

    Source: prometheus-eval, eval/utils.py (Pearson, Kendall, Spearman of mean scores); Cohen (1960, 1968) for kappa.
    """
    x, y = np.asarray(grades, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    z = y if categories is None else np.asarray(categories, dtype=np.float64)
    if not x.shape == y.shape == z.shape:
        raise ValueError(f"grades: expected columns of equal length, got {len(x)}, {len(y)} and {len(z)}")
    if len(x) < 2:
        return GradeCorrelation(n=len(x), why=f"{len(x)} grades; a correlation requires at least two")
    constant = [name for name, values in (("grades", x), ("reference", y)) if np.ptp(values) == 0]
    if constant:
        return GradeCorrelation(n=len(x), why=f"constant: {', '.join(constant)}")
    n = len(x)
    rows, columns, tables = _resampled(x, y, clusters, resampling)
    kappa, weighted_kappa = _kappas(x, z, clusters, resampling)
    return GradeCorrelation(
        n=n,
        pearson=estimate_of(stats.pearsonr(x, y).statistic, pearsons(tables, rows, columns), n, MAX_UNDEFINED),
        kendall=estimate_of(stats.kendalltau(x, y).statistic, kendalls(tables), n, MAX_UNDEFINED),
        spearman=estimate_of(stats.spearmanr(x, y).statistic, spearmans(tables), n, MAX_UNDEFINED),
        kappa=kappa,
        weighted_kappa=weighted_kappa,
    )


def _kappas(
    x: Floats, z: Floats, clusters: Clusters, resampling: Resampling
) -> tuple[Estimate | None, Estimate | None]:
    if np.ptp(z) == 0 or any((values % 1 != 0).any() for values in (x, z)):
        return None, None
    both = np.concatenate([x, z])
    levels = np.arange(both.min(), both.max() + 1)  # unused grades affect the quadratic distance
    _, _, tables = _resampled(x, z, clusters, resampling, levels)

    def kappa(weights: Literal["quadratic"] | None) -> Estimate:
        value = cohen_kappa_score(x.astype(int), z.astype(int), labels=levels.astype(int), weights=weights)
        return estimate_of(value, kappas(tables, quadratic=weights is not None), len(x), MAX_UNDEFINED)

    return kappa(None), kappa("quadratic")


def _resampled(
    x: Floats, y: Floats, clusters: Clusters, resampling: Resampling, levels: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    rows, columns = (np.unique(x), np.unique(y)) if levels is None else (levels, levels)
    cells = np.zeros((len(x), len(rows) * len(columns)))
    cells[np.arange(len(x)), np.searchsorted(rows, x) * len(columns) + np.searchsorted(columns, y)] = 1
    tables = bootstrap_sums(cells, clusters, resampling).reshape(-1, len(rows), len(columns))
    return rows, columns, tables


def pearsons(tables: Floats, rows: Floats, columns: Floats) -> Floats:
    """Return Pearson's correlation for count tables of shape (m, a, b); NaN if either variable is constant.

    `rows`, of shape (a,) or (m, a), and `columns` contain the values.
    """
    total = tables.sum(axis=(1, 2))
    x, y = np.broadcast_to(rows, tables.shape[:2]), np.broadcast_to(columns, tables.shape[::2])
    by_row, by_column = tables.sum(axis=2), tables.sum(axis=1)
    x = x - ((by_row * x).sum(axis=1) / total)[:, None]
    y = y - ((by_column * y).sum(axis=1) / total)[:, None]
    spread = (by_row * x**2).sum(axis=1) * (by_column * y**2).sum(axis=1)
    varies = ((by_row > 0).sum(axis=1) > 1) & ((by_column > 0).sum(axis=1) > 1)
    return ratio(np.einsum("mij,mi,mj->m", tables, x, y), np.sqrt(np.where(varies, spread, 0)))


def spearmans(tables: Floats) -> Floats:
    """Return Spearman's correlation for count tables with ascending levels; tied values have their mean rank."""
    rows, columns = (counts.cumsum(axis=1) - counts / 2 for counts in (tables.sum(axis=2), tables.sum(axis=1)))
    return pearsons(tables, rows, columns)


def kendalls(tables: Floats) -> Floats:
    """Return Kendall's tau-b for count tables with ascending levels; NaN if either variable is constant."""
    total = tables.sum(axis=(1, 2))
    above = np.zeros_like(tables)  # count of cells above and to the left
    above[:, 1:, 1:] = tables.cumsum(axis=1).cumsum(axis=2)[:, :-1, :-1]
    below = np.zeros_like(tables)  # count of cells above and to the right
    below[:, 1:, :-1] = tables[:, :, ::-1].cumsum(axis=1).cumsum(axis=2)[:, :-1, -2::-1]
    balance = (tables * (above - below)).sum(axis=(1, 2))
    pairs = total * (total - 1) / 2
    tied = [(counts * (counts - 1) / 2).sum(axis=1) for counts in (tables.sum(axis=2), tables.sum(axis=1))]
    scale = (pairs - tied[0]) * (pairs - tied[1])
    return ratio(balance, np.sqrt(np.maximum(scale, 0)))


def kappas(tables: Floats, *, quadratic: bool) -> Floats:
    """Return Cohen's kappa for square count tables of consecutive levels; NaN if all counts are in one cell."""
    places = np.arange(tables.shape[1])
    apart = (places[:, None] - places) ** 2
    cost = apart if quadratic else (apart > 0).astype(np.float64)
    expected = np.einsum("mi,mj->mij", tables.sum(axis=2), tables.sum(axis=1)) / tables.sum(axis=(1, 2))[:, None, None]
    by_chance = (expected * cost).sum(axis=(1, 2))
    return 1 - ratio((tables * cost).sum(axis=(1, 2)), by_chance)
