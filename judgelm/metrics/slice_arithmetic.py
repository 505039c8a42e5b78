"""What follows from the counts of SSR-Judge's four slices, without any judgment at hand.

The four slices are gate on or off by majority answer right or wrong. Their sizes and accuracies determine every other
figure of the same gate; a printed percentage of a known n mostly determines the count behind it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceCounts:
    """How many items a slice has, and how many of them a condition judges right."""

    n: int
    right: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FourSlices:
    """The four slices under one condition and one gate (SSR-Judge, Table 2)."""

    on_correct: SliceCounts
    on_wrong: SliceCounts
    off_correct: SliceCounts
    off_wrong: SliceCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """Table 1's columns as they follow from Table 2's; shares in [0, 1], None over no items."""

    n: int
    n_on: int
    preference_accuracy: float | None
    accuracy_on: float | None
    accuracy_off: float | None
    gate_on_rate: float | None
    gate_precision: float | None


def derive(slices: FourSlices) -> Derived:
    """The columns of Table 1 from four slices.

    Source: SSR-Judge, Tables 1 and 2.
    """
    on, off = (slices.on_correct, slices.on_wrong), (slices.off_correct, slices.off_wrong)
    n_on, n_off = sum(one.n for one in on), sum(one.n for one in off)
    right_on, right_off = sum(one.right for one in on), sum(one.right for one in off)
    return Derived(
        n=n_on + n_off,
        n_on=n_on,
        preference_accuracy=_share(right_on + right_off, n_on + n_off),
        accuracy_on=_share(right_on, n_on),
        accuracy_off=_share(right_off, n_off),
        gate_on_rate=_share(n_on, n_on + n_off),
        gate_precision=_share(slices.on_correct.n, n_on),
    )


def counts_behind(percent: float, n: int, decimals: int = 2) -> tuple[int, ...]:
    """All whole counts out of n that are printed as this percentage; none where the figure is not of this n.

    Args:
        percent: in [0, 100], as printed.
        n: items, 1 and more.
        decimals: printed digits after the point.

    Raises:
        ValueError: n is below 1.
    """
    if n < 1:
        raise ValueError(f"counts: n is {n}; a percentage of nothing has no count behind it")
    half = 0.5 * 10**-decimals + 1e-9
    near = round(percent * n / 100)
    reach = int(half * n / 100) + 1
    candidates = range(max(0, near - reach), min(n, near + reach) + 1)
    return tuple(count for count in candidates if abs(100 * count / n - percent) <= half)


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
