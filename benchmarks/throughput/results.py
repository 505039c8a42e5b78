"""Results of timings: rates, shares of the peak, ratios round by round, prices; as a table and as a plot."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.throughput.baselines import Workload
from benchmarks.throughput.rounds import Timing
from judgelm.reports.plots import BLUE, GRID, ORANGE, STYLE

PRICED_PAIRS = 5000
"""As many as the JudgeLM paper's Table 3 judges."""

_STEADY = 0.85

RATIOS: Sequence[tuple[str, tuple[str, Workload], tuple[str, Workload], float | None]] = (
    ("transformers / original loop", ("transformers", "score"), ("original", "score"), 1.9),
    ("transformers / original loop, fast evaluation", ("transformers", "score"), ("original, fast", "score"), None),
    ("transformers / padded batches", ("transformers", "score"), ("original, padded", "score"), None),
    ("transformers / vLLM engine", ("transformers", "score"), ("vllm", "score"), 1.25),
    ("transformers / plain vLLM", ("transformers", "score"), ("plain vllm", "score"), None),
    ("vLLM engine / plain vLLM", ("vllm", "score"), ("plain vllm", "score"), 0.95),
    ("transformers, both orders / one", ("transformers", "both"), ("transformers", "score"), 1 / 1.9),
    ("vLLM engine, both orders / one", ("vllm", "both"), ("vllm", "score"), None),
    ("transformers, distribution / score line", ("transformers", "distribution"), ("transformers", "score"), None),
    ("vLLM engine, distribution / score line", ("vllm", "distribution"), ("vllm", "score"), None),
    ("reasons: transformers / its batch of one", ("transformers", "reasons"), ("transformers, one", "reasons"), 4.0),
    ("reasons: transformers / vLLM engine", ("transformers", "reasons"), ("vllm", "reasons"), 0.8),
    ("reasons: vLLM engine / plain vLLM", ("vllm", "reasons"), ("plain vllm", "reasons"), 0.95),
)
"""Rates, the first over the second, and the least that is aimed at. Reasons count written tokens, the others pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median over the rounds, and the least and the most."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        """As a table shows it."""
        return f"{self.median:.3g} ({self.least:.3g} to {self.most:.3g})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A system at one workload, over all rounds.

    Attributes:
        pairs_per_s: pairs judged, both orders of a pair counted once.
        tokens_per_s: tokens written.
        share: 2 x parameters x prompt tokens per second over the timing's peak; None where reasons are written. What a
            prefix cache spares counts as done, so it can pass 1.
        idle: share of the time that the engine was not at work; None where that is not known.
        price: of 5,000 pairs, in the currency of the machine's price.
        disturbed: rounds in which the two peaks differ so much that other work must have slowed the timing.
    """

    system: str
    workload: Workload
    rounds: int
    pairs_per_s: Spread
    tokens_per_s: Spread
    share: Spread | None
    idle: Spread | None
    price: float
    disturbed: int


def results_of(timings: Sequence[Timing], *, parameters: int, price_per_hour: float) -> list[Result]:
    """Each system at each workload, in the order of their first timings.

    Args:
        timings: of all rounds.
        parameters: by which prompt tokens are counted as operations.
        price_per_hour: of the machine.
    """
    results = []
    for system, workload in dict.fromkeys((timing.system, timing.workload) for timing in timings):
        own = [timing for timing in timings if (timing.system, timing.workload) == (system, workload)]
        pairs = spread([timing.pairs / timing.seconds for timing in own])
        shares = [2 * parameters * timing.prompt_tokens / timing.seconds / _peak(timing) for timing in own]
        idle = [timing.idle for timing in own if timing.idle is not None]
        results.append(
            Result(
                system=system,
                workload=workload,
                rounds=len(own),
                pairs_per_s=pairs,
                tokens_per_s=spread([timing.completion_tokens / timing.seconds for timing in own]),
                share=None if workload == "reasons" else spread(shares),
                idle=spread(idle) if idle else None,
                price=PRICED_PAIRS / pairs.median / 3600 * price_per_hour,
                disturbed=sum(_disturbed(timing) for timing in own),
            )
        )
    return results


def ratios(timings: Sequence[Timing]) -> dict[str, tuple[Spread, float | None]]:
    """Of `RATIOS` those whose systems had timings: the ratio within each round, and what is aimed at."""
    rates = {
        (timing.system, timing.workload, timing.round): (
            timing.completion_tokens if timing.workload == "reasons" else timing.pairs
        )
        / timing.seconds
        for timing in timings
    }
    rounds = sorted({timing.round for timing in timings})
    spreads = {}
    for name, numerator, denominator, aim in RATIOS:
        both = [
            (rates.get((*numerator, round_index)), rates.get((*denominator, round_index))) for round_index in rounds
        ]
        each = [first / second for first, second in both if first is not None and second is not None]
        if each:
            spreads[name] = (spread(each), aim)
    return spreads


def spread(values: Sequence[float]) -> Spread:
    """Median, least and most of at least one value."""
    return Spread(median=statistics.median(values), least=min(values), most=max(values))


def table(results: Sequence[Result]) -> str:
    """The results_of as a table in Markdown."""
    lines = [
        "| system | workload | pairs/s | written tokens/s | share of the peak | engine idle | price of 5,000 pairs |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        cells = (
            result.system,
            result.workload,
            result.pairs_per_s,
            result.tokens_per_s,
            result.share or "",
            result.idle or "",
        )
        lines.append("| " + " | ".join(map(str, cells)) + f" | {result.price:.3g} |")
    return "\n".join(lines) + "\n"


def ratio_table(ratios: dict[str, tuple[Spread, float | None]]) -> str:
    """The ratios as a table in Markdown."""
    lines = ["| ratio of rates | median (range over rounds) | aimed at, at least |", "|---|---|---|"]
    lines += [f"| {name} | {value} | {'' if aim is None else f'{aim:.3g}'} |" for name, (value, aim) in ratios.items()]
    return "\n".join(lines) + "\n"


def plot(results: Sequence[Result], title: str) -> Figure:
    """Pairs per second on a logarithmic axis, a bar for each system and workload, whiskers over the rounds."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 1 + 0.3 * len(results)), layout="constrained")
        axes = figure.add_subplot()
        places = range(len(results))
        rates = [result.pairs_per_s for result in results]
        whiskers = [
            [result.median - result.least for result in rates],
            [result.most - result.median for result in rates],
        ]
        colours = [ORANGE if result.workload == "reasons" else BLUE for result in results]
        axes.barh(places, [result.median for result in rates], xerr=whiskers, color=colours)
        axes.set_yticks(places, [f"{result.system}: {result.workload}" for result in results])
        axes.invert_yaxis()
        axes.set(xlabel="pairs per second", xscale="log", title=title)
        axes.grid(axis="x", color=GRID)
        return figure


def _peak(timing: Timing) -> float:
    return max(timing.peak_before, timing.peak_after)


def _disturbed(timing: Timing) -> bool:
    return min(timing.peak_before, timing.peak_after) < _STEADY * _peak(timing)
