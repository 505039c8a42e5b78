"""Does the judge's answer depend on which answer it reads first?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionBias:
    """Shares in [0, 1]; consistency, toward first and toward second sum to 1, `delta` is the lean's size."""

    consistency: float
    toward_first: float
    toward_second: float
    delta: float
    n: int


def position_bias(given: NDArray[np.int_], swapped: NDArray[np.int_]) -> PositionBias:
    """Share of pairs judged alike in both orders, and where the rest lean.

    A pair leans toward the first place when showing an answer first raises its standing: from tie to win counts as
    from loss to win. `given=+1, swapped=-1` (whoever stands first wins) leans first.

    Args:
        given: shape (n,), +1 first answer wins, 0 tie, -1 second wins.
        swapped: shape (n,), the same pairs shown in reverse, already put back in sample order,
            so that an order-blind judge has `given == swapped`.

    Raises:
        ValueError: shapes differ, or n is 0 (a share of nothing is not 0).

    Example:
        >>> position_bias(given=np.array([1, 1, -1, 0]), swapped=np.array([1, -1, -1, 1]))
        PositionBias(consistency=0.5, toward_first=0.25, toward_second=0.25, delta=0.0, n=4)

    Source: JudgeLM, section 3.2 and Table 4. The original code compares in the reversed order's position frame,
    r = -swapped with e = -given: `perfer_before_rate` = mean(r > e) = mean(swapped < given) is `toward_first`.
    """
    steady, first, second = position_cells(given, swapped).mean(axis=0).tolist()
    return PositionBias(
        consistency=steady, toward_first=first, toward_second=second, delta=abs(first - second), n=given.size
    )


def position_cells(given: NDArray[np.int_], swapped: NDArray[np.int_]) -> NDArray[np.float64]:
    """One row per pair with a 1 under consistent, toward first or toward second: what resampling sums up.

    Returns:
        shape (n, 3).

    Raises:
        ValueError: as `position_bias`.
    """
    if given.shape != swapped.shape or given.ndim != 1:
        raise ValueError(f"orders: expected two arrays of one shape (n,), got {given.shape} and {swapped.shape}")
    if given.size == 0:
        raise ValueError("orders: no pair was judged in both; a share of nothing is undefined")
    return np.stack([swapped == given, swapped < given, swapped > given], axis=1).astype(np.float64)


def first_place_leads(leads: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how many score points standing first puts an answer ahead, for each pair.

    Args:
        leads: score of the answer shown first minus that of the one shown second; shape (n, 2), one column per order.

    Returns:
        shape (n,), the mean over both orders: 0 where order changes nothing, since then the leads are each other's
        negatives.
    """
    return np.asarray(leads.mean(axis=1), dtype=np.float64)
