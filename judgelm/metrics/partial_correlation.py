"""Correlation of generation with judgment, plain and with the agent's correctness held fixed.

A correlation with a constant is 0/0. It is None here and says so; the paper prints 0.0000 for one such case (Mistral
Medium 3 on GSM-Symbolic-P2, section C.3).
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from judgelm.metrics.resampling import LEVEL, Estimate, Resampling, bootstrap_sums, interval

Numbers = NDArray[np.float64]
Band = Literal["weak", "moderate", "strong"]

WEAK_BELOW, STRONG_FROM = 0.3, 0.5
_EXACT = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """A correlation in [-1, 1] with two intervals.

    Attributes:
        estimate: with the bootstrap's percentile interval, which has no width at 1 and -1; None where undefined.
        fisher: the same value with the interval of Fisher's z; None where undefined, where n is too small, or where
            the value is 1 or -1. It takes rows for independent, which those of one question are not.
        why: what makes it undefined, in words; empty where it is defined.
        undefined_resamples: share of the resamples in which it was undefined, and which the interval leaves out.
    """

    estimate: Estimate | None
    fisher: Estimate | None
    why: str = ""
    undefined_resamples: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationJudgment:
    """Equations 13 and 14 for one judge: G its own answer right, J its judgment right, A the agent's answer right."""

    g_j: Correlation
    g_a: Correlation
    j_a: Correlation
    g_j_given_a: Correlation
    n: int


def band(value: float) -> Band:
    """The paper's word for a partial correlation: weak below 0.3 (negative ones too), strong from 0.5 on.

    Source: Self-Reference, sections 4.3 and 5.2.
    """
    if value < WEAK_BELOW:
        return "weak"
    return "moderate" if value < STRONG_FROM else "strong"


def fisher_interval(value: float, n: int, controlled: int = 0, variance: float = 1.0) -> Estimate | None:
    """A correlation with the interval of Fisher's z.

    Args:
        value: in [-1, 1].
        n: rows.
        controlled: variables held fixed.
        variance: of z, times n - 3 - controlled; 1.06 for Spearman's (Fieller, Hartley and Pearson, 1957).

    Returns:
        None where n - 3 - controlled is below 1, or the value is 1 or -1, where z is infinite.

    Source: Fisher (1924), The distribution of the partial correlation coefficient.
    """
    if n - 3 - controlled < 1 or abs(value) > 1 - _EXACT:
        return None
    reach = float(stats.norm.ppf((1 + LEVEL) / 2)) * math.sqrt(variance / (n - 3 - controlled))
    z = math.atanh(value)
    return Estimate(value=value, low=math.tanh(z - reach), high=math.tanh(z + reach), n=n)


def generation_judgment(
    g: Numbers, j: Numbers, a: Numbers, clusters: Sequence[Hashable] | None, resampling: Resampling
) -> GenerationJudgment:
    """The three pairwise correlations and that of G and J with A held fixed.

    Args:
        g: shape (n,), 1 where the judge's own answer is right, else 0; any numbers will do.
        j: shape (n,), 1 where the judgment is right.
        a: shape (n,), 1 where the agent's answer is right.
        clusters: n keys (questions); rows of one key are resampled together.
        resampling: seed and number of resamples.

    Raises:
        ValueError: shapes differ.

    Source: Self-Reference, equations 13 and 14.
    """
    if not (g.shape == j.shape == a.shape and g.ndim == 1):
        raise ValueError(f"correlation: expected three arrays of one shape (n,), got {g.shape}, {j.shape}, {a.shape}")
    names = {"G (judge's own answer right)": g, "J (judgment right)": j, "A (agent's answer right)": a}
    constant = [name if (len(values) == 0 or np.ptp(values) == 0) else "" for name, values in names.items()]
    samples = None if len(g) == 0 else _correlations(bootstrap_sums(_moments(g, j, a), clusters, resampling))

    def correlation(index: int, value: float, variables: tuple[int, ...]) -> Correlation:
        if why := _undefined(value, [constant[which] for which in variables], len(g)):
            return Correlation(estimate=None, fisher=None, why=why)
        assert samples is not None  # no rows are undefined
        return _with_intervals(value, samples[:, index], len(g), controlled=int(index == 3))

    values = _observed(g, j, a, constant)
    pairs = ((0, 1), (0, 2), (1, 2), (0, 1, 2))
    g_j, g_a, j_a, partial = (correlation(index, values[index], variables) for index, variables in enumerate(pairs))
    return GenerationJudgment(g_j=g_j, g_a=g_a, j_a=j_a, g_j_given_a=partial, n=len(g))


def partial_change(
    first: tuple[Numbers, Numbers, Numbers],
    second: tuple[Numbers, Numbers, Numbers],
    clusters: Sequence[Hashable] | None,
    resampling: Resampling,
) -> Estimate | None:
    """Increase of r_GJ|A by a second method on the same answers; None where one is undefined.

    Args:
        first: G, J, A, each of shape (n,).
        second: the same rows, judged in the second way.
        clusters: as in `generation_judgment`.
        resampling: as in `generation_judgment`.

    Source: Self-Reference, Table 4.
    """
    if len(first[0]) == 0:
        return None
    values = np.column_stack([_moments(*first), _moments(*second)])
    width = values.shape[1] // 2

    def change(sums: Numbers) -> Numbers:
        return np.asarray(_correlations(sums[:, width:])[:, 3] - _correlations(sums[:, :width])[:, 3])

    observed = float(change(values.sum(axis=0, keepdims=True))[0])
    samples = change(bootstrap_sums(values, clusters, resampling))
    defined = samples[np.isfinite(samples)]
    if not math.isfinite(observed) or defined.size == 0:
        return None
    low, high = interval(defined)
    return Estimate(value=observed, low=low, high=high, n=len(values))


def partial(r_gj: float, r_ga: float, r_ja: float) -> float | None:
    """Equation 14; None where A determines one of the others, which leaves 0/0."""
    value = float(_partial(np.array(r_gj), np.array(r_ga), np.array(r_ja)))
    return value if math.isfinite(value) else None


def _observed(g: Numbers, j: Numbers, a: Numbers, constant: list[str]) -> list[float]:
    """The four correlations of the sample, the plain ones as scipy gives them, NaN where a variable is constant."""
    pairs = (((g, 0), (j, 1)), ((g, 0), (a, 2)), ((j, 1), (a, 2)))
    plain = [
        math.nan if constant[i] or constant[k] or len(x) < 2 else float(stats.pearsonr(x, y).statistic)
        for (x, i), (y, k) in pairs
    ]
    together = partial(*plain)
    return [*plain, math.nan if together is None else together]


def _undefined(value: float, constant: list[str], n: int) -> str:
    """Why a correlation is undefined, or nothing."""
    if n < 2:
        return f"{n} judged answers; a correlation needs two and more"
    if named := [name for name in constant if name]:
        return f"constant: {', '.join(named)}"
    return "" if math.isfinite(value) else "A determines G or J (a correlation of 1 or -1)"


def _with_intervals(value: float, samples: Numbers, n: int, controlled: int) -> Correlation:
    defined = samples[np.isfinite(samples)]
    low, high = interval(defined) if defined.size else (-1.0, 1.0)
    return Correlation(
        estimate=Estimate(value=value, low=low, high=high, n=n),
        fisher=fisher_interval(value, n, controlled),
        undefined_resamples=1 - defined.size / samples.size,
    )


def _moments(g: Numbers, j: Numbers, a: Numbers) -> Numbers:
    """Per row what sums up to n, the three sums, the three sums of squares, and the three of products."""
    return np.column_stack([np.ones(len(g)), g, j, a, g * g, j * j, a * a, g * j, g * a, j * a]).astype(np.float64)


def _correlations(sums: Numbers) -> Numbers:
    """r_GJ, r_GA, r_JA and r_GJ|A of many sums of moments, shape (m, 4); NaN where undefined."""
    n, means, squares, products = sums[:, 0], sums[:, 1:4], sums[:, 4:7], sums[:, 7:10]
    spread = n[:, None] * squares - means**2
    first, second = [0, 0, 1], [1, 2, 2]
    joint = n[:, None] * products - means[:, first] * means[:, second]
    scale = spread[:, first] * spread[:, second]
    plain = np.full(joint.shape, np.nan)
    varies = (spread[:, first] > _EXACT) & (spread[:, second] > _EXACT)
    np.divide(joint, np.sqrt(np.where(varies, scale, 1.0)), out=plain, where=varies)
    return np.column_stack([plain, _partial(plain[:, 0], plain[:, 1], plain[:, 2])])


def _partial(r_gj: Numbers, r_ga: Numbers, r_ja: Numbers) -> Numbers:
    left = (1 - r_ga**2) * (1 - r_ja**2)
    defined = left > _EXACT  # False for NaN
    partial = (r_gj - r_ga * r_ja) / np.sqrt(np.where(defined, left, 1.0))
    return np.asarray(np.where(defined, np.clip(partial, -1.0, 1.0), np.nan), dtype=np.float64)
