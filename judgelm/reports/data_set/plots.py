"""The figures of a data set's report, in the style of a run's figures: see `judgelm.reports.plots`."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from judgelm.data.builder.counts import WORDS_STEP, SetCounts
from judgelm.reports.data_set.tables import WINNERS, LengthRow, Stage, lengths
from judgelm.reports.plots import BLUE, GREEN, GRID, INK, LABEL_NAMES, ORANGE, STYLE, svg

_PLACES = ((1, BLUE, "answer 1", ""), (2, ORANGE, "answer 2", "//"))
_MOST_BARS = 40
_WIDE_SCALE = 50


def score_figure(before: Stage, after: Stage) -> str:
    """Scores by the place of the answer, before and after augmentation, as shares of each panel's answers."""
    edges = _score_edges({score for stage in (before, after) for _, score in stage.counts.scores})
    centres, width = (edges[:-1] + edges[1:]) / 2, 0.4 * (edges[1] - edges[0])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 3.3), layout="constrained")
        panels: Sequence[Axes] = figure.subplots(1, 2, sharey=True)
        for axes, stage in zip(panels, (before, after), strict=True):
            for position, colour, name, hatch in _PLACES:
                shares = 100 * _score_shares(stage.counts, position, edges)
                bars = centres + (position - 1.5) * width
                axes.bar(bars, shares, width, color=colour, label=name, hatch=hatch, edgecolor="white", linewidth=0)
            if len(centres) <= 12:
                axes.set_xticks(centres, [f"{centre:g}" for centre in centres])
            axes.set(title=stage.name, xlabel="Score (points)")
            axes.grid(axis="y", color=GRID)
        panels[0].set_ylabel("Share of the place's scores (%)")
        figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside upper left", ncols=2)
        return svg(figure, "Histograms of scores at both places, before augmentation and as written")


def _score_edges(scores: set[float]) -> NDArray[np.float64]:
    """Bins of width 1 around whole scores, a half point counting upwards; twenty equal ones on a wide scale."""
    low, high = np.floor(min(scores) + 0.5) - 0.5, np.floor(max(scores) + 0.5) + 0.5
    return np.arange(low, high + 1) if high - low <= _WIDE_SCALE else np.linspace(low, high, 21)


def _score_shares(counts: SetCounts, position: int, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    at_position = {score: count for (at, score), count in counts.scores.items() if at == position}
    heights = np.histogram(list(at_position), bins=edges, weights=list(at_position.values()))[0]
    return np.asarray(heights / max(heights.sum(), 1), dtype=np.float64)


def winner_figure(before: Stage, after: Stage) -> str:
    """Shares of winners with 95 % intervals, before and after augmentation."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 3.1), layout="constrained")
        axes = figure.add_subplot()
        for stage, shift, colour, marker in ((before, -0.14, ORANGE, "s"), (after, 0.14, BLUE, "o")):
            for index, winner in enumerate(WINNERS):
                estimate = stage.winner(winner)
                if estimate is None:
                    continue
                errors = 100 * np.clip([[estimate.value - estimate.low], [estimate.high - estimate.value]], 0, None)
                axes.errorbar(
                    100 * estimate.value,
                    index + shift,
                    xerr=errors,
                    fmt=marker,
                    color=colour,
                    ecolor=INK,
                    capsize=3,
                    markersize=8,
                    label="" if index else stage.name,
                )
        axes.set_yticks(range(len(WINNERS)), LABEL_NAMES)
        axes.set_xlim(left=0)
        axes.set_ylim(len(WINNERS) - 0.5, -0.5)
        axes.set(xlabel="Share of rows (%)", ylabel="Winner")
        axes.grid(axis="x", color=GRID)
        figure.legend(frameon=False, loc="outside upper left", ncols=2)
        return svg(figure, "Shares of winners with intervals, before augmentation and as written")


def length_figure(words: Mapping[tuple[str, int], int], rows: Sequence[LengthRow]) -> str:
    """Lengths of questions, answers and reasons; the longest 1 % are one hatched bar at the end."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 2.9), layout="constrained")
        panels = np.atleast_1d(figure.subplots(1, len(rows)))
        for axes, row in zip(panels, rows, strict=True):
            starts, counts, width = _length_bars(lengths(words, row.text_kind), row.n)
            axes.bar(starts[:-1], counts[:-1], width, align="edge", color=GREEN, edgecolor="white", linewidth=0.5)
            if counts[-1]:
                bar = {"color": ORANGE, "hatch": "//", "edgecolor": "white", "linewidth": 0.5}
                axes.bar(starts[-1], counts[-1], width, align="edge", **bar)
            axes.set(title=f"{row.text_kind}s", xlabel="Length (words)")
            axes.set_xlim(left=0)
            axes.grid(axis="y", color=GRID)
        panels[0].set_ylabel("Texts (count)")
        return svg(figure, "Histograms of lengths in words")


def _length_bars(steps: Mapping[int, int], n: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Bars of equal width up to the 99th percentile, and one for what is longer: starts, counts, width in words."""
    values = np.array(list(steps), dtype=np.int64)
    counts = np.array(list(steps.values()), dtype=np.int64)
    reached = np.cumsum(counts) >= 0.99 * n
    end = int(values[np.argmax(reached)]) + WORDS_STEP
    width = WORDS_STEP * -(-end // (WORDS_STEP * _MOST_BARS))
    bars = -(-end // width)
    heights = np.bincount(np.minimum(values // width, bars), weights=counts, minlength=bars + 1)
    return np.arange(bars + 1) * width, heights.astype(np.int64), width
