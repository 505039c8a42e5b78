"""Sentences on an evaluation: each number with its n, its interval and its baseline."""

from collections.abc import Iterator

from judgelm.metrics.annotators import HumanAgreement
from judgelm.metrics.resampling import Estimate
from judgelm.records import Winner
from judgelm.studies.evaluation import Evaluation
from judgelm.studies.pair_labels import RULE_NAMES
from judgelm.studies.pair_metrics import PairMetrics, PositionEstimates

FEW_PAIRS = 100
"""Below this many pairs the headline says that they are few: the interval is then some ten points to either side."""

WINNER_NAMES: dict[Winner, str] = {1: "first better", "tie": "tie", 2: "second better"}

FAILURE_NAMES: dict[str, str] = {
    "truncated": "the reply ended before its scores did",
    "off_grammar": "the reply does not have the expected form",
    "out_of_range": "a score lies outside the judge's scale",
    "too_long": "the prompt did not fit the judge's context window",
    "undecided": "the judges of a panel are split, or too few of them gave a verdict",
    "engine": "the engine failed; this is not the judge's fault",
    "reversed_order": "only the judgment of the reversed order failed",
}


def percent(share: float) -> str:
    """0.7107 -> `71.1 %`, with a space that does not break."""
    return f"{100 * share:.1f}\u00a0%"


def points(difference: float) -> str:
    """0.238 -> `+23.8 points`; differences of shares are not shares."""
    return f"{100 * difference:+.1f}\u00a0points"


def bounds(estimate: Estimate) -> str:
    """The 95 % interval in percent: `68.2 to 73.9`."""
    return f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}"


def number_text(value: object, unit: str = "") -> str:
    """A figure of the manifest to three digits, or `not recorded`; never a 0 that nobody measured."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "not recorded"
    digits = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{digits} {unit}".rstrip()


def headline(evaluation: Evaluation) -> list[str]:
    """The verdict of a run in a few sentences, the most important first."""
    shown = evaluation.headline
    if shown is None or evaluation.counts.judged == 0:
        return [
            f"This run shows nothing about agreement: all {evaluation.counts.joined} judgments failed.",
            "Counting them as ties would only measure how many labels are ties.",
        ]
    sentences = [
        f"The judge names the labelled winner in {percent(shown.accuracy.value)} of {shown.n:,} pairs "
        f"(95 % interval {bounds(shown.accuracy)}{_rule_words(evaluation)}).",
        _baseline_sentence(shown),
        *_other_rules(evaluation),
        _failure_sentence(evaluation),
    ]
    if shown.n < FEW_PAIRS:
        sentences.append(f"{shown.n} pairs are few: read the intervals, not the points.")
    if shown.position is not None:
        sentences.append(position_sentence(shown.position))
    if evaluation.humans is not None:
        sentences.append(human_sentence(evaluation.humans))
    return sentences


def position_sentence(position: PositionEstimates) -> str:
    """Consistency and the side of the lean."""
    first, second = position.toward_first, position.toward_second
    lean = f"{percent(first.value)} lean to the first place and {percent(second.value)} to the second"
    return (
        f"Shown in both orders, {percent(position.consistency.value)} of {position.consistency.n:,} pairs get the same "
        f"answer (95 % interval {bounds(position.consistency)}); {lean}."
    )


def human_sentence(humans: HumanAgreement) -> str:
    """People with people beside the judge with people, over the same pairs."""
    low, high = humans.difference.low, humans.difference.high
    if low > 0:
        verdict = "the judge agrees with a person more often than people do with each other"
    elif high < 0:
        verdict = "the judge agrees with a person less often than people do with each other"
    else:
        verdict = "the difference is within its interval"
    return (
        f"Over {humans.human_human.n:,} pairs, two annotators agree {percent(humans.human_human.value)} of the time "
        f"({bounds(humans.human_human)}), the judge and one annotator {percent(humans.judge_human.value)} "
        f"({bounds(humans.judge_human)}): {verdict}."
    )


def _rule_words(evaluation: Evaluation) -> str:
    """The order rule behind the agreement; empty where no two orders were judged."""
    return "" if evaluation.as_tie.position is None else f"; rule: {RULE_NAMES[evaluation.order_rule]}"


def _other_rules(evaluation: Evaluation) -> Iterator[str]:
    """The agreement under each other rule."""
    for rule, agreement in evaluation.other_rules.items():
        accuracy = agreement.excluded if evaluation.failures == "excluded" else agreement.as_tie
        if accuracy is not None:
            counted = f"({bounds(accuracy)}, n = {accuracy.n:,})"
            yield f"Under the rule “{RULE_NAMES[rule]}” it names the winner in {percent(accuracy.value)} {counted}."


def _baseline_sentence(shown: PairMetrics) -> str:
    always = f"always answering “{WINNER_NAMES[shown.majority_label]}” ({percent(shown.majority.value)})"
    gain = f"{points(shown.gain.value)} (95 % interval {bounds(shown.gain)})"
    if shown.gain.low > 0:
        return f"That is better than {always}, by {gain}."
    if shown.gain.high < 0:
        return f"That is worse than {always}, by {gain}."
    return f"That does not tell the judge from {always}: the difference is {gain}."


def _failure_sentence(evaluation: Evaluation) -> str:
    counts, half_failed = evaluation.counts, len(evaluation.half_failed)
    half = f" Of {half_failed:,} more the other order failed: their consistency is unknown." if half_failed else ""
    if counts.failed == 0:
        return f"None of {counts.joined:,} judgments failed.{half}"
    share = f"{counts.failed:,} of {counts.joined:,} judgments failed ({percent(counts.failed / counts.joined)})"
    if evaluation.failures == "as_tie":
        without = evaluation.excluded
        other = "" if without is None else f"; without them agreement is {percent(without.accuracy.value)}"
        return f"{share} and count as ties here{other}.{half}"
    as_tie = percent(evaluation.as_tie.accuracy.value)
    return f"{share} and are left out here; counted as ties, agreement is {as_tie}.{half}"
