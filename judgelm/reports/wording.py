"""Sentences on an evaluation: each number with its n, its interval and its baseline."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from judgelm.errors import InputError
from judgelm.metrics.agreement import HumanAgreement
from judgelm.metrics.resampling import Estimate
from judgelm.records import Winner
from judgelm.runs.session import CascadeStats
from judgelm.studies.evaluation import CascadeAgreement, Evaluation
from judgelm.studies.pair_labels import RULE_NAMES
from judgelm.studies.pair_metrics import PairMetrics, PositionEstimates
from judgelm.studies.sentences import few_pairs_sentence

FEW_PAIRS = 100
"""Below this many pairs the headline warns of wide intervals: they then reach some ten points to either side."""

WINNER_NAMES: dict[Winner, str] = {1: "first better", "tie": "tie", 2: "second better"}

FAILURE_NAMES: dict[str, str] = {
    "truncated": "the reply ended before its scores were complete",
    "off_grammar": "the reply does not have the expected form",
    "out_of_range": "a score is outside the judge's scale",
    "too_long": "the prompt did not fit the judge's context window",
    "equal_after_cut": "the answers are equal up to where the context window cuts them",
    "undecided": "the panel's judges are split, or too few of them gave a verdict",
    "engine": "the engine failed, not the judge",
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
            f"Agreement cannot be measured: all {evaluation.counts.joined:,} judgments failed.",
            "Counting them as ties would only measure how many labels are ties.",
            *evaluation.notes,
        ]
    sentences = [
        f"The judge names the labelled winner in {percent(shown.accuracy.value)} of {shown.n:,} pairs "
        f"(95 % interval {bounds(shown.accuracy)}{_rule_words(evaluation)}).",
        _baseline_sentence(shown),
        *_other_rules(evaluation),
        _failure_sentence(evaluation),
    ]
    if shown.n < FEW_PAIRS:
        sentences.append(few_pairs_sentence(shown.n))
    if shown.position is not None:
        sentences.append(position_sentence(shown.position))
    if evaluation.humans is not None:
        sentences.append(human_sentence(evaluation.humans))
    return [*sentences, *evaluation.notes]


def position_sentence(position: PositionEstimates) -> str:
    """Consistency, and which position the inconsistent pairs favour."""
    first, second = percent(position.toward_first.value), percent(position.toward_second.value)
    return (
        f"In {percent(position.consistency.value)} of {position.consistency.n:,} pairs the verdict is the same in both "
        f"orders (95 % interval {bounds(position.consistency)}). It favours the answer shown first in {first} and the "
        f"answer shown second in {second}."
    )


def human_sentence(humans: HumanAgreement) -> str:
    """Agreement among annotators beside that of the judge with annotators, over the same pairs."""
    low, high = humans.difference.low, humans.difference.high
    if low > 0:
        verdict = "the judge agrees with annotators more often than they agree with each other"
    elif high < 0:
        verdict = "the judge agrees with annotators less often than they agree with each other"
    else:
        verdict = "the difference is not significant"
    return (
        f"Over {humans.human_human.n:,} pairs, two annotators agree {percent(humans.human_human.value)} of the time "
        f"({bounds(humans.human_human)}), and the judge and an annotator {percent(humans.judge_human.value)} "
        f"({bounds(humans.judge_human)}): {verdict}."
    )


def _rule_words(evaluation: Evaluation) -> str:
    """The order rule behind the agreement; empty where no two orders were judged."""
    return "" if evaluation.as_tie.position is None else f"; order rule: {RULE_NAMES[evaluation.order_rule]}"


def _other_rules(evaluation: Evaluation) -> Iterator[str]:
    """The agreement under each other rule."""
    for rule, agreement in evaluation.other_rules.items():
        accuracy = agreement.excluded if evaluation.failures == "excluded" else agreement.as_tie
        if accuracy is not None:
            figure = f"{percent(accuracy.value)} ({bounds(accuracy)}, n = {accuracy.n:,})"
            yield f"With the order rule “{RULE_NAMES[rule]}” it names the winner in {figure}."


def _baseline_sentence(shown: PairMetrics) -> str:
    always = f"always answering “{WINNER_NAMES[shown.majority_label]}” ({percent(shown.majority.value)})"
    gain = f"{points(shown.gain.value)} (95 % interval {bounds(shown.gain)})"
    if shown.gain.low > 0:
        return f"That is better than {always}: {gain}."
    if shown.gain.high < 0:
        return f"That is worse than {always}: {gain}."
    return f"That is not significantly different from {always}: {gain}."


def _failure_sentence(evaluation: Evaluation) -> str:
    counts, half_failed = evaluation.counts, len(evaluation.half_failed)
    half = ""
    if half_failed:
        pairs, its = ("1 pair", "its") if half_failed == 1 else (f"{half_failed:,} pairs", "their")
        half = f" In {pairs} only one order failed: {its} consistency is unknown."
    if counts.failed == 0:
        return f"All {counts.joined:,} pairs have a verdict.{half}"
    share = f"{counts.failed:,} of {counts.joined:,} judgments failed ({percent(counts.failed / counts.joined)})"
    if evaluation.failures == "as_tie":
        without = evaluation.excluded
        other = "" if without is None else f"; without them agreement is {percent(without.accuracy.value)}"
        return f"{share}. Failures count as ties here{other}.{half}"
    as_tie = percent(evaluation.as_tie.accuracy.value)
    return f"{share}. Failures are excluded here; counted as ties, they would give an agreement of {as_tie}.{half}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeReport:
    """A cascade as a report shows it; `agreement` is None where the two judges' own runs are not there."""

    models: tuple[str, str]
    band: tuple[float, float]
    counts: CascadeStats
    agreement: CascadeAgreement | None = None

    def rows(self) -> list[tuple[str, str]]:
        """Counts, then agreement."""
        return [*cascade_rows(self.counts), *(agreement_rows(self.agreement) if self.agreement else ())]


def read_counts(recorded: dict[str, Any]) -> CascadeReport:
    """The counts that `judgelm.runs.cascade.join_runs` wrote into a manifest.

    Raises:
        InputError: it is no such entry.
    """
    try:
        (small, large), (low, high) = recorded["models"], recorded["band"]
        counts = CascadeStats(**recorded["counts"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the manifest's entry of the cascade cannot be read ({error!r}); run it again") from error
    return CascadeReport(models=(str(small), str(large)), band=(float(low), float(high)), counts=counts)


def cascade_rows(counts: CascadeStats) -> Iterator[tuple[str, str]]:
    """The large judge's savings, and the verdicts that it changed."""
    yield "pairs that the large judge was not shown", _share(counts.pairs_spared, f"of {counts.pairs:,}")
    yield (
        "prompt tokens that it was not shown, in the small judge's tokens",
        _share(counts.tokens_spared, f"of {counts.small_tokens:,}"),
    )
    if counts.operations_saved is None:
        yield "operations saved against the large judge alone", "not known"
    else:
        sizes = f"{_millions(counts.small_parameters)} and {_millions(counts.large_parameters)} parameters"
        yield "operations saved against the large judge alone", f"{percent(counts.operations_saved)} ({sizes})"
    if counts.passed_on_failed:
        yield (
            "passed on since the small judge failed; then judged",
            f"{counts.passed_on_failed:,}; {counts.mended:,}",
        )
    share = counts.changed / counts.compared if counts.compared else None
    yield "verdicts that the large judge changed", _share(share, f"of {counts.compared:,} that both gave")
    if counts.waiting:
        yield "passed on and not yet judged by the large judge", f"{counts.waiting:,}"


def agreement_rows(agreement: CascadeAgreement) -> Iterator[tuple[str, str]]:
    """Agreement with the labels, each with its n and interval."""
    yield "agreement of the small judge alone", _estimate(agreement.small)
    yield "agreement of the cascade", _estimate(agreement.cascade)
    if agreement.gain is not None:
        gain = f"{points(agreement.gain.value)} ({bounds(agreement.gain)}, n = {agreement.gain.n:,})"
        yield "cascade minus small judge, where both gave a verdict", gain
    yield "on what was passed on: the small judge", _estimate(agreement.small_on_passed)
    yield "on what was passed on: the large judge", _estimate(agreement.large_on_passed)


def _share(value: float | None, of: str) -> str:
    return f"none {of}" if value is None else f"{percent(value)} {of}"


def _estimate(estimate: Estimate | None) -> str:
    return "no labels" if estimate is None else f"{percent(estimate.value)} ({bounds(estimate)}, n = {estimate.n:,})"


def _millions(parameters: int | None) -> str:
    return "?" if parameters is None else f"{parameters / 1e6:,.1f} M"
