"""Results of timings: rates, shares of the ceiling, ratios round by round."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.throughput.baselines import Workload
from benchmarks.throughput.systems import (
    F16,
    JUDGELM,
    JUDGELM_ALONE,
    JUDGELM_VLLM,
    LLAMA_CPP,
    ORIGINAL,
    ORIGINAL_FAST,
    PADDED,
    Q8_0,
    VLLM,
    W8A8,
    Timing,
)

Rate = tuple[str, str, Workload]
"""Of a system, a format and a workload; `FLOAT` stands for each floating-point format in turn, the same in a ratio."""

FLOAT, BEST = "float", "best"
_STEADY = 0.85
_FLOATS = ("bfloat16", "float16", "float32")

RATIOS: Sequence[tuple[str, Rate, Rate, float | None]] = (
    ("judgelm / vLLM", (JUDGELM, FLOAT, "score"), (VLLM, FLOAT, "score"), 1.05),
    ("judgelm / padded batches", (JUDGELM, FLOAT, "score"), (PADDED, FLOAT, "score"), None),
    ("judgelm / original loop", (JUDGELM, FLOAT, "score"), (ORIGINAL, FLOAT, "score"), 1.9),
    ("judgelm / original loop, fast evaluation", (JUDGELM, FLOAT, "score"), (ORIGINAL_FAST, FLOAT, "score"), None),
    ("judgelm on vLLM / vLLM", (JUDGELM_VLLM, FLOAT, "score"), (VLLM, FLOAT, "score"), 0.95),
    ("judgelm / best peer in floating point", (JUDGELM, FLOAT, "score"), (BEST, FLOAT, "score"), None),
    ("judgelm / vLLM W8A8", (JUDGELM, FLOAT, "score"), (VLLM, W8A8, "score"), None),
    ("judgelm / llama.cpp Q8_0", (JUDGELM, FLOAT, "score"), (LLAMA_CPP, Q8_0, "score"), None),
    ("judgelm / llama.cpp F16", (JUDGELM, FLOAT, "score"), (LLAMA_CPP, F16, "score"), None),
    ("judgelm, both orders / one", (JUDGELM, FLOAT, "both"), (JUDGELM, FLOAT, "score"), 1 / 1.75),
    ("judgelm on vLLM, both orders / one", (JUDGELM_VLLM, FLOAT, "both"), (JUDGELM_VLLM, FLOAT, "score"), None),
    ("judgelm, distribution / score line", (JUDGELM, FLOAT, "distribution"), (JUDGELM, FLOAT, "score"), 1 / 1.15),
    (
        "judgelm on vLLM, distribution / score line",
        (JUDGELM_VLLM, FLOAT, "distribution"), (JUDGELM_VLLM, FLOAT, "score"), 1 / 1.3,
    ),
    ("reasons: judgelm / its batch of one", (JUDGELM, FLOAT, "reasons"), (JUDGELM_ALONE, FLOAT, "reasons"), 4.0),
    ("reasons: judgelm / vLLM", (JUDGELM, FLOAT, "reasons"), (VLLM, FLOAT, "reasons"), 0.9),
    ("reasons: judgelm on vLLM / vLLM", (JUDGELM_VLLM, FLOAT, "reasons"), (VLLM, FLOAT, "reasons"), 0.95),
)  # fmt: skip
"""Rates, the first over the second, and the least that is aimed at. Reasons count written tokens, the others pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median over the rounds, and the least and the most."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        """As a table shows it."""
        median, least, most = (
            f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in (self.median, self.least, self.most)
        )
        return f"{median} ({least} to {most})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A system at one workload, over all rounds.

    Attributes:
        pairs_per_s: pairs judged, both orders of a pair counted once.
        written_per_s: tokens written.
        needed_per_s: prompt tokens that had to be computed, shared beginnings counted once.
        share: of the ceiling, which those tokens could reach in this format; None where reasons are written.
        idle: share of the time that the engine was not at work; None where that is not known.
        load_s: seconds until the system was loaded.
        disturbed: rounds in which the two ceilings differ so much that other work must have slowed the timing.
    """

    system: str
    format: str
    workload: Workload
    rounds: int
    pairs_per_s: Spread
    written_per_s: Spread
    needed_per_s: Spread
    share: Spread | None
    idle: Spread | None
    load_s: Spread
    disturbed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """Prompt tokens per second that the judge's matrices allow in a format, before and after a system's timings."""

    system: str
    format: str
    round: int
    before: float
    after: float

    @property
    def best(self) -> float:
        """The larger of both."""
        return max(self.before, self.after)

    @property
    def is_disturbed(self) -> bool:
        """True if they differ so much that other work must have slowed the system."""
        return min(self.before, self.after) < _STEADY * self.best


def results_of(timings: Sequence[Timing], ceilings: Sequence[Ceiling]) -> list[Result]:
    """Each system at each workload, workload by workload, in the order of their first timings."""
    by_system = {(ceiling.system, ceiling.format, ceiling.round): ceiling for ceiling in ceilings}
    kinds = dict.fromkeys((timing.workload, timing.system, timing.format) for timing in timings)
    workloads = list(dict.fromkeys(timing.workload for timing in timings))
    results = []
    for workload, system, format in sorted(kinds, key=lambda kind: workloads.index(kind[0])):
        kind = (workload, system, format)
        own = [timing for timing in timings if (timing.workload, timing.system, timing.format) == kind]
        limits = [by_system[timing.system, timing.format, timing.round] for timing in own]
        shares = [timing.needed_tokens / timing.seconds / limit.best for timing, limit in zip(own, limits, strict=True)]
        idle = [timing.idle for timing in own if timing.idle is not None]
        results.append(
            Result(
                system=system,
                format=format,
                workload=workload,
                rounds=len(own),
                pairs_per_s=spread([timing.pairs / timing.seconds for timing in own]),
                written_per_s=spread([timing.completion_tokens / timing.seconds for timing in own]),
                needed_per_s=spread([timing.needed_tokens / timing.seconds for timing in own]),
                share=None if workload == "reasons" else spread(shares),
                idle=spread(idle) if idle else None,
                load_s=spread([timing.load_s for timing in own]),
                disturbed=sum(limit.is_disturbed for limit in limits),
            )
        )
    return results


def ratios(timings: Sequence[Timing]) -> dict[str, tuple[Spread, float | None]]:
    """Of `RATIOS` those whose systems had timings: the ratio within each round, and what is aimed at."""
    spreads = {}
    for format in dict.fromkeys(timing.format for timing in timings if timing.format in _FLOATS):
        for name, numerator, denominator, aim in RATIOS:
            has_float = FLOAT in (numerator[1], denominator[1])
            each = [
                first / second
                for rates in _rates_by_round(timings)
                if (first := _rate(rates, numerator, format)) and (second := _rate(rates, denominator, format))
            ]
            if each:
                spreads[f"{name} ({format})" if has_float else name] = (spread(each), aim)
    return spreads


def _rates_by_round(timings: Sequence[Timing]) -> list[dict[Rate, float]]:
    """Rates of each round."""
    rounds: dict[int, dict[Rate, float]] = {}
    for timing in timings:
        count = timing.completion_tokens if timing.workload == "reasons" else timing.pairs
        key = (timing.system, timing.format, timing.workload)
        rounds.setdefault(timing.round, {})[key] = count / timing.seconds
    return list(rounds.values())


def _rate(rates: Mapping[Rate, float], wanted: Rate, format: str) -> float | None:
    """The rate of a round; `BEST` is the fastest peer in floating point at the workload."""
    system, wanted_format, workload = wanted
    if system != BEST:
        return rates.get((system, format if wanted_format == FLOAT else wanted_format, workload))
    peers = [
        rate
        for (name, own_format, own_workload), rate in rates.items()
        if own_workload == workload and own_format in (*_FLOATS, F16) and name not in (JUDGELM, JUDGELM_VLLM)
    ]
    return max(peers, default=None)


def spread(values: Sequence[float]) -> Spread:
    """Median, least and most of at least one value."""
    return Spread(median=statistics.median(values), least=min(values), most=max(values))
