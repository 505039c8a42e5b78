"""JudgeLM's Tables 4, 5, 6 and 1 from the measured cells, and the paper's claims tested on them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.replication.measures import Cell, difference, measure, pooled
from benchmarks.replication.plan import Plan, Reference, Shown
from judgelm.metrics.resampling import Estimate, Resampling

Expected = Literal["more", "less", "not less"]
"""`not less` is reaching or beating: the interval must not lie below zero."""

Comparison = tuple[str, Cell, Cell, Sequence[tuple[str, Expected]]]
"""What is compared, the one, the other, and what the paper found of which measure."""

CellOf = Callable[[str, int, bool, Reference, Shown], Cell]
"""The judges of a base, rows, swapped or not, references in training, tested in a format."""

_SCALING = ("agreement", "consistency", "toward_first", "toward_second", "delta_bias", "impartial")
_MAIN = ("agreement", "precision", "recall", "f1", "consistency", "delta_bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a table: what stands before the numbers, the numbers, and the judges behind them."""

    names: tuple[str, ...]
    measures: Mapping[str, Estimate]
    seeds: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table in the paper's layout."""

    title: str
    heads: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A difference that the paper reports, and ours.

    Attributes:
        comparison: what is compared.
        measure: of which measure.
        expected: what the paper found.
        difference: ours, with its interval.
    """

    comparison: str
    measure: str
    expected: Expected
    difference: Estimate

    @property
    def verdict(self) -> str:
        """Comparison of the interval with the paper: agrees, disagrees, or includes zero."""
        if self.expected == "not less":
            return "no" if self.difference.high < 0 else "yes"
        towards, against = (self.difference.low > 0, self.difference.high < 0)
        if self.expected == "less":
            towards, against = against, towards
        return "yes" if towards else "no" if against else "open: the interval includes zero"


def tables_of(plan: Plan, cell: CellOf, resampling: Resampling) -> list[Table]:
    """Tables 4, 5, 6 and 1."""

    def row(names: tuple[str, ...], judges: Cell) -> Row:
        return Row(names=names, measures=measure(judges, resampling), seeds=judges.seeds, failed=judges.failed)

    (ablated, few), many = plan.ablation, plan.scales[-1]
    scaling = [
        row((base.name, f"{rows:,}"), cell(base.name, rows, False, "never", "without"))
        for base in plan.bases
        for rows in plan.scales
    ]
    swap = [row((name,), cell(ablated, few, swapped, "never", "without")) for name, swapped in _SWAPS]
    formats = [
        row((match, trained, tested), cell(ablated, few, False, _TRAINED[trained], _TESTED[tested]))
        for match, trained, tested in _FORMATS
    ]
    main = [
        row((f"judge {shown} reference", base.name), cell(base.name, many, True, "drop", shown))
        for shown in _SHOWN
        for base in plan.bases
    ]
    made = f"base {ablated}, {few:,} rows"
    return [
        Table(title="Table 4: size and data, plain judges, tested without reference",
              heads=("judge size", "data scale"), columns=_SCALING, rows=tuple(scaling)),
        Table(title=f"Table 5: swap augmentation ({made}, tested without reference)",
              heads=("method",), columns=_SCALING, rows=tuple(swap)),
        Table(title=f"Table 6: reference support and reference drop ({made})",
              heads=("format", "fine-tuned with ref?", "tested with ref?"), columns=_SCALING, rows=tuple(formats)),
        Table(title=f"Table 1: judges with all three techniques ({many:,} rows)",
              heads=("test", "judge size"), columns=_MAIN, rows=tuple(main)),
    ]  # fmt: skip


_SHOWN: tuple[Shown, ...] = ("without", "with")
_SWAPS = (("baseline", False), ("+ swap aug.", True))
_TRAINED: Mapping[str, Reference] = {"no": "never", "yes": "always", "ref. drop": "drop"}
_TESTED: Mapping[str, Shown] = {"no": "without", "yes": "with"}
_FORMATS = (
    ("matching", "no", "no"),
    ("matching", "yes", "yes"),
    ("mismatched", "no", "yes"),
    ("mismatched", "yes", "no"),
    ("ref. drop", "ref. drop", "no"),
    ("ref. drop", "ref. drop", "yes"),
)


def claims_of(plan: Plan, cell: CellOf, resampling: Resampling) -> list[Claim]:
    """The differences that the paper's Tables 4, 5 and 6 show, in ours."""
    base, few = plan.ablation

    def ablated(trained: Reference, shown: Shown, *, swap: bool = False) -> Cell:
        return cell(base, few, swap, trained, shown)

    plain, supported = ablated("never", "without"), ablated("always", "with")
    compared: list[Comparison] = [
        *_scaling(plan, cell),
        ("swap augmentation, against the baseline", ablated("never", "without", swap=True), plain,
         (("consistency", "more"), ("delta_bias", "less"))),
        ("fine-tuned and tested with reference, against without", supported, plain,
         (("agreement", "more"), ("consistency", "more"))),
        ("tested with reference: fine-tuned with, against without", supported, ablated("never", "with"),
         (("agreement", "more"),)),
        ("tested without reference: fine-tuned without, against with", plain, ablated("always", "without"),
         (("agreement", "more"),)),
        ("reference drop tested without, against the matching format", ablated("drop", "without"), plain,
         (("agreement", "not less"),)),
        ("reference drop tested with, against the matching format", ablated("drop", "with"), supported,
         (("agreement", "not less"),)),
    ]  # fmt: skip
    claims = []
    for comparison, judges, others, expectations in compared:
        differences = difference(judges, others, resampling)
        claims += [
            Claim(comparison=comparison, measure=name, expected=expected, difference=differences[name])
            for name, expected in expectations
        ]
    return claims


def _scaling(plan: Plan, cell: CellOf) -> list[Comparison]:
    """Most against least data, over all sizes; the largest against the smallest base, over all scales."""

    def plain(base: str, rows: int) -> Cell:
        return cell(base, rows, False, "never", "without")

    names = [base.name for base in plan.bases]
    expected: Sequence[tuple[str, Expected]] = (("agreement", "more"), ("consistency", "more"))
    few, many = (pooled([plain(name, rows) for name in names]) for rows in (plan.scales[0], plan.scales[-1]))
    comparisons: list[Comparison] = [
        (f"{plan.scales[-1]:,} rows against {plan.scales[0]:,}, all sizes", many, few, expected)
    ]
    if len(names) > 1:
        small, large = (pooled([plain(name, rows) for rows in plan.scales]) for name in (names[0], names[-1]))
        comparisons.append((f"base {names[-1]} against {names[0]}, all data scales", large, small, expected))
    return comparisons
