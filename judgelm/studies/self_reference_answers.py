"""Join correctness judgments with the truth, and build tables from them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from judgelm.errors import InputError
from judgelm.metrics import correctness
from judgelm.metrics.correctness import FOUR_WAYS, FourWayCell, SplitChange, split_quality
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.records import Judgment
from judgelm.studies.pair_labels import called_correct, grouped
from judgelm.studies.result import Layouts, Row, Table, columns
from judgelm.studies.truth_file import AnswerTruth, same_answer

LAYOUTS = Layouts(Path(__file__).with_name("self_reference.yaml"))

Method = Literal["cot", "guided"]
METHODS: tuple[Method, ...] = ("cot", "guided")

Source = Literal["truth file", "solves", "unknown", "no answer extracted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRuns:
    """Judgments of the same answers by one judge: with CoT alone, and guided by its own answer."""

    judge: str
    cot: Mapping[str, Judgment] | None = None
    guided: Mapping[str, Judgment] | None = None

    def of(self, method: Method) -> Mapping[str, Judgment] | None:
        """Return the judgments made with one method."""
        return self.cot if method == "cot" else self.guided


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswer:
    """An answer with its truth and the judge's verdict.

    Attributes:
        own: whether the judge's own answer is right; None if unknown.
        judged: whether the answer was judged correct; None if the judge failed.
    """

    id: str
    dataset: str
    question: str
    truth: bool
    own: bool | None
    judged: bool | None


def judged_answers(runs: JudgeRuns, method: Method, truths: Mapping[str, AnswerTruth]) -> list[JudgedAnswer]:
    """Join the judgments for one method with the truth.

    Raises:
        InputError: no ids match, or a verdict is not `correct` or `incorrect`.
    """
    judgments = runs.of(method) or {}
    rows = [
        JudgedAnswer(
            id=key,
            dataset=truths[key].dataset,
            question=truths[key].question or key,
            truth=truths[key].truth,
            own=own_correct(runs, truths[key])[0],
            judged=called_correct(judgment),
        )
        for key, judgment in judgments.items()
        if key in truths
    ]
    if not rows:
        examples = f"{next(iter(judgments), None)!r} and {next(iter(truths), None)!r}"
        raise InputError(
            f"self-reference: no judgment by {runs.judge} matches a truth (ids: {examples}); use the same ids"
        )
    return rows


def own_correct(runs: JudgeRuns, truth: AnswerTruth) -> tuple[bool | None, Source]:
    """Return whether the judge's own answer is right, and the source.

    Sources, in order of precedence: the truth file, and the first self-solve of the guided run or the CoT run. As in
    equation 3, a solve without an extractable answer is wrong.
    """
    if (stated := truth.own(runs.judge)) is not None:
        return stated, "truth file"
    if truth.answer is None:
        return None, "unknown"
    for method in ("guided", "cot"):
        judgment = (runs.of(method) or {}).get(truth.id)
        if judgment is not None and judgment.self_answers:
            own = judgment.self_answers[0].answer
            return (False, "no answer extracted") if own is None else (same_answer(own, truth.answer), "solves")
    return None, "unknown"


METHOD_NAMES: Mapping[Method, str] = {"cot": "CoT", "guided": "self-reference"}

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerArrays:
    """Judged answers as arrays of shape (n,).

    Attributes:
        own: G_i; False if unknown.
        truth: A_i.
        judged: whether each answer was judged correct, in one array per method.
    """

    own: Flags
    truth: Flags
    judged: tuple[Flags, ...]
    questions: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of answers."""
        return len(self.questions)

    def triple(self, way: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return G, J, and A from equations 10-12 for one method."""
        right = self.judged[way] == self.truth
        return self.own.astype(np.float64), right.astype(np.float64), self.truth.astype(np.float64)


def answer_arrays(*ways: Sequence[JudgedAnswer], own_known: bool = True) -> AnswerArrays:
    """Convert answers judged with every method to arrays; `own_known` keeps only answers with known G."""
    kept = [
        {row.id: row for row in way if row.judged is not None and (row.own is not None or not own_known)}
        for way in ways
    ]
    ids = [key for key in kept[0] if all(key in way for way in kept)]
    rows = [kept[0][key] for key in ids]
    return AnswerArrays(
        own=np.array([bool(row.own) for row in rows], dtype=np.bool_),
        truth=np.array([row.truth for row in rows], dtype=np.bool_),
        judged=tuple(np.array([bool(way[key].judged) for key in ids], dtype=np.bool_) for way in kept),
        questions=tuple(row.question for row in rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswers:
    """Answers by judge, method, and data set.

    `rows` maps (judge, method) -> data set -> judged answers, with data sets in truth-file order.
    """

    judges: tuple[str, ...]
    methods: tuple[Method, ...]
    datasets: tuple[str, ...]
    rows: Mapping[tuple[str, Method], Mapping[str, Sequence[JudgedAnswer]]]
    resampling: Resampling

    def of(self, judge: str, method: Method, dataset: str | None = None) -> list[JudgedAnswer]:
        """Return a judge's answers for one data set, or for all."""
        by_dataset = self.rows.get((judge, method), {})
        names = self.datasets if dataset is None else (dataset,)
        return [row for name in names for row in by_dataset.get(name, ())]

    def cells(self) -> list[tuple[str, str]]:
        """Return each (data set, judge) with judgments."""
        return list(dict.fromkeys((dataset, judge) for dataset, judge, _ in self.runs()))

    def runs(self) -> list[tuple[str, str, Method]]:
        """Return each (data set, judge, method) with judgments."""
        every = product(self.datasets, self.judges, self.methods)
        return [(dataset, judge, method) for dataset, judge, method in every if self.of(judge, method, dataset)]

    def both(self, judge: str, dataset: str) -> AnswerArrays:
        """Return the answers with known G that were judged with both methods."""
        return answer_arrays(self.of(judge, "cot", dataset), self.of(judge, "guided", dataset))


def join_answers(runs: Sequence[JudgeRuns], truths: Mapping[str, AnswerTruth], resampling: Resampling) -> JudgedAnswers:
    """Join all runs with the truth.

    Raises:
        InputError: there are no runs, two judges have the same name, or the ids of a run do not match.
    """
    judges = tuple(judge_runs.judge for judge_runs in runs)
    if not runs or len(set(judges)) < len(judges):
        raise InputError(f"self-reference: expected judges with different names, got {judges}")
    rows: dict[tuple[str, Method], dict[str, list[JudgedAnswer]]] = {}
    for judge_runs, method in product(runs, METHODS):
        if judge_runs.of(method) is not None:
            judged = judged_answers(judge_runs, method, truths)
            rows[judge_runs.judge, method] = grouped(judged, lambda row: row.dataset)
    return JudgedAnswers(
        judges=judges,
        methods=tuple(method for method in METHODS if any(method == judged_with for _, judged_with in rows)),
        datasets=tuple(dict.fromkeys(truth.dataset for truth in truths.values())),
        rows=rows,
        resampling=resampling,
    )


def count_answers(
    runs: Sequence[JudgeRuns], truths: Mapping[str, AnswerTruth], answers: JudgedAnswers
) -> dict[str, int]:
    """Count the outcomes of judgments and truths."""
    counts = Counter({"judgments": 0, "judged": 0, "failed": 0, "without truth": 0, "truths without judgment": 0})
    for judge_runs, method in product(runs, answers.methods):
        judgments, rows = judge_runs.of(method) or {}, answers.of(judge_runs.judge, method)
        counts["judgments"] += len(judgments)
        counts["without truth"] += len(judgments) - len(rows)
        counts["failed"] += sum(row.judged is None for row in rows)
        counts["judged"] += sum(row.judged is not None for row in rows)
        counts["truths without judgment"] += len(truths.keys() - judgments.keys())
    sources = Counter(own_correct(judge_runs, truth)[1] for judge_runs, truth in product(runs, truths.values()))
    return dict(counts) | {
        "own answer known from the truth file": sources["truth file"],
        "own answer known from self-solves": sources["solves"],
        "own answer not extractable (counts as wrong)": sources["no answer extracted"],
        "own answer unknown": sources["unknown"],
    }


WAYS = ("D_J+ Correct_A", "D_J+ Incorrect_A", "D_J- Correct_A", "D_J- Incorrect_A")
"""The paper's names for `FOUR_WAYS`."""


def quality_table(answers: JudgedAnswers) -> Table:
    """Build the table of precision, recall, F1, and own accuracy for every judge (equations 3 and 7-9)."""
    rows: list[Row] = []
    for dataset, judge, method in answers.runs():
        every = answers.of(judge, method, dataset)
        arrays = answer_arrays(every, own_known=False)
        scores = correctness.quality(arrays.truth, arrays.judged[0], arrays.questions, answers.resampling)
        failed = sum(row.judged is None for row in every)
        shares = (scores.precision, scores.recall, scores.f1, scores.accuracy, scores.f1_incorrect)
        accuracy = own_accuracy(answers, judge, dataset)
        rows.append((dataset, judge, METHOD_NAMES[method], scores.n, failed, *shares, accuracy))
    return LAYOUTS.table("judgment-quality", rows)


def own_accuracy(answers: JudgedAnswers, judge: str, dataset: str) -> Estimate | None:
    """Compute equation 3 over all questions with known G, even if the judgment failed."""
    seen = {row.id: row for method in answers.methods for row in answers.of(judge, method, dataset)}
    answered = [row for row in seen.values() if row.own is not None]
    own = np.array([bool(row.own) for row in answered], dtype=np.bool_)
    return correctness.generation_accuracy(own, [row.question for row in answered], answers.resampling)


def split_table(answers: JudgedAnswers) -> Table:
    """Build Table 1: F1 on questions that the judge answers correctly or incorrectly."""
    rows: list[Row] = []
    for dataset, judge, method in answers.runs():
        arrays = answer_arrays(answers.of(judge, method, dataset))
        split = split_quality(arrays.own, arrays.truth, arrays.judged[0], arrays.questions, answers.resampling)
        n_right = int(arrays.own.sum())
        keys = (dataset, judge, METHOD_NAMES[method], n_right, arrays.n - n_right)
        rows.append((*keys, *split))
    return LAYOUTS.table("f1-by-own-answer", rows)


def four_way_cells(answers: JudgedAnswers, judge: str, method: Method, dataset: str) -> tuple[FourWayCell, ...]:
    """Compute the four-way split."""
    arrays = answer_arrays(answers.of(judge, method, dataset))
    return correctness.four_way(arrays.own, arrays.truth, arrays.judged[0], arrays.questions, answers.resampling)


def four_way_table(answers: JudgedAnswers) -> Table:
    """Build a table with the values of Figures 2 and 13-17."""
    rows: list[Row] = []
    for dataset, judge, method in answers.runs():
        for way, cell in zip(WAYS, four_way_cells(answers, judge, method, dataset), strict=True):
            rows.append((dataset, judge, METHOD_NAMES[method], way, *cell))
    return LAYOUTS.table("four-way-split", rows)


def overconfidence_table(answers: JudgedAnswers, method: Method) -> Table:
    """Build Table 2: the share of answers judged correct minus the share of correct answers."""
    rows = []
    for judge in answers.judges:
        cells = [_overconfidence(answers, judge, method, dataset) for dataset in answers.datasets]
        rows.append((judge, *cells, _overconfidence(answers, judge, method, None)))
    rows.sort(key=lambda row: -row[-1].value if isinstance(row[-1], Estimate) else 1.0)
    shares = columns("share", ((name, name) for name in answers.datasets), all_data_sets="all, by samples")
    return LAYOUTS.table("overconfidence", rows, *shares, method=method, name=METHOD_NAMES[method])


def _overconfidence(answers: JudgedAnswers, judge: str, method: Method, dataset: str | None) -> Estimate | None:
    arrays = answer_arrays(answers.of(judge, method, dataset), own_known=False)
    clusters = [(row.dataset, row.question) for row in answers.of(judge, method, dataset) if row.judged is not None]
    return correctness.overconfidence(arrays.truth, arrays.judged[0], clusters, answers.resampling)


def change_of(answers: JudgedAnswers, judge: str, dataset: str) -> tuple[int, SplitChange] | None:
    """Return n and the change due to self-reference, over answers judged with both methods."""
    both = answers.both(judge, dataset)
    if both.n == 0:
        return None
    judged = both.judged[0], both.judged[1]
    return both.n, correctness.split_change(both.own, both.truth, judged, both.questions, answers.resampling)


def change_table(answers: JudgedAnswers) -> Table:
    """Build the table of changes due to self-reference."""
    rows: list[Row] = []
    for dataset, judge in answers.cells():
        if pair := change_of(answers, judge, dataset):
            n, change = pair
            rows.append((dataset, judge, n, change.f1, change.f1_right, change.f1_wrong, *change.accuracies))
    parts = [
        (f"accuracy_{'right' if own else 'wrong'}_{'correct' if agent else 'incorrect'}", f"accuracy, {name}")
        for (own, agent), name in zip(FOUR_WAYS, WAYS, strict=True)
    ]
    return LAYOUTS.table("change-by-self-reference", rows, *columns("share", parts))
