"""Scoring rules for pairwise benchmarks: credit for each judgment, sections, and additional tables."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from judgelm.data.labelled_set import LabelledSet
from judgelm.data.sources.pairs import AUTO_J_GROUPS
from judgelm.data.sources.preference_sets import DIFFICULTIES, RM_BENCH_SECTIONS, SECOND_SUBSETS, SECTIONS
from judgelm.errors import InputError
from judgelm.metrics.agreement import cohens_kappa, two_orders
from judgelm.metrics.benchmark_scores import Scored, TiesPrompt, first_place_share, right_by_vote, section_scores
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.records import Judgment, Label, Sample
from judgelm.studies.pair_labels import NOT_GIVEN, grouped, label_of, order_labels, orders_of, pair_label, pair_winner
from judgelm.studies.result import Figure, Layouts, Row, Table
from judgelm.studies.sentences import format_number, format_share

LAYOUTS = Layouts(Path(__file__).with_name("layouts.yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedJudgment:
    """A judgment with its label and subset; `sample` is None if the labels have no samples."""

    judgment: Judgment
    label: Label
    subset: str
    sample: Sample | None

    @property
    def cluster(self) -> Hashable:
        """The question, or the id if the sample is unknown."""
        return self.label.sample_id if self.sample is None else self.sample.question


def join_judgments(judgments: Mapping[str, Judgment], labelled: LabelledSet) -> list[JoinedJudgment]:
    """Join judgments with labels.

    Raises:
        InputError: no ids match.
    """
    subsets = labelled.groups.get("category", {})
    joined = [
        JoinedJudgment(
            judgment=judgment,
            label=labelled.labels[key],
            subset=subsets.get(key, NOT_GIVEN),
            sample=labelled.samples.get(key),
        )
        for key, judgment in judgments.items()
        if key in labelled.labels
    ]
    if not joined:
        raise InputError("benchmark: no judgment matches a label; pass the imported rows that you judged")
    return joined


def _labels_by_order(joined: JoinedJudgment) -> list[int | None]:
    orders = orders_of(joined.judgment)
    if orders is None:
        raise InputError(f"judgment {joined.judgment.sample_id}: expected a label for each order")
    return order_labels(orders)


def _truth_of(joined: JoinedJudgment) -> int:
    return label_of(pair_winner(joined.label))


def by_subset(joined: Iterable[JoinedJudgment]) -> dict[str, list[JoinedJudgment]]:
    """Group judgments by subset, in order of first occurrence."""
    return grouped(joined, lambda member: member.subset)


class Report(NamedTuple):
    """Results under a benchmark's own rules."""

    findings: Sequence[str]
    tables: Sequence[Table]
    figures: Sequence[Figure] = ()
    warnings: Sequence[str] = ()


_OTHER = "none of the 8 groups"


def consistency(joined: Sequence[JoinedJudgment], resampling: Resampling) -> Estimate | None:
    """Return the share of pairs with the same label in both orders; None if no pair has a label in both orders."""
    pairs = [member for member in joined if len(member.judgment.compared) == 2 and member.label.winner is not None]
    read = [(member, labels) for member in pairs if len(labels := _labels_by_order(member)) == 2 and None not in labels]
    if not read:
        return None
    alike = np.array([labels[0] == labels[1] for _, labels in read])
    return share(alike, [member.cluster for member, _ in read], resampling)


def _every_order_right(joined: JoinedJudgment) -> float:
    return float(all(label == _truth_of(joined) for label in _labels_by_order(joined)))


def _llmbar_report(joined: Sequence[JoinedJudgment], resampling: Resampling) -> Report | None:
    rows: list[Row] = []
    findings: list[str] = []
    for subset, members in by_subset(member for member in joined if len(member.judgment.compared) == 2).items():
        given, swapped = zip(*(_labels_by_order(member) for member in members), strict=True)
        truth, clusters = zip(*((_truth_of(member), member.cluster) for member in members), strict=True)
        counts = two_orders(given, swapped, truth, clusters, resampling)
        rows.append((subset, *counts))
        findings.append(
            f"{subset}: the two orders agree on {format_share(counts.equal)} of pairs, as counted by LLMBar; kappa "
            f"between them is {format_number(counts.kappa)}."
        )
    if not rows:
        return None
    orders = LAYOUTS.table("orders", rows)
    return Report(findings, [orders])


def _auto_j_report(joined: Sequence[JoinedJudgment], resampling: Resampling) -> Report:
    group_of = {scenario: group for group, scenarios in AUTO_J_GROUPS.items() for scenario in scenarios}
    named = [(group_of.get(member.subset, _OTHER), member) for member in joined]
    rows: list[Row] = []
    for group in (*AUTO_J_GROUPS, _OTHER, "Overall"):
        members = [member for name, member in named if group in (name, "Overall")]
        if members:
            right = np.array([_every_order_right(member) == 1 for member in members])
            agreement = share(right, [member.cluster for member in members], resampling)
            scenarios = len({member.subset for member in members})
            rows.append((group, scenarios, agreement, consistency(members, resampling)))
    groups = LAYOUTS.table("groups", rows)
    by_group = "; ".join(f"{row[0]} {format_share(row[2])}" for row in rows if isinstance(row[2], Estimate))
    return Report([f"Agreement by group: {by_group}."], [groups])


def _fair_eval_label(joined: JoinedJudgment) -> int | None:
    labels = _labels_by_order(joined)
    read = [label for label in labels if label is not None]
    return pair_label(joined.judgment, "mean") if len(read) == 2 else next(iter(read), None)


def _fair_eval_report(joined: Sequence[JoinedJudgment], resampling: Resampling) -> Report:
    labels = [(_fair_eval_label(member), _truth_of(member), member.cluster) for member in joined]
    clusters = [cluster for *_, cluster in labels]
    accuracy = share(np.array([label == truth for label, truth, _ in labels]), clusters, resampling)
    read = [(label, truth, cluster) for label, truth, cluster in labels if label is not None]
    kappa = None
    if read:
        judged, truths, keys = zip(*read, strict=True)
        kappa = cohens_kappa(np.array(judged), np.array(truths), keys, resampling)
    one_order = sum(sum(label is not None for label in _labels_by_order(member)) == 1 for member in joined)
    people = LAYOUTS.table("people", ((len(labels), len(labels) - len(read), one_order, accuracy, kappa),))
    return Report([f"Cohen's kappa with annotators is {format_number(kappa)}."], [people])


def _style_report(joined: Sequence[JoinedJudgment], resampling: Resampling) -> Report:
    scored = [
        Scored(subset=member.subset, credit=_wins(member), cluster=member.cluster)
        for member in joined
        if member.subset in {subset for subsets in RM_BENCH_SECTIONS.values() for subset in subsets}
    ]
    sections = {level: {f"{domain}, {level}": 1.0 for domain in RM_BENCH_SECTIONS} for level in DIFFICULTIES}
    scores = section_scores(scored, sections, resampling).sections
    difficulties = LAYOUTS.table("difficulties", scores.items())
    by_difficulty = "; ".join(f"{difficulty} {format_share(score)}" for difficulty, score in scores.items())
    return Report([f"By difficulty: {by_difficulty}."], [difficulties])


TIES = "Ties"
_ADVERSARIAL = ("Neighbor", "GPTInst", "GPTOut", "Manual")
"""Folder names in the official repository; some copies use names such as Adversarial_Neighbor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringRule:
    """The scoring rule of a benchmark.

    Attributes:
        credit: function that returns the credit for a judgment, in [0, 1].
        sections: name -> subset -> weight; None uses one section, with subsets weighted by number of prompts.
        ties: whether the Ties subset is scored by margins.
        averaged: whether the score of the benchmark is the mean of its sections.
        counts: function that builds an additional table.
    """

    credit: Callable[[JoinedJudgment], float]
    sections: Mapping[str, Mapping[str, float]] | None = None
    both_orders: bool = True
    ties: bool = False
    averaged: bool = True
    counts: Callable[[Sequence[JoinedJudgment], Resampling], Report | None] | None = None


def _half_for_ties(joined: JoinedJudgment) -> float:
    winner = joined.judgment.winner
    if winner is None and joined.judgment.verdict is not None:
        raise InputError(
            f"judgment {joined.judgment.sample_id}: expected a verdict on a pair; judge this benchmark with --mode pair"
        )
    return 0.5 if winner in (None, "tie") else float(label_of(winner) == _truth_of(joined))


def _wins(joined: JoinedJudgment) -> float:
    _half_for_ties(joined)  # raises InputError if the judgment is not on a pair
    winner = joined.judgment.winner
    return float(winner is not None and label_of(winner) == _truth_of(joined))


def _vote(joined: JoinedJudgment) -> float:
    return float(right_by_vote(_labels_by_order(joined), _truth_of(joined)))


def _each_order(joined: JoinedJudgment) -> float:
    return float(np.mean([label == _truth_of(joined) for label in _labels_by_order(joined)]))


def _mean_right(joined: JoinedJudgment) -> float:
    return float(_fair_eval_label(joined) == _truth_of(joined))


def _best_of_four(joined: JoinedJudgment) -> float:
    right, scores = _right_places(joined), joined.judgment.scores
    if joined.judgment.failure is not None or scores is None:
        return 1 / len(joined.label.scores or ())
    return first_place_share(scores, right[0])


def _right_places(joined: JoinedJudgment) -> list[int]:
    label, scores = joined.label.scores, joined.judgment.scores
    if label is None or (scores is not None and len(scores) != len(label)):
        raise InputError(
            f"judgment {joined.judgment.sample_id}: expected scores for {len(label or ())} answers; judge this "
            "benchmark with --mode multi"
        )
    return [index for index, score in enumerate(label) if score == 1]


def ties_prompt(joined: JoinedJudgment) -> TiesPrompt:
    """Convert a judgment from the Ties subset, whose row ids are `tied:N` and `ref:N`."""
    kind, colon, key = joined.label.sample_id.partition(":")
    if not colon or kind not in ("tied", "ref"):
        raise InputError(f'row {joined.label.sample_id}: expected an id "tied:N" or "ref:N" in {TIES}; import it again')
    right, scores = _right_places(joined), joined.judgment.scores
    if scores is None:
        return TiesPrompt(key=key, tied=kind == "tied", right=None, wrong=None)
    wrong = tuple(score for index, score in enumerate(scores) if index not in right)
    return TiesPrompt(key=key, tied=kind == "tied", right=tuple(scores[index] for index in right), wrong=wrong)


SCORING_RULES: Mapping[str, ScoringRule] = {
    "rewardbench": ScoringRule(credit=_half_for_ties, sections=SECTIONS, both_orders=False),
    "rewardbench-2": ScoringRule(
        credit=_best_of_four,
        sections={subset: {subset: 1.0} for subset in SECOND_SUBSETS if subset != TIES},
        both_orders=False,
        ties=True,
    ),
    "judgebench": ScoringRule(credit=_vote),
    "llmbar": ScoringRule(
        credit=_each_order,
        sections={
            "Natural": {"Natural": 1.0},
            "Adversarial": dict.fromkeys((*_ADVERSARIAL, *(f"Adversarial_{name}" for name in _ADVERSARIAL)), 1.0),
        },
        averaged=False,
        counts=_llmbar_report,
    ),
    "auto-j": ScoringRule(credit=_every_order_right, counts=_auto_j_report),
    "faireval": ScoringRule(credit=_mean_right, counts=_fair_eval_report),
    "rm-bench": ScoringRule(credit=_wins, sections=RM_BENCH_SECTIONS, counts=_style_report),
}
