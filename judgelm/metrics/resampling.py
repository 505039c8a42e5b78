"""Bootstrap intervals for statistics that are functions of sums over pairs.

Clusters with equal sums are interchangeable, so each resample is drawn from a multinomial distribution over the
distinct sums.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from statsmodels.stats.proportion import proportion_confint

LEVEL = 0.95
_MAX_DRAWS = 1 << 22
"""Maximum number of counts in memory: 32 MiB, and the same again as floats."""
RESAMPLES = 2000
MAX_UNDEFINED = 0.05
"""Maximum share of undefined resamples for which a correlation or fit has an interval."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]
Flags = NDArray[np.bool_]
Clusters = Sequence[Hashable] | None
"""One key per row; rows with the same key (question) are resampled together. None resamples individual rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its interval, confidence level, and number of pairs."""

    value: float
    low: float
    high: float
    n: int
    level: float = LEVEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampling:
    """Bootstrap settings; each interval uses a newly seeded generator."""

    seed: int = 0
    resamples: int = RESAMPLES


def bootstrap_sums(values: Floats, clusters: Clusters, resampling: Resampling) -> Floats:
    """Return the column sums of `values`, shape (n, k), for each bootstrap sample; shape (resamples, k).

    Raises:
        ValueError: n is 0, or `clusters` has a different length.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapters 6 and 8 (clusters as units).
    """
    if len(values) == 0:
        raise ValueError("bootstrap: no rows to resample")
    sums = _cluster_sums(values, clusters)
    kinds, counts = np.unique(sums, axis=0, return_counts=True)
    generator, shares = np.random.default_rng(resampling.seed), counts / counts.sum()
    resampled = np.empty((resampling.resamples, kinds.shape[1]))
    parts = 1 + resampled.shape[0] * len(kinds) // _MAX_DRAWS  # for continuous values, there are as many kinds as rows
    for part in np.array_split(resampled, min(parts, len(resampled))):
        part[:] = generator.multinomial(len(sums), shares, size=len(part)) @ kinds
    return resampled


def interval(samples: Floats, level: float = LEVEL) -> tuple[float, float]:
    """Return the percentile interval of bootstrap values."""
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def estimate_of(value: float, samples: Floats, n: int, max_undefined: float = 1.0) -> Estimate:
    """Return a number with its interval over the defined resamples.

    The bounds are NaN if the share of undefined (NaN) resamples exceeds `max_undefined`.
    """
    defined = samples[~np.isnan(samples)]
    enough = defined.size and np.isnan(samples).mean() <= max_undefined
    low, high = interval(defined) if enough else (float("nan"), float("nan"))
    return Estimate(value=float(value), low=low, high=high, n=n)


def estimate(
    values: Floats, statistic: Callable[[Floats], Floats], clusters: Clusters, resampling: Resampling
) -> list[Estimate]:
    """Return s statistics with intervals over the same resamples.

    `statistic` maps column sums of shape (m, k) to statistics of shape (m, s).
    """
    observed = statistic(values.sum(axis=0, keepdims=True))[0]
    samples = statistic(bootstrap_sums(values, clusters, resampling))
    return [estimate_of(value, column, len(values)) for value, column in zip(observed, samples.T, strict=True)]


def normal_estimate(value: float, error: float, n: int, level: float = LEVEL) -> Estimate:
    """Return a number with a normal interval based on its standard error."""
    reach = float(norm.ppf((1 + level) / 2)) * error
    return Estimate(value=value, low=value - reach, high=value + reach, n=n, level=level)


def share(hits: Flags | Floats, clusters: Clusters, resampling: Resampling) -> Estimate:
    """Return the share of hits, with Wilson's interval over the clusters for a share of 0 or 1.

    Example:
        >>> share(np.array([True, True, False, True]), None, Resampling(seed=0))
        Estimate(value=0.75, low=0.25, high=1.0, n=4, level=0.95)
    """
    return widened(mean(hits.astype(np.float64), clusters, resampling), clusters)


def mean(values: Floats, clusters: Clusters, resampling: Resampling) -> Estimate:
    """Return the mean with its interval."""
    counted = np.column_stack([values, np.ones(len(values))])
    [result] = estimate(counted, lambda sums: sums[:, :1] / sums[:, 1:], clusters, resampling)
    return result


def widened(result: Estimate, clusters: Clusters) -> Estimate:
    """Use Wilson's interval for a share of exactly 0 or 1, because the bootstrap interval has zero width."""
    if result.value not in (0.0, 1.0):
        return result
    units = result.n if clusters is None else len(set(clusters))
    low, high = proportion_confint(result.value * units, units, alpha=1 - LEVEL, method="wilson")
    return Estimate(value=result.value, low=float(low), high=float(high), n=result.n)


def _cluster_sums(values: Floats, clusters: Clusters) -> Floats:
    if clusters is None:
        return values
    if len(clusters) != len(values):
        raise ValueError(f"bootstrap: got {len(values)} rows but {len(clusters)} cluster keys")
    index_of = {key: i for i, key in enumerate(dict.fromkeys(clusters))}
    sums = np.zeros((len(index_of), values.shape[1]))
    np.add.at(sums, [index_of[key] for key in clusters], values)
    return sums


BasisKind = Literal["share", "f1", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The rows that a number is based on.

    Attributes:
        rows: rows counted in the n of the estimate, shape (n,).
        kind: for a `share` or `f1` of exactly 0 or 1, Wilson's interval is used.
        decided: for `f1`, rows whose true or predicted class is the class of interest.
    """

    rows: Flags
    kind: BasisKind = "other"
    decided: Flags | None = None


def ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Divide; the result is NaN where the denominator is 0."""
    out = np.full(np.shape(numerator), np.nan)
    np.divide(numerator, denominator, out=out, where=denominator != 0)
    return out


def defined_estimates(
    values: Floats,
    statistic: Callable[[Floats], Floats],
    bases: Sequence[Basis],
    clusters: Clusters,
    resampling: Resampling,
) -> list[Estimate | None]:
    """Like `estimate`, but with None for undefined statistics; undefined resamples are excluded."""
    if len(values) == 0:
        return [None] * len(bases)
    observed = statistic(values.sum(axis=0, keepdims=True))[0]
    samples = statistic(bootstrap_sums(values, clusters, resampling))
    keys = list(range(len(values))) if clusters is None else clusters
    return [
        _defined_estimate(float(value), column, basis, keys)
        for value, column, basis in zip(observed, samples.T, bases, strict=True)
    ]


def _defined_estimate(value: float, samples: Floats, basis: Basis, keys: Sequence[Hashable]) -> Estimate | None:
    defined = samples[np.isfinite(samples)]
    if not np.isfinite(value) or defined.size == 0:
        return None
    low, high = interval(defined)
    if basis.kind != "other" and value in (0.0, 1.0):
        low, high = _wilson(value, basis, keys)
    return Estimate(value=value, low=low, high=high, n=int(basis.rows.sum()))


def _wilson(value: float, basis: Basis, keys: Sequence[Hashable]) -> tuple[float, float]:
    """F1 = 2 J / (1 + J), where J = TP / (TP + FP + FN) is a share of the `decided` rows."""
    mask = basis.rows if basis.decided is None else basis.decided
    units = len({keys[index] for index in np.flatnonzero(mask)})
    low, high = proportion_confint(value * units, units, alpha=1 - LEVEL, method="wilson")
    if basis.kind == "f1":
        low, high = 2 * low / (1 + low), 2 * high / (1 + high)
    return float(low), float(high)
