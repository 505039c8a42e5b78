"""Tables 1 to 6 of the JudgeLM paper for your own judges, in the same layout.

Each run has two rows: `ties` counts unreadable replies as ties, like the original code, and `left out` excludes them.
Table 3 is built from the run's manifest.

Source: JudgeLM, section 6; baaivision/JudgeLM, `judgelm/llm_judge/eval_model_judgement.py` (`calculate_metrics`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from judgelm.metrics.resampling import Estimate
from judgelm.parsing.scores import parse_pair_original
from judgelm.records import Judgment, PairVerdict, Shown, Unparsed, winner_of
from judgelm.runs.teacher import Prices
from judgelm.studies.evaluation import Evaluation
from judgelm.studies.pair_labels import grouped
from judgelm.studies.pair_metrics import PairMetrics
from judgelm.studies.result import Layouts, Lines, Row, Series, StudyResult, Table
from judgelm.studies.sentences import format_share

_LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Total time and tokens over all sessions of a run; None if not recorded.

    Attributes:
        metrics_s: time to compute the metrics, measured now.
        gpus: number of GPUs reserved for the whole run.
        prompt_tokens: counted with the judge's tokenizer, like `reply_tokens`.
    """

    pairs: int
    load_s: float | None
    judge_s: float | None
    metrics_s: float
    reasons: bool
    workers: str
    gpus: float | None = None
    prompt_tokens: int = 0
    reply_tokens: int = 0

    @property
    def total_s(self) -> float | None:
        """Time to load, judge, and compute metrics; None if not recorded."""
        if self.load_s is None or self.judge_s is None:
            return None
        return self.load_s + self.judge_s + self.metrics_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPrices:
    """Prices in USD for Table 3: per GPU hour, and per token of an API judge for comparison."""

    gpu_hour: float | None = None
    api: Prices | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRun:
    """The run for one row.

    Attributes:
        heads: cells of the leading columns.
        evaluation: results with replies parsed by judgelm.
        authors: results with replies parsed by `read_as_authors`; in Table 2, the same as `evaluation`.
        unpaired: number of labelled pairs without a reversed judgment.
    """

    heads: Mapping[str, str]
    evaluation: Evaluation
    authors: Evaluation
    timing: Timing
    unpaired: int = 0


Counted = Literal["ties", "left out"]


_COUNTINGS: Mapping[Counted, str] = {"ties": "ties, as in the original code", "left out": "left out"}
_POSITION = ("consistency", "toward_first", "toward_second", "delta")


def heads_of(table_number: int) -> Mapping[str, str]:
    """Return the heading of each leading column, by key."""
    return _LAYOUTS.groups(f"table-{table_number}")[0][1]


def _measures(table_number: int) -> Mapping[str, str]:
    return next(headings for kind, headings in _LAYOUTS.groups(f"table-{table_number}") if kind == "share")


def read_as_authors(judgments: Mapping[str, Judgment]) -> dict[str, Judgment]:
    """Parse the replies again, with the original parser.

    Retries are undone, because the original code does not retry. Judgments without scores keep their verdict.
    """
    return {key: _read_as_authors(judgment) for key, judgment in judgments.items()}


def _read_as_authors(judgment: Judgment) -> Judgment:
    scored = all((shown.scores or shown.failure) is not None and not shown.part for shown in judgment.shown)
    if not judgment.shown or not scored:
        return judgment
    every = tuple(_shown_to_authors(shown) for shown in judgment.shown)
    given = next((shown for shown in every if shown.order == (0, 1)), every[0])
    lead = None if given.scores is None else winner_of((given.scores[given.order[0]], given.scores[given.order[1]]))
    return replace(
        judgment,
        shown=every,
        scores=given.scores,
        failure=given.failure,
        verdict=None if lead is None else PairVerdict(winner=lead),
    )


def _shown_to_authors(shown: Shown) -> Shown:
    parsed = parse_pair_original(shown.text if shown.repaired is None else shown.repaired.text)
    if isinstance(parsed, Unparsed):
        return replace(shown, scores=None, failure=parsed, repaired=None)
    return replace(shown, scores=parsed.values, failure=None, repaired=None)


def paper_tables(runs: Mapping[int, Sequence[TableRun]], prices: CostPrices | None = None) -> StudyResult:
    """Build the tables in `runs` (table number -> rows), and the scaling figure."""
    every = [run for rows in runs.values() for run in rows]
    if not every:
        raise ValueError("expected at least one run")
    ordered = sorted(runs.items())
    prices = prices or CostPrices()
    return StudyResult(
        study="judgelm",
        title="Tables of the JudgeLM paper for these judges",
        protocol=" / ".join(dict.fromkeys(run.evaluation.protocol for run in every)),
        findings=tuple(
            finding
            for table_number, rows in ordered
            for finding in (_costs(rows, prices) if table_number == 3 else [_best(table_number, rows)])
        ),
        counts={
            "runs": len(every),
            "judged": sum(run.evaluation.counts.judged for run in every),
            "failed": sum(run.evaluation.counts.failed for run in every),
        },
        tables=tuple(
            _efficiency(rows, prices) if table_number == 3 else _measured(table_number, rows)
            for table_number, rows in ordered
        ),
        figures=(_scaling(runs[4]),) if 4 in runs else (),
        warnings=tuple(
            warning
            for table_number, rows in ordered
            if table_number != 3
            for run in rows
            for warning in _unreadable(table_number, run)
        ),
    )


def _measured(table_number: int, rows: Sequence[TableRun]) -> Table:
    cells: list[Row] = [
        (
            *(run.heads[key] for key in heads_of(table_number)),
            _COUNTINGS[counted] if table_number != 2 else counted,
            *(_metric_value(run, name, counted) for name in _measures(table_number)),
            *_counts(run, counted),
        )
        for run in rows
        for counted in _COUNTINGS
    ]
    return _LAYOUTS.table(f"table-{table_number}", cells)


def _counts(run: TableRun, counted: Counted) -> tuple[int, int, int]:
    counts = (run.authors if counted == "ties" else run.evaluation).counts
    return counts.joined if counted == "ties" else counts.judged, counts.failed, counts.failed_orders


def _metric_value(run: TableRun, name: str, counted: Counted = "ties") -> Estimate | None:
    if name == "agreement_by_mean":
        other = run.evaluation.other_rules.get("mean")
        return None if other is None or counted == "ties" else other.excluded
    metrics: PairMetrics | None = run.authors.as_tie if counted == "ties" else run.evaluation.excluded
    if metrics is None:
        return None
    if name in _POSITION:
        return None if metrics.position is None else _estimate(metrics.position, name)
    return _estimate(metrics, "accuracy" if name == "agreement" else name)


def _estimate(metrics: object, name: str) -> Estimate:
    estimate = getattr(metrics, name)
    assert isinstance(estimate, Estimate), "names come from the layouts"
    return estimate


def _unreadable(table_number: int, run: TableRun) -> list[str]:
    judge, theirs, ours, warnings = _name(table_number, run), run.authors.counts, run.evaluation.counts, []
    if theirs.failed_orders or ours.failed_orders:
        name, heading = _main_measure(table_number)
        ties, left_out = _metric_value(run, name), _metric_value(run, name, "left out")
        without = "undefined" if left_out is None else f"{format_share(left_out)}"
        assert ties is not None, "ties include every pair"
        reader = "PandaLM's protocol" if table_number == 2 else "the original code"
        warnings.append(
            f"Table {table_number}, {judge}: of {theirs.joined:,} pairs, {reader} fails to parse {theirs.failed:,} and "
            f"judgelm fails to parse {ours.failed:,} ({theirs.failed_orders:,} and {ours.failed_orders:,} replies). "
            f"The {heading} is {format_share(ties)} if failures of {reader} count as ties. "
            f"It is {without} if failures of judgelm are left out."
        )
    if run.unpaired:
        effect = (
            "their label is from the given order"
            if table_number == 2
            else "they are excluded from consistency and bias"
        )
        warnings.append(f"Table {table_number}, {judge}: {run.unpaired:,} pairs have no reversed judgment; {effect}.")
    return warnings


def _name(table_number: int, run: TableRun) -> str:
    return ", ".join(run.heads[key] for key in heads_of(table_number))


def _main_measure(table_number: int) -> tuple[str, str]:
    name, heading = next(iter(_measures(table_number).items()))
    return name, heading.rstrip(" ↑↓")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    gpus: float | None
    api: float | None

    @property
    def ratio(self) -> float | None:
        return None if self.gpus is None or not self.api else self.gpus / self.api


def _cost(timing: Timing, prices: CostPrices) -> _Cost:
    gpus = api = None
    if prices.gpu_hour is not None and timing.gpus is not None and timing.total_s is not None:
        gpus = prices.gpu_hour * timing.gpus * timing.total_s / 3600
    if prices.api is not None and timing.prompt_tokens + timing.reply_tokens:
        api = prices.api.usd(timing.prompt_tokens, timing.reply_tokens)
    return _Cost(gpus=gpus, api=api)


def _costs(rows: Sequence[TableRun], prices: CostPrices) -> list[str]:
    sentences = []
    for run in rows:
        cost, timing = _cost(run.timing, prices), run.timing
        if cost.ratio is not None:
            sentences.append(
                f"Table 3: {_name(3, run)} judged {timing.pairs:,} pairs in {timing.total_s:,.0f} s on "
                f"{timing.gpus:g} GPUs for {cost.gpus:,.2f} USD. This is {100 * cost.ratio:.1f} % of the API cost of "
                f"{cost.api:,.2f} USD for {timing.prompt_tokens:,} prompt tokens and {timing.reply_tokens:,} reply "
                "tokens."
            )
    return sentences


def _efficiency(rows: Sequence[TableRun], prices: CostPrices) -> Table:
    cells: list[Row] = []
    for run in rows:
        timing, total, cost = run.timing, run.timing.total_s, _cost(run.timing, prices)
        per_5000 = None if total is None or not timing.pairs else total * 5000 / timing.pairs
        times = (timing.load_s, timing.judge_s, timing.metrics_s, total, per_5000)
        heads = [run.heads[key] for key in heads_of(3)]
        tokens = [count or None for count in (timing.prompt_tokens, timing.reply_tokens)]
        costs = (timing.gpus, cost.gpus, *tokens, cost.api, cost.ratio)
        cells.append((*heads, timing.workers, "yes" if timing.reasons else "no", timing.pairs, *times, *costs))
    return _LAYOUTS.table("table-3", cells, prices=_prices_note(prices))


def _prices_note(prices: CostPrices) -> str:
    gpu = "no GPU price" if prices.gpu_hour is None else f"{prices.gpu_hour:g} USD per GPU hour"
    api = "no API prices"
    if prices.api is not None:
        per_1k = prices.api.prompt / 1000, prices.api.reply / 1000
        api = "{:g} USD for 1,000 prompt tokens and {:g} USD for 1,000 reply tokens".format(*per_1k)
    return (
        f"Costs: {gpu}; {api}. The GPU cost is based on the total time. The API cost is based on this run's tokens, "
        "counted with the judge's tokenizer; the counts differ for other models. A cell is empty if a price or a "
        "measurement is missing."
    )


def _scaling(rows: Sequence[TableRun]) -> Lines:
    scales = list(dict.fromkeys(run.heads["data_scale"] for run in rows))
    numbers = {scale: count for scale in scales if (count := _number(scale)) is not None}
    numeric = len(numbers) == len(scales)
    at = numbers if numeric else {scale: float(index) for index, scale in enumerate(scales)}
    by_size = grouped(rows, lambda run: run.heads["judge_size"])
    return Lines(
        name="scaling",
        title="Agreement by number of training rows",
        x_label="Data scale (rows)" if numeric else "Data scale (in order)",
        y_label="Agreement, given order (share of pairs)",
        series=tuple(
            Series(
                name=size,
                x=tuple(at[run.heads["data_scale"]] for run in runs),
                y=tuple(_metric_value(run, "agreement") for run in runs),
            )
            for size, runs in by_size.items()
        ),
    )


def _number(text: str) -> float | None:
    plain = text.strip().lower().replace(",", "")
    factor = 1000 if plain.endswith("k") else 1
    try:
        return float(plain.removesuffix("k")) * factor
    except ValueError:
        return None


def _best(table_number: int, rows: Sequence[TableRun]) -> str:
    name, heading = _main_measure(table_number)
    measured = [(estimate, run) for run in rows if (estimate := _metric_value(run, name)) is not None]
    estimate, run = max(measured, key=lambda pair: pair[0].value)
    unreadable = run.authors.counts.failed
    ties = f"; {unreadable:,} of its pairs are unreadable and count as ties" if unreadable else ""
    return (
        f"Table {table_number}: the highest {heading} is {format_share(estimate)} for {_name(table_number, run)}{ties}."
    )
