"""HTML of a judgment: the verdict in words, then each prompt shown with its scores, chart and reason."""

import math
from collections.abc import Sequence

from judgelm.errors import ConfigError
from judgelm.judges.released import JudgeFormat
from judgelm.parsing.scores import LEAST_ASSIGNED, score_lines
from judgelm.records import (
    GradeVerdict,
    Judgment,
    LabelVerdict,
    PairVerdict,
    RankingVerdict,
    Shown,
    Unparsed,
)
from judgelm.reports.pairs import score_text
from judgelm.reports.wording import FAILURE_NAMES
from judgelm.serving.streaming import PartialReply
from judgelm.serving.web.charts import grade_bars, heat_map, probability_bar, score_bars
from judgelm.serving.web.doubts import doubts_html
from judgelm.serving.web.markup import card, notice, partial_text, sentences, side_by_side, text_block, verdict

_FEW = "Less than half of the probability is on score lines: the chart shows that part alone."


def judgment_card(judgment: Judgment, judge: JudgeFormat) -> str:
    """The whole judgment; `judge` has the scale of the charts."""
    cards = [_shown_card(shown, judgment, judge) for shown in judgment.shown]
    drawn = "" if judgment.probability is None else _balance(judgment)
    if isinstance(judgment.verdict, RankingVerdict) and judgment.scores is not None:
        drawn = score_bars(judgment.scores, judge.scale)
    return (
        card(verdict(verdict_sentence(judgment), *verdict_details(judgment)), drawn, doubts_html(judgment))
        + side_by_side(cards)
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
    if judgment.scores is not None and len(judgment.scores) > 1:
        by_one_order = len(judgment.shown) < 2 or judgment.scores == judgment.shown[0].scores  # as under rule `given`
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


def _shown_card(shown: Shown, judgment: Judgment, judge: JudgeFormat) -> str:
    lines = [] if shown.failure is None else [f"Not readable: {failure_words(shown.failure)}."]
    if shown.scores is not None:
        lines.append(f"Scores {score_text(_in_sample_order(shown))}" if len(shown.scores) > 1 else "")
        lines.append("" if shown.anchor is None else f"The other answer beside it got {shown.anchor:g}.")
    parts = [sentences(lines), _chart(shown, judge), text_block(shown.text, title="Reply as written")]
    if shown.reason is not None:
        parts.append(text_block(shown.reason, title="Reason"))
    if shown.reason_failure is not None:
        parts.append(notice(f"The reason: {text_failure(shown.reason_failure)}."))
    if isinstance(judgment.verdict, RankingVerdict) and len(shown.order) > 2:
        title = "shown as " + ", ".join(str(index + 1) for index in shown.order)
    else:
        title = order_words(shown)
    return card(*parts, title=title[0].upper() + title[1:])


def _chart(shown: Shown, judge: JudgeFormat) -> str:
    """The chart of the distribution with its main numbers; empty without one."""
    if shown.distribution is None and shown.grades is None:
        return ""
    try:
        values = score_lines(judge.scale, judge.step).values
    except ConfigError as error:
        return notice(str(error))
    drawn = shown.grades or shown.distribution
    assert drawn is not None, "one of the two is there"
    few = notice(_FEW) if 1 - drawn.unassigned < LEAST_ASSIGNED else ""
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
    return (f"{unassigned:.1%} on no score line." if unassigned >= 0.001 else "") + exact


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
