"""Self-reference only where the judge's own answers agree: the gate, what it lets through, and what that is worth.

A judge answers a question k times (see `judgelm.parsing.short_answers`); where their agreement is `tau` or above the
gate is on, and the commonest answer is shown as the reference.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from judgelm.metrics.nan_estimates import Basis, defined_estimates, ratio
from judgelm.metrics.resampling import Estimate, Resampling

Flags = NDArray[np.bool_]
Clusters = Sequence[Hashable] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateScores:
    """Scores of a gate; shares in [0, 1], None where undefined.

    Attributes:
        rate: share of items with the gate on (Gate-On Rate).
        precision: share of those whose majority answer is right (Gate Precision); None where the gate is never on.
    """

    rate: Estimate | None
    precision: Estimate | None


def gate_scores(on: Flags, right: Flags, known: Flags, clusters: Clusters, resampling: Resampling) -> GateScores:
    """Gate-on rate and gate precision.

    Args:
        on: shape (n,), whether the gate is on.
        right: shape (n,), whether the majority answer is right; counts only where `known`.
        known: shape (n,), whether that is known.
        clusters: n keys; items of one key are resampled together.
        resampling: seed and number of resamples.

    Source: SSR-Judge, section 4.1 (metrics) and Table 1.
    """
    every = np.ones_like(on)
    counted = on & known
    values = np.column_stack([on, every, counted & right, counted]).astype(np.float64)
    bases = [Basis(rows=every, kind="share"), Basis(rows=counted, kind="share")]
    rate, precision = defined_estimates(values, _pairs_of_sums, bases, clusters, resampling)
    return GateScores(rate=rate, precision=precision)


def accuracies(
    credits: NDArray[np.float64],
    differences: Sequence[tuple[int, int]],
    clusters: Clusters,
    resampling: Resampling,
) -> tuple[list[Estimate | None], list[Estimate | None]]:
    """PreferenceAcc of several conditions over the same items, and differences between them, resampled together.

    Args:
        credits: shape (n, c), credit in [0, 1] of each item under each condition; NaN leaves the item out there.
        differences: pairs of conditions; (2, 0) is that of condition 2 minus that of condition 0.
        clusters: n keys; items of one key are resampled together.
        resampling: seed and number of resamples.

    Returns:
        c accuracies and the differences asked for; None where no item counts.
    """
    counted = ~np.isnan(credits)
    width = credits.shape[1]
    values = np.column_stack([np.where(counted, credits, 0.0), counted.astype(np.float64)])

    def statistic(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        shares = ratio(sums[:, :width], sums[:, width:])
        return np.column_stack([shares, *(shares[:, first] - shares[:, second] for first, second in differences)])

    bases = [Basis(rows=counted[:, first], kind="share") for first in range(width)]
    bases += [Basis(rows=counted[:, first] & counted[:, second]) for first, second in differences]
    estimates = defined_estimates(values, statistic, bases, clusters, resampling)
    return estimates[:width], estimates[width:]


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelScores:
    """One level of agreement: how many items have it, and how often their majority answer is right."""

    agreement: float
    n: int
    right: Estimate | None


def calibration_curve(
    agreement: NDArray[np.float64], right: Flags, clusters: Clusters, resampling: Resampling
) -> tuple[LevelScores, ...]:
    """Share of right majority answers at each level of agreement that occurs, lowest first.

    Args:
        agreement: shape (n,), in [0, 1], of the items of which it is known whether the majority answer is right.
        right: shape (n,).
        clusters: n keys; items of one key are resampled together.
        resampling: seed and number of resamples.

    Source: SSR-Judge, section 4.4 and Figure 3.
    """
    levels = np.unique(np.round(agreement, 9))
    masks = [np.isclose(agreement, level, atol=1e-6) for level in levels]
    if not masks:
        return ()
    values = np.column_stack([column for mask in masks for column in (mask & right, mask)]).astype(np.float64)
    bases = [Basis(rows=mask, kind="share") for mask in masks]
    estimates = defined_estimates(values, _pairs_of_sums, bases, clusters, resampling)
    return tuple(
        LevelScores(agreement=float(level), n=int(mask.sum()), right=first)
        for level, mask, first in zip(levels, masks, estimates, strict=True)
    )


def thresholds(ks: Sequence[int]) -> tuple[float, ...]:
    """The values of tau at which the gate changes: m / k for every k that occurs and m from 1 to k, lowest first."""
    return tuple(sorted({round(votes / k, 9) for k in set(ks) for votes in range(1, k + 1)}))


def _pairs_of_sums(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ratios of columns 0 and 1, 2 and 3, and so on."""
    return ratio(sums[:, 0::2], sums[:, 1::2])
