"""Estimates of numbers that can be undefined: in the sample, where they are None, or in a resample, which is left out.

F1 on the questions that a judge got wrong needs such questions; a resample may hold none. `judgelm.metrics.resampling`
is for numbers that every resample has.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from statsmodels.stats.proportion import proportion_confint

from judgelm.metrics.resampling import LEVEL, Estimate, Resampling, bootstrap_sums, interval

Kind = Literal["share", "f1", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The data behind one number.

    Attributes:
        rows: shape (n,), the rows that count into the estimate's n.
        kind: a `share` or an `f1` of exactly 0 or 1 gets Wilson's interval, since resampling can only repeat it;
            `other` numbers keep what resampling gives, which then has no width.
        decided: shape (n,), of an `f1` the rows that it looks at: those truly of its class or named so. None
            otherwise.
    """

    rows: NDArray[np.bool_]
    kind: Kind = "other"
    decided: NDArray[np.bool_] | None = None


def ratio(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numerator by denominator, NaN where the denominator is 0."""
    out = np.full(np.shape(numerator), np.nan)
    np.divide(numerator, denominator, out=out, where=denominator != 0)
    return out


def defined_estimates(
    values: NDArray[np.float64],
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    bases: Sequence[Basis],
    clusters: Sequence[Hashable] | None,
    resampling: Resampling,
) -> list[Estimate | None]:
    """Several numbers with their intervals from one set of resamples; None where undefined.

    Args:
        values: shape (n, k), one row per judgment.
        statistic: takes column sums, shape (m, k), and returns the numbers, shape (m, s), NaN where undefined.
        bases: s of them.
        clusters: n keys; rows of one key are resampled together. None resamples single rows.
        resampling: seed and number of resamples.

    Returns:
        s estimates. An interval is that of the resamples in which the number is defined.
    """
    if len(values) == 0:
        return [None] * len(bases)
    observed = statistic(values.sum(axis=0, keepdims=True))[0]
    samples = statistic(bootstrap_sums(values, clusters, resampling))
    keys = list(range(len(values))) if clusters is None else clusters
    return [
        _estimate(float(value), column, basis, keys)
        for value, column, basis in zip(observed, samples.T, bases, strict=True)
    ]


def _estimate(value: float, samples: NDArray[np.float64], basis: Basis, keys: Sequence[Hashable]) -> Estimate | None:
    defined = samples[np.isfinite(samples)]
    if not np.isfinite(value) or defined.size == 0:
        return None
    low, high = interval(defined)
    if basis.kind != "other" and value in (0.0, 1.0):
        low, high = _wilson(value, basis, keys)
    return Estimate(value=value, low=low, high=high, n=int(basis.rows.sum()))


def _wilson(value: float, basis: Basis, keys: Sequence[Hashable]) -> tuple[float, float]:
    """Wilson's interval of a share over its clusters.

    F1 = 2 J / (1 + J) grows with J = TP / (TP + FP + FN), which is a share of the rows that F1 looks at; its interval
    is J's, carried over.
    """
    mask = basis.rows if basis.decided is None else basis.decided
    units = len({keys[index] for index in np.flatnonzero(mask)})
    low, high = proportion_confint(value * units, units, alpha=1 - LEVEL, method="wilson")
    if basis.kind == "f1":
        low, high = 2 * low / (1 + low), 2 * high / (1 + high)
    return float(low), float(high)
