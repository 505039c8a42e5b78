"""A judge's drift: the same pairs judged twice, and the test that it is still the same judge.

A benign difference (another kernel, batch or numeric format) moves P(first better) a little on every pair; a drift
moves it far, or turns verdicts. So the judge counts as the same only where the data show the change to be small: the
upper end of the interval of mean |difference of P| must lie within a tolerance (a test of equivalence), few verdicts
may change, and those that do must not all turn one way.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest, permutation_test
from statsmodels.stats.proportion import proportion_confint

from judgelm.metrics.agreement import McNemar, mcnemar
from judgelm.metrics.resampling import LEVEL, Estimate, Floats, Resampling, mean

ALPHA = 0.01
"""Below this p value, the changed verdicts turn one way."""

_PERMUTATIONS = 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftLimits:
    """Limits of a benign difference.

    Attributes:
        tolerance: of mean |difference of P(first better)|, in [0, 1].
        max_changed: largest share of changed verdicts, in [0, 1].
    """

    tolerance: float = 0.02
    max_changed: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilityDrift:
    """Differences of P(the answer shown first is better), later minus earlier, over both orders.

    Attributes:
        size: mean over pairs of |difference|, itself the mean over the orders.
        largest: the largest |difference| of a pair in one order.
        shift: mean difference: above 0 the judge leans more to the answer shown first than it did.
        shift_p: p value of the paired permutation test (signs of pairs exchanged) that there is no shift.
    """

    size: Estimate
    largest: float
    shift: Estimate
    shift_p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictDrift:
    """Verdicts that changed; a failure is a verdict of its own.

    Attributes:
        changed: share of changed verdicts, with Wilson's interval.
        count: number of changed verdicts.
        to_first: of them, turned toward the sample's first answer; the others of `to_first` and `to_second` toward its
            second. Failures are in neither.
        to_second: see `to_first`.
        sign_p: two-sided exact p value of so uneven a split.
        right: rightness of both before and after, over pairs with a label; None without labels.
    """

    changed: Estimate
    count: int
    to_first: int
    to_second: int
    sign_p: float
    right: McNemar | None


def probability_drift(
    before: Floats, after: Floats, clusters: Sequence[Hashable], resampling: Resampling
) -> ProbabilityDrift | None:
    """The drift of P(the answer shown first is better).

    Args:
        before: shape (n, 2), one column per order; NaN where there is no probability. Likewise `after`.
        after: shape (n, 2).
        clusters: n keys, such as the questions, as in `resampling.bootstrap_sums`.
        resampling: seed and number of resamples.

    Returns:
        Over the pairs with all four probabilities; None where there is no such pair.

    Raises:
        ValueError: the shapes differ.
    """
    if before.shape != after.shape:
        raise ValueError(f"drift: expected two arrays of one shape (n, 2), got {before.shape} and {after.shape}")
    differences = after - before
    complete = ~np.isnan(differences).any(axis=1)
    if not complete.any():
        return None
    differences = differences[complete]
    keys = [clusters[index] for index in np.flatnonzero(complete)]
    shifts = differences.mean(axis=1)
    return ProbabilityDrift(
        size=mean(np.abs(differences).mean(axis=1), keys, resampling),
        largest=float(np.abs(differences).max()),
        shift=mean(shifts, keys, resampling),
        shift_p=_sign_flip_p(shifts, resampling.seed),
    )


def _sign_flip_p(shifts: Floats, seed: int) -> float:
    """Two-sided p value of the mean under exchanges of each pair's before and after; exact where there are few."""
    if not shifts.any() or shifts.size == 1:
        return 1.0  # of one pair, both signs are as far from 0
    result = permutation_test(
        (shifts,),
        lambda sample, axis: sample.mean(axis=axis),
        permutation_type="samples",
        n_resamples=_PERMUTATIONS,
        vectorized=True,
        random_state=seed,
    )
    return float(result.pvalue)


def verdict_drift(
    before: Sequence[int | None],
    after: Sequence[int | None],
    labels: Sequence[int | None],
    orders_changed: Sequence[bool] | None = None,
) -> VerdictDrift:
    """The drift of verdicts.

    Args:
        before: n labels: +1 first answer, 0 tie, -1 second; None for a failure. Likewise `after`.
        after: n labels.
        labels: the right labels; None for a pair without.
        orders_changed: n flags, whether the verdict of one order alone changed, which counts as a changed verdict too:
            for a judge without probabilities, whose two orders can turn together and give the same tie.

    Raises:
        ValueError: n is 0, or the lengths differ.
    """
    pairs = list(zip(before, after, labels, strict=True))
    if not pairs:
        raise ValueError("drift: no pair; a share of nothing is undefined")
    orders = [False] * len(pairs) if orders_changed is None else orders_changed
    changed = sum(old != new or turned for (old, new, _), turned in zip(pairs, orders, strict=True))
    turns = [new - old for old, new, _ in pairs if old is not None and new is not None and old != new]
    to_first = sum(turn > 0 for turn in turns)
    low, high = proportion_confint(changed, len(pairs), alpha=1 - LEVEL, method="wilson")
    labelled = [(old == label, new == label) for old, new, label in pairs if label is not None]
    return VerdictDrift(
        changed=Estimate(value=changed / len(pairs), low=float(low), high=float(high), n=len(pairs)),
        count=changed,
        to_first=to_first,
        to_second=len(turns) - to_first,
        sign_p=float(binomtest(to_first, len(turns)).pvalue) if turns else 1.0,
        right=mcnemar(*(np.array(column) for column in zip(*labelled, strict=True))) if labelled else None,
    )


def drift_reasons(probabilities: ProbabilityDrift | None, verdicts: VerdictDrift, limits: DriftLimits) -> list[str]:
    """The reasons why a judge counts as another one; empty where it is the same within the limits."""
    reasons = []
    if probabilities is not None and probabilities.size.high > limits.tolerance:
        size = probabilities.size
        reasons.append(
            f"P(first better) moved by {size.value:.4f} in the mean, and by up to {size.high:.4f} (95 % interval); "
            f"the tolerance is {limits.tolerance:g}"
        )
    changed = verdicts.changed
    if changed.value > limits.max_changed:
        reasons.append(
            f"{verdicts.count} of {changed.n} verdicts changed ({100 * changed.value:.1f} %); the limit is "
            f"{100 * limits.max_changed:g} %"
        )
    if verdicts.sign_p < ALPHA:
        reasons.append(
            f"changed verdicts turn one way: {verdicts.to_first} to the first answer, {verdicts.to_second} to the "
            f"second (p = {verdicts.sign_p:.2g})"
        )
    right = verdicts.right
    if right is not None and right.p_value < ALPHA:
        reasons.append(
            f"rightness changed: {right.only_first} verdicts right before alone, {right.only_second} right now alone "
            f"(McNemar's p = {right.p_value:.2g})"
        )
    return reasons
