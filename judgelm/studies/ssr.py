"""Evaluate selective self-reference: the judge uses its own answer as the reference if its self-solves agree.

Source: SSR-Judge.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from judgelm.data.judged_texts import check_same_texts
from judgelm.errors import ConfigError
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.records import Judgment
from judgelm.studies import ssr_items
from judgelm.studies.result import Figure, Forest, Layouts, Lines, Series, StudyResult, Table, Value, forest, point
from judgelm.studies.sentences import format_points, format_share
from judgelm.studies.ssr_items import CONDITIONS, SplitRule, SsrItems, pair_outcome
from judgelm.studies.ssr_tau import choose_taus, chosen_table, held_out_table
from judgelm.studies.truth_file import PairTruth

LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SsrOptions:
    """Options for the study.

    Attributes:
        tau: gate threshold for the headline figures, in [0, 1].
        split: how to count a 1-1 split between the two orders; Table 1 shows all three ways.
        calibration_share: share of the questions in each category used to choose tau, in (0, 1).
    """

    tau: float = 0.8
    split: SplitRule = "wrong"
    calibration_share: float = 0.5
    resampling: Resampling = field(default_factory=Resampling)

    def __post_init__(self) -> None:
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
    """Compare never, always, and selective self-reference on the same self-solves.

    `selective` is a run that applied the gate itself; it is checked against the result computed from the other two
    runs.

    Raises:
        InputError: no ids match, the same id has different texts, or no pair has self-solves.
    """
    options = options or SsrOptions()
    check_same_texts({"never": never, "always": always, "selective": selective or {}})
    items = ssr_items.join_items(never, always, truths)
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
        figures=tuple(_figures(options, tables)),
        warnings=_warnings(counts),
    )


def _tables(
    items: SsrItems, never: Mapping[str, Judgment], always: Mapping[str, Judgment], options: SsrOptions
) -> dict[str, Table]:
    tau, rule, resampling = options.tau, options.split, options.resampling
    tables = [
        ssr_items.comparison_table(items, tau, resampling),
        ssr_items.tau_table(items, rule, resampling),
        ssr_items.slice_table(items, sorted({*ssr_items.all_taus(items), tau}), rule, resampling),
        ssr_items.calibration_table(items, resampling),
        ssr_items.category_table(items, tau, rule, resampling),
        ssr_items.cost_table(items, never, always, tau),
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
        protocol=f"Pairs are judged without a reference and with the majority answer; tau = {options.tau:g}. Failed "
        "pairs are excluded from all conditions, and every pair failed.",
        findings=(
            f"All {counts['failed in a run']:,} pairs failed in at least one run, so there is nothing to compare.",
        ),
        counts=counts,
        tables=(failures,),
        warnings=_warnings(counts),
    )


def _protocol(items: SsrItems, options: SsrOptions) -> str:
    ks = sorted({item.majority.k for item in items.items})
    return (
        f"Pairs are judged without a reference and with the majority answer of k = {', '.join(map(str, ks))} "
        f"self-solves. The selective condition uses one or the other, depending on the gate at tau = {options.tau:g}. "
        f"A split between the two orders counts as {options.split}. If answers are tied, the first one is the majority "
        "answer. Failed pairs are excluded from all conditions. Pairs and truths are joined by id. Intervals are 95 % "
        f"from {options.resampling.resamples} resamples of questions."
    )


def _findings(items: SsrItems, options: SsrOptions, categories: Table) -> tuple[str, ...]:
    whole, gains = items.accuracies(options.split, options.tau, ((2, 0), (2, 1)), options.resampling)
    gate = items.gate(options.tau, options.resampling)
    never, always, selective = map(format_share, whole)
    over_never, over_always = (format_points(gain) if gain else "undefined" for gain in gains)
    sentences = [
        f"PreferenceAcc at tau = {options.tau:g}: selective {selective}, no reference {never}, always {always}.",
        f"The selective condition gains {over_never} over no reference and {over_always} over always.",
        f"The gate is on for {format_share(gate.rate)} of the pairs; the majority answer is right for "
        f"{format_share(gate.precision)} of these.",
    ]
    if len(categories.rows) > 1:
        columns = [categories.column(key) for key in ("gain", "gain_over_always")]
        over = [sum(isinstance(cell, Estimate) and cell.value > 0 for cell in cells) for cells in columns]
        sentences.append(
            f"In {over[0]} of {len(categories.rows)} categories, the selective condition is better than no reference, "
            f"and in {over[1]} it is better than always."
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
        "different solves in the two runs": "pairs have different self-solves in the two runs; use the same saved "
        "self-solves for both",
        "reference is not the majority": "pairs were judged with a reference that is not the majority answer",
        "majority not known to be right or wrong": "pairs have no right answer in the truth file and are excluded from "
        "gate precision, calibration, and the four slices",
        "selective run, other gate": "pairs have a different gate in the selective run; check the tau of that run",
        "selective run, other outcome": "pairs have a different outcome in the selective run",
    }
    return tuple(f"{counts[key]} {explanation}." for key, explanation in explanations.items() if counts.get(key))


def _figures(options: SsrOptions, tables: Mapping[str, Table]) -> Iterator[Figure]:
    levels = tables["calibration"]
    right = Series(name="majority answer", x=_numbers(levels, "agreement"), y=_values(levels, "right"))
    yield Lines(**LAYOUTS.figure("agreement-calibration"), series=(right,), diagonal=True)
    yield from _over_tau(tables["every-tau"], tables["comparison"], options.split)
    yield _slices(tables["four-slices"], options.tau)
    gains = zip(*(tables["categories"].column(key) for key in ("category", "gain")), strict=True)
    by_category = forest([(str(name), gain) for name, gain in gains], **LAYOUTS.figure("category-gains"))
    if by_category.rows:
        yield by_category


def _over_tau(table: Table, comparison: Table, rule: SplitRule) -> tuple[Lines, Lines]:
    taus = _numbers(table, "tau")
    gate = Series(
        name="gate",
        x=_numbers(table, "gate_on_rate"),
        y=_values(table, "gate_precision"),
        labels=tuple(f"tau = {tau:g}" for tau in taus),
    )
    accuracies = zip(comparison.column("split"), _values(comparison, "accuracy"), strict=True)
    never, always, _ = (point(accuracy) for split, accuracy in accuracies if split == rule)
    series = (
        Series(name=CONDITIONS[2], x=taus, y=_values(table, "accuracy")),
        Series(name=CONDITIONS[0], x=taus, y=(never,) * len(taus)),
        Series(name=CONDITIONS[1], x=taus, y=(always,) * len(taus)),
    )
    return (
        Lines(**LAYOUTS.figure("precision-and-coverage"), series=(gate,)),
        Lines(**LAYOUTS.figure("accuracy-over-tau"), series=series),
    )


def _slices(table: Table, tau: float) -> Forest:
    rows = [row for row in table.records() if row["tau"] == tau]
    keys = zip(("never", "always", "selective"), CONDITIONS, strict=True)
    return forest(
        [(f"{row['slice']} (n = {row['n']})", row[key], condition) for key, condition in keys for row in rows],
        **LAYOUTS.figure("four-slices-accuracy", tau=tau),
    )


def _numbers(table: Table, key: str) -> tuple[float, ...]:
    return tuple(number for value in _values(table, key) if (number := point(value)) is not None)


def _values(table: Table, key: str) -> tuple[Value, ...]:
    return tuple(cell if isinstance(cell, float | Estimate) else None for cell in table.column(key))
