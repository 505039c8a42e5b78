"""Figures as inline SVG: no script, no outside reference, the same bytes for the same numbers.

Colours are Okabe and Ito's (readable with any colour vision); every figure stands on a white card, in dark mode too.
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from judgelm.studies.pair_metrics import PairMetrics, PositionEstimates, ScoreHistogram

BLUE, ORANGE, GREEN, INK, GRID = "#0072B2", "#E69F00", "#009E73", "#1d2430", "#dfe3e8"
LABEL_NAMES = ("first better", "tie", "second better")
STYLE: dict[Any, Any] = {  # matplotlib types the keys as some 300 literals
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
_SHADES = LinearSegmentedColormap.from_list("white-blue", ["#ffffff", BLUE])


def confusion_figure(treatment: PairMetrics) -> str:
    """Labels against the judge's answers: counts in cells, shade and second line by share of the row."""
    counts = np.array(treatment.confusion, dtype=np.float64)
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)
    with _axes(4.6, 3.7) as (figure, axes):
        axes.pcolormesh(shares, cmap=_SHADES, vmin=0, vmax=1, edgecolors="white", linewidth=2)
        for row, column in np.ndindex(3, 3):
            text = f"{counts[row, column]:,.0f}"
            if totals[row, 0]:
                text += f"\n{100 * shares[row, column]:.0f} %"
            colour = "white" if shares[row, column] > 0.55 else INK
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=colour, fontsize=11)
        names = [f"{name}\n(n = {int(total)})" for name, total in zip(LABEL_NAMES, totals[:, 0], strict=True)]
        axes.set_xticks([0.5, 1.5, 2.5], LABEL_NAMES)
        axes.set_yticks([0.5, 1.5, 2.5], names)
        axes.set(xlabel="Judge's answer", ylabel="Label")
        axes.invert_yaxis()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        return svg(figure, f"Confusion matrix of {treatment.n} pairs: labels in rows, the judge's answers in columns")


def score_figure(scores: ScoreHistogram) -> str:
    """Histogram of scores for the answer shown first and the answer shown second."""
    edges = np.array(scores.edges)
    centres, width = (edges[:-1] + edges[1:]) / 2, 0.4 * (edges[1] - edges[0])
    with _axes(6.2, 3.3) as (figure, axes):
        first, second = f"shown first (mean {scores.mean_first:.2f})", f"shown second (mean {scores.mean_second:.2f})"
        axes.bar(centres - width / 2, scores.first, width, color=BLUE, label=first)
        axes.bar(centres + width / 2, scores.second, width, color=ORANGE, label=second)
        if len(centres) <= 12:
            axes.set_xticks(centres, [f"{centre:g}" for centre in centres])
        rest = (
            f"; {scores.not_finite} replies with a score that is not finite are left out" if scores.not_finite else ""
        )
        axes.set(xlabel=f"Score (points on the judge's scale){rest}", ylabel="Answers scored (count)")
        axes.grid(axis="y", color=GRID)
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
        return svg(figure, "Histogram of the judge's scores by the place an answer was shown at")


def position_figure(position: PositionEstimates) -> str:
    """Consistency and lean with 95 % intervals."""
    rows = (
        ("same answer in\nboth orders", position.consistency, GREEN),
        ("leans to the\nfirst place", position.toward_first, BLUE),
        ("leans to the\nsecond place", position.toward_second, ORANGE),
    )
    with _axes(5.0, 2.9) as (figure, axes):
        for index, (_, share, colour) in enumerate(rows):
            value = 100 * share.value
            errors = [[value - 100 * share.low], [100 * share.high - value]]
            axes.barh(index, value, height=0.55, color=colour)
            axes.errorbar(value, index, xerr=np.clip(errors, 0, None), color=INK, capsize=3, linewidth=1.2)
            axes.text(max(value, 100 * share.high) + 2, index, f"{value:.1f} %", va="center")
        axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
        axes.set_xticks(range(0, 101, 20))
        axes.set_xlim(0, 116)
        axes.invert_yaxis()
        axes.set(xlabel=f"Share of {position.consistency.n} pairs judged in both orders (%)", ylabel="Outcome")
        axes.grid(axis="x", color=GRID)
        return svg(figure, "Position bias: shares of pairs judged alike in both orders and leaning to either place")


@contextmanager
def _axes(width_in: float, height_in: float) -> Iterator[tuple[Figure, Axes]]:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        yield figure, figure.add_subplot()


def svg(figure: Figure, description: str) -> str:
    """The bare <svg> element for use inside HTML; `description` is our own text, never a user's."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return inline_svg(out.getvalue(), description)


_REMOVED: Sequence[str] = (
    r"<metadata>.*?</metadata>",
    r"<style[^>]*>.*?</style>",  # a stylesheet inside inline SVG would apply to the whole page
    r"<!--.*?-->",
    r"font-family:[^;\"]*;?\s?",  # the page's own font
    r'\sxmlns(?::\w+)?="[^"]*"',  # HTML knows the namespaces
)


def inline_svg(document: str, description: str) -> str:
    """An SVG document as an element of an HTML page: no prologue, no metadata, only ids that are referred to."""
    element = document[document.index("<svg") :]
    for pattern in _REMOVED:
        element = re.sub(pattern, "", element, flags=re.DOTALL)
    element = element.replace("xlink:href=", "href=")
    used = set(re.findall(r"#([\w-]+)", element))
    element = re.sub(r'\sid="([^"]*)"', lambda match: match[0] if match[1] in used else "", element)
    return element.replace("<svg", f'<svg role="img" aria-label="{description}"', 1).strip()
