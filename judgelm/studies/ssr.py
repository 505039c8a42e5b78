"""Study of selective self-reference: the judge's own answer is the reference if its self-solves agree.

Source: SSR-Judge.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from judgelm.data.judged_texts import check_same_texts
from judgelm.errors import ConfigError
from judgelm.metrics.correctness import accuracies
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.records import Judgment
from judgelm.studies.result import (
    Bars,
    Cell,
    Figure,
    Layouts,
    Lines,
    Row,
    Series,
    StudyResult,
    Table,
    Value,
    bars,
    forest,
)
from judgelm.studies.ssr_items import (
    CONDITIONS,
    SLICES,
    SplitRule,
    SsrItems,
    all_taus,
    by_category,
    calibration_table,
    category_table,
    comparison_table,
    cost_table,
    credit,
    join_items,
    pair_outcome,
    slice_table,
    tau_table,
)
from judgelm.studies.truth_file import PairTruth

LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SsrOptions:
    """Options of the study.

    Attributes:
        tau: gate of the headline, in [0, 1]; at 0 the gate is on for every item with an answer.
        split: treatment of a 1-1 split over two orders, except in Table 1, which has all three.
        calibration_share: share of each category's questions on which tau is chosen, in (0, 1).
        resampling: number of resamples, and seed (also of the calibration part).

    Raises:
        ConfigError: tau or the share is out of range.
    """

    tau: float = 0.8
    split: SplitRule = "wrong"
    calibration_share: float = 0.5
    resampling: Resampling = field(default_factory=Resampling)

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 <= self.tau <= 1:
            raise ConfigError(f"tau: expected a share of self-solves from 0 to 1, got {self.tau}")
        if not 0 < self.calibration_share < 1:
            raise ConfigError(f"calibration_share: expected a number between 0 and 1, got {self.calibration_share}")


def ssr_study(
    never: Mapping[str, Judgment],
    always: Mapping[str, Judgment],
    truths: Mapping[str, PairTruth],
    options: SsrOptions | None = None,
    *,
    selective: Mapping[str, Judgment] | None = None,
) -> StudyResult:
    """Compare never, always and selective self-reference on the same self-solves.

    Args:
        never: run without reference.
        always: run with the majority answer as reference.
        truths: by sample id.
        options: see `SsrOptions`.
        selective: a run with its own gate, checked against the result of the other two at `tau`.

    Raises:
        InputError: nothing joins, different texts under one id, or no pairs with self-solves.
    """
    options = options or SsrOptions()
    check_same_texts({"never": never, "always": always, "selective": selective or {}})
    items = join_items(never, always, truths)
    counts = dict(items.counts)
    if selective is not None:
        counts |= _against_run(items, selective, truths, options.tau)
    if not items.items:
        return _nothing_judged(counts, options)
    tables = _tables(items, never, always, options)
    return StudyResult(
        study="ssr",
        title="Selective self-reference",
        protocol=_protocol(items, options),
        findings=_findings(items, options, tables["categories"]),
        counts=counts,
        tables=tuple(tables.values()),
        figures=tuple(_figures(items, options, tables)),
        warnings=_warnings(counts),
    )


def _tables(
    items: SsrItems, never: Mapping[str, Judgment], always: Mapping[str, Judgment], options: SsrOptions
) -> dict[str, Table]:
    tau, rule, resampling = options.tau, options.split, options.resampling
    tables = [
        comparison_table(items, tau, resampling),
        tau_table(items, rule, resampling),
        slice_table(items, sorted({*all_taus(items), tau}), rule, resampling),
        calibration_table(items, resampling),
        category_table(items, tau, rule, resampling),
        cost_table(items, never, always, tau),
    ]
    chosen = choose_taus(items, rule, resampling.seed, options.calibration_share)
    if chosen is not None:
        tables += [chosen_table(chosen), held_out_table(chosen, tau, rule, resampling)]
    return {table.name: table for table in tables}


def _nothing_judged(counts: Mapping[str, int], options: SsrOptions) -> StudyResult:
    failed = zip(CONDITIONS, ("failed without reference", "failed with reference"), strict=False)
    failures = LAYOUTS.table("failures", [(name, counts["failed in a run"], counts[key]) for name, key in failed])
    return StudyResult(
        study="ssr",
        title="Selective self-reference",
        protocol=f"Pairs judged without reference and with the majority answer; tau = {options.tau:g}; failed pairs "
        "are excluded from all conditions, and every pair failed.",
        findings=(f"All {counts['failed in a run']:,} pairs failed in at least one run: nothing to compare.",),
        counts=counts,
        tables=(failures,),
        warnings=_warnings(counts),
    )


def _protocol(items: SsrItems, options: SsrOptions) -> str:
    ks = sorted({item.majority.k for item in items.items})
    return (
        f"Pairs judged without reference and with the majority answer of k = {', '.join(map(str, ks))} self-solves; "
        f"selective chooses between them by the gate at tau = {options.tau:g}. A split over two orders counts as "
        f"{options.split}; the first of tied answers is the majority; failed pairs are excluded from all conditions; "
        f"the truth is joined by id; intervals are 95 % from {options.resampling.resamples} resamples of questions."
    )


def _findings(items: SsrItems, options: SsrOptions, categories: Table) -> tuple[str, ...]:
    whole, gains = items.accuracies(options.split, options.tau, ((2, 0), (2, 1)), options.resampling)
    gate = items.gate(options.tau, options.resampling)
    never, always, selective = (_percent(estimate) for estimate in whole)
    sentences = [
        f"PreferenceAcc at tau = {options.tau:g}: selective {selective}, no reference {never}, always {always}, over "
        f"n = {len(items.items)} pairs.",
        f"Selective gains {_percent(gains[0], points=True)} over no reference and {_percent(gains[1], points=True)} "
        "over always.",
        f"The gate is on for {_percent(gate.rate)} of the pairs; the majority answer is right for "
        f"{_percent(gate.precision)} of these.",
    ]
    if len(categories.rows) > 1:
        columns = [categories.column(key) for key in ("gain", "gain_over_always")]
        over = [sum(isinstance(cell, Estimate) and cell.value > 0 for cell in cells) for cells in columns]
        sentences.append(
            f"It is better than no reference in {over[0]} and than always in {over[1]} of {len(categories.rows)} "
            "categories."
        )
    return tuple(sentences)


def _against_run(
    items: SsrItems, selective: Mapping[str, Judgment], truths: Mapping[str, PairTruth], tau: float
) -> dict[str, int]:
    both = [(item, selective[item.id]) for item in items.items if item.id in selective]
    gates = [
        (item.majority.passes(tau), judgment.own_reference is not None)
        for item, judgment in both
        if judgment.verdict is not None
    ]
    outcomes = [(item.selective(tau), pair_outcome(judgment, truths[item.id].winner)) for item, judgment in both]
    return {
        "selective run, compared": len(both),
        "selective run, failed": sum(outcome is None for _, outcome in outcomes),
        "selective run, other gate": sum(here != there for here, there in gates),
        "selective run, other outcome": sum(outcome is not None and here != outcome for here, outcome in outcomes),
    }


def _warnings(counts: Mapping[str, int]) -> tuple[str, ...]:
    explanations = {
        "failed in a run": "pairs failed in at least one run and are excluded from every condition",
        "without solves": "pairs have no self-solves and are excluded",
        "different solves in the two runs": "pairs have different self-solves in the two runs; judge both from "
        "the same saved self-solves",
        "reference is not the majority": "pairs were judged with a reference that is not the majority answer",
        "majority not known to be right or wrong": "pairs have no right answer in the truth file; gate precision, "
        "calibration and the four slices exclude them",
        "selective run, other gate": "pairs of the selective run had a different gate; check its tau",
        "selective run, other outcome": "pairs have a different outcome in the selective run",
    }
    return tuple(f"{counts[key]} {explanation}." for key, explanation in explanations.items() if counts.get(key))


def _percent(estimate: Estimate | None, *, points: bool = False) -> str:
    if estimate is None:
        return "undefined"
    unit = "points" if points else "%"
    sign = "+" if points else ""
    return (
        f"{100 * estimate.value:{sign}.2f} {unit} ({100 * estimate.low:{sign}.1f} to {100 * estimate.high:{sign}.1f})"
    )


def _figures(items: SsrItems, options: SsrOptions, tables: Mapping[str, Table]) -> Iterator[Figure]:
    yield _calibration(tables["calibration"])
    yield from _over_tau(tables["every-tau"], items, options.split)
    yield _slices(tables["four-slices"], options.tau)
    gains = zip(*(tables["categories"].column(key) for key in ("category", "gain")), strict=True)
    by_category = forest([(str(name), gain) for name, gain in gains], **LAYOUTS.figure("category-gains"))
    if by_category.rows:
        yield by_category


def _calibration(table: Table) -> Lines:
    return Lines(
        name="agreement-calibration",
        title="Share of right majority answers",
        x_label="agreement: share of self-solves with the most common answer",
        y_label="share of right majority answers",
        series=(Series(name="majority answer", x=_numbers(table, "agreement"), y=_values(table, "right")),),
        diagonal=True,
    )


def _over_tau(table: Table, items: SsrItems, rule: SplitRule) -> tuple[Lines, Lines]:
    taus = _numbers(table, "tau")
    labels = tuple(f"tau = {tau:g}" for tau in taus)
    trade = Lines(
        name="precision-and-coverage",
        title="Gate precision and gate-on rate over tau",
        x_label="gate-on rate: share of items with a reference",
        y_label="gate precision: share of right references",
        series=(
            Series(name="gate", x=_numbers(table, "gate_on_rate"), y=_values(table, "gate_precision"), labels=labels),
        ),
    )
    never, always = (_mean(items, rule, index) for index in (0, 1))
    accuracy = Lines(
        name="accuracy-over-tau",
        title="PreferenceAcc over tau",
        x_label="tau: minimum agreement for a reference",
        y_label="PreferenceAcc",
        series=(
            Series(name=CONDITIONS[2], x=taus, y=_values(table, "accuracy")),
            Series(name=CONDITIONS[0], x=taus, y=(never,) * len(taus)),
            Series(name=CONDITIONS[1], x=taus, y=(always,) * len(taus)),
        ),
    )
    return trade, accuracy


def _slices(table: Table, tau: float) -> Bars:
    of_tau = replace(table, rows=tuple(row for row in table.rows if row[0] == tau))
    return bars(
        {name: _values(of_tau, key) for name, key in zip(CONDITIONS, ("never", "always", "selective"), strict=True)},
        [f"{name} (n = {n})" for name, n in zip(SLICES, of_tau.column("n"), strict=True)],
        name="four-slices-accuracy",
        title=f"Accuracy by gate and majority answer, tau = {tau:g}",
        x_label="gate and majority answer",
        y_label="PreferenceAcc",
    )


def _mean(items: SsrItems, rule: SplitRule, condition: int) -> float | None:
    column = items.credits(rule, 1.0)[:, condition]
    counted = column[column == column]  # without NaN
    return float(counted.mean()) if counted.size else None


def _numbers(table: Table, key: str) -> tuple[float, ...]:
    return tuple(_value(cell) for cell in table.column(key))


def _values(table: Table, key: str) -> tuple[Value, ...]:
    return tuple(cell if isinstance(cell, float | Estimate) else None for cell in table.column(key))


def _value(cell: Cell) -> float:
    if isinstance(cell, Estimate):
        return cell.value
    assert isinstance(cell, int | float)
    return float(cell)


NEVER = 2.0
"""A tau above every agreement: no reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TauChoice:
    tau: float
    accuracy: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChosenTaus:
    """Categories without calibration items use the common choice."""

    common: _TauChoice
    by_category: Mapping[str, _TauChoice]
    held_out: SsrItems

    def tau_of(self, category: str) -> float:
        return self.by_category.get(category, self.common).tau


def split_items(items: SsrItems, seed: int, share: float = 0.5) -> tuple[SsrItems, SsrItems]:
    """Split into a calibration part and a held-out part by question, within each category.

    Args:
        items: all of them.
        seed: of the split.
        share: share of each category's questions for calibration, rounded down.
    """
    rng = np.random.default_rng(seed)
    chosen: set[str] = set()
    taken: set[str] = set()
    for category in sorted({item.category for item in items.items}):
        questions = sorted({item.question for item in items.items if item.category == category} - taken)
        taken.update(questions)
        drawn = rng.permutation(len(questions))[: int(share * len(questions))]
        chosen.update(questions[index] for index in drawn)
    inside = np.array([key in chosen for key in items.questions], dtype=np.bool_)
    return items.where(inside), items.where(~inside)


def choose_tau(items: SsrItems, taus: tuple[float, ...], rule: SplitRule) -> _TauChoice | None:
    """Return the best of these taus and of never showing a reference; None if no item counts."""
    best: _TauChoice | None = None
    for tau in (NEVER, *sorted(taus, reverse=True)):
        column = items.credits(rule, tau)[:, 2]
        counted = column[~np.isnan(column)]
        if counted.size and (best is None or counted.mean() > best.accuracy + 1e-12):
            best = _TauChoice(tau=tau, accuracy=float(counted.mean()), n=counted.size)
    return best


def choose_taus(items: SsrItems, rule: SplitRule, seed: int, share: float = 0.5) -> _ChosenTaus | None:
    """Choose on the calibration part; None if a part is empty."""
    calibration, held_out = split_items(items, seed, share)
    taus = all_taus(items)
    common = choose_tau(calibration, taus, rule)
    if common is None or not held_out.items:
        return None
    choices = {}
    for category, part in by_category(calibration).items():
        if (choice := choose_tau(part, taus, rule)) is not None:
            choices[category] = choice
    return _ChosenTaus(common=common, by_category=choices, held_out=held_out)


def chosen_table(chosen: _ChosenTaus) -> Table:
    """Return the chosen tau of each category and its number of items."""
    rows: list[Row] = [("all", chosen.common.n, _shown(chosen.common.tau), chosen.common.accuracy)]
    rows += [(name, choice.n, _shown(choice.tau), choice.accuracy) for name, choice in chosen.by_category.items()]
    return LAYOUTS.table("chosen-tau", rows)


def held_out_table(chosen: _ChosenTaus, fixed: float, rule: SplitRule, resampling: Resampling) -> Table:
    """Return the held-out accuracy of every way to set tau, and its gain over the fixed tau."""
    items = chosen.held_out
    names = ("no reference", "always", f"tau = {fixed:g}", "one tau, chosen", "a tau per category, chosen")
    common = [credit(item.selective(chosen.common.tau), rule) for item in items.items]
    own = [credit(item.selective(chosen.tau_of(item.category)), rule) for item in items.items]
    credits = np.column_stack([items.credits(rule, fixed), common, own])
    pairs = [(index, 2) for index in range(len(names))]
    shares, gains = accuracies(credits, pairs, items.questions, resampling)
    gains[2] = None
    return LAYOUTS.table("held-out-tau", zip(names, shares, gains, strict=True), rule=rule)


def _shown(tau: float) -> str:
    return "never" if tau == NEVER else f"{tau:g}"
