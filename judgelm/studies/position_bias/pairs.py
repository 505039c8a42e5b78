"""Judgments of run files, and reviews of other programs, as pairs that were judged in both orders."""

from collections import Counter
from collections.abc import Mapping, Sequence

from judgelm.data.sources.reviews import Review, match_orders
from judgelm.records import Judgment
from judgelm.studies.pair_labels import by_id, orders_of
from judgelm.studies.position_bias.study import PairGroup, TwiceJudged


def pairs_of_run(judgments: Mapping[str, Judgment]) -> PairGroup:
    """A run in both orders; a judgment that failed before its second order has failed in both.

    A judgment that was asked for in one order only has no other order.
    """
    twice = any(len(judgment.shown) > 1 for judgment in judgments.values())
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
    """Reviews with the names of their groups; a pair belongs to the group of its first review.

    Raises:
        InputError: the same answers come twice in one order.
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
    """Groups by name; those of one name become one."""
    merged: dict[str, PairGroup] = {}
    for name, group in groups:
        merged[name] = merged.get(name, PairGroup()) + group
    return merged


def _judged_twice(review: Review, swapped_review: Review) -> TwiceJudged:
    first_lead = None if review.scores is None else review.scores[0] - review.scores[1]
    second_lead = None if swapped_review.scores is None else swapped_review.scores[0] - swapped_review.scores[1]
    return TwiceJudged(
        given=None if first_lead is None else _sign(first_lead),
        swapped=None if second_lead is None else -_sign(second_lead),
        leads=None if first_lead is None or second_lead is None else (first_lead, second_lead),
        cluster=review.question,
    )


def _sign(lead: float) -> int:
    return (lead > 0) - (lead < 0)
