"""HTML for a judgment: the verdict in words, warnings, charts, and raw replies.

Texts are untrusted, so they are always escaped and never rendered as Markdown or HTML.
"""

import math
from collections.abc import Iterator, Sequence

from judgelm.errors import ConfigError
from judgelm.judges.resolve import JudgeFormat
from judgelm.parsing.scores import MIN_ASSIGNED, score_lines
from judgelm.records import GradeVerdict, Judgment, LabelVerdict, PairVerdict, RankingVerdict, Shown, Unparsed
from judgelm.reports.pairs import score_text
from judgelm.reports.wording import FAILURE_NAMES
from judgelm.runs.engine_worker import PartialReply
from judgelm.serving.web.charts import grade_bars, heat_map, probability_bar, score_bars
from judgelm.serving.web.markup import notice, panel, partial_text, sentences, side_by_side, text_block, verdict
from judgelm.serving.web.runs import flips

_LOW_COVERAGE = "Score lines have less than half of the total probability. The chart shows only score lines."


def judgment_panel(judgment: Judgment, judge: JudgeFormat) -> str:
    """Render the complete judgment."""
    panels = [_shown_panel(shown, judgment, judge) for shown in judgment.shown]
    drawn = ""
    if judgment.probability is not None and isinstance(judgment.verdict, PairVerdict):
        drawn = probability_bar(judgment.probability)
    if isinstance(judgment.verdict, RankingVerdict) and judgment.scores is not None:
        drawn = score_bars(judgment.scores, judge.scale)
    result = panel(verdict(verdict_sentence(judgment), *verdict_details(judgment)), drawn, doubts_html(judgment))
    return result + side_by_side(panels) + input_notes(judgment)


def verdict_sentence(judgment: Judgment) -> str:
    """Describe the verdict or the failure in one sentence."""
    if judgment.failure is not None:
        return f"No verdict: {failure_words(judgment.failure)}."
    match judgment.verdict:
        case PairVerdict(winner="tie") if judgment.consistent is False:
            return "A tie, because the orders disagree."
        case PairVerdict(winner="tie"):
            return "Both answers are equally good."
        case PairVerdict(winner=winner):
            return f"Answer {winner} is better."
        case GradeVerdict(score=score):
            return f"The grade is {round(score, 2):g}."
        case LabelVerdict(label=label):
            return f"The label is {label}." if judgment.mode == "label" else f"The answer is {label}."
        case RankingVerdict(order=order):
            return f"From best to worst: {', '.join(_tied(rank) for rank in order)}."
    return "No verdict."


def verdict_details(judgment: Judgment) -> list[str]:
    """Describe P(first better), the scores, and whether the orders agree."""
    lines = []
    if judgment.probability is not None:
        event = "the answer is correct" if isinstance(judgment.verdict, LabelVerdict) else "first better"
        event = "fulfilled" if judgment.mode == "label" else event
        lines.append(f"P({event}) {judgment.probability:.2f}")
    if judgment.scores is not None and len(judgment.scores) > 1 and not judgment.reads_words:
        by_one_order = len(judgment.compared) < 2 or judgment.scores == judgment.shown[0].scores  # rule `given`
        mean = "Scores" if by_one_order else "Mean scores"
        lines.append(f"{mean} {score_text(judgment.scores)}")
    if judgment.consistent:
        lines.append("All orders agree.")
    if judgment.repaired:
        lines.append("The first reply could not be parsed; the verdict comes from a constrained retry.")
    return lines


def failure_words(failure: Unparsed) -> str:
    """Describe a failure, with details if known."""
    why = failure.why or (failure.text if failure.code == "engine" else "")
    return FAILURE_NAMES[failure.code] + (f" ({why})" if why else "")


def text_failure(failure: Unparsed) -> str:
    """Describe why a reason or a reply in a conversation failed."""
    return f"it is incomplete ({failure.why})" if failure.code == "truncated" else failure_words(failure)


def live_reasons(replies: Sequence[PartialReply]) -> str:
    """Render the reasons that are being generated, or "" while the judge is scoring."""
    reasons = [reply for reply in replies if reply.reason]
    titled = [partial_text(reply.text.lstrip(), title=f"The reason, continuing “{reply.line}”") for reply in reasons]
    return side_by_side(titled) if titled else ""


def input_notes(judgment: Judgment) -> str:
    """Render notes about sanitised texts and token counts."""
    lines = []
    if judgment.sanitized:
        lines.append(f"{judgment.sanitized} occurrences of the prompt's markers in the texts were sanitised.")
    lines.append(f"{judgment.prompt_tokens:,} prompt tokens, {judgment.completion_tokens:,} completion tokens.")
    return f'<div class="jl-small">{sentences(lines)}</div>'


def order_words(shown: Shown) -> str:
    """Describe the order in which the answers were shown, such as `answer 2 shown first`."""
    part = f"{shown.part}: " if shown.part else ""
    if len(shown.order) == 1:
        return shown.part or "the judge's reply"
    return f"{part}answer {shown.order[0] + 1} shown first"


def _shown_panel(shown: Shown, judgment: Judgment, judge: JudgeFormat) -> str:
    lines = [] if shown.failure is None else [f"No verdict: {failure_words(shown.failure)}."]
    if shown.scores is not None:
        scored = len(shown.scores) > 1 and judge.prompt is None
        lines.append(f"Scores {score_text(_in_sample_order(shown))}" if scored else "")
        if judgment.reads_words and len(shown.order) == 1 and shown.grades is None:
            lines.append(f"Reward {shown.scores[0]:.4g}.")
        lines.append("" if shown.anchor is None else f"The other answer scored {shown.anchor:g}.")
    parts = [sentences(lines), _distribution_chart(shown, judge), text_block(shown.text, title="Raw reply")]
    if shown.reason is not None and shown.reason not in shown.text:  # a prompt's reason is part of the reply
        parts.append(text_block(shown.reason, title="Reason"))
    if shown.reason_failure is not None:
        parts.append(notice(f"Problem with the reason: {text_failure(shown.reason_failure)}."))
    if isinstance(judgment.verdict, RankingVerdict) and len(shown.order) > 2:
        title = "shown as " + ", ".join(str(index + 1) for index in shown.order)
    elif judgment.reads_words and len(shown.order) == 1:
        title = f"{shown.part}, answer {shown.order[0] + 1}" if shown.part else f"answer {shown.order[0] + 1}"
    else:
        title = order_words(shown)
    return panel(*parts, title=title[0].upper() + title[1:])


def _distribution_chart(shown: Shown, judge: JudgeFormat) -> str:
    drawn = shown.grades or shown.distribution
    if drawn is None:
        return ""
    if shown.grades is not None and shown.log_odds is not None and len(shown.order) == 1:
        probability = (1 + math.tanh(shown.log_odds / 2)) / 2
        word = "yes" if judge.prompt is None else next(iter(judge.prompt.reply.words))
        return sentences([f"P({word}) {probability:.2f}", _rest(shown.grades.unassigned, shown.grades.approximation)])
    if judge.prompt is not None and (pair := shown.distribution) is not None:
        shares = {(first > second) - (first < second): share for first, second, share in pair.likeliest}
        words = zip(judge.prompt.reply.words, (1, -1, 0), strict=False)
        listed = ", ".join(f"P({word}) {shares.get(sign, 0):.2f}" for word, sign in words)
        return sentences([listed, _rest(pair.unassigned, pair.approximation)])
    try:
        values = score_lines(judge.scale, judge.step).values if judge.prompt is None else judge.prompt.reply.scores
    except ConfigError as error:
        return notice(str(error))
    low_coverage = notice(_LOW_COVERAGE) if 1 - drawn.unassigned < MIN_ASSIGNED else ""
    summary = chart = ""
    if (grades := shown.grades) is not None:
        summary = "" if math.isnan(grades.expected) else f"Expected score {grades.expected:.2f}"
        chart = grade_bars(grades, values)
    elif (pair := shown.distribution) is not None:
        first = pair.first_better if shown.order == (0, 1) else 1 - pair.first_better
        summary = "" if math.isnan(first) else f"P(first better) {first:.2f} in this order"
        chart = heat_map(pair, shown.order, values)
    return sentences([summary, _rest(drawn.unassigned, drawn.approximation)]) + low_coverage + chart


def _rest(unassigned: float, approximation: str) -> str:
    exact = f" The probabilities are approximate: {approximation}." if approximation else ""
    return (f"Probability of other replies: {unassigned:.1%}." if unassigned >= 0.001 else "") + exact


def _in_sample_order(shown: Shown) -> tuple[float, ...]:
    assert shown.scores is not None, "checked by the caller"
    by_answer = dict(zip(shown.order, shown.scores, strict=True))
    return tuple(by_answer[index] for index in sorted(by_answer))


def _tied(answers: tuple[int, ...]) -> str:
    names = " and ".join(str(answer + 1) for answer in answers)
    return f"answer {names}" if len(answers) == 1 else f"answers {names} (tied)"


CLOSE_THRESHOLD = 0.1
"""A verdict is close if P(first better) is this close to 0.5; equal to the default of `--close-threshold`."""

_NONE = (
    "No warning signs: both orders agree, no text was truncated, and the probability is not close to 0.5. "
    "The judge can still be wrong."
)


def doubts(judgment: Judgment) -> list[str]:
    """Return warnings about a verdict, most serious first. Failures have none."""
    if judgment.verdict is None:
        return []
    pair = isinstance(judgment.verdict, PairVerdict)
    return [*_of_orders(judgment, pair=pair), *_of_cuts(judgment), *(_of_probability(judgment) if pair else ())]


def doubts_html(judgment: Judgment) -> str:
    """Render the warnings about a verdict, or a note if a fully checked pair has no warnings."""
    reasons = doubts(judgment)
    if reasons:
        return notice("Why this verdict may be wrong:", *reasons)
    checked = flips(judgment) is False and judgment.probability is not None
    return f'<div class="jl-small">{sentences([_NONE])}</div>' if checked else ""


def _of_orders(judgment: Judgment, *, pair: bool) -> Iterator[str]:
    flipped = flips(judgment)
    if flipped:
        yield "The orders disagree: the verdict depends on which answer is shown first. Do not rely on it."
    elif pair and flipped is None and len(judgment.shown) == 1:
        yield "Only one order was judged, so the position bias is unknown."


def _of_cuts(judgment: Judgment) -> Iterator[str]:
    read: dict[int, tuple[int, int]] = {}
    for shown in judgment.shown:
        for cut in shown.truncations:
            answer = shown.order[cut.answer] + 1
            tokens = (cut.tokens_after, cut.tokens_before)
            read[answer] = min(read.get(answer, tokens), tokens)
    for answer, (after, before) in sorted(read.items()):
        yield f"Answer {answer} was truncated from {before:,} to {after:,} tokens."


def _of_probability(judgment: Judgment) -> Iterator[str]:
    probability = judgment.probability
    if probability is not None and abs(probability - 0.5) <= CLOSE_THRESHOLD:
        yield f"This is a close call: P(first better) is {probability:.2f}, within {CLOSE_THRESHOLD:g} of 0.5."
