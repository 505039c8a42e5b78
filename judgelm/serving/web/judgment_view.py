"""HTML of a judgment: the verdict in words, reasons for doubt, charts, and the prompts shown; and the page's pieces.

A question, an answer, a reason and a run file's fields are untrusted: shown as text, never as Markdown or HTML. All
texts from outside go through `escape`, or through a function that calls it.

Charts are drawn with matplotlib, as in the reports: inline SVG without a script, which the page's content security
policy allows, on a white panel in dark mode too. A table beside each chart has the digits, for screen readers as
well.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from threading import Lock

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from judgelm.errors import BusyError, ConfigError, EngineError, JudgelmError
from judgelm.judges.released import JudgeFormat
from judgelm.metrics.resampling import Estimate
from judgelm.parsing.scores import MIN_ASSIGNED, score_lines
from judgelm.records import (
    GradeDistribution,
    GradeVerdict,
    Judgment,
    LabelVerdict,
    PairDistribution,
    PairVerdict,
    RankingVerdict,
    Shown,
    Unparsed,
)
from judgelm.reports.pairs import score_text
from judgelm.reports.plots import BLUE, GRID, INK, STYLE, svg
from judgelm.reports.wording import FAILURE_NAMES
from judgelm.serving.engine_worker import PartialReply
from judgelm.serving.web.runs import flips

_FEW = "Less than half of the probability is on score lines: the chart shows that part alone."


def judgment_panel(judgment: Judgment, judge: JudgeFormat) -> str:
    """The whole judgment; `judge` has the scale of the charts."""
    panels = [_shown_panel(shown, judgment, judge) for shown in judgment.shown]
    drawn = "" if judgment.probability is None else _balance(judgment)
    if isinstance(judgment.verdict, RankingVerdict) and judgment.scores is not None:
        drawn = score_bars(judgment.scores, judge.scale)
    return (
        panel(verdict(verdict_sentence(judgment), *verdict_details(judgment)), drawn, doubts_html(judgment))
        + side_by_side(panels)
        + input_notes(judgment)
    )


def verdict_sentence(judgment: Judgment) -> str:
    """The verdict in one sentence; of a failure, why there is none."""
    if judgment.failure is not None:
        return f"No verdict: {failure_words(judgment.failure)}."
    match judgment.verdict:
        case PairVerdict(winner="tie") if judgment.consistent is False:
            return "A tie, since the orders disagree."
        case PairVerdict(winner="tie"):
            return "Both answers are equally good."
        case PairVerdict(winner=winner):
            return f"Answer {winner} is better."
        case GradeVerdict(score=score):
            return f"The grade is {score:g}."
        case LabelVerdict(label=label):
            return f"The answer is {label}."
        case RankingVerdict(order=order):
            return f"From best to worst: {', '.join(_tied(rank) for rank in order)}."
    return "No verdict."


def verdict_details(judgment: Judgment) -> list[str]:
    """P(first better), scores and consistency, each a sentence; disagreeing orders are among the `doubts`."""
    lines = []
    if judgment.probability is not None:
        event = "the answer is correct" if isinstance(judgment.verdict, LabelVerdict) else "first better"
        lines.append(f"P({event}) {judgment.probability:.2f}")
    if judgment.scores is not None and len(judgment.scores) > 1 and not judgment.reads_words:
        by_one_order = (
            len(judgment.compared) < 2 or judgment.scores == judgment.shown[0].scores
        )  # as under rule `given`
        mean = "Scores" if by_one_order else "Mean scores"
        lines.append(f"{mean} {score_text(judgment.scores)}")
    if judgment.consistent:
        lines.append("All orders agree.")
    if judgment.repaired:
        lines.append("Only a second try, held to the grammar of score lines, could be read.")
    return lines


def failure_words(failure: Unparsed) -> str:
    """A failure in words, with its finding where there is one."""
    why = failure.why or (failure.text if failure.code == "engine" else "")
    return FAILURE_NAMES[failure.code] + (f" ({why})" if why else "")


def text_failure(failure: Unparsed) -> str:
    """The failure of a reason or of a reply in a talk, in words."""
    return f"it breaks off ({failure.why})" if failure.code == "truncated" else failure_words(failure)


def live_reasons(replies: Sequence[PartialReply]) -> str:
    """The reasons being written; empty while scores are."""
    reasons = [reply for reply in replies if reply.reason]
    if not reasons:
        return ""
    return side_by_side(
        partial_text(reply.text.lstrip(), title=f"The reason, continuing “{reply.line}”") for reply in reasons
    )


def input_notes(judgment: Judgment) -> str:
    """Notes on changes of the texts before the judge saw them, and the token counts."""
    lines = []
    if judgment.sanitized:
        lines.append(
            f"{judgment.sanitized} look-alikes of the prompt's own markers were defused in what you gave, so that no "
            "text can pass for the prompt."
        )
    lines.append(f"{judgment.prompt_tokens:,} tokens read, {judgment.completion_tokens:,} written.")
    return f'<div class="jl-small">{sentences(lines)}</div>'


def order_words(shown: Shown) -> str:
    """`answer 2 shown first`, with the part where there are several."""
    part = f"{shown.part}: " if shown.part else ""
    if len(shown.order) == 1:
        return shown.part or "the judge's reply"
    return f"{part}answer {shown.order[0] + 1} shown first"


def _shown_panel(shown: Shown, judgment: Judgment, judge: JudgeFormat) -> str:
    lines = [] if shown.failure is None else [f"Not readable: {failure_words(shown.failure)}."]
    if shown.scores is not None:
        lines.append(f"Scores {score_text(_in_sample_order(shown))}" if len(shown.scores) > 1 else "")
        if judgment.reads_words and len(shown.order) == 1 and shown.grades is None:
            lines.append(f"Reward {shown.scores[0]:.4g}.")
        lines.append("" if shown.anchor is None else f"The other answer beside it got {shown.anchor:g}.")
    parts = [sentences(lines), _distribution_chart(shown, judge), text_block(shown.text, title="Reply as written")]
    if shown.reason is not None:
        parts.append(text_block(shown.reason, title="Reason"))
    if shown.reason_failure is not None:
        parts.append(notice(f"The reason: {text_failure(shown.reason_failure)}."))
    if isinstance(judgment.verdict, RankingVerdict) and len(shown.order) > 2:
        title = "shown as " + ", ".join(str(index + 1) for index in shown.order)
    elif judgment.reads_words and len(shown.order) == 1:
        title = f"{shown.part}, answer {shown.order[0] + 1}" if shown.part else f"answer {shown.order[0] + 1}"
    else:
        title = order_words(shown)
    return panel(*parts, title=title[0].upper() + title[1:])


def _distribution_chart(shown: Shown, judge: JudgeFormat) -> str:
    """The chart of the distribution with its main numbers, of yes and no P(yes) alone; empty without one."""
    if shown.distribution is None and shown.grades is None:
        return ""
    if shown.grades is not None and shown.log_odds is not None and len(shown.order) == 1:
        probability = (1 + math.tanh(shown.log_odds / 2)) / 2
        return sentences([f"P(yes) {probability:.2f}", _rest(shown.grades.unassigned, shown.grades.approximation)])
    try:
        values = score_lines(judge.scale, judge.step).values
    except ConfigError as error:
        return notice(str(error))
    drawn = shown.grades or shown.distribution
    assert drawn is not None, "one of the two is there"
    few = notice(_FEW) if 1 - drawn.unassigned < MIN_ASSIGNED else ""
    if shown.grades is not None:
        grades = shown.grades
        expected = "" if math.isnan(grades.expected) else f"Expected score {grades.expected:.2f}"
        return sentences([expected, _rest(grades.unassigned, grades.approximation)]) + few + grade_bars(grades, values)
    assert shown.distribution is not None, "the other of the two"
    pair = shown.distribution
    first = pair.first_better if shown.order == (0, 1) else 1 - pair.first_better
    better = "" if math.isnan(first) else f"P(first better) {first:.2f} in this order"
    return sentences([better, _rest(pair.unassigned, pair.approximation)]) + few + heat_map(pair, shown.order, values)


def _rest(unassigned: float, approximation: str) -> str:
    exact = f" The probabilities are not exact: {approximation}." if approximation else ""
    return (f"{unassigned:.1%} on other replies." if unassigned >= 0.001 else "") + exact


def _balance(judgment: Judgment) -> str:
    pair = isinstance(judgment.verdict, PairVerdict)
    return probability_bar(judgment.probability) if pair and judgment.probability is not None else ""


def _in_sample_order(shown: Shown) -> tuple[float, ...]:
    assert shown.scores is not None, "checked by the caller"
    by_answer = dict(zip(shown.order, shown.scores, strict=True))
    return tuple(by_answer[index] for index in sorted(by_answer))


def _tied(answers: tuple[int, ...]) -> str:
    names = " and ".join(str(answer + 1) for answer in answers)
    return f"answer {names}" if len(answers) == 1 else f"answers {names} alike"


CLOSE_THRESHOLD = 0.1
"""Largest distance of P(first better) from 0.5 that counts as close: the default of `--close-threshold`."""

_NONE = (
    "No sign against this verdict: both orders agree, no text was cut, and the probability is not close to 0.5. "
    "The judge can still be wrong."
)


def doubts(judgment: Judgment) -> list[str]:
    """The reasons for doubt of a judgment, the most serious first; none for a failure, which is no verdict."""
    if judgment.verdict is None:
        return []
    pair = isinstance(judgment.verdict, PairVerdict)
    close = _of_probability(judgment) if pair else ()
    return [*_of_orders(judgment, pair=pair), *_of_cuts(judgment), *close]


def doubts_html(judgment: Judgment) -> str:
    """The reasons for doubt under a title; for a pair without any, a sentence that names the checks."""
    reasons = doubts(judgment)
    if reasons:
        return notice("Why this verdict may be wrong:", *reasons)
    checked = flips(judgment) is False and judgment.probability is not None
    return f'<div class="jl-small">{sentences([_NONE])}</div>' if checked else ""


def _of_orders(judgment: Judgment, *, pair: bool) -> Iterator[str]:
    flipped = flips(judgment)
    if flipped:
        yield "The orders disagree: the verdict depends on which answer stands first, so do not rely on it."
    elif pair and flipped is None and len(judgment.shown) == 1:
        yield "Only one order was judged, so the effect of the position is unknown."


def _of_cuts(judgment: Judgment) -> Iterator[str]:
    """A sentence for each answer that was cut, with the shortest part that the judge read."""
    read: dict[int, tuple[int, int]] = {}
    for shown in judgment.shown:
        for cut in shown.truncations:
            answer = shown.order[cut.answer] + 1
            tokens = (cut.tokens_after, cut.tokens_before)
            read[answer] = min(read.get(answer, tokens), tokens)
    for answer, (after, before) in sorted(read.items()):
        yield f"Answer {answer} was cut: the judge read {after:,} of its {before:,} tokens."


def _of_probability(judgment: Judgment) -> Iterator[str]:
    probability = judgment.probability
    if probability is not None and abs(probability - 0.5) <= CLOSE_THRESHOLD:
        yield f"The call is close: P(first better) {probability:.2f} is at most {CLOSE_THRESHOLD:g} from 0.5."


_NUMBERED = 12
"""Most scores on an axis that leave room for a probability in each cell or above each bar."""
_MOST_TICKS = 12
_LEAST_SHOWN = 0.005
_LISTED = 100
_SHADES = mpl.colormaps["Blues"]  # one hue from light to dark, readable with any colour vision
_DARK = 0.6  # of the range of shades, from which numbers are white
_STYLE_LOCK = Lock()  # matplotlib's style is global, and events of the page run in several threads


def heat_map(distribution: PairDistribution, order: tuple[int, ...], values: Sequence[float]) -> str:
    """P(score of answer 1, score of answer 2), in sample order whichever was shown first.

    Args:
        distribution: in the order shown.
        order: in which the answers were shown.
        values: the judge's scores, ascending: n columns from left to right and n rows from bottom to top.
    """
    shares = {((s1, s2) if order == (0, 1) else (s2, s1)): share for s1, s2, share in distribution.likeliest}
    index = {value: position for position, value in enumerate(values)}
    highest = max(shares.values(), default=1.0)
    shade = ScalarMappable(Normalize(0, 100 * highest), _SHADES)
    likeliest = "No score line has any."
    if shares:
        (first, second), share = max(shares.items(), key=lambda line: line[1])
        likeliest = f"Likeliest: {first:g} for answer 1 and {second:g} for answer 2, {_percent(share)}."
    with _drawing(4.6, 3.9) as (figure, axes):
        for (first, second), share in shares.items():
            x, y = index[first], index[second]
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=_SHADES(share / highest)))
            if len(values) <= _NUMBERED and share >= _LEAST_SHOWN:
                colour = "white" if share > _DARK * highest else INK
                axes.text(x, y, f"{100 * share:.0f}", ha="center", va="center", color=colour, fontsize=9)
        axes.axline((0, 0), slope=1, color=INK, linestyle="--", linewidth=0.8, zorder=0.5)  # behind the cells
        limits = (-0.5, len(values) - 0.5)
        axes.set(xlim=limits, ylim=limits, aspect="equal")
        axes.set(xlabel="Score of answer 1 (points)", ylabel="Score of answer 2 (points)")
        axes.set_yticks(*_ticks(values))
        axes.set_xticks(*_ticks(values))
        axes.set_title(f"n = {len(shares)} score lines", fontsize=10, loc="left")
        figure.colorbar(shade, ax=axes, label="Probability (%)", shrink=0.8)
        drawing = svg(figure, f"Probabilities of the score lines in percent. {likeliest}")
    caption = "Above the dashed line answer 2 is better, below it answer 1."
    rows = [(f"{first:g}", f"{second:g}", _percent(share)) for (first, second), share in shares.items()]
    return _with_digits(drawing, caption, ("answer 1", "answer 2"), rows)


def grade_bars(distribution: GradeDistribution, values: Sequence[float]) -> str:
    """P(score) of one answer, a bar for each of the judge's scores."""
    shares: Mapping[float, float] = dict(distribution.likeliest)
    percents = [100 * shares.get(value, 0.0) for value in values]
    likeliest = "none."
    if shares:
        value, share = max(shares.items(), key=lambda score: score[1])
        likeliest = f"{value:g}, {_percent(share)}."
    with _drawing(4.6, 2.6) as (figure, axes):
        bars = axes.bar(range(len(values)), percents, width=0.76, color=BLUE)
        if len(values) <= _NUMBERED:
            axes.bar_label(bars, [_bar_number(percent, max(percents)) for percent in percents], fontsize=9)
        axes.set_xticks(*_ticks(values))
        axes.set(xlabel="Score (points)", ylabel="Probability (%)")
        axes.set_title(f"n = {len(shares)} scores", fontsize=10, loc="left")
        axes.grid(axis="y", color=GRID)
        drawing = svg(figure, f"Probabilities of the scores in percent. Likeliest: {likeliest}")
    rows = [(f"{value:g}", _percent(share)) for value, share in shares.items()]
    return _with_digits(drawing, "", ("score",), rows)


def agreement_curve(growth: Sequence[Estimate]) -> str:
    """Agreement with the labels over their number, with its 95 % interval as a band."""
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
        last = f"After {counts[-1]} labels {values[-1]:.1f} percent, 95 percent interval {bounds}."
        drawing = svg(figure, f"Agreement with your labels as they grow. {last}")
    return f'<div class="jl-chart">{drawing}</div>'


def probability_bar(first_better: float) -> str:
    """P(first better) as a bar between the two answers; the words beside it have the number."""
    share = 100 * first_better
    return (
        f'<div class="jl-balance" role="img" aria-label="P(first better) {first_better:.2f}">'
        f"<span>answer 1<br>{share:.0f} %</span>"
        f'<div class="jl-track"><div class="jl-fill" style="width:{share:.1f}%"></div></div>'
        f"<span>answer 2<br>{100 - share:.0f} %</span></div>"
    )


def score_bars(scores: Sequence[float], scale: tuple[float, float]) -> str:
    """The score of each answer on the judge's scale, one below the other."""
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
    """Positions and labels of the ticks: all of a few scores, else every so many."""
    ticked = range(0, len(values), -(-len(values) // _MOST_TICKS))
    return list(ticked), [f"{values[position]:g}" for position in ticked]


def _bar_number(percent: float, most: float) -> str:
    return f"{percent:.{0 if percent >= 1 else 2}f}" if percent and percent >= most / 100 else ""


def _with_digits(drawing: str, caption: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A drawing with its caption, and the likeliest in digits in a table that is folded away."""
    head = "".join(f"<th>{name}</th>" for name in (*heads, "probability"))
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows[:_LISTED])
    return (
        f'<div class="jl-chart">{drawing}</div>{sentences([caption])}'
        '<details class="jl-digits"><summary>The likeliest in digits</summary>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></details>"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


MAX_TEXT = 20_000
"""Characters of one text that the page shows."""

_WAYS_OUT: tuple[tuple[type[JudgelmError], str], ...] = (
    (BusyError, "Try again in a moment."),
    (EngineError, "Start `judgelm web` again; what it printed says more."),
)


def text_block(text: str, *, title: str, note: str = "") -> str:
    """A titled text with its line ends and blanks."""
    left = len(text) - MAX_TEXT
    shown = text if left <= 0 else f"{text[:MAX_TEXT]}\n[… {left:,} more characters are not shown]"
    aside = f" <small>{escape(note)}</small>" if note else ""
    return (
        f'<section class="jl-text"><h4>{escape(title)}{aside}</h4><div class="jl-raw">{escape(shown)}</div></section>'
    )


def side_by_side(blocks: Iterable[str]) -> str:
    """Blocks in columns; below each other where the screen is narrow."""
    return f'<div class="jl-columns">{"".join(blocks)}</div>'


def panel(*parts: str, title: str = "") -> str:
    """Parts that belong together, under a title."""
    heading = f"<h3>{escape(title)}</h3>" if title else ""
    return f'<section class="jl-panel">{heading}{"".join(parts)}</section>'


def verdict(sentence: str, *rest: str) -> str:
    """A verdict in words, read out by screen readers when it appears, with its details below."""
    return f'<div class="jl-verdict" role="status"><p class="jl-lead">{escape(sentence)}</p>{sentences(rest)}</div>'


def sentences(lines: Iterable[str]) -> str:
    """A paragraph for each line that is not empty."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines if line)


def notice(*lines: str) -> str:
    """A note that is no error."""
    return f'<div class="jl-notice">{sentences(lines)}</div>'


def folded(text: str, *, title: str) -> str:
    """A text that a click on its title shows."""
    return f'<details class="jl-folded"><summary>{escape(title)}</summary><p>{escape(text)}</p></details>'


def alert(error: JudgelmError | str) -> str:
    """An error, with advice on what to do."""
    way_out = next((words for kind, words in _WAYS_OUT if isinstance(error, kind)), "")
    return f'<div class="jl-alert" role="alert">{sentences([str(error), way_out])}</div>'


def busy(words: str) -> str:
    """A note on work in progress."""
    return f'<p class="jl-busy" role="status">{escape(words)}</p>'


def partial_text(text: str, *, title: str) -> str:
    """A text while it is being written."""
    return (
        f'<section class="jl-text jl-writing"><h4>{escape(title)}</h4>'
        f'<div class="jl-raw">{escape(text)}<span class="jl-cursor" aria-hidden="true"></span></div></section>'
    )
