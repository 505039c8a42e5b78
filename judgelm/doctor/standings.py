"""What follows from turns: rates, shares of the ceiling, ratios round by round, prices; as a table and as a plot."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.figure import Figure

from judgelm.doctor.contenders import Row
from judgelm.doctor.turns import Turn
from judgelm.reports.plots import BLUE, GRID, ORANGE, STYLE

PRICED_PAIRS = 5000
"""As many as the JudgeLM paper's Table 3 judges."""

_STEADY = 0.85

RATIOS: Sequence[tuple[str, tuple[str, Row], tuple[str, Row], float | None]] = (
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
class Standing:
    """A contender at one row, over all rounds.

    Attributes:
        pairs_per_s: pairs judged, both orders of a pair counted once.
        tokens_per_s: tokens written.
        share: 2 x parameters x prompt tokens per second over the turn's ceiling; None where reasons are written. What a
            prefix cache spares counts as done, so it can pass 1.
        idle: share of the time that the engine was not at work; None where that is not known.
        price: of 5,000 pairs, in the currency of the machine's price.
        disturbed: rounds in which the two ceilings differ so much that other work must have slowed the turn.
    """

    contender: str
    row: Row
    rounds: int
    pairs_per_s: Spread
    tokens_per_s: Spread
    share: Spread | None
    idle: Spread | None
    price: float
    disturbed: int


def standings(turns: Sequence[Turn], *, parameters: int, price_per_hour: float) -> list[Standing]:
    """Each contender at each row, in the order of their first turns.

    Args:
        turns: of all rounds.
        parameters: by which prompt tokens are counted as operations.
        price_per_hour: of the machine.
    """
    found = []
    for contender, row in dict.fromkeys((turn.contender, turn.row) for turn in turns):
        own = [turn for turn in turns if (turn.contender, turn.row) == (contender, row)]
        pairs = spread([turn.pairs / turn.seconds for turn in own])
        shares = [2 * parameters * turn.prompt_tokens / turn.seconds / _ceiling(turn) for turn in own]
        idle = [turn.idle for turn in own if turn.idle is not None]
        found.append(
            Standing(
                contender=contender,
                row=row,
                rounds=len(own),
                pairs_per_s=pairs,
                tokens_per_s=spread([turn.completion_tokens / turn.seconds for turn in own]),
                share=None if row == "reasons" else spread(shares),
                idle=spread(idle) if idle else None,
                price=PRICED_PAIRS / pairs.median / 3600 * price_per_hour,
                disturbed=sum(_disturbed(turn) for turn in own),
            )
        )
    return found


def ratios(turns: Sequence[Turn]) -> dict[str, tuple[Spread, float | None]]:
    """Of `RATIOS` those whose contenders had turns: the ratio within each round, and what is aimed at."""
    rates = {
        (turn.contender, turn.row, turn.round): (turn.completion_tokens if turn.row == "reasons" else turn.pairs)
        / turn.seconds
        for turn in turns
    }
    rounds = sorted({turn.round for turn in turns})
    found = {}
    for name, one, other, aim in RATIOS:
        both = [(rates.get((*one, number)), rates.get((*other, number))) for number in rounds]
        each = [first / second for first, second in both if first is not None and second is not None]
        if each:
            found[name] = (spread(each), aim)
    return found


def spread(values: Sequence[float]) -> Spread:
    """Median, least and most of at least one value."""
    return Spread(median=statistics.median(values), least=min(values), most=max(values))


def table(found: Sequence[Standing]) -> str:
    """The standings as a table in Markdown."""
    lines = [
        "| contender | row | pairs/s | written tokens/s | share of the ceiling | engine idle | price of 5,000 pairs |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found:
        cells = (one.contender, one.row, one.pairs_per_s, one.tokens_per_s, one.share or "", one.idle or "")
        lines.append("| " + " | ".join(map(str, cells)) + f" | {one.price:.3g} |")
    return "\n".join(lines) + "\n"


def ratio_table(found: dict[str, tuple[Spread, float | None]]) -> str:
    """The ratios as a table in Markdown."""
    lines = ["| ratio of rates | median (range over rounds) | aimed at, at least |", "|---|---|---|"]
    lines += [f"| {name} | {value} | {'' if aim is None else f'{aim:.3g}'} |" for name, (value, aim) in found.items()]
    return "\n".join(lines) + "\n"


def plot(found: Sequence[Standing], title: str) -> Figure:
    """Pairs per second on a logarithmic axis, a bar for each contender and row, whiskers over the rounds."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 1 + 0.3 * len(found)), layout="constrained")
        axes = figure.add_subplot()
        places = range(len(found))
        rates = [one.pairs_per_s for one in found]
        whiskers = [[one.median - one.least for one in rates], [one.most - one.median for one in rates]]
        colours = [ORANGE if one.row == "reasons" else BLUE for one in found]
        axes.barh(places, [one.median for one in rates], xerr=whiskers, color=colours)
        axes.set_yticks(places, [f"{one.contender}: {one.row}" for one in found])
        axes.invert_yaxis()
        axes.set(xlabel="pairs per second", xscale="log", title=title)
        axes.grid(axis="x", color=GRID)
        return figure


def _ceiling(turn: Turn) -> float:
    return max(turn.ceiling_before, turn.ceiling_after)


def _disturbed(turn: Turn) -> bool:
    return min(turn.ceiling_before, turn.ceiling_after) < _STEADY * _ceiling(turn)
