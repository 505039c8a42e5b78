"""Evaluate a run against labels: agreement, order effects, failures, groups, and annotators.

Every figure is computed twice. `excluded` leaves out failed judgments. Like the original JudgeLM code, `as_tie` counts
failures as ties, and pairs that failed in both orders as consistent.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from judgelm.errors import InputError
from judgelm.jsonl import json_ready
from judgelm.metrics.agreement import HumanAgreement, human_agreement
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.modes import protocol_of
from judgelm.parsing.scores import LabelRule, OrderRule
from judgelm.records import Judgment, Label, Winner
from judgelm.studies import pair_labels
from judgelm.studies.pair_labels import RULE_NAMES, TIE_THRESHOLD, JoinedPair, failed_orders, failure_code, pair_label
from judgelm.studies.pair_metrics import (
    PairMetrics,
    ProbabilityScores,
    ScoreHistogram,
    pair_metrics,
    score_histogram,
    score_probabilities,
)

FailureHandling = Literal["excluded", "as_tie"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOptions:
    """Options for an evaluation.

    Attributes:
        failures: how to treat failures in the headline figure, groups, and lists.
        order_rule: how to merge the two orders into one label; None uses `protocol_rule`.
        tie_threshold: with the rule `probability`, the maximum distance from 0.5 that counts as a tie.
        run_rule: order rule of the run, shown in the protocol.
        scale: range of accepted scores, such as `1-10` or `any`; None if unknown.
    """

    failures: FailureHandling = "excluded"
    order_rule: LabelRule | None = None
    tie_threshold: float = TIE_THRESHOLD
    run_rule: OrderRule | None = None
    scale: str | None = None
    resampling: Resampling = field(default_factory=Resampling)


DEFAULT_OPTIONS = EvaluationOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Number of rows for each outcome.

    Rows on which the judge abstained are counted only in `judgments`, `labels`, and `abstained`. `repaired` rows needed
    a constrained retry. In `read_anywhere` rows, the scores are not on the first line.
    """

    judgments: int
    labels: int
    joined: int
    judged: int
    failed: int
    failed_orders: int
    labels_without_judgment: int
    judgments_without_label: int
    repaired: int
    read_anywhere: int
    reasons: int
    thinking: int
    abstained: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """Result for one group; `accuracy` is None if every judgment failed."""

    value: str
    n: int
    failed: int
    accuracy: Estimate | None
    majority_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A pair on which the judge and the label disagree."""

    sample_id: str
    judged: Winner
    label: Winner
    scores: tuple[float, ...] | None
    label_scores: tuple[float, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleAgreement:
    """Agreement under a different order rule."""

    failed: int
    excluded: Estimate | None
    as_tie: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Results of an evaluation.

    Attributes:
        protocol: description of the order rule, failure handling, and scale; quote it with every figure.
        order_rule: order rule for all figures except `other_rules` and `probabilities`.
        other_rules: agreement under the rules `given` and `mean`, for pairs scored in both orders.
        excluded: None if every judgment failed.
        flips: ids of pairs with different verdicts in the two orders.
        failure_codes: number of pairs per failure code, including pairs in `half_failed`.
        half_failed: ids of pairs that have a verdict even though one order failed.
    """

    protocol: str
    order_rule: LabelRule
    other_rules: Mapping[LabelRule, RuleAgreement]
    failures: FailureHandling
    counts: Counts
    failure_codes: Mapping[str, int]
    excluded: PairMetrics | None
    as_tie: PairMetrics
    probabilities: ProbabilityScores | None
    scores: ScoreHistogram | None
    groups: Mapping[str, tuple[GroupRow, ...]]
    humans: HumanAgreement | None
    flips: tuple[str, ...]
    disagreements: tuple[Disagreement, ...]
    failed: tuple[str, ...]
    half_failed: tuple[str, ...]
    mean_prompt_tokens: float
    mean_completion_tokens: float
    mean_thinking_characters: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> PairMetrics | None:
        """Metrics under the chosen failure handling."""
        return self.excluded if self.failures == "excluded" else self.as_tie

    @property
    def agreement_name(self) -> str:
        """Name of the agreement figure; with two orders, it includes the order rule: `agreement, given order`."""
        return "agreement" if self.as_tie.position is None else f"agreement, {RULE_NAMES[self.order_rule]}"

    def to_json(self) -> dict[str, object]:
        """Return plain values; non-finite numbers become None."""
        return dict(json_ready(self))


def evaluate(
    judgments: Mapping[str, Judgment] | Iterable[Judgment],
    labels: Mapping[str, Label],
    *,
    reverse: Mapping[str, Judgment] | None = None,
    groups: Mapping[str, Mapping[str, str]] | None = None,
    clusters: Mapping[str, Hashable] | None = None,
    split: Mapping[str, tuple[Winner, ...]] | None = None,
    options: EvaluationOptions = DEFAULT_OPTIONS,
) -> Evaluation:
    """Compare judgments with labels, joined by sample id.

    Args:
        judgments: one judgment per sample, in one order or both.
        labels: labels by sample id.
        reverse: judgments of swapped answers from a separate run; they affect the label only if `options.order_rule`
            combines both orders.
        groups: grouping name -> sample id -> value.
        clusters: sample id -> cluster key; pairs with the same key (question) are resampled together.
        split: votes on samples without a majority, used only for annotator agreement.
        options: the protocol.

    Raises:
        InputError: no judgment has a label, a sample has two judgments, or the order rule does not apply.
    """
    judgments_by_id, reverse = pair_labels.by_id(judgments), reverse or {}
    by_default = pair_labels.protocol_rule(judgments_by_id, reverse)
    rule = options.order_rule or by_default
    joined = pair_labels.join(judgments_by_id, labels, reverse, clusters or {}, rule, options.tie_threshold)
    rows = [row for row in joined if not row.judgment.abstained]
    if not rows:
        raise InputError(f"the judge abstained on all {len(joined):,} labelled pairs, so there is nothing to evaluate")
    judged = [row for row in rows if row.judged is not None]
    # only the votes are used for annotator agreement; the winner is a placeholder
    ties = {key: Label(sample_id=key, winner="tie", votes=votes) for key, votes in (split or {}).items()}
    decided = {key: judgment for key, judgment in judgments_by_id.items() if not judgment.abstained}
    voted = decided.keys() & ties.keys() and pair_labels.join(
        decided, ties, reverse, clusters or {}, rule, options.tie_threshold
    )
    resampling = options.resampling
    return Evaluation(
        protocol=_protocol(rows, rule, options, bool(reverse), len(joined) - len(rows)),
        order_rule=rule,
        other_rules={
            other: _rule_agreement(rows, other, reverse, resampling)
            for other in (("given", "mean") if by_default == "given" else ())
            if other != rule
        },
        failures=options.failures,
        counts=_counts(judgments_by_id, labels, rows, len(joined) - len(rows)),
        failure_codes=_failure_codes(rows),
        excluded=pair_metrics(rows, resampling),
        as_tie=_as_ties(rows, resampling),
        probabilities=score_probabilities(rows, resampling),
        scores=score_histogram([row.judgment for row in rows]),
        groups={name: _group_rows(rows, values, options) for name, values in (groups or {}).items()},
        humans=_humans([*rows, *voted], options),
        flips=tuple(row.id for row in rows if pair_labels.flipped(row)),
        disagreements=tuple(
            Disagreement(
                sample_id=row.id,
                judged=pair_labels.winner_of(row.judged or 0),
                label=pair_labels.pair_winner(row.label),
                scores=pair_labels.scores_behind(row.judgment, rule),
                label_scores=row.label.scores,
            )
            for row in judged
            if row.judged != row.truth
        ),
        failed=tuple(row.id for row in rows if row.judged is None),
        half_failed=tuple(row.id for row in judged if failed_orders(row)),
        mean_prompt_tokens=float(np.mean([row.judgment.prompt_tokens for row in rows])),
        mean_completion_tokens=float(np.mean([row.judgment.completion_tokens for row in rows])),
        mean_thinking_characters=_mean_thinking(rows),
    )


def _counts(
    judgments: Mapping[str, Judgment], labels: Mapping[str, Label], rows: list[JoinedPair], abstained: int
) -> Counts:
    failed = sum(row.judged is None for row in rows)
    return Counts(
        judgments=len(judgments),
        labels=len(labels),
        joined=len(rows),
        judged=len(rows) - failed,
        failed=failed,
        failed_orders=sum(failed_orders(row) for row in rows),
        labels_without_judgment=len(labels.keys() - judgments.keys()),
        judgments_without_label=len(judgments.keys() - labels.keys()),
        repaired=sum(row.judgment.repaired and row.judged is not None for row in rows),
        read_anywhere=sum(row.judgment.read_anywhere and row.judged is not None for row in rows),
        reasons=sum(row.judgment.reason is not None for row in rows),
        thinking=sum(any(shown.thinking is not None for shown in row.judgment.shown) for row in rows),
        abstained=abstained,
    )


def _mean_thinking(rows: list[JoinedPair]) -> float | None:
    lengths = [len(shown.thinking) for row in rows for shown in row.judgment.shown if shown.thinking is not None]
    return float(np.mean(lengths)) if lengths else None


def _failure_codes(rows: list[JoinedPair]) -> dict[str, int]:
    codes = Counter(failure_code(row.judgment) for row in rows if row.judged is None or failed_orders(row))
    return dict(sorted(codes.items(), key=lambda item: (-item[1], item[0])))


def _counted(rows: Iterable[JoinedPair], options: EvaluationOptions) -> list[JoinedPair]:
    return [row for row in rows if row.judged is not None or options.failures == "as_tie"]


def _group_rows(rows: list[JoinedPair], values: Mapping[str, str], options: EvaluationOptions) -> tuple[GroupRow, ...]:
    groups = pair_labels.group_by_value(rows, lambda row: values.get(row.id))
    group_rows = []
    for value, members in groups.items():
        counted, failed = _counted(members, options), sum(row.judged is None for row in members)
        accuracy = majority = None
        if counted:
            hits = np.array([(row.judged or 0) == row.truth for row in counted])
            accuracy = share(hits, [row.cluster for row in counted], options.resampling)
            majority = Counter(row.truth for row in counted).most_common(1)[0][1] / len(counted)
        group_rows.append(
            GroupRow(value=value, n=len(counted), failed=failed, accuracy=accuracy, majority_share=majority)
        )
    return tuple(sorted(group_rows, key=lambda row: (-row.n, row.value)))


def _humans(rows: list[JoinedPair], options: EvaluationOptions) -> HumanAgreement | None:
    voted = [row for row in _counted(rows, options) if len(row.label.votes) > 1]
    if not voted:
        return None
    votes = [[pair_labels.label_of(vote) for vote in row.label.votes] for row in voted]
    clusters = [row.cluster for row in voted]
    return human_agreement([row.judged or 0 for row in voted], votes, clusters, options.resampling)


def _as_ties(rows: list[JoinedPair], resampling: Resampling) -> PairMetrics:
    metrics = pair_metrics(rows, resampling, failure=0)
    assert metrics is not None, "join raises an error if there are no rows"
    return metrics


def _rule_agreement(
    rows: list[JoinedPair], rule: LabelRule, reverse: Mapping[str, Judgment], resampling: Resampling
) -> RuleAgreement:
    others = [replace(row, judged=pair_label(row.judgment, rule, reverse.get(row.id)), orders=None) for row in rows]
    excluded = pair_metrics(others, resampling)
    return RuleAgreement(
        failed=sum(row.judged is None for row in others),
        excluded=None if excluded is None else excluded.accuracy,
        as_tie=_as_ties(others, resampling).accuracy,
    )


_RULES: dict[LabelRule, str] = {
    "as_judged": "verdicts are taken from the run",
    "given": "verdicts are from the given order, and the reversed order is used only to measure position bias",
    "mean": "verdicts are based on the mean scores over both orders",
    "tie": "the verdict is a tie if the orders conflict",
    "probability": "verdicts are based on P(first better), averaged over both orders",
}
_FAILURES: dict[FailureHandling, str] = {
    "excluded": "Failed judgments are excluded from the headline figures",
    "as_tie": "Failed judgments count as ties in the headline figures",
}


def _protocol(
    rows: list[JoinedPair], rule: LabelRule, options: EvaluationOptions, two_files: bool, abstained: int
) -> str:
    twice = sum(row.orders is None or row.orders.swapped is not None for row in rows)
    if two_files and rule in ("as_judged", "given"):
        orders = (
            "Verdicts are from the given order; the second file, with the reversed order, is used only to measure "
            "position bias"
        )
    elif twice:
        partly = "" if twice == len(rows) else f" ({twice:,} of {len(rows):,} pairs; the others in one order only)"
        orders = f"Each pair was judged in both orders{partly}; {_RULES[rule]}"
        if rule == "as_judged" and rows[0].judgment.reads_words:
            orders += ", based on P(first better) from the probabilities of the answer letters"
        elif rule == "as_judged" and options.run_rule is not None:
            orders += f" (order rule {options.run_rule})"
    elif protocol := next(filter(None, map(protocol_of, {row.judgment.mode for row in rows})), ""):
        orders = protocol
    elif any(row.judgment.reads_words and len(row.judgment.shown[0].order) == 1 for row in rows):
        orders = "Each answer was judged by itself; verdicts are based on P(first better)"
    elif any(row.judgment.shown for row in rows):
        orders = "Each pair was judged in one order"
    else:
        orders = "Each pair's verdict combines the verdicts of several judges"
    if rule == "probability":
        orders += f", and values within {options.tie_threshold:g} of 0.5 are ties"
    scale = "The score scale was not recorded" if options.scale is None else f"Score scale: {options.scale}"
    declined = f" The judge abstained on {abstained:,} pairs, which are excluded." if abstained else ""
    return f"{orders}. {_FAILURES[options.failures]}.{declined} {scale}."
