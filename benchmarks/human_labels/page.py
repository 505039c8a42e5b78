"""The page and the figure of the results."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.human_labels.measures import FITTED_ON
from benchmarks.human_labels.results import LONGER, TRIVIAL, Band, JudgeResult, Pooled, SetResult
from benchmarks.human_labels.sets import DEV_SET, PROTOCOL_WORDS, SETS, HumanSet
from judgelm.metrics.resampling import Estimate
from judgelm.reports.plots import BLUE, GREEN, GRID, INK, ORANGE, PURPLE, STYLE, VERMILION, svg

_SETS = {human_set.name: human_set for human_set in (*SETS, DEV_SET)}
_BASELINE = "best trivial baseline"
_COLOURS, _MARKS = (BLUE, GREEN, PURPLE, VERMILION, INK), "o^Dvx*P"
"""Of each judge, in order; 35 combinations."""
Results = Mapping[str, SetResult]
Cells = Sequence[object]


def page_of(results: Results, together: Mapping[str, Pooled], heading: Mapping[str, str]) -> str:
    """All tables."""
    sections = [
        ("The sets", summary(results)),
        ("All sets together", pooled_table(together)),
        ("Baselines that read nothing", baseline_table(results)),
        ("The authors' protocols, and published judges", published_table(results)),
    ]
    if any(result.judges for result in results.values()):
        sections += [
            ("Both orders", order_table(results)),
            ("Calibration", calibration_table(results)),
            ("By category", category_table(results)),
            ("By difference in length", band_table(results)),
            ("How the runs went", run_table(results)),
        ]
    lines = [
        "# Judges on labelled pairs", "", f"`{heading['command']}`, on {heading['machine']}; {heading['rows']}.",
        "Percent, with 95 % bootstrap intervals over questions; differences are paired. Agreement is the share of "
        "labels, ties included, that the verdict equals: the mean P(first better) of both orders, a tie within the "
        "threshold fitted on dev where a set's labels can be ties. A failure is never right.", "",
        "![Agreement on each set](results.svg)", "",
    ]  # fmt: skip
    for title, table in sections:
        lines += [f"## {title}", "", *table, ""]
    return "\n".join(lines)


def summary(results: Results) -> list[str]:
    """A row for each set's best trivial baseline and the longer answer, and for each judge."""
    first = next(iter(_judges(results)), "")
    rows: list[Cells] = []
    for human_set, result in _each(results):
        for name in dict.fromkeys((result.best, LONGER)):
            best = result.baselines[name]
            title = f"{human_set.title} ({human_set.labels})"
            rows.append((title, result.n, name, _percent(best.agreement), _percent(best.decided), "", "", ""))
        for name, judge in result.judges.items():
            over = "" if name not in result.first_over else _points(result.first_over[name])
            seconds = "" if judge.seconds is None else f"{judge.seconds:.2f}"
            shares = (_percent(judge.figures.agreement), _percent(judge.figures.decided))
            rows.append((human_set.title, judge.n, name, *shares, _points(judge.decided_over_trivial), over, seconds))
    minus = ("minus the best trivial baseline there, points", f"{first} minus it, agreement, points")
    heads = ("set", "n", "judge", "agreement", "on decided labels", *minus, "s a pair")
    return _table(heads, rows)


def pooled_table(together: Mapping[str, Pooled]) -> list[str]:
    """Labels that name a winner, of all sets."""
    first = next(iter(together), "")
    rows = [
        (name, figures.decided.n, _percent(figures.decided), "" if name == first else _points(figures.first_over),
         "" if figures.over is None else f"{_points(figures.over)} ({figures.beside})")
        for name, figures in together.items()
    ]  # fmt: skip
    heads = ("judge", "n", "on decided labels", f"{first} minus it, points", "minus another judge (its name), points")
    return _table(heads, rows)


def category_table(results: Results) -> list[str]:
    """Labels that name a winner, by the sets' own categories."""
    rows = [
        (human_set.title, category, name, share.n, _percent(share))
        for human_set, name, judge in _each_judge(results)
        for category, share in judge.categories.items()
    ]
    return _table(("set", "category", "judge", "n", "on decided labels"), sorted(rows))


def baseline_table(results: Results) -> list[str]:
    """Agreement over all labels, and over decided ones, of each baseline."""
    rows = [
        (human_set.title, result.n, result.ties, result.questions, name, _percent(figures.agreement),
         _percent(figures.decided), _note(name, result))
        for human_set, result in _each(results)
        for name, figures in result.baselines.items()
    ]  # fmt: skip
    return _table(("set", "n", "ties", "questions", "baseline", "agreement", "on decided labels", ""), rows)


def _note(name: str, result: SetResult) -> str:
    if name not in TRIVIAL:
        return "fitted on labels of the set's other questions: not among the trivial ones"
    best = [words for words, other in (("all", result.best), ("decided", result.best_decided)) if name == other]
    return f"best, {' and '.join(best)} labels" if best else ""


def published_table(results: Results) -> list[str]:
    """Each set by its authors' protocol, with figures that others published."""
    rows: list[Cells] = []
    for human_set, result in _each(results):
        words = PROTOCOL_WORDS[human_set.protocol]
        rows += [
            (human_set.title, name, _percent(judge.figures.protocol), words) for name, judge in result.judges.items()
        ]
        best = max(TRIVIAL, key=lambda name: result.baselines[name].protocol.value if name in result.baselines else -1)
        rows.append((human_set.title, best, _percent(result.baselines[best].protocol), "best trivial baseline"))
        rows += [
            (human_set.title, other.judge, f"{other.percent:.1f}", "; ".join(filter(None, (other.note, other.source))))
            for other in human_set.published
        ]
    return _table(("set", "judge", "percent", "protocol, or source"), rows)


def order_table(results: Results) -> list[str]:
    """Consistency and lean."""
    rows = []
    for human_set, name, judge in _each_judge(results):
        lean = judge.position
        row = [_percent(lean.consistency), _percent(lean.toward_first), _percent(lean.toward_second)] if lean else []
        lines = "" if judge.consistent_lines is None else f"{100 * judge.consistent_lines:.1f}"
        longer = "" if judge.names_longer is None else _percent(judge.names_longer)
        rows.append((human_set.title, name, *(row or ["", "", ""]), lines, longer, _percent(judge.figures.decided),
                     _points(judge.decided_over_trivial)))  # fmt: skip
    heads = (
        "set", "judge", "same winner by each order's P", "leans to the first place", "to the second",
        "same winner by the greedy score lines", "prefers the longer answer", "right on decided labels",
        "minus the best trivial baseline there, points",
    )  # fmt: skip
    return _table(heads, rows)


def calibration_table(results: Results) -> list[str]:
    """Expected calibration errors."""
    rows: list[Cells] = []
    for human_set, name, judge in _each_judge(results):
        numbers = judge.calibration
        if numbers is None:
            continue
        own = ""
        if numbers.own_after is not None:
            own = f"{_number(numbers.own_after)} (n = {numbers.own_after.n}; by chance {numbers.own_chance:.3f})"
        before = f"{_number(numbers.before)} (n = {numbers.before.n}; by chance {numbers.chance:.3f})"
        after = "" if numbers.after is None else _number(numbers.after)
        rows.append(
            (human_set.title, name, before, _one(numbers.temperature), after, _one(numbers.own_temperature), own)
        )
    heads = (
        "set", "judge", "ECE of P", f"temperature from {FITTED_ON} dev labels", "ECE with it",
        f"temperature from {FITTED_ON} labels of the set", "ECE with it on the other questions",
    )  # fmt: skip
    note = (
        "Over labels that name a winner, ten bins. A calibrated judge has the error named by chance with as many pairs."
        " Empty: no temperature fits best, since P knows no more than a coin, or too few pairs are left."
    )
    return [*_table(heads, rows), "", note]


def band_table(results: Results) -> list[str]:
    """Decided labels by the ratio of the answers' lengths."""
    rows = [
        (human_set.title, name, _range(band), band.judge.n, _percent(band.judge), _percent(band.longer))
        for human_set, name, judge in _each_judge(results)
        for band in judge.bands
    ]
    return _table(("set", "judge", "longer over shorter", "n", "the judge right", "the longer answer right"), rows)


def run_table(results: Results) -> list[str]:
    """Failures, cuts and tokens."""
    rows = [
        (human_set.title, name, f"{judge.tie_threshold:.3f}", ", ".join(f"{k} {v}" for k, v in judge.failures.items()),
         judge.cut, "" if judge.assigned is None else f"{100 * judge.assigned:.2f}", f"{judge.prompt_tokens:,}",
         "" if judge.reply_tokens is None else f"{judge.reply_tokens:,}")
        for human_set, name, judge in _each_judge(results)
    ]  # fmt: skip
    heads = (
        "set",
        "judge",
        "tie threshold",
        "failures",
        "pairs with a cut answer",
        "mass of readable replies, %",
        "prompt tokens",
        "generated tokens",
    )
    return _table(heads, rows)


def figure_of(results: Results) -> str:
    """Agreement of each set, with intervals: the best trivial baseline, and the judges."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 1.2 + 0.25 * (1 + len(_judges(results))) * len(results)), layout="constrained")
        axes = figure.subplots()
        labelled: set[str] = set()
        marks = {_BASELINE: (ORANGE, "s")} | dict(
            zip(_judges(results), zip(cycle(_COLOURS), cycle(_MARKS)), strict=False)
        )
        for row, result in enumerate(results.values()):
            points = {_BASELINE: result.baselines[result.best].agreement}
            points |= {name: judge.figures.agreement for name, judge in result.judges.items()}
            step = 0.7 / max(1, len(marks) - 1)
            for name, share in points.items():
                index = list(marks).index(name)
                colour, mark = marks[name]
                errors = [[100 * max(share.value - share.low, 0)], [100 * max(share.high - share.value, 0)]]
                axes.errorbar(
                    100 * share.value, row - 0.35 + step * index, xerr=errors, color=colour, marker=mark, capsize=3,
                    linestyle="none", label=None if name in labelled else name,
                )  # fmt: skip
                labelled.add(name)
        titles = [f"{_SETS[name].title}\n(n = {result.n:,})" for name, result in results.items()]
        axes.set_yticks(range(len(results)), titles)
        axes.invert_yaxis()
        axes.set(xlabel="Agreement with the labels (%), 95 % interval over questions", ylabel="Set")
        axes.axvline(50, color=INK, linewidth=0.6, linestyle=":")
        axes.grid(axis="x", color=GRID)
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)
        return svg(figure, "Agreement with the labels of each set, judge and baselines, with 95 % intervals")


def standing_alone(figure: str) -> str:
    """An inline figure as a file of its own."""
    return figure.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" ', 1)


def _each(results: Results) -> Iterator[tuple[HumanSet, SetResult]]:
    return ((_SETS[name], result) for name, result in results.items())


def _each_judge(results: Results) -> Iterator[tuple[HumanSet, str, JudgeResult]]:
    return ((human_set, name, judge) for human_set, result in _each(results) for name, judge in result.judges.items())


def _judges(results: Results) -> list[str]:
    return list(dict.fromkeys(name for result in results.values() for name in result.judges))


def _table(heads: Sequence[str], rows: Sequence[Cells]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]


def _percent(share: Estimate) -> str:
    return f"{100 * share.value:.1f} ({100 * share.low:.1f} to {100 * share.high:.1f})"


def _points(share: Estimate) -> str:
    return f"{100 * share.value:+.1f} ({100 * share.low:+.1f} to {100 * share.high:+.1f})"


def _number(value: Estimate) -> str:
    return f"{value.value:.3f} ({value.low:.3f} to {value.high:.3f})"


def _range(band: Band) -> str:
    return f"above {band.above:g}" if band.up_to is None else f"{band.above:g} to {band.up_to:g}"


def _one(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
