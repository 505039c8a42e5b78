"""Describe an evaluation in sentences, giving n, an interval, and a baseline for each figure."""

from collections.abc import Iterator

from judgelm.metrics.agreement import HumanAgreement
from judgelm.records import Winner
from judgelm.studies.evaluation import Evaluation
from judgelm.studies.pair_labels import RULE_NAMES
from judgelm.studies.pair_metrics import PairMetrics, PositionEstimates
from judgelm.studies.sentences import by_sign, few_pairs_sentence, format_percents

FEW_PAIRS = 100
"""With fewer pairs, the headline warns that intervals are wide (about ±10 points)."""

WINNER_NAMES: dict[Winner, str] = {1: "first better", "tie": "tie", 2: "second better"}

FAILURE_NAMES: dict[str, str] = {
    "truncated": "the reply ended before the scores were complete",
    "off_grammar": "the reply does not have the expected form",
    "low_coverage": "the verdict words have too little probability",
    "reason_cut": "the reason reached its token limit",
    "out_of_range": "a score is outside the judge's scale",
    "too_long": "the prompt did not fit the judge's context window",
    "equal_after_cut": "the answers are identical after truncation to the context window",
    "undecided": "the panel's judges are split, or too few judges gave a verdict",
    "engine": "the engine failed, not the judge",
    "reversed_order": "only the judgment in the reversed order failed",
}


def percent(share: float) -> str:
    """Format 0.7107 as `71.1 %`, with a non-breaking space."""
    return f"{100 * share:.1f}\u00a0%"


def points(difference: float) -> str:
    """Format a difference between shares, such as 0.238, as `+23.8 points`."""
    return f"{100 * difference:+.1f}\u00a0points"


def number_text(value: object, unit: str = "") -> str:
    """Format a number from a manifest to three digits, or return `not recorded`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "not recorded"
    digits = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{digits} {unit}".rstrip()


def headline(evaluation: Evaluation) -> list[str]:
    """Summarise a run, starting with the most important sentence."""
    shown = evaluation.headline
    if shown is None or evaluation.counts.judged == 0:
        return [
            f"Agreement cannot be measured, because all {evaluation.counts.joined:,} judgments failed.",
            "Counting them as ties would only measure how many of the labels are ties.",
            *evaluation.notes,
        ]
    sentences = [
        f"The judge agrees with the label in {percent(shown.accuracy.value)} of {shown.n:,} pairs "
        f"(95 % interval {format_percents(shown.accuracy)}{_rule_words(evaluation)}){_decided_words(shown)}.",
        *_tie_sentence(shown),
        _baseline_sentence(shown),
        *_other_rules(evaluation),
        _failure_sentence(evaluation),
    ]
    if shown.n < FEW_PAIRS:
        sentences.append(few_pairs_sentence(shown.n))
    if shown.position is not None:
        sentences.append(_position_sentence(shown.position))
    if evaluation.humans is not None:
        sentences.append(human_sentence(evaluation.humans))
    return [*sentences, *evaluation.notes]


def _position_sentence(position: PositionEstimates) -> str:
    first, second = percent(position.toward_first.value), percent(position.toward_second.value)
    return (
        f"In {percent(position.consistency.value)} of {position.consistency.n:,} pairs, the verdict is the same in "
        f"both orders (95 % interval {format_percents(position.consistency)}). It favours the answer shown first in "
        f"{first} and the answer shown second in {second}."
    )


def human_sentence(humans: HumanAgreement) -> str:
    """Compare how often annotators agree with each other and with the judge, on the same pairs."""
    verdict = by_sign(
        humans.difference,
        "the judge agrees with annotators more often than they agree with each other",
        "the judge agrees with annotators less often than they agree with each other",
        "the difference is not significant",
    )
    return (
        f"Over {humans.human_human.n:,} pairs, two annotators agree {percent(humans.human_human.value)} of the time "
        f"({format_percents(humans.human_human)}), and the judge agrees with an annotator "
        f"{percent(humans.judge_human.value)} of the time ({format_percents(humans.judge_human)}): {verdict}."
    )


def _rule_words(evaluation: Evaluation) -> str:
    return "" if evaluation.as_tie.position is None else f"; order rule: {RULE_NAMES[evaluation.order_rule]}"


def _decided_words(shown: PairMetrics) -> str:
    decided = shown.decided
    if decided is None or decided.n == shown.n:
        return ""
    interval = f"95 % interval {format_percents(decided)}"
    return f", and in {percent(decided.value)} of the {decided.n:,} pairs with a winner ({interval})"


def _tie_sentence(shown: PairMetrics) -> Iterator[str]:
    (_, missed, _), (_, hits, _), (_, missed_too, _) = shown.confusion
    labelled = sum(shown.confusion[1])
    if labelled:
        yield (
            f"A labelled tie counts as correct only if the judge calls it a tie ({hits:,} of {labelled:,}). "
            f"A tie on a pair with a winner counts as wrong ({missed + missed_too:,} of {shown.n - labelled:,})."
        )


def _other_rules(evaluation: Evaluation) -> Iterator[str]:
    for rule, agreement in evaluation.other_rules.items():
        accuracy = agreement.excluded if evaluation.failures == "excluded" else agreement.as_tie
        if accuracy is not None:
            figure = f"{percent(accuracy.value)} ({format_percents(accuracy)}, n = {accuracy.n:,})"
            yield f"With the order rule “{RULE_NAMES[rule]}”, agreement is {figure}."


def _baseline_sentence(shown: PairMetrics) -> str:
    always = f"always answering “{WINNER_NAMES[shown.majority_label]}” ({percent(shown.majority.value)})"
    gain = f"{points(shown.gain.value)} (95 % interval {format_percents(shown.gain)})"
    verdict = by_sign(shown.gain, "better than", "worse than", "not significantly different from")
    return f"Agreement is {verdict} {always}: {gain}."


def _failure_sentence(evaluation: Evaluation) -> str:
    declined = evaluation.counts.abstained
    abstained = f" The judge abstained on {declined:,} more, which are excluded." if declined else ""
    return f"{_failures(evaluation)}{abstained}"


def _failures(evaluation: Evaluation) -> str:
    counts, half_failed = evaluation.counts, len(evaluation.half_failed)
    half = ""
    if half_failed:
        pairs, its = ("1 pair", "its") if half_failed == 1 else (f"{half_failed:,} pairs", "their")
        half = f" In {pairs}, only one order failed, so {its} consistency is unknown."
    if counts.failed == 0:
        return f"All {counts.joined:,} pairs have a verdict.{half}"
    share = f"{counts.failed:,} of {counts.joined:,} judgments failed ({percent(counts.failed / counts.joined)})"
    if evaluation.failures == "as_tie":
        without = evaluation.excluded
        other = "" if without is None else f"; excluding them, agreement is {percent(without.accuracy.value)}"
        return f"{share}. Failures are counted as ties here{other}.{half}"
    as_tie = percent(evaluation.as_tie.accuracy.value)
    return f"{share}. Failures are excluded here; if they were counted as ties, agreement would be {as_tie}.{half}"
