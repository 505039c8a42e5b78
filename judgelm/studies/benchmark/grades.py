"""Prometheus' test sets: grades of one answer each, against the three scores that GPT-4 gave it."""

from collections.abc import Hashable, Sequence
from itertools import combinations

import numpy as np

from judgelm.data.benchmarks.base import Benchmark
from judgelm.data.benchmarks.prometheus import PROMETHEUS, SCORES_FIELD
from judgelm.errors import InputError
from judgelm.metrics.grade_correlation import GradeCorrelation, grade_correlation
from judgelm.metrics.resampling import Resampling
from judgelm.records import GradeVerdict
from judgelm.studies.benchmark.joined import JoinedJudgment
from judgelm.studies.result import Bars, Cell, Column, Group, StudyResult, Table
from judgelm.studies.sentences import said_number

GRADED = PROMETHEUS.name
_NUMBERS = (
    ("pearson", "Pearson"),
    ("kendall", "Kendall's tau-b"),
    ("spearman", "Spearman"),
    ("kappa", "Kappa"),
    ("weighted_kappa", "Quadratic kappa"),
)


def grades_study(benchmark: Benchmark, joined: Sequence[JoinedJudgment], labels: int, how: Resampling) -> StudyResult:
    """Correlations of a judge's grades with GPT-4's, beside those of GPT-4's gradings with each other.

    Args:
        benchmark: its protocol.
        joined: judgments with their rows.
        labels: how many rows there are.
        how: seed and number of resamples.

    Raises:
        InputError: a judgment is no grade, or a row has not GPT-4's scores.
    """
    triples = [_scores(one) for one in joined]
    graded = [
        (one.judgment.verdict.score, triple, one.cluster)
        for one, triple in zip(joined, triples, strict=True)
        if isinstance(one.judgment.verdict, GradeVerdict)
    ]
    if wrong := next((one for one in joined if not isinstance(one.judgment.verdict, GradeVerdict | None)), None):
        judge_with = f"judgelm-batch {benchmark.judge_with}"
        raise InputError(f"judgment {wrong.judgment.sample_id} is no grade of one answer; judge with {judge_with}")
    found = {"judge and GPT-4": _with_judge(graded, how)}
    found |= _with_itself(triples, [one.cluster for one in joined], how)
    warnings = [f"{name}: no correlation ({one.why})." for name, one in found.items() if one.why]
    missing = labels - len(joined)
    if missing:
        warnings.append(f"{missing:,} of {labels:,} rows have no judgment: this is not the whole benchmark.")
    return StudyResult(
        study="benchmark",
        title=f"{benchmark.name} by its own protocol",
        protocol=f"{benchmark.protocol} Intervals: 95 %, {how.resamples} resamples of questions (seed {how.seed}).",
        findings=tuple(_findings(found)),
        counts={"judged": len(joined), "failed": len(joined) - len(graded), "rows_without_judgment": missing},
        tables=(_table(found),),
        figures=(_bars(found),),
        warnings=tuple(warnings),
    )


def _scores(joined: JoinedJudgment) -> tuple[float, ...]:
    scores = None if joined.sample is None else joined.sample.metadata.get(SCORES_FIELD)
    if (
        not isinstance(scores, list | tuple)
        or len(scores) < 2
        or not all(isinstance(one, int | float) for one in scores)
    ):
        raise InputError(
            f'row {joined.label.sample_id}: no scores of GPT-4 in "{SCORES_FIELD}"; give the rows as imported'
        )
    return tuple(float(score) for score in scores)


def _with_judge(graded: Sequence[tuple[float, tuple[float, ...], Hashable]], how: Resampling) -> GradeCorrelation:
    """The judge's grades with the means, and for kappa with the middle one of three, which is a grade."""
    means = [float(np.mean(scores)) for _, scores, _ in graded]
    middle = [float(np.median(scores)) for _, scores, _ in graded]
    return grade_correlation([grade for grade, *_ in graded], means, middle, [key for *_, key in graded], how)


def _with_itself(
    scores: Sequence[tuple[float, ...]], clusters: Sequence[Hashable], how: Resampling
) -> dict[str, GradeCorrelation]:
    """Every two of GPT-4's gradings; rows with fewer gradings than others leave the rest out."""
    count = min(len(one) for one in scores)
    return {
        f"GPT-4, gradings {first + 1} and {second + 1}": grade_correlation(
            [one[first] for one in scores], [one[second] for one in scores], None, clusters, how
        )
        for first, second in combinations(range(count), 2)
    }


def _table(found: dict[str, GradeCorrelation]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (name, one.n, *(getattr(one, key) for key, _ in _NUMBERS)) for name, one in found.items()
    ]
    return Table(
        name="correlations",
        title="Grades and GPT-4's scores",
        columns=(
            Column(key="between", heading="Between"),
            Column(key="answers", heading="Answers", kind="count"),
            *(Column(key=key, heading=heading, kind="number") for key, heading in _NUMBERS),
        ),
        rows=tuple(rows),
        source="prometheus-eval, eval/utils.py",
        note="Pearson, Kendall and Spearman with the mean of GPT-4's scores; kappas with their median, since a mean is "
        "no grade. Answers without a grade are left out. The other rows: GPT-4's own gradings with each other. Empty: "
        "one side is constant, or, for kappas, a grade is not whole.",
    )


def _bars(found: dict[str, GradeCorrelation]) -> Bars:
    return Bars(
        name="correlations-figure",
        title="Grades and GPT-4's scores",
        x_label="Statistic",
        y_label="Value",
        categories=tuple(heading for _, heading in _NUMBERS),
        groups=tuple(
            Group(name=name, values=tuple(getattr(one, key) for key, _ in _NUMBERS)) for name, one in found.items()
        ),
    )


def _findings(found: dict[str, GradeCorrelation]) -> list[str]:
    judge, *others = found.values()
    lines = []
    if judge.pearson is not None:
        lines.append(f"Pearson's correlation of the judge with GPT-4 is {said_number(judge.pearson)}.")
    itself = [one.pearson.value for one in others if one.pearson is not None]
    if itself:
        lines.append(f"GPT-4's own gradings correlate by {min(itself):.3f} to {max(itself):.3f}.")
    return lines
