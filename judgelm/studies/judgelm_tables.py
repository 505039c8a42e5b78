"""JudgeLM's Tables 1 to 6 in the paper's own layout, out of evaluated runs of the user's judges.

Source: JudgeLM, section 6. Table 3 adds up what each run's manifest recorded; its total is loading, judging and
metrics, as the paper counts it. Agreement, precision, recall and F1 are those of the given order; the swapped order
serves consistency and bias. Agreement by the mean of both orders has a column of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from judgelm.metrics.resampling import Estimate
from judgelm.studies.evaluation import Evaluation
from judgelm.studies.result import Bars, Figure, Lines, Row, Series, StudyResult, Table, bars, columns, table
from judgelm.studies.sentences import format_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of a run over all its sessions; None is not recorded.

    Attributes:
        pairs: judged.
        load_s: loading the judge.
        judge_s: judging.
        metrics_s: comparing with the labels, here and now.
        reasons: whether the judge wrote its reasons.
        workers: what judged side by side, in words.
    """

    pairs: int
    load_s: float | None
    judge_s: float | None
    metrics_s: float
    reasons: bool
    workers: str

    @property
    def total_s(self) -> float | None:
        """Loading, judging and metrics; None where a part is not recorded."""
        if self.load_s is None or self.judge_s is None:
            return None
        return self.load_s + self.judge_s + self.metrics_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRun:
    """The run of one row: texts before its numbers, and the numbers."""

    heads: Mapping[str, str]
    evaluation: Evaluation
    timing: Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A table of the paper: columns before the numbers, and the numbers."""

    title: str
    heads: Mapping[str, str]
    measures: tuple[str, ...]


_MEASURES: Mapping[str, str] = {
    "agreement": "agreement, given order ↑", "accuracy": "accuracy ↑",
    "precision": "precision ↑", "recall": "recall ↑", "f1": "F1 ↑",
    "consistency": "consistency ↑", "toward_first": "bias toward 1st ↓", "toward_second": "bias toward 2nd ↓",
    "delta": "delta bias ↓", "agreement_by_mean": "agreement, mean of both orders ↑",
}  # fmt: skip
_GIVEN_NOTE = "Agreement, precision, recall, F1, n and failed are those of the given order, as in the paper."
_PANDALM_NOTE = "PandaLM's protocol: a failure is a tie, and so is a conflict of two orders."
_POSITION = ("consistency", "toward_first", "toward_second", "delta")
_SCALING = ("agreement", *_POSITION, "agreement_by_mean")

LAYOUTS: Mapping[int, Layout] = {
    1: Layout(
        title="Main results",
        heads={"reference": "judged with reference?", "method": "method"},
        measures=("agreement", "precision", "recall", "f1", "consistency", "agreement_by_mean"),
    ),
    2: Layout(
        title="Against people (PandaLM's test set)",
        heads={"method": "method"},
        measures=("accuracy", "precision", "recall", "f1"),
    ),
    3: Layout(title="Efficiency", heads={"method": "method", "model_size": "model size"}, measures=()),
    4: Layout(title="Scaling", heads={"judge_size": "judge size", "data_scale": "data scale"}, measures=_SCALING),
    5: Layout(title="Swap augmentation", heads={"method": "method"}, measures=_SCALING),
    6: Layout(
        title="Reference support and reference drop",
        heads={"method": "method", "trained": "fine-tuned with ref?", "tested": "tested with ref?"},
        measures=_SCALING,
    ),
}
"""By their numbers in the paper."""


def paper_tables(runs: Mapping[int, Sequence[TableRun]]) -> StudyResult:
    """The tables that have runs, with figures for scaling and position bias.

    Args:
        runs: number of a table of the paper -> its rows.

    Raises:
        ValueError: no runs.
    """
    every = [run for rows in runs.values() for run in rows]
    if not every:
        raise ValueError("no runs to lay out")
    ordered = sorted(runs.items())
    biases = [_biases(table_number, rows) for table_number, rows in ordered if table_number in (5, 6)]
    figures: list[Figure | None] = [_scaling(runs[4]) if 4 in runs else None, *biases]
    return StudyResult(
        study="judgelm",
        title="JudgeLM's tables for these judges",
        protocol=" / ".join(dict.fromkeys(run.evaluation.protocol for run in every)),
        findings=tuple(_best(table_number, rows) for table_number, rows in ordered if table_number != 3),
        counts={
            "runs": len(every),
            "judged": sum(run.evaluation.counts.judged for run in every),
            "failed": sum(run.evaluation.counts.failed for run in every),
        },
        tables=tuple(
            _efficiency(rows) if table_number == 3 else _measured(table_number, rows) for table_number, rows in ordered
        ),
        figures=tuple(figure for figure in figures if figure is not None),
    )


def _measured(table_number: int, rows: Sequence[TableRun]) -> Table:
    layout = LAYOUTS[table_number]
    return table(
        [
            (
                *(run.heads[key] for key in layout.heads),
                *(metric_value(run.evaluation, name) for name in layout.measures),
                run.evaluation.counts.judged,
                run.evaluation.counts.failed,
            )
            for run in rows
        ],
        columns("text", layout.heads.items()),
        columns("share", ((name, _MEASURES[name]) for name in layout.measures)),
        columns("count", n="n", failed="failed"),
        name=f"table-{table_number}",
        title=f"Table {table_number}: {layout.title}",
        source=f"JudgeLM, Table {table_number}",
        note=f"{_PANDALM_NOTE if table_number == 2 else _GIVEN_NOTE} Empty: every judgment failed, or the pairs were "
        "judged in one order only. Intervals: 95 %.",
    )


def metric_value(evaluation: Evaluation, name: str) -> Estimate | None:
    """A number by its name in the tables, under the headline treatment of failures; None where it is not defined."""
    if name == "agreement_by_mean":
        other = evaluation.other_rules.get("mean")
        return None if other is None else other.excluded if evaluation.failures == "excluded" else other.as_tie
    metrics = evaluation.headline
    if metrics is None:
        return None
    if name in _POSITION:
        return None if metrics.position is None else _estimate(metrics.position, name)
    return _estimate(metrics, "accuracy" if name == "agreement" else name)


def _estimate(metrics: object, name: str) -> Estimate:
    estimate = getattr(metrics, name)
    assert isinstance(estimate, Estimate), "names come from the layouts"
    return estimate


def _efficiency(rows: Sequence[TableRun]) -> Table:
    cells: list[Row] = []
    for run in rows:
        timing, total = run.timing, run.timing.total_s
        per_5000 = None if total is None or not timing.pairs else total * 5000 / timing.pairs
        times = (timing.load_s, timing.judge_s, timing.metrics_s, total, per_5000)
        heads = [run.heads[key] for key in LAYOUTS[3].heads]
        cells.append((*heads, timing.workers, "yes" if timing.reasons else "no", timing.pairs, *times))
    return table(
        cells,
        columns("text", LAYOUTS[3].heads.items()),
        columns("text", workers="judged on", reasons="reasons?"),
        columns("count", pairs="pairs"),
        columns("number", load_s="load, s", judge_s="judge, s", metrics_s="metrics, s", total_s="total, s"),
        columns("number", per_5000_s="total for 5,000 pairs, s"),
        name="table-3",
        title="Table 3: Efficiency",
        source="JudgeLM, Table 3",
        note="Seconds of wall time over all sessions of a run, from its manifest; empty where it recorded none. "
        "The last column is in proportion, loading included, so few pairs make it too high.",
    )


def _scaling(rows: Sequence[TableRun]) -> Lines:
    """Agreement over the data, one line a size; data scales that are not numbers keep their order."""
    scales = list(dict.fromkeys(run.heads["data_scale"] for run in rows))
    numbers = {scale: count for scale in scales if (count := _number(scale)) is not None}
    numeric = len(numbers) == len(scales)
    at = numbers if numeric else {scale: float(index) for index, scale in enumerate(scales)}
    by_size: dict[str, list[TableRun]] = {}
    for run in rows:
        by_size.setdefault(run.heads["judge_size"], []).append(run)
    return Lines(
        name="scaling",
        title="Agreement over the rows to fine-tune on",
        x_label="Data scale (rows)" if numeric else "Data scale (in the order given)",
        y_label="Agreement, given order (share of pairs)",
        series=tuple(
            Series(
                name=size,
                x=tuple(at[run.heads["data_scale"]] for run in runs),
                y=tuple(metric_value(run.evaluation, "agreement") for run in runs),
            )
            for size, runs in by_size.items()
        ),
    )


def _number(text: str) -> float | None:
    """`3.5k`, `100K`, `1,000` as rows; None for what is no number."""
    plain = text.strip().lower().replace(",", "")
    factor = 1000 if plain.endswith("k") else 1
    try:
        return float(plain.removesuffix("k")) * factor
    except ValueError:
        return None


def _biases(table_number: int, rows: Sequence[TableRun]) -> Bars | None:
    """Position bias of each row; None where no run was judged in both orders."""
    judged = [run for run in rows if metric_value(run.evaluation, "delta") is not None]
    if not judged:
        return None
    names = {"toward_first": "toward 1st", "toward_second": "toward 2nd", "delta": "delta"}
    return bars(
        {name: [metric_value(run.evaluation, key) for run in judged] for key, name in names.items()},
        [", ".join(run.heads[key] for key in LAYOUTS[table_number].heads) for run in judged],
        name=f"position-bias-{table_number}",
        title=f"Position bias ({LAYOUTS[table_number].title.lower()})",
        x_label="Judge",
        y_label="Share of pairs",
    )


def _best(table_number: int, rows: Sequence[TableRun]) -> str:
    """The row with the highest value of the table's first measure."""
    name = LAYOUTS[table_number].measures[0]
    measured = [(estimate, run) for run in rows if (estimate := metric_value(run.evaluation, name)) is not None]
    if not measured:
        return f"Table {table_number}: no judgment could be read."
    estimate, run = max(measured, key=lambda pair: pair[0].value)
    judge = ", ".join(run.heads[key] for key in LAYOUTS[table_number].heads)
    return f"Table {table_number}: highest {_MEASURES[name].rstrip(' ↑')}: {format_share(estimate)}, {judge}."
