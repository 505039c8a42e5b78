"""Tables of benchmarks whose makers count over both orders: LLMBar's sets, Auto-J's groups, FairEval's means."""

from collections.abc import Sequence

import numpy as np

from judgelm.data.benchmarks.pairs import AUTO_J_GROUPS
from judgelm.metrics.paired import cohens_kappa
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.metrics.two_orders import two_orders
from judgelm.studies.benchmark.joined import JoinedJudgment, order_labels, truth_of
from judgelm.studies.pairing import pair_label
from judgelm.studies.result import Cell, Column, Table

_OTHER = "none of the 8 groups"


def consistency(joined: Sequence[JoinedJudgment], how: Resampling) -> Estimate | None:
    """Share of pairs on which two readable orders say the same; None where there are none."""
    pairs = [one for one in joined if len(one.judgment.shown) == 2 and one.label.winner is not None]
    said = [(one, labels) for one in pairs if len(labels := order_labels(one)) == 2 and None not in labels]
    if not said:
        return None
    return share(np.array([labels[0] == labels[1] for _, labels in said]), [one.cluster for one, _ in said], how)


def every_order_right(joined: JoinedJudgment) -> float:
    """1 where every order gives the label, else 0."""
    return float(all(label == truth_of(joined) for label in order_labels(joined)))


def llmbar_table(joined: Sequence[JoinedJudgment], how: Resampling) -> Table | None:
    """LLMBar's own counts for each set, and kappas; None where no pair was judged in both orders."""
    rows: list[tuple[Cell, ...]] = []
    twice = [one for one in joined if len(one.judgment.shown) == 2]
    for subset in dict.fromkeys(one.subset for one in twice):
        members = [one for one in twice if one.subset == subset]
        given, swapped = zip(*(order_labels(one) for one in members), strict=True)
        found = two_orders(given, swapped, [truth_of(one) for one in members], [one.cluster for one in members], how)
        shares = (found.given_right, found.swapped_right, found.both_right, found.equal, found.agree)
        rows.append((subset, found.n, found.unreadable, *shares, found.kappa, found.given_kappa, found.swapped_kappa))
    if not rows:
        return None
    shares_of = ("given_right", "As given"), ("swapped_right", "Swapped"), ("both_right", "Both right")
    kappas = ("kappa", "Kappa between orders"), ("given_kappa", "Kappa, as given"), ("swapped_kappa", "Kappa, swapped")
    return Table(
        name="orders",
        title="Both orders, set by set",
        columns=(
            Column(key="subset", heading="Set"),
            Column(key="pairs", heading="Pairs", kind="count"),
            Column(key="unreadable", heading="Unreadable orders", kind="count"),
            *(Column(key=key, heading=heading, kind="share") for key, heading in shares_of),
            Column(key="equal", heading="Equal, LLMBar's count", kind="share"),
            Column(key="agree", heading="Equal, both readable", kind="share"),
            *(Column(key=key, heading=heading, kind="number") for key, heading in kappas),
        ),
        rows=tuple(rows),
        source="LLMBar, LLMEvaluator/evaluate.py (statistics.json)",
        note="LLMBar's count of equal orders takes two unreadable ones for equal; beside it the share over pairs whose "
        "orders were both read. Kappas are Cohen's, over what was read; as given and swapped with the labels. They are "
        "not those published: there kappa_False and kappa_True write a winner of 2 as 0 beside labels of 1 and 2, and "
        "kappa_agreement takes an unreadable reply for a 2. Empty: undefined.",
    )


def auto_j_table(joined: Sequence[JoinedJudgment], how: Resampling) -> Table | None:
    """Agreement and consistency of Auto-J's groups of scenarios, and overall."""
    group_of = {scenario: group for group, scenarios in AUTO_J_GROUPS.items() for scenario in scenarios}
    named = [(group_of.get(one.subset, _OTHER), one) for one in joined]
    rows: list[tuple[Cell, ...]] = []
    for group in (*AUTO_J_GROUPS, _OTHER, "Overall"):
        members = [one for name, one in named if group in (name, "Overall")]
        if members:
            right = np.array([every_order_right(one) == 1 for one in members])
            agreement = share(right, [one.cluster for one in members], how)
            rows.append((group, len({one.subset for one in members}), agreement, consistency(members, how)))
    return Table(
        name="groups",
        title="Auto-J's groups of scenarios",
        columns=(
            Column(key="group", heading="Group"),
            Column(key="scenarios", heading="Scenarios", kind="count"),
            Column(key="agreement", heading="Agreement", kind="share"),
            Column(key="consistency", heading="Consistency", kind="share"),
        ),
        rows=tuple(rows),
        source="Auto-J, codes/leaderboard/pairwise_eval.py and utils_constants.py",
        note="Agreement: both orders give the label; an unreadable order does not. Consistency: over the pairs read in "
        "both orders.",
    )


def fair_eval_label(joined: JoinedJudgment) -> int | None:
    """Winner by the mean score over the orders that could be read; None where none could."""
    labels = order_labels(joined)
    read = [label for label in labels if label is not None]
    return pair_label(joined.judgment, "mean") if len(read) == 2 else next(iter(read), None)


def fair_eval_table(joined: Sequence[JoinedJudgment], how: Resampling) -> Table | None:
    """Accuracy and Cohen's kappa against the label of people."""
    labels = [(fair_eval_label(one), truth_of(one), one.cluster) for one in joined]
    clusters = [cluster for *_, cluster in labels]
    accuracy = share(np.array([label == truth for label, truth, _ in labels]), clusters, how)
    read = [(label, truth, cluster) for label, truth, cluster in labels if label is not None]
    kappa = None
    if read:
        judged, truths, keys = zip(*read, strict=True)
        kappa = cohens_kappa(np.array(judged), np.array(truths), keys, how)
    halves = sum(sum(label is not None for label in order_labels(one)) == 1 for one in joined)
    return Table(
        name="people",
        title="Agreement with people",
        columns=(
            Column(key="pairs", heading="Pairs", kind="count"),
            Column(key="unreadable", heading="Unreadable", kind="count"),
            Column(key="one_order", heading="Decided by one order", kind="count"),
            Column(key="accuracy", heading="Accuracy", kind="share"),
            Column(key="kappa", heading="Cohen's kappa", kind="number"),
        ),
        rows=((len(labels), len(labels) - len(read), halves, accuracy, kappa),),
        source="Wang et al. 2023, Large Language Models are not Fair Evaluators; i-Eval/FairEval",
        note="The scores of the orders that could be read are averaged, as in the authors' code. A pair without a "
        "readable order is wrong in the accuracy and left out of kappa. Kappa is empty where it is undefined.",
    )
