"""Measure how answer order affects a judge's verdicts, for each group of pairs. No labels are needed.

Source: JudgeLM, section 3.2 and Table 4 (consistency and bias); FairEval (Wang et al. 2023) for GPT-4.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from judgelm.data.sources.reviews import Review, match_orders
from judgelm.errors import InputError
from judgelm.metrics.resampling import Estimate, Resampling, mean
from judgelm.records import Judgment
from judgelm.studies.pair_labels import by_id, orders_of
from judgelm.studies.pair_metrics import PositionEstimates, position_estimates
from judgelm.studies.result import DEFAULT_RESAMPLING, Layouts, Row, StudyResult, forest
from judgelm.studies.sentences import format_number, format_share

LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))

_ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class TwiceJudged:
    """A pair judged in both orders.

    Attributes:
        given: winner in the given order (+1, 0, or -1), or None if this order failed.
        swapped: winner in the other order, expressed in the given order.
        leads: score of the answer shown first minus the score of the other answer, in each order.
    """

    given: int | None
    swapped: int | None
    leads: tuple[float, float] | None
    cluster: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class PairGroup:
    """Pairs judged in both orders, including failures.

    `alone` is the number of judgments with no counterpart in the other order. `by_hand` is the number of replies that
    do not start with scores.
    """

    pairs: tuple[TwiceJudged, ...] = ()
    alone: int = 0
    by_hand: int = 0

    def __add__(self, other: "PairGroup") -> "PairGroup":
        return PairGroup(
            pairs=self.pairs + other.pairs, alone=self.alone + other.alone, by_hand=self.by_hand + other.by_hand
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    name: str
    position: PositionEstimates | None
    lead: Estimate | None
    failed: int
    alone: int


def position_bias_study(groups: Mapping[str, PairGroup], resampling: Resampling = DEFAULT_RESAMPLING) -> StudyResult:
    """Measure consistency, position bias, and the first-position advantage, for each group and overall.

    Raises:
        InputError: a group is named `all`, or no pair was judged in both orders.
    """
    if _ALL in groups:
        raise InputError(f'group "{_ALL}": this name is reserved for all pairs; choose another name')
    everything = sum(groups.values(), PairGroup())
    whole = _measured(_ALL, everything, resampling)
    if whole.position is None:
        raise InputError(
            f"position bias: no pair was judged in both orders ({len(everything.pairs)} pairs failed in one "
            f"order; {everything.alone} judgments have no counterpart in the other order); judge the same answers in "
            "both orders"
        )
    rows = [_measured(name, group, resampling) for name, group in groups.items()]
    rows += [whole] if len(rows) > 1 else []
    consistencies = [(row.name, row.position.consistency) for row in rows if row.position is not None]
    return StudyResult(
        study="position-bias",
        title="How answer order affects the judge",
        protocol="Each pair was judged in both orders, matched by question and answer ids. Intervals are 95 % "
        f"from {resampling.resamples} resamples of questions (seed {resampling.seed}).",
        findings=tuple(_findings(whole, rows)),
        counts={
            "pairs": len(everything.pairs),
            "failed": whole.failed,
            "judgments_without_the_other_order": everything.alone,
            "scores_not_at_the_replys_beginning": everything.by_hand,
        },
        tables=(LAYOUTS.table("position-bias", map(_cells, rows)),),
        figures=(forest(consistencies, **LAYOUTS.figure("consistency"), no_effect=1.0),),
        warnings=tuple(_warnings(rows)),
    )


def _measured(name: str, group: PairGroup, resampling: Resampling) -> _Measured:
    paired = [pair for pair in group.pairs if pair.given is not None and pair.swapped is not None]
    clusters, leads = [pair.cluster for pair in paired], [pair.leads for pair in paired]
    position = lead = None
    if paired:
        given, swapped = np.array([pair.given for pair in paired]), np.array([pair.swapped for pair in paired])
        position = position_estimates(given, swapped, clusters, resampling)
        lead = None if None in leads else mean(np.array(leads).mean(axis=1), clusters, resampling)
    failed = len(group.pairs) - len(paired)
    return _Measured(name=name, position=position, lead=lead, failed=failed, alone=group.alone)


def _cells(row: _Measured) -> Row:
    if (position := row.position) is None:
        return (row.name, 0, *[None] * 4, row.lead, row.failed, row.alone)
    shares = (position.consistency, position.toward_first, position.toward_second, position.delta)
    return (row.name, position.consistency.n, *shares, row.lead, row.failed, row.alone)


def _findings(whole: _Measured, rows: Sequence[_Measured]) -> list[str]:
    position = whole.position
    assert position is not None, "the caller rejects groups without a pair"
    lines = [
        f"The verdict is the same in both orders for {format_share(position.consistency)} of all pairs. It favours the "
        f"answer shown first for {format_share(position.toward_first)}, and the answer shown second for "
        f"{format_share(position.toward_second)}."
    ]
    if whole.lead is not None:
        lines.append(f"The first-position advantage, in score points, is {format_number(whole.lead, '+.2f')}.")
    measured = [(row.name, row.position.consistency) for row in rows if row is not whole and row.position is not None]
    ranked = sorted(measured, key=lambda named: (named[1].value, named[0]))
    if len(ranked) > 1:
        (least, low), (most, high) = ranked[0], ranked[-1]
        lines.append(
            f"Consistency is lowest for {least}, at {format_share(low)}, and highest for {most}, at "
            f"{format_share(high)}."
        )
    return lines


def _warnings(rows: Sequence[_Measured]) -> list[str]:
    return [
        f"{row.name}: {row.alone:,} judgments are excluded because no judgment in the other order has the same "
        "question and answer ids."
        for row in rows
        if row.alone and row.name != _ALL
    ]


def pairs_of_run(judgments: Mapping[str, Judgment]) -> PairGroup:
    """Pair the two orders of each judgment; a failure before the second order counts as a failure in both."""
    twice = any(len(judgment.compared) > 1 for judgment in judgments.values())
    pairs: list[TwiceJudged] = []
    alone = 0
    for key, judgment in by_id(judgments).items():
        orders = orders_of(judgment)
        if orders is None or orders.swapped is None:
            if twice and judgment.failure is not None:
                pairs.append(TwiceJudged(given=None, swapped=None, leads=None, cluster=key))
            else:
                alone += 1
            continue
        given, swapped = orders.given, orders.swapped
        leads = None if given.lead is None or swapped.lead is None else (given.lead, -swapped.lead)
        pairs.append(TwiceJudged(given=given.label, swapped=swapped.label, leads=leads, cluster=key))
    return PairGroup(pairs=tuple(pairs), alone=alone)


def pairs_of_reviews(reviews: Sequence[tuple[str, Review]]) -> list[tuple[str, PairGroup]]:
    """Pair reviews of the same answers; each pair belongs to the group of its first review.

    Raises:
        InputError: the same answers were reviewed twice in the same order.
    """
    names = {id(review): name for name, review in reviews}
    pairs, alone = match_orders(review for _, review in reviews)
    twice_judged: dict[str, list[TwiceJudged]] = {}
    for first, second in pairs:
        twice_judged.setdefault(names[id(first)], []).append(_judged_twice(first, second))
    left = Counter(names[id(review)] for review in alone)
    by_hand = Counter(names[id(review)] for review in alone if review.by_hand)
    for pair in pairs:
        by_hand[names[id(pair[0])]] += sum(review.by_hand for review in pair)
    return [
        (name, PairGroup(pairs=tuple(twice_judged.get(name, ())), alone=left[name], by_hand=by_hand[name]))
        for name in dict.fromkeys([*twice_judged, *left])
    ]


def merge_groups(groups: Sequence[tuple[str, PairGroup]]) -> dict[str, PairGroup]:
    """Merge groups with the same name."""
    merged: dict[str, PairGroup] = {}
    for name, group in groups:
        merged[name] = merged.get(name, PairGroup()) + group
    return merged


def _judged_twice(review: Review, swapped_review: Review) -> TwiceJudged:
    scores = (review.scores, swapped_review.scores)
    first, second = (None if shown is None else shown[0] - shown[1] for shown in scores)
    return TwiceJudged(
        given=None if first is None else _sign(first),
        swapped=None if second is None else -_sign(second),
        leads=None if first is None or second is None else (first, second),
        cluster=review.question,
    )


def _sign(lead: float) -> int:
    return (lead > 0) - (lead < 0)
