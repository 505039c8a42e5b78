"""Join pair judgments with labels by sample id. Integer labels are in sample order."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import is_
from typing import TypeVar

from judgelm.data.labelled_set import LabelledSet
from judgelm.errors import InputError
from judgelm.modes.conversation import per_order
from judgelm.parsing.scores import LabelRule, antisymmetrised, is_assigned, winner_by
from judgelm.records import Judgment, Label, LabelVerdict, PairVerdict, Shown, Winner

RULE_NAMES: Mapping[LabelRule, str] = {
    "as_judged": "as judged",
    "mean": "mean of both orders",
    "given": "given order",
    "tie": "tie if the orders conflict",
    "probability": "mean P(first better) of both orders",
}


TIE_THRESHOLD = 0.05
"""By default, a probability within this distance of 0.5 counts as a tie."""

_LABELS: dict[Winner, int] = {1: 1, "tie": 0, 2: -1}
_WINNERS: dict[int, Winner] = {label: winner for winner, label in _LABELS.items()}


def label_of(winner: Winner) -> int:
    """Return +1 (first better), 0 (tie), or -1 (second better)."""
    return _LABELS[winner]


def first_better(judgment: Judgment, soft: bool = True) -> float:
    """Return P(first better); it is 1, 0.5, or 0 if the judgment has no probability or `soft` is False."""
    if judgment.winner is None:
        raise ValueError(f"judgment {judgment.sample_id}: no verdict")
    if soft and judgment.probability is not None:
        return judgment.probability
    return (label_of(judgment.winner) + 1) / 2


def winner_of(label: int) -> Winner:
    """Convert a label back to a winner."""
    return _WINNERS[label]


def called_correct(judgment: Judgment) -> bool | None:
    """Return whether the judge considered the answer correct; None if the judge failed.

    Raises:
        InputError: the mode does not judge correctness.
    """
    if judgment.verdict is None:
        return None
    label = judgment.verdict.label if isinstance(judgment.verdict, LabelVerdict) else None
    if label not in ("correct", "incorrect"):
        raise InputError(
            f"judgment {judgment.sample_id}: mode {judgment.mode} does not label answers as correct or incorrect; "
            "use a run in mode qa or correctness"
        )
    return label == "correct"


def pair_winner(label: Label) -> Winner:
    """Return the winner of a pair label; raise `InputError` for other labels."""
    if label.winner is None:
        count = len(label.scores or ())
        raise InputError(f"label {label.sample_id}: expected a winner, got scores for {count} answers; use pair labels")
    return label.winner


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLabel:
    """The label from one order, expressed in sample order.

    Attributes:
        label: None if this order failed or was skipped after a failure.
        lead: score of the sample's first answer minus the score of the second answer; None if there are no scores.
    """

    label: int | None
    lead: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Labels of a pair in both orders; `swapped` is None if only one order was judged."""

    given: OrderLabel
    swapped: OrderLabel | None = None


def orders_of(judgment: Judgment, reverse: Judgment | None = None) -> Orders | None:
    """Return the label for each order, or None if both orders were judged but have no separate labels.

    `reverse` is the judgment of the swapped answers, from a separate run (as in the original JudgeLM code).

    Raises:
        InputError: `reverse` is given, but the judgment already has both orders.
    """
    if reverse is not None:
        if len(judgment.compared) > 1 or len(reverse.compared) > 1:
            raise InputError(
                f"judgment {judgment.sample_id}: both orders were already judged; omit the file of reversed judgments"
            )
        return Orders(given=_single(judgment), swapped=_negated(_single(reverse)))
    if len(judgment.compared) < 2:
        return Orders(given=_single(judgment))
    by_order = {shown.order: _of_shown(shown) for shown in judgment.compared}
    given, swapped = by_order.get((0, 1)), by_order.get((1, 0))
    return None if given is None or swapped is None else Orders(given=given, swapped=swapped)


def pair_label(
    judgment: Judgment,
    rule: LabelRule = "as_judged",
    reverse: Judgment | None = None,
    tie_threshold: float = TIE_THRESHOLD,
) -> int | None:
    """Return the label of a judgment under an order rule: +1, 0, -1, or None for a failure.

    With `mean` and `tie`, the pair fails if either order fails. With `given`, only the given order counts. With
    `probability`, an order fails if valid score lines have less than half of the probability mass.

    Raises:
        InputError: the rule compares orders, but the judgment does not have a label for each order.
    """
    if rule == "as_judged":
        return None if judgment.winner is None else label_of(judgment.winner)
    orders = orders_of(judgment, reverse)
    if rule == "probability":
        return _by_probability(judgment, reverse, tie_threshold)
    if orders is None:
        raise InputError(
            f'judgment {judgment.sample_id}: order rule "{rule}" requires scores for each order; use "as_judged"'
        )
    given, swapped = orders.given, orders.swapped
    if rule == "given":
        return given.label
    if swapped is None or given.label is None or swapped.label is None:
        return given.label if swapped is None else None
    if rule == "tie":
        return given.label if given.label == swapped.label else 0
    if given.lead is None or swapped.lead is None:
        raise InputError(f'judgment {judgment.sample_id}: order rule "mean" requires scores; use "as_judged"')
    return _sign(given.lead + swapped.lead)


def protocol_rule(judgments: Mapping[str, Judgment], reverse: Mapping[str, Judgment]) -> LabelRule:
    """Return the default order rule: `given` (JudgeLM's protocol) for pairs scored in both orders, else `as_judged`.

    Judges that output labels or are scored by the probability of a verdict word use `as_judged`, because their
    protocols merge both orders.
    """
    both = False
    for key, judgment in judgments.items():
        orders = orders_of(judgment, reverse.get(key))
        if (
            orders is None
            or judgment.reads_words
            or any(order and order.label is not None and order.lead is None for order in (orders.given, orders.swapped))
        ):
            return "as_judged"
        both = both or orders.swapped is not None
    return "given" if both else "as_judged"


def scores_behind(judgment: Judgment, rule: LabelRule) -> tuple[float, ...] | None:
    """Return the scores that the label is based on, in sample order."""
    if rule != "given":
        return judgment.scores
    return next((shown.scores for shown in per_order(judgment.shown) if shown.order == (0, 1)), judgment.scores)


def _by_probability(judgment: Judgment, reverse: Judgment | None, tie_threshold: float) -> int | None:
    if judgment.reads_words and judgment.probability is not None:
        return label_of(winner_by(judgment.probability, tie_threshold))
    shown = [(part.order, part) for part in judgment.shown]
    if reverse is not None:
        shown += [((1, 0), part) for part in reverse.shown]
    if not shown or any(part.failure is not None and part.distribution is None for _, part in shown):
        return None
    distributions = [(order, part.distribution) for order, part in shown if part.distribution is not None]
    if len(distributions) < len(shown):
        raise InputError(
            f'judgment {judgment.sample_id}: order rule "probability" requires score distributions; judge again '
            "with --distribution, on an engine that returns logprobs"
        )
    probability = antisymmetrised(distributions)
    return None if probability is None else label_of(winner_by(probability, tie_threshold))


def by_id(judgments: Mapping[str, Judgment] | Iterable[Judgment]) -> dict[str, Judgment]:
    """Return judgments by sample id.

    Raises:
        InputError: a sample has two judgments.
    """
    if isinstance(judgments, Mapping):
        return {key: _by_order(judgment) for key, judgment in judgments.items()}
    unique: dict[str, Judgment] = {}
    for judgment in judgments:
        if judgment.sample_id in unique:
            raise InputError(f"judgments: sample {judgment.sample_id} has two judgments; keep only one")
        unique[judgment.sample_id] = _by_order(judgment)
    return unique


def _by_order(judgment: Judgment) -> Judgment:
    if not isinstance(judgment.verdict, PairVerdict | None):
        return judgment
    shown = per_order(judgment.shown)
    if len(shown) == len(judgment.shown) and all(map(is_, shown, judgment.shown)):
        return judgment
    return replace(judgment, shown=shown)


def _single(judgment: Judgment) -> OrderLabel:
    if judgment.winner is None:
        return OrderLabel(label=None)
    lead = None if judgment.scores is None else judgment.scores[0] - judgment.scores[1]
    return OrderLabel(label=label_of(judgment.winner), lead=lead)


def _of_shown(shown: Shown) -> OrderLabel | None:
    if shown.failure is not None:
        return OrderLabel(label=None)
    if shown.scores is None:
        return _of_label(shown)
    lead = shown.scores[shown.order.index(0)] - shown.scores[shown.order.index(1)]
    return OrderLabel(label=_sign(lead), lead=lead)


def _of_label(shown: Shown) -> OrderLabel | None:
    if shown.label == "tie":
        return OrderLabel(label=0)
    if shown.label not in ("1", "2"):
        return None
    return OrderLabel(label=1 if shown.order[int(shown.label) - 1] == 0 else -1)


def _negated(order: OrderLabel) -> OrderLabel:
    label = None if order.label is None else -order.label
    return OrderLabel(label=label, lead=None if order.lead is None else -order.lead)


def _sign(lead: float) -> int:
    """Return 0 for NaN and for rounding errors (such as 7.1 - 6.9 + 6.9 - 7.1)."""
    return (lead >= 1e-9) - (lead <= -1e-9)


NOT_GIVEN = "not given"


T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedPair:
    """A judgment with its label; `judged` is None for a failure."""

    id: str
    truth: int
    judged: int | None
    orders: Orders | None
    judgment: Judgment
    label: Label
    cluster: Hashable


def questions_of(labelled: LabelledSet) -> dict[str, str]:
    """Return the question for each sample id; pairs with the same question are resampled together."""
    return {sample.id: sample.question or sample.id for sample in labelled.samples.values()}


def join(
    judgments: Mapping[str, Judgment],
    labels: Mapping[str, Label],
    reverse: Mapping[str, Judgment],
    clusters: Mapping[str, Hashable],
    rule: LabelRule,
    tie_threshold: float,
) -> list[JoinedPair]:
    """Join judgments with labels by sample id, in the order of the judgments.

    Samples without a key in `clusters` are resampled individually.

    Raises:
        InputError: no ids match, or the order rule does not apply to a judgment.
    """
    twice = any(len(judgment.compared) > 1 for judgment in judgments.values())
    interned: dict[Orders | None, Orders | None] = {}  # most rows have the same few values
    rows = [
        JoinedPair(
            id=key,
            truth=label_of(pair_winner(labels[key])),
            judged=pair_label(judgment, rule, reverse.get(key), tie_threshold),
            orders=interned.setdefault(orders := _orders(judgment, reverse.get(key), twice), orders),
            judgment=judgment,
            label=labels[key],
            cluster=clusters.get(key, key),
        )
        for key, judgment in judgments.items()
        if key in labels
    ]
    if not rows:
        examples = f"{next(iter(judgments), None)!r} and {next(iter(labels), None)!r}"
        raise InputError(f"evaluation: no judgment id matches a label id, for example {examples}")
    return rows


def order_labels(orders: Orders | None) -> list[int | None]:
    """Return the label of each judged order, in sample order; empty if unknown."""
    if orders is None:
        return []
    return [orders.given.label] + ([] if orders.swapped is None else [orders.swapped.label])


def flipped(row: JoinedPair) -> bool:
    """Return whether the labels of the two orders differ."""
    labels = order_labels(row.orders)
    return None not in labels and len(set(labels)) > 1


def failed_orders(row: JoinedPair) -> int:
    """Return the number of judged orders without a label."""
    if row.orders is None:
        return sum(shown.failure is not None for shown in row.judgment.shown)
    return order_labels(row.orders).count(None)


def failure_code(judgment: Judgment) -> str:
    """Return the failure code, or `reversed_order` if only the judgment in the second file failed.

    The code is `off_grammar` if valid score lines have less than half of the probability mass.
    """
    if judgment.failure is not None:
        return judgment.failure.code
    if any(shown.distribution is not None and not is_assigned(shown.distribution) for shown in judgment.shown):
        return "off_grammar"
    return next((shown.failure.code for shown in judgment.shown if shown.failure is not None), "reversed_order")


def _orders(judgment: Judgment, reverse: Judgment | None, twice: bool) -> Orders | None:
    orders = orders_of(judgment, reverse)
    if twice and judgment.failure is not None and orders is not None and orders.swapped is None:
        return Orders(given=orders.given, swapped=OrderLabel(label=None))
    return orders


def group_by_value(members: Iterable[T], value_of: Callable[[T], str | None]) -> dict[str, list[T]]:
    """Group members by value, with the largest group first."""
    groups = grouped(members, lambda member: NOT_GIVEN if (value := value_of(member)) is None else value)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def grouped(members: Iterable[T], key_of: Callable[[T], K]) -> dict[K, list[T]]:
    """Group members by key, in order of first occurrence."""
    groups: dict[K, list[T]] = {}
    for member in members:
        groups.setdefault(key_of(member), []).append(member)
    return groups
