"""The figures that SSR-Judge's Tables 1 and 2 print, against each other: which follow from which, and which not.

Table 2 calls its slices unanimous, but their sizes are those of the gate at 4/5; Table 1 says that its gate columns are
those of 4/5, but its rows A and B are those of unanimity. Nothing here is about anybody's run, and the study shows it
only where it is asked for, under this name.
"""

from dataclasses import dataclass

import numpy as np

from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.metrics.selective import accuracies, gate_scores
from judgelm.metrics.slice_arithmetic import Derived, FourSlices, SliceCounts, counts_behind, derive
from judgelm.studies.result import Cell, Column, Table
from judgelm.studies.ssr.items import SplitRule, SsrItems

N = 1400
SIZES = (647, 246, 160, 347)
"""Table 2's slices: on and majority right, on and wrong, off and right, off and wrong."""

PRINTED_SLICES = {
    "A": (62.75, 45.53, 50.00, 37.75),
    "B": (85.32, 25.20, 72.50, 24.50),
    "C": (85.32, 25.20, 50.00, 37.75),
}
"""Table 2's accuracies in percent, by condition."""

PRINTED_ROWS = {
    "A": (52.07, 59.87, 45.73, 44.86, 78.66),
    "B": (58.21, 72.77, 46.37, 44.86, 78.66),
    "C": (58.93, 68.76, 41.62, 63.79, 72.45),
}
"""Table 1: PreferenceAcc, slice accuracy gate on and off, gate-on rate, gate precision, in percent."""

THREE_FIFTHS, FOUR_FIFTHS = 35.51, 57.7
"""Share of right majority answers at these agreements, in percent, as section 1 and Figure 3 print it."""

_COLUMNS = ("PreferenceAcc", "accuracy, gate on", "accuracy, gate off", "gate-on rate", "gate precision")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanimity:
    """Counts of the gate at 5/5, as far as the printed figures determine them.

    Attributes:
        on: items that all five self-solves agree on.
        right: of those, with a right majority answer.
        never_on: of those, judged right without reference; `always_on` with; `never_off`, `always_off` of the others.
    """

    on: int
    right: int
    never_on: int
    always_on: int
    never_off: int
    always_off: int


def four_fifths(condition: str) -> Derived:
    """Table 1's columns under the gate at 4/5, from Table 2's slices; `condition` is A, B or C."""
    counts = [
        SliceCounts(n=n, right=_only(counts_behind(percent, n)))
        for n, percent in zip(SIZES, PRINTED_SLICES[condition], strict=True)
    ]
    return derive(FourSlices(on_correct=counts[0], on_wrong=counts[1], off_correct=counts[2], off_wrong=counts[3]))


def unanimity() -> Unanimity:
    """The counts behind rows A and B of Table 1: each printed percentage is that of one count only."""
    _, never_on, never_off, rate, precision = PRINTED_ROWS["A"]
    _, always_on, always_off, _, _ = PRINTED_ROWS["B"]
    on = _only(counts_behind(rate, N))
    return Unanimity(
        on=on,
        right=_only(counts_behind(precision, on)),
        never_on=_only(counts_behind(never_on, on)),
        always_on=_only(counts_behind(always_on, on)),
        never_off=_only(counts_behind(never_off, N - on)),
        always_off=_only(counts_behind(always_off, N - on)),
    )


def three_fifths() -> tuple[tuple[int, int], ...]:
    """All (items, right majority answers) that 3/5 agreement can have: within Table 2's gate-off slices and 35.51 %."""
    _, _, right, wrong = SIZES
    return tuple(
        (n, count)
        for n in range(1, right + wrong + 1)
        for count in counts_behind(THREE_FIFTHS, n)
        if count <= right and n - count <= wrong
    )


def paper_table() -> Table:
    """Every printed figure beside what it is under the gate at 4/5 and under unanimity."""
    rows: list[tuple[Cell, ...]] = []
    strict = _under_unanimity()
    for condition, printed in PRINTED_ROWS.items():
        found = four_fifths(condition)
        gate = (
            found.preference_accuracy,
            found.accuracy_on,
            found.accuracy_off,
            found.gate_on_rate,
            found.gate_precision,
        )
        for name, percent, loose, tight in zip(_COLUMNS, printed, gate, strict[condition], strict=True):
            rows.append((f"{condition}: {name}", percent / 100, loose, tight, _gate_of(percent, loose, tight)))
    rows += _other_claims()
    return Table(
        name="paper-arithmetic",
        title="SSR-Judge's own figures against each other (not of this run)",
        columns=(
            Column(key="figure", heading="figure"),
            Column(key="printed", heading="printed", kind="share"),
            Column(key="four_fifths", heading="with the gate at 4/5", kind="share"),
            Column(key="unanimity", heading="with the gate at 5/5", kind="share"),
            Column(key="finding", heading="finding"),
        ),
        rows=tuple(rows),
        source="SSR-Judge, Tables 1 and 2, Figure 3, section 1",
        note="4/5: from Table 2's slices (647 + 246 of 1,400). 5/5: from the counts behind Table 1's rows A and B (628 "
        "items, 494 with a right majority answer); C there is B's 457 with the gate on and A's 353 with it off.",
    )


def mixed_gates_table(items: SsrItems, rule: SplitRule, how: Resampling) -> Table:
    """This run in Table 1's layout: rows A and B with the gate at 5/5, row C with the gate at 4/5."""
    rows: list[tuple[Cell, ...]] = []
    for place, (name, tau) in enumerate((("no reference (A)", 1.0), ("always (B)", 1.0), ("selective (C)", 0.8))):
        on = items.on(tau)
        credits = items.credits(rule, tau)[:, [place]]
        gate = gate_scores(on, items.right(), items.known(), items.questions, how)
        everywhere = np.ones_like(on)
        shares: list[Estimate | None] = []
        for mask in (everywhere, on, ~on):
            keys = [key for key, inside in zip(items.questions, mask, strict=True) if inside]
            shares += accuracies(credits[mask], (), keys, how)[0]
        rows.append((name, tau, *shares, gate.rate, gate.precision))
    return Table(
        name="paper-layout",
        title="This run with the gates that Table 1 mixes",
        columns=(
            Column(key="condition", heading="condition"),
            Column(key="tau", heading="tau of the gate columns", kind="number"),
            *(
                Column(key=key, heading=heading, kind="share")
                for key, heading in zip(("accuracy", "on", "off", "rate", "precision"), _COLUMNS, strict=True)
            ),
        ),
        rows=tuple(rows),
        source="SSR-Judge, Table 1",
        note="Only for comparison with the paper's Table 1; its gate columns are of two gates and do not compare.",
    )


def _under_unanimity() -> dict[str, tuple[float, ...]]:
    """Table 1's columns with the gate at 5/5; C is B where it is on and A where it is off."""
    found = unanimity()
    on, off = found.on, N - found.on
    right = {
        "A": (found.never_on, found.never_off),
        "B": (found.always_on, found.always_off),
        "C": (found.always_on, found.never_off),
    }
    gate = (on / N, found.right / on)
    return {name: ((inside + beyond) / N, inside / on, beyond / off, *gate) for name, (inside, beyond) in right.items()}


def _gate_of(percent: float, loose: float | None, tight: float) -> str:
    """Which gate a printed figure is of."""
    fits = [
        name
        for name, value in (("4/5", loose), ("5/5", tight))
        if value is not None and abs(100 * value - percent) < 0.005 + 1e-9
    ]
    if len(fits) == 2:
        return "of both, the gate does not matter"
    return f"of the gate at {fits[0]}" if fits else "of neither gate"


def _other_claims() -> list[tuple[Cell, ...]]:
    """Figures that stand in the text and in Figure 3."""
    found, (on_right, on_wrong, off_right, off_wrong) = unanimity(), SIZES
    between, between_right = on_right + on_wrong - found.on, on_right - found.right
    candidates = three_fifths()
    never, always = four_fifths("A"), four_fifths("B")
    sizes = ", ".join(str(n) for n, _ in candidates)
    low = "section 1 gives it for low agreement, but it is the slice with a wrong majority alone; this is all gate-off"
    return [
        ("'Unanimous + Correct', n = 647", on_right / N, on_right / N, found.right / N, "of the gate at 4/5"),
        (
            "'Unanimous + Wrong', n = 246",
            on_wrong / N,
            on_wrong / N,
            (found.on - found.right) / N,
            "of the gate at 4/5",
        ),
        (
            "majority right at 4/5 agreement",
            FOUR_FIFTHS / 100,
            between_right / between,
            None,
            f"determined: {on_right} - {found.right} = {between_right}, {on_right + on_wrong} - {found.on} = {between}",
        ),
        (
            "majority right at 3/5 agreement",
            THREE_FIFTHS / 100,
            None,
            None,
            f"not determined: {len(candidates)} counts fit ({sizes} of the {off_right + off_wrong} gate-off items)",
        ),
        ("A on low agreement", 0.3775, never.accuracy_off, found.never_off / (N - found.on), low),
        ("B on low agreement", 0.2450, always.accuracy_off, found.always_off / (N - found.on), low),
    ]


def _only(counts: tuple[int, ...]) -> int:
    """The one count behind a printed figure."""
    [count] = counts
    return count
