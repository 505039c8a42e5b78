"""Draws charts for judgments as inline SVG, with the numbers in a table."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from judgelm.metrics.resampling import Estimate
from judgelm.records import GradeDistribution, PairDistribution
from judgelm.reports.plots import BLUE, GRID, INK, STYLE, svg
from judgelm.serving.web.markup import sentences

_MAX_NUMBERED = 12
"""With more scores on an axis, cells and bars do not show their probability."""

_MAX_TICKS = 12
_MIN_SHOWN = 0.005
_MAX_ROWS = 100
_SHADES = mpl.colormaps["Blues"]  # a single hue, suitable for colour-blind readers
_DARK = 0.6  # above this fraction of the highest probability, numbers are white
_STYLE_LOCK = Lock()  # matplotlib's style is global, and events run in several threads


def heat_map(distribution: PairDistribution, order: tuple[int, ...], values: Sequence[float]) -> str:
    """Draw a heat map of P(score of answer 1, score of answer 2).

    `order` is the order in which the answers were shown; the axes use sample order. `values` are all possible scores,
    in ascending order.
    """
    shares = {((s1, s2) if order == (0, 1) else (s2, s1)): share for s1, s2, share in distribution.likeliest}
    index = {value: position for position, value in enumerate(values)}
    highest = max(shares.values(), default=1.0)
    shade = ScalarMappable(Normalize(0, 100 * highest), _SHADES)
    likeliest = "All score lines have probability 0."
    if shares:
        (first, second), share = max(shares.items(), key=lambda line: line[1])
        likeliest = f"Most likely: {first:g} for answer 1 and {second:g} for answer 2 ({_percent(share)})."
    with _drawing(4.6, 3.9) as (figure, axes):
        for (first, second), share in shares.items():
            x, y = index[first], index[second]
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=_SHADES(share / highest)))
            if len(values) <= _MAX_NUMBERED and share >= _MIN_SHOWN:
                colour = "white" if share > _DARK * highest else INK
                axes.text(x, y, f"{100 * share:.0f}", ha="center", va="center", color=colour, fontsize=9)
        axes.axline((0, 0), slope=1, color=INK, linestyle="--", linewidth=0.8, zorder=0.5)  # drawn below the cells
        limits = (-0.5, len(values) - 0.5)
        axes.set(xlim=limits, ylim=limits, aspect="equal")
        axes.set(xlabel="Score of answer 1 (points)", ylabel="Score of answer 2 (points)")
        axes.set_yticks(*_ticks(values))
        axes.set_xticks(*_ticks(values))
        axes.set_title(f"n = {len(shares)} score lines", fontsize=10, loc="left")
        figure.colorbar(shade, ax=axes, label="Probability (%)", shrink=0.8)
        drawing = svg(figure, f"Probabilities of the score lines in percent. {likeliest}")
    caption = "Above the dashed line, answer 2 is better; below it, answer 1 is better."
    rows = [(f"{first:g}", f"{second:g}", _percent(share)) for (first, second), share in shares.items()]
    return _with_digits(drawing, caption, ("answer 1", "answer 2"), rows)


def grade_bars(distribution: GradeDistribution, values: Sequence[float]) -> str:
    """Draw a bar chart of P(score) for a single answer."""
    shares: Mapping[float, float] = dict(distribution.likeliest)
    percents = [100 * shares.get(value, 0.0) for value in values]
    likeliest = "none."
    if shares:
        value, share = max(shares.items(), key=lambda score: score[1])
        likeliest = f"{value:g} ({_percent(share)})."
    with _drawing(4.6, 2.6) as (figure, axes):
        bars = axes.bar(range(len(values)), percents, width=0.76, color=BLUE)
        if len(values) <= _MAX_NUMBERED:
            axes.bar_label(bars, [_bar_number(percent, max(percents)) for percent in percents], fontsize=9)
        axes.set_xticks(*_ticks(values))
        axes.set(xlabel="Score (points)", ylabel="Probability (%)")
        axes.set_title(f"n = {len(shares)} scores", fontsize=10, loc="left")
        axes.grid(axis="y", color=GRID)
        drawing = svg(figure, f"Probabilities of the scores in percent. Most likely: {likeliest}")
    rows = [(f"{value:g}", _percent(share)) for value, share in shares.items()]
    return _with_digits(drawing, "", ("score",), rows)


def agreement_curve(growth: Sequence[Estimate]) -> str:
    """Draw the agreement against the number of labels, with a band for the 95 % interval."""
    counts = [estimate.n for estimate in growth]
    values, lows, highs = ([100 * getattr(estimate, name) for estimate in growth] for name in ("value", "low", "high"))
    with _drawing(4.6, 2.6) as (figure, axes):
        axes.fill_between(counts, lows, highs, color=BLUE, alpha=0.18, linewidth=0, label="95 % interval")
        axes.plot(counts, values, color=BLUE, marker="o", markersize=3, clip_on=False, label="agreement")
        axes.set(xlabel="Labels (pairs)", ylabel="Agreement (%)", ylim=(0, 100), xlim=(min(counts), max(counts)))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", color=GRID)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=9, frameon=False, borderaxespad=0.2)
        bounds = f"{lows[-1]:.1f} to {highs[-1]:.1f}"
        last = f"After {counts[-1]} labels: {values[-1]:.1f} percent (95 percent interval {bounds})."
        drawing = svg(figure, f"Agreement with your labels by number of labels. {last}")
    return f'<div class="jl-chart">{drawing}</div>'


def probability_bar(first_better: float) -> str:
    """Draw P(first better) as a bar between the two answers."""
    share = 100 * first_better
    return (
        f'<div class="jl-balance" role="img" aria-label="P(first better) {first_better:.2f}">'
        f"<span>answer 1<br>{share:.0f} %</span>"
        f'<div class="jl-track"><div class="jl-fill" style="width:{share:.1f}%"></div></div>'
        f"<span>answer 2<br>{100 - share:.0f} %</span></div>"
    )


def score_bars(scores: Sequence[float], scale: tuple[float, float]) -> str:
    """Draw one bar per answer for its score on the judge's scale."""
    low, high = scale
    rows = "".join(
        f'<li><span>answer {answer}</span><div class="jl-track"><div class="jl-fill" '
        f'style="width:{max(0.0, min(1.0, (score - low) / (high - low))):.1%}"></div></div><b>{score:g}</b></li>'
        for answer, score in enumerate(scores, 1)
    )
    return f'<ul class="jl-scores">{rows}</ul>'


@contextmanager
def _drawing(width_in: float, height_in: float) -> Iterator[tuple[Figure, Axes]]:
    with _STYLE_LOCK, mpl.rc_context(STYLE):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        yield figure, figure.add_subplot()


def _ticks(values: Sequence[float]) -> tuple[list[int], list[str]]:
    ticked = range(0, len(values), -(-len(values) // _MAX_TICKS))
    return list(ticked), [f"{values[position]:g}" for position in ticked]


def _bar_number(percent: float, highest: float) -> str:
    return f"{percent:.{0 if percent >= 1 else 2}f}" if percent and percent >= highest / 100 else ""


def _with_digits(drawing: str, caption: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in (*heads, "probability"))
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows[:_MAX_ROWS])
    return (
        f'<div class="jl-chart">{drawing}</div>{sentences([caption])}'
        '<details class="jl-digits"><summary>Most likely values as a table</summary>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></details>"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
