"""A judgment as the page shows it: the verdict in words, then each prompt shown with its scores, chart and reason."""

import math
from collections.abc import Sequence

from judgelm.errors import ConfigError
from judgelm.judge import JudgeFormat
from judgelm.parsing.distribution import LEAST_ASSIGNED, score_lines
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
from judgelm.serving.web.markup import card, notice, partial_text, sentences, side_by_side, text_block, verdict

_FEW = "Less than half of the probability is on score lines: the drawing shows what little there is."


def judgment_card(judgment: Judgment, judge: JudgeFormat) -> str:
    """Everything the judgment says; `judge` is whose scale the charts have."""
    shown = [_shown_card(one, judgment, judge) for one in judgment.shown]
    drawn = "" if judgment.probability is None else _balance(judgment)
    if isinstance(judgment.verdict, RankingVerdict) and judgment.scores is not None:
        drawn = score_bars(judgment.scores, judge.scale)
    return (
        card(verdict(verdict_sentence(judgment), *verdict_details(judgment)), drawn)
        + side_by_side(shown)
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
            return f"From best to worst: {', '.join(_tied(one) for one in order)}."
    return "No verdict."


def verdict_details(judgment: Judgment) -> list[str]:
    """P(first better), scores and consistency, each a sentence."""
    found = []
    if judgment.probability is not None:
        what = "the answer is correct" if isinstance(judgment.verdict, LabelVerdict) else "first better"
        found.append(f"P({what}) {judgment.probability:.2f}")
    if judgment.scores is not None and len(judgment.scores) > 1:
        by_one_order = len(judgment.shown) < 2 or judgment.scores == judgment.shown[0].scores  # as under rule `given`
        mean = "Scores" if by_one_order else "Mean scores"
        found.append(f"{mean} {score_text(judgment.scores)}")
    if judgment.consistent is not None:
        found.append(
            "All orders agree."
            if judgment.consistent
            else "The orders disagree: the verdict depends on which answer stands first, so do not lean on it."
        )
    if judgment.repaired:
        found.append("Only a second try, held to the grammar of score lines, could be read.")
    return found


def failure_words(failure: Unparsed) -> str:
    """What went wrong, in words, with the finding where there is one."""
    why = failure.why or (failure.text if failure.code == "engine" else "")
    return FAILURE_NAMES[failure.code] + (f" ({why})" if why else "")


def text_failure(failure: Unparsed) -> str:
    """What a reason or a reply in a talk lacks, in words."""
    return f"it breaks off ({failure.why})" if failure.code == "truncated" else failure_words(failure)


def live_reasons(replies: Sequence[PartialReply]) -> str:
    """The reasons that are being written; while only scores are, that they are."""
    reasons = [one for one in replies if one.reason]
    if not reasons:
        return ""
    return side_by_side(
        partial_text(one.text.lstrip(), title=f"The reason, going on from “{one.line}”") for one in reasons
    )


def input_notes(judgment: Judgment) -> str:
    """What was done to the texts before the judge saw them."""
    lines = []
    if judgment.sanitized:
        lines.append(
            f"{judgment.sanitized} look-alikes of the prompt's own markers were defused in what you gave, so that no "
            "text can pass for the prompt."
        )
    if any(one.truncations for one in judgment.shown):
        lines.append("Some texts did not fit the judge's window and were cut at their end.")
    lines.append(f"{judgment.prompt_tokens:,} tokens read, {judgment.completion_tokens:,} written.")
    return f'<div class="jl-small">{sentences(lines)}</div>'


def order_words(shown: Shown) -> str:
    """`answer 2 shown first`, with the part where there are several."""
    part = f"{shown.part}: " if shown.part else ""
    if len(shown.order) == 1:
        return shown.part or "what the judge wrote"
    return f"{part}answer {shown.order[0] + 1} shown first"


def _shown_card(shown: Shown, judgment: Judgment, judge: JudgeFormat) -> str:
    said = [] if shown.failure is None else [f"Not readable: {failure_words(shown.failure)}."]
    if shown.scores is not None:
        said.append(f"Scores {score_text(_in_sample_order(shown))}" if len(shown.scores) > 1 else "")
        said.append("" if shown.anchor is None else f"What it was graded beside got {shown.anchor:g}.")
    parts = [sentences(said), _chart(shown, judge), text_block(shown.text, title="Reply as written")]
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
    """The distribution and what it comes down to; nothing where there is none."""
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
        found = shown.grades
        expected = "" if math.isnan(found.expected) else f"Expected score {found.expected:.2f}"
        return sentences([expected, _rest(found.unassigned, found.approximation)]) + few + grade_bars(found, values)
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
    assert shown.scores is not None, "its caller looked"
    by_answer = dict(zip(shown.order, shown.scores, strict=True))
    return tuple(by_answer[index] for index in sorted(by_answer))


def _tied(places: tuple[int, ...]) -> str:
    names = " and ".join(str(place + 1) for place in places)
    return f"answer {names}" if len(places) == 1 else f"answers {names} alike"
