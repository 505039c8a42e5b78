"""The page in Markdown, with its figures as SVG beside it."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.replication.tables import Claim, Table
from judgelm.metrics.resampling import Estimate
from judgelm.reports.plots import BLUE, GREEN, GRID, ORANGE, STYLE, svg

_HEADS: Mapping[str, str] = {
    "agreement": "agreement ↑", "precision": "precision ↑", "recall": "recall ↑", "f1": "F1 ↑",
    "consistency": "consistency ↑", "toward_first": "bias toward 1st ↓", "toward_second": "bias toward 2nd ↓",
    "delta_bias": "delta bias ↓", "impartial": "agreement, impartial ↑",
}  # fmt: skip
_NAMES: Mapping[str, str] = {name: head.rstrip(" ↑↓") for name, head in _HEADS.items()}
_COLOURS, _MARKS = (ORANGE, BLUE, GREEN), ("o", "s", "^")


def table_lines(table: Table) -> list[str]:
    """A table in the paper's layout: percent, each with its 95 % interval below."""
    heads = [*table.heads, *(_HEADS[name] for name in table.columns), "seeds", "failed"]
    lines = [f"### {table.title}", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in table.rows:
        cells = [_percent(row.measures[name]) for name in table.columns]
        lines.append(f"| {' | '.join([*row.names, *cells, str(row.seeds), str(row.failed)])} |")
    return [*lines, ""]


def claim_lines(claims: Sequence[Claim]) -> list[str]:
    """The paper's claims, with the difference and the verdict here."""
    lines = ["| compared | of | paper | difference here, points | as in the paper? |", "|---" * 5 + "|"]
    lines += [
        f"| {claim.comparison} | {_NAMES[claim.measure]} | {claim.expected} | {_percent(claim.difference)} "
        f"| {claim.verdict} |"
        for claim in claims
    ]
    return [*lines, ""]


def scaling_figure(table: Table) -> str:
    """Table 4 as curves: agreement and consistency over rows, one line a base."""
    sizes = list(dict.fromkeys(row.names[0] for row in table.rows))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 3.4), layout="constrained")
        for axes, name in zip(figure.subplots(1, 2, sharey=True), ("agreement", "consistency"), strict=True):
            for size, colour, mark in zip(sizes, _COLOURS, _MARKS, strict=False):
                rows = [row for row in table.rows if row.names[0] == size]
                estimates = [row.measures[name] for row in rows]
                axes.errorbar(
                    [_count(row.names[1]) for row in rows], [100 * estimate.value for estimate in estimates],
                    yerr=_bars(estimates), color=colour, marker=mark, capsize=3, label=f"base {size}",
                )  # fmt: skip
            axes.set(xscale="log", xlabel="Rows to fine-tune on (log scale)", ylabel=f"{name.capitalize()} (%)")
            scales = list(dict.fromkeys(row.names[1] for row in table.rows))
            axes.set_xticks([_count(scale) for scale in scales], scales)
            axes.minorticks_off()
            axes.grid(color=GRID)
        axes.legend(frameon=False)
        return svg(figure, "Agreement and consistency over the rows to fine-tune on, with 95 % intervals")


def claim_figure(claims: Sequence[Claim]) -> str:
    """Every difference with its interval around zero."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 0.8 + 0.36 * len(claims)), layout="constrained")
        axes = figure.subplots()
        for index, claim in enumerate(claims):
            colour, mark = (BLUE, "o") if claim.verdict == "yes" else (ORANGE, "s")
            axes.errorbar(
                100 * claim.difference.value,
                index,
                xerr=_bars([claim.difference]),
                color=colour,
                marker=mark,
                capsize=3,
            )
        axes.axvline(0, color="#8a93a0", linewidth=1)
        labels = [f"{claim.comparison}: {_NAMES[claim.measure]}, paper {claim.expected}" for claim in claims]
        axes.set_yticks(range(len(claims)), labels, fontsize=8)
        axes.set(xlabel="Difference (percentage points, 95 % interval)")
        axes.invert_yaxis()
        axes.grid(axis="x", color=GRID)
        return svg(figure, "Differences with intervals; blue circles agree with the paper, orange squares do not")


def standing_alone(figure: str) -> str:
    """An inline figure as a file of its own."""
    return figure.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" ', 1)


def _bars(estimates: Sequence[Estimate]) -> list[list[float]]:
    """Lengths below and above, in percent; a percentile interval need not hold its estimate."""
    low = [100 * max(estimate.value - estimate.low, 0) for estimate in estimates]
    return [low, [100 * max(estimate.high - estimate.value, 0) for estimate in estimates]]


def _count(words: str) -> int:
    return int(words.replace(",", ""))


def _percent(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f} ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"
