"""Draw figures as deterministic SVG and PNG, without scripts or external references.

The colours are from Okabe and Ito's palette, which is safe for colour-blind readers. Names from the data are untrusted,
so they are shortened, stripped of control characters, and not parsed as mathematics.
"""

import io
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from html import escape
from textwrap import fill
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from judgelm.metrics.resampling import Estimate
from judgelm.studies.pair_metrics import ScoreHistogram
from judgelm.studies.result import Figure, Forest, HeatMap, Lines, Series, Value
from judgelm.studies.sentences import format_bounds

BLUE, ORANGE, GREEN, INK, GRID = "#0072B2", "#E69F00", "#009E73", "#1d2430", "#dfe3e8"
LABEL_NAMES = ("first better", "tie", "second better")
STYLE: dict[Any, Any] = {  # matplotlib types the keys as a Literal of about 300 names
    "svg.fonttype": "none",
    "svg.hashsalt": "judgelm",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#8a93a0",
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.parse_math": False,
}
_Look = dict[str, Any]
_NO_METADATA: _Look = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def score_figure(scores: ScoreHistogram) -> str:
    """Draw a histogram of the scores by answer position."""
    first, second = f"shown first (mean {scores.mean_first:.2f})", f"shown second (mean {scores.mean_second:.2f})"
    with mpl.rc_context(STYLE):
        figure = Canvas(figsize=(4.6, 2.9), layout="constrained")
        axes = figure.add_subplot()
        _score_bars(axes, np.array(scores.edges), {first: scores.first, second: scores.second})
        rest = f"\n{scores.not_finite} replies with a non-finite score are excluded" if scores.not_finite else ""
        axes.set(xlabel=f"Score (points on the judge's scale){rest}", ylabel="Number of answers")
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
        return svg(figure, "Histogram of the judge's scores by position of the answer")


def _score_bars(axes: Axes, edges: NDArray[np.float64], places: Mapping[str, ArrayLike]) -> None:
    centres, width = (edges[:-1] + edges[1:]) / 2, 0.4 * (edges[1] - edges[0])
    looks: tuple[_Look, ...] = ({"color": BLUE}, {"color": ORANGE, "hatch": "//"})
    for side, look, (name, heights) in zip((-0.5, 0.5), looks, places.items(), strict=True):
        axes.bar(centres + side * width, heights, width, label=name, edgecolor="white", linewidth=0, **look)
    if len(centres) <= 12:
        axes.set_xticks(centres, [f"{centre:g}" for centre in centres])
    axes.grid(axis="y", color=GRID)


def svg(figure: Canvas, description: str) -> str:
    """Return the figure as an HTML <svg> element. `description` is not escaped, so it must be trusted."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata=_NO_METADATA)
    return inline_svg(out.getvalue(), description)


_REMOVED: Sequence[str] = (
    r"<metadata>.*?</metadata>",
    r"<style[^>]*>.*?</style>",  # would apply to the whole page
    r"<!--.*?-->",
    r"font-family:[^;\"]*;?\s?",  # use the font of the page
    r'\sxmlns(?::\w+)?="[^"]*"',  # implied in HTML
)


def inline_svg(document: str, description: str) -> str:
    """Convert an SVG document to an HTML element, removing the prologue, metadata, and unused ids."""
    element = document[document.index("<svg") :]
    for pattern in _REMOVED:
        element = re.sub(pattern, "", element, flags=re.DOTALL)
    element = element.replace("xlink:href=", "href=")
    used = set(re.findall(r"#([\w-]+)", element))
    element = re.sub(r'\sid="([^"]*)"', lambda match: match[0] if match[1] in used else "", element)
    return element.replace("<svg", f'<svg role="img" aria-label="{description}"', 1).strip()


VERMILION, PURPLE, SKY = "#D55E00", "#CC79A7", "#56B4E9"
COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, INK)
"""Okabe and Ito's colours without yellow, which is hard to see on white."""

DOTS_PER_INCH = 150
MAX_DRAWN_ROWS = 80
"""Maximum number of rows in a forest plot or heat map."""

_MAX_LABELS = 60
_MAX_NAME = 38
_WIDE_IN = 6.5
_SOFT = "#566072"
_LUMINANCE = (0.2126, 0.7152, 0.0722)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_DASHES = ("-", "--", "-.", ":")
_BLUES = LinearSegmentedColormap.from_list("white-blue", ["#ffffff", BLUE])
_DIVERGING = LinearSegmentedColormap.from_list("orange-white-blue", [VERMILION, "#ffffff", BLUE])


class Drawn(NamedTuple):
    """A figure as an SVG document, an HTML element, and a PNG. `wide` figures span the page width."""

    svg: str
    inline: str
    png: bytes
    wide: bool


def draw(figure: Figure) -> Drawn:
    """Render a figure as deterministic SVG and PNG."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support", category=UserWarning)
        match figure:
            case Lines():
                canvas = _lines(figure)
            case Forest():
                canvas = _forest(figure)
            case HeatMap():
                canvas = _heat_map(figure)
        document, picture = io.StringIO(), io.BytesIO()
        canvas.savefig(document, format="svg", metadata=_NO_METADATA)
        canvas.savefig(picture, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    text = document.getvalue()
    return Drawn(
        svg=text,
        inline=inline_svg(text, escape(_clean(figure.title))),
        png=picture.getvalue(),
        wide=canvas.get_figwidth() > _WIDE_IN,
    )


def _lines(figure: Lines) -> Canvas:
    canvas, axes = _canvas(figure.title, 6.4, 4.2)
    if figure.diagonal:
        axes.axline((0, 0), slope=1, color=_SOFT, linestyle="--", linewidth=1, label="y = x")
    for index, series in enumerate(figure.series):
        y, errors = _with_errors(series.y)
        look: _Look = {
            "color": COLOURS[index % len(COLOURS)],
            "marker": _MARKERS[index % len(_MARKERS)],
            "linestyle": _DASHES[index // len(COLOURS) % len(_DASHES)] if figure.joined else "none",
            "label": _named(series.name, series.y),
        }
        axes.errorbar(series.x, y, yerr=errors, capsize=2.5, markersize=5.5, elinewidth=1, **look)
        _point_labels(axes, series, y)
    values = [value for series in figure.series for value in series.y]
    axes.set(xlabel=_clean(figure.x_label), ylabel=_wrapped(_with_level(figure.y_label, values), axes))
    axes.grid(color=GRID)
    _legend(canvas, axes)
    return canvas


def _point_labels(axes: Axes, series: Series, y: NDArray[np.float64]) -> None:
    for index, (x, height, label) in enumerate(zip(series.x, y, series.labels, strict=False)):
        if index < _MAX_LABELS and np.isfinite(height):
            axes.annotate(_short(label), (x, float(height)), xytext=(5, 4), textcoords="offset points", fontsize=7.5)


def _forest(figure: Forest) -> Canvas:
    rows = figure.rows[:MAX_DRAWN_ROWS]
    _, left_out = _drawn(tuple(row.label for row in figure.rows))
    canvas, axes = _canvas(figure.title, 7.6, 1.5 + 0.3 * len(rows))
    groups = list(dict.fromkeys(row.group for row in figure.rows))
    axes.axvline(figure.no_effect, color=_SOFT, linestyle="--", linewidth=1)
    seen: set[str] = set()
    for position, row in enumerate(rows):
        group, estimate = groups.index(row.group), row.estimate
        value, errors = _with_errors((estimate,))
        label = _short(row.group) if row.group and row.group not in seen else None
        seen.add(row.group)
        look: _Look = {"color": COLOURS[group % len(COLOURS)], "marker": _MARKERS[group % len(_MARKERS)]}
        axes.errorbar(value, [position], xerr=errors, linestyle="none", capsize=3, elinewidth=1.3, label=label, **look)
        for bound, points in ((estimate.low, -24), (estimate.high, 24)):
            if np.isinf(bound):
                arrow: _Look = {"arrowstyle": "<-", "color": look["color"]}
                tip: _Look = {"xytext": (points, 0), "textcoords": "offset points", "va": "center"}
                axes.annotate("", (estimate.value, position), arrowprops=arrow, **tip)
        bounds = format_bounds(estimate, partial(_number, fine=True))
        text = f"{_number(estimate.value, fine=True)} ({bounds}), n = {estimate.n:,}"
        axes.text(1.02, position, text, transform=axes.get_yaxis_transform(), va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [_short(row.label) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set(xlabel=_with_level(figure.x_label, [row.estimate for row in rows]) + left_out)
    axes.grid(axis="x", color=GRID)
    if len(groups) > 1:
        _legend(canvas, axes)
    return canvas


def _heat_map(figure: HeatMap) -> Canvas:
    rows, rows_out = _drawn(figure.rows)
    columns, columns_out = _drawn(figure.columns)
    values = np.array(
        [[np.nan if cell is None else cell for cell in row[: len(columns)]] for row in figure.values[: len(rows)]],
        dtype=np.float64,
    ).reshape(len(rows), len(columns))
    longest = max(map(len, rows), default=0)
    turned = max(map(len, columns), default=0) > 6
    width = 2.4 + 0.075 * longest + 0.62 * len(columns)
    canvas, axes = _canvas(figure.title, max(4.2, width), 1.7 + 0.36 * len(rows) + (1.0 if turned else 0))
    colours, norm = _colours(values, figure.centred)
    axes.set_facecolor("#eceff3")
    mesh = axes.pcolormesh(values, cmap=colours, norm=norm, edgecolors="white", linewidth=1)
    for row, column in np.ndindex(*values.shape):
        value = float(values[row, column])
        dark = np.isfinite(value) and np.dot(colours(norm(value))[:3], _LUMINANCE) < 0.5
        text = _number(value) if np.isfinite(value) else "–"
        look: _Look = {"ha": "center", "va": "center", "fontsize": 8, "color": "white" if dark else INK}
        axes.text(column + 0.5, row + 0.5, text, **look)
        if (row, column) in figure.marked:
            axes.add_patch(Rectangle((column + 0.04, row + 0.04), 0.92, 0.92, fill=False, edgecolor=INK, linewidth=1.8))
    turn: _Look = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if turned else {}
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns, **turn)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.set(xlabel=_clean(figure.x_label) + columns_out, ylabel=_wrapped(_clean(figure.y_label) + rows_out, axes))
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    canvas.colorbar(mesh, ax=axes, label=_wrapped(_clean(figure.value_label), axes), shrink=0.9)
    return canvas


def _colours(values: NDArray[np.float64], centred: bool) -> tuple[LinearSegmentedColormap, Normalize]:
    finite = values[np.isfinite(values)]
    if centred:
        most = float(np.abs(finite).max(initial=0)) or 1.0
        return _DIVERGING, Normalize(-most, most)
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    return _BLUES, Normalize(low, high if high > low else low + 1)


def _canvas(title: str, width_in: float, height_in: float) -> tuple[Canvas, Axes]:
    canvas = Canvas(figsize=(width_in, height_in), layout="constrained")
    heading = fill(_clean(title), width=int(width_in * 10))
    canvas.suptitle(heading, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return canvas, canvas.add_subplot()


def _legend(canvas: Canvas, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    if names:
        columns = 1 if max(map(len, names)) > 26 else 2
        canvas.legend(handles, names, frameon=False, loc="outside lower left", ncols=columns, fontsize=8.5)


def _with_errors(values: Sequence[Value]) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    points = [value.value if isinstance(value, Estimate) else value for value in values]
    heights = np.array([np.nan if point is None else point for point in points], dtype=np.float64)
    bounds = [(bounded.low, bounded.high) if isinstance(bounded, Estimate) else (np.nan, np.nan) for bounded in values]
    if not any(isinstance(bounded, Estimate) for bounded in values):
        return heights, None
    low, high = np.array(bounds, dtype=np.float64).reshape(-1, 2).T
    lengths = np.stack([heights - low, high - heights])
    return heights, np.clip(np.where(np.isinf(lengths), 0, lengths), 0, None)  # only forest plots show infinite bounds


def _named(name: str, values: Sequence[Value]) -> str:
    counts = [value.n for value in values if isinstance(value, Estimate)]
    if not counts:
        return _short(name)
    least, most = min(counts), max(counts)
    return f"{_short(name)} (n = {most:,})" if least == most else f"{_short(name)} (n = {least:,} to {most:,} each)"


def _with_level(label: str, values: Iterable[Value]) -> str:
    levels = sorted({value.level for value in values if isinstance(value, Estimate)})
    if not levels:
        return _clean(label)
    return f"{_clean(label)}\nwhiskers: {' and '.join(f'{100 * level:g} %' for level in levels)} interval"


def _wrapped(label: str, axes: Axes) -> str:
    width = int(8 * axes.figure.get_figheight())  # type: ignore[union-attr]
    return "\n".join(fill(line, width) for line in label.splitlines())


def _drawn(names: Sequence[str]) -> tuple[list[str], str]:
    left_out = len(names) - MAX_DRAWN_ROWS
    remark = f"\n(first {MAX_DRAWN_ROWS} of {len(names):,}; study.json contains all of them)" if left_out > 0 else ""
    return [_short(name) for name in names[:MAX_DRAWN_ROWS]], remark


def _number(value: float, *, fine: bool = False) -> str:
    size = abs(value)
    if fine and size < 1:
        return f"{value:.3f}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def _short(text: str) -> str:
    text = _clean(text)
    return text if len(text) <= _MAX_NAME else text[: _MAX_NAME - 1] + "…"


def _clean(text: str) -> str:
    """Return a single line without control characters and lone surrogates, which SVG does not support."""
    return "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))
