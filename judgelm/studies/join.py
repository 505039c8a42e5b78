"""Judgments and labels brought together by sample id, never by line position."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from judgelm.errors import InputError
from judgelm.parsing.scores import LabelRule, is_assigned
from judgelm.records import Judgment, Label
from judgelm.studies.pair_labels import OrderLabel, Orders, label_of, orders_of, pair_label, pair_winner

NOT_GIVEN = "not given"
"""The value of members without one."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPair:
    """Integer labels in sample order; `given` and `swapped` are None unless both orders have a label."""

    truth: int
    judged: int
    given: int | None
    swapped: int | None
    cluster: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedPair:
    """A judgment and its label: labels in sample order, None where the judge has none."""

    id: str
    truth: int
    judged: int | None
    orders: Orders | None
    judgment: Judgment
    label: Label
    cluster: Hashable


def join(
    judgments: Mapping[str, Judgment],
    labels: Mapping[str, Label],
    reverse: Mapping[str, Judgment],
    clusters: Mapping[str, Hashable] | None,
    rule: LabelRule,
    tie_threshold: float,
) -> list[JoinedPair]:
    """Judgments and labels of the same samples, in the judgments' order; rule and band are `pair_label`'s.

    Raises:
        InputError: nothing joins, or the order rule cannot be applied to a judgment.
    """
    twice = any(len(judgment.shown) > 1 for judgment in judgments.values())
    rows = [
        JoinedPair(
            id=key,
            truth=label_of(pair_winner(labels[key])),
            judged=pair_label(judgment, rule, reverse.get(key), tie_threshold),
            orders=_orders(judgment, reverse.get(key), twice),
            judgment=judgment,
            label=labels[key],
            cluster=key if clusters is None else clusters.get(key, key),
        )
        for key, judgment in judgments.items()
        if key in labels
    ]
    if not rows:
        examples = f"{next(iter(judgments), None)!r} against {next(iter(labels), None)!r}"
        raise InputError(f"evaluation: no judgment has a label (ids, for example: {examples}); ids must match")
    return rows


def labelled(row: JoinedPair, failure: int | None = None) -> LabelledPair:
    """A row's labels; `failure` replaces a missing label, None allows none."""
    given = swapped = None
    if row.orders is not None and row.orders.swapped is not None:
        given = failure if row.orders.given.label is None else row.orders.given.label
        swapped = failure if row.orders.swapped.label is None else row.orders.swapped.label
    judged = failure if row.judged is None else row.judged
    if judged is None:
        raise ValueError(f"pair {row.id}: failed, and no label replaces it")
    return LabelledPair(truth=row.truth, judged=judged, given=given, swapped=swapped, cluster=row.cluster)


def flipped(row: JoinedPair) -> bool:
    """True where both orders have a label, and not the same."""
    orders = row.orders
    if orders is None or orders.swapped is None or orders.given.label is None or orders.swapped.label is None:
        return False
    return orders.given.label != orders.swapped.label


def failed_orders(row: JoinedPair) -> int:
    """Number of orders judged without a label."""
    if row.orders is None:
        return sum(shown.failure is not None for shown in row.judgment.shown)
    both = (row.orders.given, row.orders.swapped)
    return sum(order is not None and order.label is None for order in both)


def failure_code(judgment: Judgment) -> str:
    """The code of what went wrong; `reversed_order` where only the second file's judgment did.

    Score lines with less than half of the probability are `off_grammar`, as in a run under order rule probability.
    """
    if judgment.failure is not None:
        return judgment.failure.code
    if any(shown.distribution is not None and not is_assigned(shown.distribution) for shown in judgment.shown):
        return "off_grammar"
    return next((shown.failure.code for shown in judgment.shown if shown.failure is not None), "reversed_order")


def _orders(judgment: Judgment, reverse: Judgment | None, twice: bool) -> Orders | None:
    """As `orders_of`; in a run of both orders, a judgment that failed before the second has failed in it too."""
    orders = orders_of(judgment, reverse)
    if twice and judgment.failure is not None and orders is not None and orders.swapped is None:
        return Orders(given=orders.given, swapped=OrderLabel(label=None))
    return orders


def group_by_value(members: Iterable[T], value_of: Callable[[T], str | None]) -> dict[str, list[T]]:
    """The members of each value in the order given, the largest group first and equal ones by value."""
    groups: dict[str, list[T]] = {}
    for member in members:
        value = value_of(member)
        groups.setdefault(NOT_GIVEN if value is None else value, []).append(member)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))
