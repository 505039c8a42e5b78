"""Judgments and labels of pairs, joined by sample id, and their integer labels in sample order.

A judgment has a label for each order shown, and one for both by an order rule.
"""

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
    "tie": "a conflict of the orders is a tie",
    "probability": "mean P(first better) of both orders",
}
"""Words behind `agreement` in a table's heading."""

TIE_THRESHOLD = 0.05
"""Default distance from 0.5 within which a probability is a tie."""

_LABELS: dict[Winner, int] = {1: 1, "tie": 0, 2: -1}
_WINNERS: dict[int, Winner] = {label: winner for winner, label in _LABELS.items()}


def label_of(winner: Winner) -> int:
    """+1 first better, 0 tie, -1 second better."""
    return _LABELS[winner]


def first_better(judgment: Judgment, soft: bool = True) -> float:
    """P(first better) of a judgment with a verdict: its probability where it has one and `soft`, else 1, 0.5 or 0.

    Raises:
        ValueError: it has none; a failure is no number.
    """
    if judgment.winner is None:
        raise ValueError(f"judgment {judgment.sample_id}: no verdict")
    if soft and judgment.probability is not None:
        return judgment.probability
    return (label_of(judgment.winner) + 1) / 2


def winner_of(label: int) -> Winner:
    """The inverse of `label_of`."""
    return _WINNERS[label]


def called_correct(judgment: Judgment) -> bool | None:
    """True for a verdict of correct on one answer, False for incorrect; None where the judgment failed.

    Raises:
        InputError: it is of another mode.
    """
    if judgment.verdict is None:
        return None
    label = judgment.verdict.label if isinstance(judgment.verdict, LabelVerdict) else None
    if label not in ("correct", "incorrect"):
        raise InputError(
            f"judgment {judgment.sample_id}: mode {judgment.mode} says neither correct nor incorrect; give a run of "
            "mode qa or correctness"
        )
    return label == "correct"


def pair_winner(label: Label) -> Winner:
    """The winner that a pair's label names.

    Raises:
        InputError: it is no pair's label.
    """
    if label.winner is None:
        count = len(label.scores or ())
        raise InputError(f"label {label.sample_id}: scores of {count} answers name no winner; give the labels of pairs")
    return label.winner


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLabel:
    """Label of one order, put back in sample order.

    Attributes:
        label: None when this order failed, or was never asked because the judgment failed before.
        lead: score of the sample's first answer minus that of the second; None where the judge writes no scores.
    """

    label: int | None
    lead: float | None = None

    @property
    def unscored(self) -> bool:
        """True where the judge named a winner without writing scores."""
        return self.label is not None and self.lead is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """A pair as given and as shown in reverse; `swapped` is None when only one order was asked for."""

    given: OrderLabel
    swapped: OrderLabel | None = None


def orders_of(judgment: Judgment, reverse: Judgment | None = None) -> Orders | None:
    """Labels of each order, or None for a both-orders judgment by a judge that writes no scores.

    Args:
        judgment: one order or both.
        reverse: the same pair judged in a run of its own over the swapped answers, so that its first score belongs
            to the second answer (the original JudgeLM code's two files).

    Raises:
        InputError: `reverse` is given though a judgment already holds both orders.
    """
    if reverse is not None:
        if len(judgment.compared) > 1 or len(reverse.compared) > 1:
            raise InputError(
                f"judgment {judgment.sample_id}: judged in both orders and in a file of reversed judgments too; "
                "give one or the other"
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
    """The label of a judgment under an order rule: +1, 0, -1, or None when it failed.

    Under `mean` and `tie` one failed order makes the whole a failure. Under `probability` it is an order whose score
    lines have less than half of the probability; an unparseable reply with more is none. Under `given` a failed given
    order is a failure; a failed swapped order leaves the label, and consistency is unknown. With a single order `mean`,
    `given` and `tie` give the verdict.

    Raises:
        InputError: the rule compares orders, and the judgment has no label of each.
    """
    if rule == "as_judged":
        return None if judgment.winner is None else label_of(judgment.winner)
    orders = orders_of(judgment, reverse)
    if rule == "probability":
        return _by_probability(judgment, reverse, tie_threshold)
    if orders is None:
        raise InputError(
            f"judgment {judgment.sample_id}: two orders without scores of each; "
            f'order rule "{rule}" needs them, use "as_judged"'
        )
    given, swapped = orders.given, orders.swapped
    if rule == "given":
        return given.label
    if swapped is None or given.label is None or swapped.label is None:
        return given.label if swapped is None else None
    if rule == "tie":
        return given.label if given.label == swapped.label else 0
    if given.lead is None or swapped.lead is None:
        raise InputError(f'judgment {judgment.sample_id}: order rule "mean" needs scores, and the judge wrote none')
    return _sign(given.lead + swapped.lead)


def protocol_rule(judgments: Mapping[str, Judgment], reverse: Mapping[str, Judgment]) -> LabelRule:
    """`given`, JudgeLM's protocol, where pairs were scored in both orders; `as_judged` for all else.

    All else is a single order, whose verdict is the label under every rule, and judges that write labels instead of
    scores (PandaLM, Auto-J) or are read off a word: in their own protocols two orders make one label.

    Args:
        judgments: of `by_id`.
        reverse: of the same pairs in reverse, from a run of its own; empty without one.
    """
    both = False
    for key, judgment in judgments.items():
        orders = orders_of(judgment, reverse.get(key))
        if (
            orders is None
            or judgment.reads_words
            or any(order is not None and order.unscored for order in (orders.given, orders.swapped))
        ):
            return "as_judged"
        both = both or orders.swapped is not None
    return "given" if both else "as_judged"


def scores_behind(judgment: Judgment, rule: LabelRule) -> tuple[float, ...] | None:
    """The scores behind a judgment's label, in sample order; None where there are none.

    Under `given` those of the given order, else the judgment's, which are the mean over its orders.
    """
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
            f'judgment {judgment.sample_id}: order rule "probability" needs score distributions, and it holds none; '
            "judge again with --distribution, on an engine that gives probabilities"
        )
    probability = antisymmetrised(distributions)
    return None if probability is None else label_of(winner_by(probability, tie_threshold))


def by_id(judgments: Mapping[str, Judgment] | Iterable[Judgment]) -> dict[str, Judgment]:
    """Judgments by sample id.

    Raises:
        InputError: two judgments of one sample.
    """
    if isinstance(judgments, Mapping):
        return {key: _by_order(judgment) for key, judgment in judgments.items()}
    unique: dict[str, Judgment] = {}
    for judgment in judgments:
        if judgment.sample_id in unique:
            raise InputError(f"judgments: sample {judgment.sample_id} is judged twice; keep one of them")
        unique[judgment.sample_id] = _by_order(judgment)
    return unique


def _by_order(judgment: Judgment) -> Judgment:
    """Merge the prompts of one order, such as a dialogue's turns, into one `Shown`."""
    if not isinstance(judgment.verdict, PairVerdict | None):
        return judgment
    shown = per_order(judgment.shown)
    if len(shown) == len(judgment.shown) and all(map(is_, shown, judgment.shown)):
        return judgment
    return replace(judgment, shown=shown)


def _single(judgment: Judgment) -> OrderLabel:
    """A judgment of one order: label by its verdict, lead by its scores."""
    if judgment.winner is None:
        return OrderLabel(label=None)
    lead = None if judgment.scores is None else judgment.scores[0] - judgment.scores[1]
    return OrderLabel(label=label_of(judgment.winner), lead=lead)


def _of_shown(shown: Shown) -> OrderLabel | None:
    """One order of two; None when it neither failed nor has scores or a label."""
    if shown.failure is not None:
        return OrderLabel(label=None)
    if shown.scores is None:
        return _of_label(shown)
    lead = shown.scores[shown.order.index(0)] - shown.scores[shown.order.index(1)]
    return OrderLabel(label=_sign(lead), lead=lead)


def _of_label(shown: Shown) -> OrderLabel | None:
    """Label of a judge that writes no scores: the position of the better answer, put back in sample order."""
    if shown.label == "tie":
        return OrderLabel(label=0)
    if shown.label not in ("1", "2"):
        return None
    return OrderLabel(label=1 if shown.order[int(shown.label) - 1] == 0 else -1)


def _negated(order: OrderLabel) -> OrderLabel:
    label = None if order.label is None else -order.label
    return OrderLabel(label=label, lead=None if order.lead is None else -order.lead)


def _sign(lead: float) -> int:
    """Sign, with what float arithmetic leaves of an exact tie (7.1 - 6.9 + 6.9 - 7.1) a tie, as NaN is."""
    return (lead >= 1e-9) - (lead <= -1e-9)


NOT_GIVEN = "not given"
"""The value of members without one."""

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


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


def questions_of(labelled: LabelledSet) -> dict[str, str]:
    """Sample id -> question, where samples are known; pairs of one question are resampled together."""
    return {sample.id: sample.question for sample in labelled.samples.values()}


def join(
    judgments: Mapping[str, Judgment],
    labels: Mapping[str, Label],
    reverse: Mapping[str, Judgment],
    clusters: Mapping[str, Hashable],
    rule: LabelRule,
    tie_threshold: float,
) -> list[JoinedPair]:
    """Judgments and labels of the same samples, in the judgments' order; rule and band are `pair_label`'s.

    Raises:
        InputError: nothing joins, or the order rule cannot be applied to a judgment.
    """
    twice = any(len(judgment.compared) > 1 for judgment in judgments.values())
    kept: dict[Orders | None, Orders | None] = {}  # few of them differ
    rows = [
        JoinedPair(
            id=key,
            truth=label_of(pair_winner(labels[key])),
            judged=pair_label(judgment, rule, reverse.get(key), tie_threshold),
            orders=kept.setdefault(orders := _orders(judgment, reverse.get(key), twice), orders),
            judgment=judgment,
            label=labels[key],
            cluster=clusters.get(key, key),
        )
        for key, judgment in judgments.items()
        if key in labels
    ]
    if not rows:
        examples = f"{next(iter(judgments), None)!r} against {next(iter(labels), None)!r}"
        raise InputError(f"evaluation: no judgment has a label (ids, for example: {examples}); ids must match")
    return rows


def order_labels(orders: Orders | None) -> list[int | None]:
    """The labels of the orders that were asked for, in sample order; none where they are unknown."""
    if orders is None:
        return []
    return [orders.given.label] + ([] if orders.swapped is None else [orders.swapped.label])


def flipped(row: JoinedPair) -> bool:
    """True where both orders have a label, and not the same."""
    labels = order_labels(row.orders)
    return None not in labels and len(set(labels)) > 1


def failed_orders(row: JoinedPair) -> int:
    """Number of orders judged without a label."""
    if row.orders is None:
        return sum(shown.failure is not None for shown in row.judgment.shown)
    return order_labels(row.orders).count(None)


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
    groups = grouped(members, lambda member: NOT_GIVEN if (value := value_of(member)) is None else value)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def grouped(members: Iterable[T], key_of: Callable[[T], K]) -> dict[K, list[T]]:
    """The members of each key; keys and members in the order met."""
    groups: dict[K, list[T]] = {}
    for member in members:
        groups.setdefault(key_of(member), []).append(member)
    return groups
