"""Whether a run is worse than its baseline, with bounded errors: passed, failed, or undecided.

The interval of a mean is a t interval over clusters, with one additional cluster at the lowest and one at the highest
possible value for the lower and upper bound. Without them, 30 equal values would give an interval of width 0.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import t as student

from judgelm.errors import InputError
from judgelm.metrics.resampling import LEVEL, Floats

Outcome = Literal["passed", "failed", "undecided"]
MAX_ESTIMATED = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A mean compared with a limit.

    Attributes:
        value: mean over pairs.
        low: lower bound of the 95 % interval.
        high: upper bound of the 95 % interval.
        limit: the check passes if the interval is on the allowed side of the limit, and fails if it is on the other
            side.
        n: number of pairs.
        clusters: number of questions.
        needed: number of pairs that would decide it, if the mean and the spread stay the same; None if `value` equals
            the limit, or if it is decided.
    """

    name: str
    value: float
    low: float
    high: float
    limit: float
    outcome: Outcome
    n: int
    clusters: int
    needed: int | None = None


def mean_interval(values: Floats, clusters: Sequence[Hashable], bounds: tuple[float, float]) -> tuple[float, float]:
    """Return a conservative 95 % interval of the mean, shape (n,), whose values are within `bounds`."""
    keys = {key: place for place, key in enumerate(dict.fromkeys(clusters))}
    index = np.array([keys[key] for key in clusters])
    sums = np.bincount(index, weights=values).astype(np.float64)
    sizes = np.bincount(index).astype(np.float64)
    low, high = (_bound(sums, sizes, extreme) for extreme in bounds)
    return low, high


def _bound(sums: Floats, sizes: Floats, extreme: float) -> float:
    """Return the bound of the mean on the side of `extreme`, a value that one additional cluster of mean size has."""
    size = sizes.mean()
    sums, sizes = np.append(sums, extreme * size), np.append(sizes, size)
    mean = sums.sum() / sizes.sum()
    residuals = sums - mean * sizes
    count = len(sums)
    error = math.sqrt(count / (count - 1) * float((residuals**2).sum())) / float(sizes.sum())
    reach = float(student.ppf((1 + LEVEL) / 2, count - 1)) * error
    return float(mean + math.copysign(reach, extreme - mean))


def check_mean(
    name: str,
    values: Floats,
    clusters: Sequence[Hashable],
    *,
    limit: float,
    bounds: tuple[float, float],
    is_maximum: bool,
) -> Check:
    """Compare a mean with its maximum or minimum.

    Args:
        name: what the mean is.
        values: shape (n,), one per pair.
        clusters: one key per pair; pairs with the same key are not independent.
        limit: maximum or minimum of the mean.
        bounds: lowest and highest possible value.
        is_maximum: whether `limit` is a maximum.

    Raises:
        InputError: there are no pairs.
    """
    if not len(values):
        raise InputError(f"{name}: no pairs were judged in both runs; pass runs over the same samples")
    low, high = mean_interval(values, clusters, bounds)
    value = float(values.mean())
    below: Outcome = "passed" if is_maximum else "failed"
    above: Outcome = "failed" if is_maximum else "passed"
    outcome = below if high < limit else above if low > limit else "undecided"
    needed, distance = None, abs(value - limit)
    if outcome == "undecided" and distance > 0:
        reach = high - value if value < limit else value - low
        estimated = len(values) * max(1.0, reach / distance) ** 2
        needed = math.ceil(estimated) if estimated <= MAX_ESTIMATED else None
    return Check(
        name=name,
        value=value,
        low=low,
        high=high,
        limit=limit,
        outcome=outcome,
        n=len(values),
        clusters=len(set(clusters)),
        needed=needed,
    )
