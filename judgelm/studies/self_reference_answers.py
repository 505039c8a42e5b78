"""The truth about the answers that a judge calls correct or incorrect, and the join of both.

A truth file is JSON lines, one per judged answer:

    {"id": "gsm8k-17/ministral", "agent": "ministral", "dataset": "GSM8K", "truth": true}

`truth` says whether the agent's answer is correct. Optional: `question`, a key that answers to one question share
(they are resampled together; the id where it is not given); `judge_correct`, whether the judge's own answer to the
question is right, true or false or, for several judges, an object {judge: true or false}; `answer`, the right final
answer as the judging mode extracts it, with which the judge's own answer in the run file (`solves`) is compared where
`judge_correct` does not say. Other fields are passed over.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from judgelm.errors import InputError
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
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.parsing.short_answers import canonical
from judgelm.records import Judgment, LabelVerdict
from judgelm.studies.result import Row, Table, columns, table
from judgelm.studies.truth_file import check_texts

Method = Literal["cot", "guided"]
METHODS: tuple[Method, ...] = ("cot", "guided")

Source = Literal["truth file", "solves", "unknown", "no answer extracted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTruth:
    """One agent's answer to one question, as `judgelm.studies.self_reference_answers` describes the file.

    Attributes:
        truth: whether the agent's answer is correct (A_i, equation 12).
        question: key of the question; the sample's id where None.
        own: judge -> whether its own answer is right (G_i, equation 10); the key "" is any judge's.
        answer: the right final answer, comparable with `SelfAnswer.answer`.
    """

    id: str
    agent: str
    dataset: str
    truth: bool
    question: str | None = None
    own: Mapping[str, bool] = field(default_factory=dict)
    answer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRuns:
    """A judge's judgments of the same answers, by sample id: with CoT alone and guided by its own answer."""

    judge: str
    cot: Mapping[str, Judgment] | None = None
    guided: Mapping[str, Judgment] | None = None

    def of(self, method: Method) -> Mapping[str, Judgment] | None:
        """The judgments of one method; None where it was not run."""
        return self.cot if method == "cot" else self.guided


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswer:
    """An answer with its truth and the judge's verdict.

    Attributes:
        own: whether the judge's own answer to the question is right; None where unknown.
        judged: whether it was judged correct; None where the judgment failed.
    """

    id: str
    dataset: str
    question: str
    truth: bool
    own: bool | None
    judged: bool | None


def truth_from_row(row: Mapping[str, Any], location: str) -> AnswerTruth:
    """One line of a truth file.

    Args:
        row: the line's object.
        location: file and line, for errors.

    Raises:
        InputError: a field is missing or is not what it should be.
    """
    check_texts(row, location, needed=("id", "agent", "dataset"), optional=("question", "answer"))
    if not isinstance(row.get("truth"), bool):
        raise InputError(f'{location}: field "truth": expected true or false, got {row.get("truth")!r}')
    return AnswerTruth(
        id=row["id"],
        agent=row["agent"],
        dataset=row["dataset"],
        truth=bool(row["truth"]),
        question=row.get("question"),
        own=_own(row.get("judge_correct"), location),
        answer=row.get("answer"),
    )


def judged_answers(runs: JudgeRuns, method: Method, truths: Mapping[str, AnswerTruth]) -> list[JudgedAnswer]:
    """One method's judgments of the answers of which the truth is known, in the run's order.

    Raises:
        InputError: none of them is known, or a verdict is not `correct` or `incorrect`.
    """
    judgments = runs.of(method) or {}
    rows = [
        JudgedAnswer(
            id=key,
            dataset=truths[key].dataset,
            question=truths[key].question or key,
            truth=truths[key].truth,
            own=own_correct(runs, truths[key])[0],
            judged=_judged_correct(judgment),
        )
        for key, judgment in judgments.items()
        if key in truths
    ]
    if not rows:
        examples = f"{next(iter(judgments), None)!r} against {next(iter(truths), None)!r}"
        raise InputError(f"self-reference: no judgment of {runs.judge} has a truth (ids: {examples}); ids must match")
    return rows


def own_correct(runs: JudgeRuns, truth: AnswerTruth) -> tuple[bool | None, Source]:
    """Correctness of the judge's own answer, and its source.

    The truth file goes first, then the first self-solve of the guided run or of the CoT run. A solve that no answer
    could be extracted from is a wrong answer, as in equation 3, and is told apart in the source.
    """
    for judge in (runs.judge, ""):
        if judge in truth.own:
            return truth.own[judge], "truth file"
    if truth.answer is None:
        return None, "unknown"
    for method in ("guided", "cot"):
        judgment = (runs.of(method) or {}).get(truth.id)
        if judgment is not None and judgment.self_answers:
            own = judgment.self_answers[0].answer
            return (False, "no answer extracted") if own is None else (same_answer(own, truth.answer), "solves")
    return None, "unknown"


def same_answer(extracted: str, right: str) -> bool:
    """True for an extracted answer that is the right one in any spelling: `1,234.0` for 1234, `(b)` for B."""
    return extracted in (right, canonical(right, "number"), canonical(right, "choice"))


def _own(value: object, location: str) -> dict[str, bool]:
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"": value}
    if isinstance(value, dict) and all(isinstance(right, bool) for right in value.values()):
        return dict(value)
    raise InputError(
        f'{location}: field "judge_correct": expected true, false or {{judge: true or false}}, got {value!r}'
    )


def _judged_correct(judgment: Judgment) -> bool | None:
    if judgment.verdict is None:
        return None
    label = judgment.verdict.label if isinstance(judgment.verdict, LabelVerdict) else None
    if label not in ("correct", "incorrect"):
        raise InputError(
            f"judgment {judgment.sample_id}: mode {judgment.mode!r} concludes in {judgment.verdict}, and this study "
            "needs correct or incorrect; give a run of the correctness mode"
        )
    return label == "correct"


METHOD_NAMES: Mapping[Method, str] = {"cot": "CoT", "guided": "self-reference"}

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerArrays:
    """Judged answers side by side; `judged` holds one array for each way of judging.

    Attributes:
        own: shape (n,), G_i.
        truth: shape (n,), A_i.
        judged: each of shape (n,), whether the answer was judged correct.
        questions: n keys.
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
        """G, J and A of equations 10-12 as numbers, for one way of judging."""
        right = self.judged[way] == self.truth
        return self.own.astype(np.float64), right.astype(np.float64), self.truth.astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedVotes:
    """Every judge's answers by method and data set.

    Attributes:
        rows: (judge, method) -> data set -> its judged answers.
        datasets: in the order of the truth file.
        resampling: seed and number of resamples of every interval.
    """

    judges: tuple[str, ...]
    methods: tuple[Method, ...]
    datasets: tuple[str, ...]
    rows: Mapping[tuple[str, Method], Mapping[str, Sequence[JudgedAnswer]]]
    resampling: Resampling

    def of(self, judge: str, method: Method, dataset: str | None = None) -> list[JudgedAnswer]:
        """A judge's answers of one data set, or of all."""
        by_dataset = self.rows.get((judge, method), {})
        names = self.datasets if dataset is None else (dataset,)
        return [row for name in names for row in by_dataset.get(name, ())]

    def cells(self) -> Iterator[tuple[str, str]]:
        """(data set, judge) for every data set that the judge judged in some way."""
        for dataset in self.datasets:
            for judge in self.judges:
                if any(self.of(judge, method, dataset) for method in self.methods):
                    yield dataset, judge

    def runs(self) -> Iterator[tuple[str, str, Method]]:
        """(data set, judge, method) for every data set that the judge judged with the method."""
        for dataset, judge in self.cells():
            yield from ((dataset, judge, method) for method in self.methods if self.of(judge, method, dataset))

    def both(self, judge: str, dataset: str) -> AnswerArrays:
        """The answers that both methods judged and of which G is known, for paired comparisons."""
        first = {row.id: row for row in self.of(judge, "cot", dataset) if usable(row)}
        second = {row.id: row for row in self.of(judge, "guided", dataset) if usable(row)}
        ids = [key for key in first if key in second]
        return answer_arrays([first[key] for key in ids], [second[key] for key in ids])


def align_votes(runs: Sequence[JudgeRuns], truths: Mapping[str, AnswerTruth], resampling: Resampling) -> AlignedVotes:
    """Join all runs with the truth.

    Raises:
        InputError: there is no run, two judges have one name, or a run does not join.
    """
    judges = tuple(judge_runs.judge for judge_runs in runs)
    if not runs or len(set(judges)) < len(judges):
        raise InputError(f"self-reference: judges {judges}: expected one and more, each with a name of its own")
    rows: dict[tuple[str, Method], dict[str, list[JudgedAnswer]]] = {}
    for judge_runs in runs:
        for method in METHODS:
            if judge_runs.of(method) is not None:
                groups = rows.setdefault((judge_runs.judge, method), {})
                for row in judged_answers(judge_runs, method, truths):
                    groups.setdefault(row.dataset, []).append(row)
    return AlignedVotes(
        judges=judges,
        methods=tuple(method for method in METHODS if any(method == judged_with for _, judged_with in rows)),
        datasets=tuple(dict.fromkeys(judge_runs.dataset for judge_runs in truths.values())),
        rows=rows,
        resampling=resampling,
    )


def count_votes(runs: Sequence[JudgeRuns], truths: Mapping[str, AnswerTruth], votes: AlignedVotes) -> dict[str, int]:
    """Numbers of judgments and truths by outcome; each judgment is in one of the first four."""
    counts = {"judgments": 0, "judged": 0, "failed": 0, "without truth": 0}
    for judge_runs in runs:
        for method in votes.methods:
            judgments = judge_runs.of(method) or {}
            rows = votes.of(judge_runs.judge, method)
            counts["judgments"] += len(judgments)
            counts["without truth"] += len(judgments) - len(rows)
            counts["failed"] += sum(row.judged is None for row in rows)
            counts["judged"] += sum(row.judged is not None for row in rows)
            counts["truths without judgment"] = counts.get("truths without judgment", 0) + len(
                truths.keys() - judgments.keys()
            )
    sources = Counter(own_correct(judge_runs, truth)[1] for judge_runs in runs for truth in truths.values())
    counts["own answer known from the truth file"] = sources["truth file"]
    counts["own answer known from self-solves"] = sources["solves"]
    counts["own answer not extractable (counts as wrong)"] = sources["no answer extracted"]
    counts["own answer unknown"] = sources["unknown"]
    return counts


def usable(row: JudgedAnswer) -> bool:
    """True where it was judged and G is known."""
    return row.judged is not None and row.own is not None


def answer_arrays(*ways: Sequence[JudgedAnswer], keep: Callable[[JudgedAnswer], bool] = usable) -> AnswerArrays:
    """Rows side by side; several ways hold the same answers in the same order, and all of them are kept.

    Args:
        ways: rows of each way of judging; of a single way those that `keep` refuses are left out. None in `own` of a
            row that was kept reads as False, so a caller that keeps such rows does not look at `own`.
        keep: which rows take part.
    """
    if len(ways) == 1:
        ways = ([row for row in ways[0] if keep(row)],)
    return AnswerArrays(
        own=np.array([bool(row.own) for row in ways[0]], dtype=np.bool_),
        truth=np.array([row.truth for row in ways[0]], dtype=np.bool_),
        judged=tuple(np.array([bool(row.judged) for row in rows], dtype=np.bool_) for rows in ways),
        questions=tuple(row.question for row in ways[0]),
    )


def judged_arrays(rows: Sequence[JudgedAnswer]) -> AnswerArrays:
    """The rows that were judged, whether G is known or not."""
    return answer_arrays(rows, keep=lambda row: row.judged is not None)


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
