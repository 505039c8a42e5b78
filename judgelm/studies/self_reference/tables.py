"""Self-Reference's tables of judgment quality: Tables 1 and 2, the four-way split, and what self-reference changes."""

import numpy as np

from judgelm.metrics.correctness import (
    FOUR_WAYS,
    FourWayCell,
    SplitChange,
    four_way,
    generation_accuracy,
    overconfidence,
    quality,
    split_change,
    split_quality,
)
from judgelm.metrics.resampling import Estimate
from judgelm.studies.result import Row, Table, columns, table
from judgelm.studies.self_reference.aligned_votes import METHOD_NAMES, AlignedVotes, answer_arrays, judged_arrays
from judgelm.studies.self_reference.truth import Method

WAYS = ("D_J+ Correct_A", "D_J+ Incorrect_A", "D_J- Correct_A", "D_J- Incorrect_A")
"""Names of `FOUR_WAYS`, as the paper writes them."""

_KEYS = columns("text", dataset="data set", judge="judge", method="method")


def quality_table(votes: AlignedVotes) -> Table:
    """Precision, recall and F1 of every judge, and how often its own answer is right (equations 3, 7-9)."""
    rows: list[Row] = []
    for dataset, judge, method in votes.runs():
        every = votes.of(judge, method, dataset)
        arrays = judged_arrays(every)
        scores = quality(arrays.truth, arrays.judged[0], arrays.questions, votes.resampling)
        failed = sum(row.judged is None for row in every)
        shares = (scores.precision, scores.recall, scores.f1, scores.accuracy, scores.f1_incorrect)
        accuracy = own_accuracy(votes, judge, dataset)
        rows.append((dataset, judge, METHOD_NAMES[method], scores.n, failed, *shares, accuracy))
    return table(
        rows,
        _KEYS,
        columns("count", n="judged", failed="failed"),
        columns("share", precision="precision", recall="recall", f1="F1", accuracy="accuracy"),
        columns("share", f1_incorrect="F1 of incorrect", generation_accuracy="own answers right"),
        name="judgment-quality",
        title="Judgment and generation",
        source="Self-Reference, equations 3 and 7-9",
        note="Agents are pooled. Precision is undefined where nothing was judged correct, recall and F1 where nothing "
        "is correct. Failed judgments are left out. Own answers are counted once for each question.",
    )


def own_accuracy(votes: AlignedVotes, judge: str, dataset: str) -> Estimate | None:
    """Equation 3 over every question of which G is known, whether or not its judgment failed."""
    seen = {row.id: row for method in votes.methods for row in votes.of(judge, method, dataset)}
    answered = [row for row in seen.values() if row.own is not None]
    own = np.array([bool(row.own) for row in answered], dtype=np.bool_)
    return generation_accuracy(own, [row.question for row in answered], votes.resampling)


def split_table(votes: AlignedVotes) -> Table:
    """Table 1: F1 where the judge's own answer is right, where it is wrong, and the gap."""
    rows: list[Row] = []
    for dataset, judge, method in votes.runs():
        arrays = answer_arrays(votes.of(judge, method, dataset))
        split = split_quality(arrays.own, arrays.truth, arrays.judged[0], arrays.questions, votes.resampling)
        n_right = int(arrays.own.sum())
        keys = (dataset, judge, METHOD_NAMES[method], n_right, arrays.n - n_right)
        rows.append((*keys, split.right, split.wrong, split.gap))
    return table(
        rows,
        _KEYS,
        columns("count", n_right="n, D_J+", n_wrong="n, D_J-"),
        columns("share", f1_right="F1, D_J+", f1_wrong="F1, D_J-", gap="gap"),
        name="f1-by-own-answer",
        title="F1 on the questions that the judge answers right (D_J+) and wrong (D_J-)",
        source="Self-Reference, Tables 1, 6 and 7",
        note="Undefined where a part holds no correct answer of an agent; the paper prints 0.00 there (a judge that "
        "answers everything right has no D_J-). 0 means that there were correct answers and none was judged so.",
    )


def four_way_cells(votes: AlignedVotes, judge: str, method: Method, dataset: str) -> tuple[FourWayCell, ...]:
    """The four cells of one judge, method and data set."""
    arrays = answer_arrays(votes.of(judge, method, dataset))
    return four_way(arrays.own, arrays.truth, arrays.judged[0], arrays.questions, votes.resampling)


def four_way_table(votes: AlignedVotes) -> Table:
    """Figures 2 and 13-17 as a table: accuracy and own-class F1 in each cell of the four-way split."""
    rows: list[Row] = []
    for dataset, judge, method in votes.runs():
        for way, cell in zip(WAYS, four_way_cells(votes, judge, method, dataset), strict=True):
            keys = (dataset, judge, METHOD_NAMES[method], way)
            rows.append((*keys, cell.n, cell.accuracy, cell.own_class_f1))
    return table(
        rows,
        _KEYS,
        columns("text", part="part"),
        columns("count", n="n"),
        columns("share", accuracy="accuracy", own_class_f1="own-class F1"),
        name="four-way-split",
        title="Judge right or wrong by agent right or wrong",
        source="Self-Reference, section 4.2, Figures 2 and 13-17",
        note="A part has one true label, so equation 9 gives 0 or 0/0 in two of the four. Own-class F1 takes that "
        "label as the class to be found: precision is 1, F1 is 2a / (1 + a) of the accuracy a. A part without "
        "answers has neither.",
    )


def overconfidence_table(votes: AlignedVotes, method: Method) -> Table:
    """Table 2: share judged correct minus share correct, by judge and data set, and weighted by samples."""
    rows = []
    for judge in votes.judges:
        cells = [_overconfidence(votes, judge, method, dataset) for dataset in votes.datasets]
        rows.append((judge, *cells, _overconfidence(votes, judge, method, None)))
    rows.sort(key=lambda row: -row[-1].value if isinstance(row[-1], Estimate) else 1.0)
    return table(
        rows,
        columns("text", judge="judge"),
        columns("share", ((name, name) for name in votes.datasets)),
        columns("share", all_data_sets="all, by samples"),
        name=f"overconfidence-{method}",
        title=f"Overconfidence, {METHOD_NAMES[method]}",
        source="Self-Reference, Tables 2 and 8",
        note="Share judged correct minus share that is correct; agents are pooled. The last column is over all "
        "judged answers, which is the data sets' mean weighted by their numbers of answers.",
    )


def _overconfidence(votes: AlignedVotes, judge: str, method: Method, dataset: str | None) -> Estimate | None:
    arrays = judged_arrays(votes.of(judge, method, dataset))
    clusters = [(row.dataset, row.question) for row in votes.of(judge, method, dataset) if row.judged is not None]
    return overconfidence(arrays.truth, arrays.judged[0], clusters, votes.resampling)


def change_of(votes: AlignedVotes, judge: str, dataset: str) -> tuple[int, SplitChange] | None:
    """Change by self-reference for one judge, over the answers that both methods judged; None without any."""
    both = votes.both(judge, dataset)
    if both.n == 0:
        return None
    return both.n, split_change(
        both.own, both.truth, (both.judged[0], both.judged[1]), both.questions, votes.resampling
    )


def change_table(votes: AlignedVotes) -> Table:
    """Gains and losses by self-reference: F1 on D_J+ and D_J-, accuracy in the four parts."""
    rows: list[Row] = []
    for dataset, judge in votes.cells():
        if pair := change_of(votes, judge, dataset):
            n, change = pair
            rows.append((dataset, judge, n, change.f1, change.f1_right, change.f1_wrong, *change.accuracies))
    parts = zip(FOUR_WAYS, WAYS, strict=True)
    return table(
        rows,
        _KEYS[:2],
        columns("count", n="judged by both"),
        columns("share", f1="F1", f1_right="F1, D_J+", f1_wrong="F1, D_J-"),
        columns(
            "share",
            (
                (f"accuracy_{'right' if own else 'wrong'}_{'correct' if agent else 'incorrect'}", f"accuracy, {name}")
                for (own, agent), name in parts
            ),
        ),
        name="change-by-self-reference",
        title="Change by self-reference: self-reference minus CoT",
        source="Self-Reference, section C.5 and Figures 15-17",
        note="Over the answers that both methods judged. A wrong reference is expected to cost on D_J-, most of all "
        "where the agent is right and the judge is not.",
    )
