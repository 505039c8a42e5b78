"""Tables of benchmarks whose makers count over both orders: LLMBar's sets, Auto-J's groups, FairEval's means."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from judgelm.data.sources.pairs import AUTO_J_GROUPS
from judgelm.metrics.agreement import cohens_kappa, two_orders
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.studies.benchmark.joined import JoinedJudgment, order_labels, truth_of
from judgelm.studies.pair_labels import pair_label
from judgelm.studies.result import Row, Table, columns, table
from judgelm.studies.sentences import format_number, format_share

_OTHER = "none of the 8 groups"


class AuthorsReport(NamedTuple):
    """A table that a benchmark's authors report beyond a score, and its findings."""

    table: Table
    findings: tuple[str, ...]


def consistency(joined: Sequence[JoinedJudgment], resampling: Resampling) -> Estimate | None:
    """Share of pairs with the same label in two readable orders; None without such pairs."""
    pairs = [member for member in joined if len(member.judgment.shown) == 2 and member.label.winner is not None]
    read = [(member, labels) for member in pairs if len(labels := order_labels(member)) == 2 and None not in labels]
    if not read:
        return None
    alike = np.array([labels[0] == labels[1] for _, labels in read])
    return share(alike, [member.cluster for member, _ in read], resampling)


def every_order_right(joined: JoinedJudgment) -> float:
    """1 where every order gives the label, else 0."""
    return float(all(label == truth_of(joined) for label in order_labels(joined)))


def llmbar_report(joined: Sequence[JoinedJudgment], resampling: Resampling) -> AuthorsReport | None:
    """LLMBar's own counts for each set, and kappas; None where no pair was judged in both orders."""
    rows: list[Row] = []
    findings: list[str] = []
    twice = [member for member in joined if len(member.judgment.shown) == 2]
    for subset in dict.fromkeys(member.subset for member in twice):
        members = [member for member in twice if member.subset == subset]
        given, swapped = zip(*(order_labels(member) for member in members), strict=True)
        truth, clusters = zip(*((truth_of(member), member.cluster) for member in members), strict=True)
        counts = two_orders(given, swapped, truth, clusters, resampling)
        shares = (counts.given_right, counts.swapped_right, counts.both_right, counts.equal, counts.agree)
        rows.append(
            (subset, counts.n, counts.unreadable, *shares, counts.kappa, counts.given_kappa, counts.swapped_kappa)
        )
        kappa = "undefined" if counts.kappa is None else format_number(counts.kappa)
        findings.append(
            f"{subset}: orders equal by LLMBar's count {format_share(counts.equal)}; kappa between the orders {kappa}."
        )
    if not rows:
        return None
    orders = table(
        rows,
        columns("text", subset="Set"),
        columns("count", pairs="Pairs", unreadable="Unreadable orders"),
        columns("share", given_right="As given", swapped_right="Swapped", both_right="Both right"),
        columns("share", equal="Equal, LLMBar's count", agree="Equal, both readable"),
        columns("number", kappa="Kappa between orders"),
        columns("number", given_kappa="Kappa, as given", swapped_kappa="Kappa, swapped"),
        name="orders",
        title="Both orders, set by set",
        source="LLMBar, LLMEvaluator/evaluate.py (statistics.json)",
        note="LLMBar's count of equal orders takes two unreadable ones for equal; beside it the share over pairs whose "
        "orders were both read. Kappas are Cohen's, over what was read; as given and swapped with the labels. They are "
        "not those published: there kappa_False and kappa_True write a winner of 2 as 0 beside labels of 1 and 2, and "
        "kappa_agreement takes an unreadable reply for a 2. Empty: undefined.",
    )
    return AuthorsReport(orders, tuple(findings))


def auto_j_report(joined: Sequence[JoinedJudgment], resampling: Resampling) -> AuthorsReport:
    """Agreement and consistency of Auto-J's groups of scenarios, and overall."""
    group_of = {scenario: group for group, scenarios in AUTO_J_GROUPS.items() for scenario in scenarios}
    named = [(group_of.get(member.subset, _OTHER), member) for member in joined]
    rows: list[Row] = []
    for group in (*AUTO_J_GROUPS, _OTHER, "Overall"):
        members = [member for name, member in named if group in (name, "Overall")]
        if members:
            right = np.array([every_order_right(member) == 1 for member in members])
            agreement = share(right, [member.cluster for member in members], resampling)
            rows.append(
                (group, len({member.subset for member in members}), agreement, consistency(members, resampling))
            )
    groups = table(
        rows,
        columns("text", group="Group"),
        columns("count", scenarios="Scenarios"),
        columns("share", agreement="Agreement", consistency="Consistency"),
        name="groups",
        title="Auto-J's groups of scenarios",
        source="Auto-J, codes/leaderboard/pairwise_eval.py and utils_constants.py",
        note="Agreement: both orders give the label; an unreadable order does not. Consistency: over the pairs read in "
        "both orders.",
    )
    by_group = "; ".join(f"{row[0]} {format_share(row[2])}" for row in rows if isinstance(row[2], Estimate))
    return AuthorsReport(groups, (f"Agreement by group: {by_group}.",))


def fair_eval_label(joined: JoinedJudgment) -> int | None:
    """Winner by the mean score over the orders that could be read; None where none could."""
    labels = order_labels(joined)
    read = [label for label in labels if label is not None]
    return pair_label(joined.judgment, "mean") if len(read) == 2 else next(iter(read), None)


def fair_eval_report(joined: Sequence[JoinedJudgment], resampling: Resampling) -> AuthorsReport:
    """Accuracy and Cohen's kappa against the label of people."""
    labels = [(fair_eval_label(member), truth_of(member), member.cluster) for member in joined]
    clusters = [cluster for *_, cluster in labels]
    accuracy = share(np.array([label == truth for label, truth, _ in labels]), clusters, resampling)
    read = [(label, truth, cluster) for label, truth, cluster in labels if label is not None]
    kappa = None
    if read:
        judged, truths, keys = zip(*read, strict=True)
        kappa = cohens_kappa(np.array(judged), np.array(truths), keys, resampling)
    one_order = sum(sum(label is not None for label in order_labels(member)) == 1 for member in joined)
    people = table(
        ((len(labels), len(labels) - len(read), one_order, accuracy, kappa),),
        columns("count", pairs="Pairs", unreadable="Unreadable", one_order="Decided by one order"),
        columns("share", accuracy="Accuracy"),
        columns("number", kappa="Cohen's kappa"),
        name="people",
        title="Agreement with people",
        source="Wang et al. 2023, Large Language Models are not Fair Evaluators; i-Eval/FairEval",
        note="The scores of the orders that could be read are averaged, as in the authors' code. A pair without a "
        "readable order is wrong in the accuracy and left out of kappa. Kappa is empty where it is undefined.",
    )
    return AuthorsReport(
        people, (f"Cohen's kappa with people is {'undefined' if kappa is None else format_number(kappa)}.",)
    )
