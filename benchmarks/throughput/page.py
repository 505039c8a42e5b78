"""The page of all measurements: engines by numeric format, a column for each machine and judge.

    python -m benchmarks.throughput --page

It reads `measured/*.json` beside this file, which are `throughput.json` of `python -m benchmarks.throughput --out`, and
writes `throughput.md` and `throughput.svg`.
"""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from benchmarks.throughput.record import Measurement
from benchmarks.throughput.results import Result, ratios, results_of
from benchmarks.throughput.systems import JUDGELM
from judgelm.reports.plots import BLUE, GRID, ORANGE, STYLE

_FOLDER = Path(__file__).parent
_WORKLOADS = {
    "score": "The score line alone",
    "distribution": "The score line and its distribution",
    "both": "Score lines in both orders",
    "reasons": "Score lines and reasons of 256 tokens",
}


def write_all() -> None:
    """Write the page and the plot."""
    measurements = [Measurement.read(path) for path in sorted((_FOLDER / "measured").glob("*.json"))]
    (_FOLDER / "throughput.md").write_text(page(measurements), encoding="utf-8")
    plot(measurements).savefig(_FOLDER / "throughput.svg")


def page(measurements: Sequence[Measurement]) -> str:
    """The page in Markdown."""
    results = [results_of(measurement.timings, measurement.ceilings) for measurement in measurements]
    parts = ["# Throughput by engine, numeric format and machine\n", _facts(measurements, results)]
    for workload, title in _WORKLOADS.items():
        chosen = [[result for result in own if result.workload == workload] for own in results]
        if any(chosen):
            unit = "written tokens/s" if workload == "reasons" else "pairs/s"
            parts.append(f"## {title}\n\n{unit}{_share_words(workload)}\n\n{_rates(chosen, workload)}")
    parts.append(f"## Ratios of rates within a round\n\n{_ratios(measurements)}")
    return "\n".join(parts)


def _facts(measurements: Sequence[Measurement], results: Sequence[Sequence[Result]]) -> str:
    """The facts of each column."""
    lines = [
        "Median over the rounds, and their range. A share is of the ceiling: prompt tokens per second if only the "
        "layers' matrix products took time, in this format and with shared beginnings computed once. W8A8 and Q8_0 "
        "stand against int8, F16 against float32.\n"
    ]
    for column, (measurement, own) in enumerate(zip(measurements, results, strict=True), 1):
        score = [timing for timing in measurement.timings if timing.workload == "score"] or measurement.timings
        pairs = sum(timing.pairs for timing in score)
        limits: dict[str, float] = {}
        for ceiling in measurement.ceilings:
            if ceiling.format.islower():  # a format that has a ceiling of its own
                limits[ceiling.format] = max(ceiling.best, limits.get(ceiling.format, 0.0))
        disturbed = sum(result.disturbed for result in own)
        lines.append(
            f"{column}. **{measurement.judge}** on **{measurement.machine}** "
            f"({', '.join(measurement.instruction_sets)}; {measurement.threads} threads), {measurement.date}: "
            f"{measurement.parameters:.0f} million parameters, {measurement.layer_parameters:.0f} in the layers; "
            f"{measurement.count} pairs of {measurement.pairs}, "
            f"{sum(timing.prompt_tokens for timing in score) / pairs:.0f} prompt tokens each, "
            f"{sum(timing.needed_tokens for timing in score) / pairs:.0f} without shared beginnings; "
            f"{measurement.rounds} rounds. Ceiling, prompt tokens/s: "
            f"{', '.join(f'{name} {rate:,.0f}' for name, rate in limits.items())}. "
            f"{', '.join(measurement.versions)}. "
            f"Other work disturbed {disturbed} of {len(measurement.timings)} timings."
            + "".join(f" Left out: {reason}." for reason in measurement.left_out)
        )
    return "\n".join(lines) + "\n"


def _share_words(workload: str) -> str:
    return "" if workload == "reasons" else ", share of the ceiling"


def _rates(results: Sequence[Sequence[Result]], workload: str) -> str:
    """A row for each system and format, a column for each measurement."""

    def cell(result: Result) -> str:
        rate = result.written_per_s if workload == "reasons" else result.pairs_per_s
        return str(rate) if result.share is None else f"{rate}, {result.share.median:.2f}"

    by_system = [{f"{result.system} | {result.format}": cell(result) for result in own} for own in results]
    return _table("engine | format", by_system)


def _ratios(measurements: Sequence[Measurement]) -> str:
    """A row for each ratio with its aim, a column for each measurement."""
    compared = [ratios(measurement.timings) for measurement in measurements]
    columns = [
        {f"{name} | {'' if aim is None else f'{aim:.3g}'}": str(value) for name, (value, aim) in own.items()}
        for own in compared
    ]
    return _table("ratio | aimed at, at least", columns)


def _table(heading: str, columns: Sequence[dict[str, str]]) -> str:
    """A table in Markdown whose first cells are the keys of the columns."""
    rows = dict.fromkeys(key for column in columns for key in column)
    lines = [
        f"| {heading} | {' | '.join(str(column) for column in range(1, len(columns) + 1))} |",
        "|---" * (heading.count("|") + 1 + len(columns)) + "|",
    ]
    lines += [f"| {key} | {' | '.join(column.get(key, '') for column in columns)} |" for key in rows]
    return "\n".join(lines) + "\n"


def plot(measurements: Sequence[Measurement]) -> Figure:
    """Pairs per second of the score line: a panel for each measurement, whiskers over rounds."""
    scores = [
        [result for result in results_of(own.timings, own.ceilings) if result.workload == "score"]
        for own in measurements
    ]
    heights = [len(own) for own in scores]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, sum(0.9 + 0.3 * height for height in heights)), layout="constrained")
        panels = figure.subplots(len(scores), squeeze=False, height_ratios=heights)[:, 0]
        for axes, measurement, own in zip(panels, measurements, scores, strict=True):
            _bars(axes, own)
            flags = ", ".join(measurement.instruction_sets)
            axes.set_title(f"{measurement.judge}, {measurement.machine}\n{flags}", fontsize="medium")
        panels[-1].set_xlabel("pairs per second, the score line alone")
        colours = {"judgelm": ORANGE, "peers": BLUE}
        panels[0].legend(
            handles=[Patch(color=colour, label=name) for name, colour in colours.items()], loc="lower right"
        )
        return figure


def _bars(axes: Axes, results: Sequence[Result]) -> None:
    """The bars of one measurement, the fastest first."""
    ordered = sorted(results, key=lambda result: -result.pairs_per_s.median)
    median = [result.pairs_per_s.median for result in ordered]
    low = [result.pairs_per_s.median - result.pairs_per_s.least for result in ordered]
    high = [result.pairs_per_s.most - result.pairs_per_s.median for result in ordered]
    colours = [ORANGE if result.system.startswith(JUDGELM) else BLUE for result in ordered]
    axes.barh(range(len(ordered)), median, xerr=[low, high], color=colours)
    axes.set_yticks(range(len(ordered)), [f"{result.system}, {result.format}" for result in ordered])
    axes.invert_yaxis()
    axes.grid(axis="x", color=GRID)
