"""The judged answers of all judges, methods and data sets, as arrays for the statistics."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from judgelm.errors import InputError
from judgelm.metrics.resampling import Resampling
from judgelm.studies.self_reference.truth import (
    METHODS,
    AnswerTruth,
    JudgedAnswer,
    JudgeRuns,
    Method,
    judged_answers,
    own_correct,
)

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
