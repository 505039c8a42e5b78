"""Prometheus' test sets: grades of one answer each, against the three scores that GPT-4 gave it."""

from collections.abc import Hashable, Sequence
from itertools import combinations

import numpy as np

from judgelm.data.sources.graded import SCORES_FIELD
from judgelm.data.sources.source import Source, protocol_of
from judgelm.errors import InputError
from judgelm.metrics.correlation import GradeCorrelation, grade_correlation
from judgelm.metrics.resampling import Resampling
from judgelm.records import GradeVerdict
from judgelm.studies.benchmark.joined import JoinedJudgment, protocol_of_intervals
from judgelm.studies.result import Bars, Cell, StudyResult, Table, bars, columns, table
from judgelm.studies.sentences import format_number

_NUMBERS = (
    ("pearson", "Pearson"),
    ("kendall", "Kendall's tau-b"),
    ("spearman", "Spearman"),
    ("kappa", "Kappa"),
    ("weighted_kappa", "Quadratic kappa"),
)


def grades_study(
    benchmark: Source, joined: Sequence[JoinedJudgment], labels: int, resampling: Resampling
) -> StudyResult:
    """Correlations of a judge's grades with GPT-4's, beside those of GPT-4's gradings with each other.

    Args:
        benchmark: its protocol.
        joined: judgments with their rows.
        labels: number of rows.
        resampling: seed and number of resamples.

    Raises:
        InputError: a judgment is no grade, or a row has not GPT-4's scores.
    """
    triples = [_scores(member) for member in joined]
    graded: list[tuple[float, tuple[float, ...], Hashable]] = []
    for member, triple in zip(joined, triples, strict=True):
        verdict = member.judgment.verdict
        if isinstance(verdict, GradeVerdict):
            graded.append((verdict.score, triple, member.cluster))
        elif verdict is not None:
            command = f"judgelm-batch {protocol_of(benchmark).judge_with}"
            raise InputError(f"judgment {member.judgment.sample_id} is no grade of one answer; judge with {command}")
    correlations = {"judge and GPT-4": _with_judge(graded, resampling)}
    correlations |= _with_itself(triples, [member.cluster for member in joined], resampling)
    warnings = [f"{name}: no correlation ({numbers.why})." for name, numbers in correlations.items() if numbers.why]
    missing = labels - len(joined)
    if missing:
        warnings.append(f"{missing:,} of {labels:,} rows have no judgment: this is not the whole benchmark.")
    return StudyResult(
        study="benchmark",
        title=f"{benchmark.name} by its own protocol",
        protocol=f"{protocol_of(benchmark).metric} {protocol_of_intervals(resampling)}",
        findings=tuple(_findings(correlations)),
        counts={"judged": len(joined), "failed": len(joined) - len(graded), "rows_without_judgment": missing},
        tables=(_table(correlations),),
        figures=(_bars(correlations),),
        warnings=tuple(warnings),
    )


def _scores(joined: JoinedJudgment) -> tuple[float, ...]:
    scores = None if joined.sample is None else joined.sample.metadata.get(SCORES_FIELD)
    if not isinstance(scores, list | tuple) or not all(isinstance(score, int | float) for score in scores):
        raise InputError(
            f'row {joined.label.sample_id}: no scores of GPT-4 in "{SCORES_FIELD}"; give the rows as imported'
        )
    return tuple(float(score) for score in scores)


def _with_judge(
    graded: Sequence[tuple[float, tuple[float, ...], Hashable]], resampling: Resampling
) -> GradeCorrelation:
    """The judge's grades with the means, and for kappa with the middle one of three, which is a grade."""
    means = [float(np.mean(scores)) for _, scores, _ in graded]
    middle = [float(np.median(scores)) for _, scores, _ in graded]
    return grade_correlation([grade for grade, *_ in graded], means, middle, [key for *_, key in graded], resampling)


def _with_itself(
    scores: Sequence[tuple[float, ...]], clusters: Sequence[Hashable], resampling: Resampling
) -> dict[str, GradeCorrelation]:
    """Every two of GPT-4's gradings; rows with fewer gradings than others leave the rest out."""
    count = min(map(len, scores))
    return {
        f"GPT-4, gradings {first + 1} and {second + 1}": grade_correlation(
            [triple[first] for triple in scores], [triple[second] for triple in scores], None, clusters, resampling
        )
        for first, second in combinations(range(count), 2)
    }


def _table(correlations: dict[str, GradeCorrelation]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (name, numbers.n, *(getattr(numbers, key) for key, _ in _NUMBERS)) for name, numbers in correlations.items()
    ]
    return table(
        rows,
        columns("text", between="Between"),
        columns("count", answers="Answers"),
        columns("number", _NUMBERS),
        name="correlations",
        title="Grades and GPT-4's scores",
        source="prometheus-eval, eval/utils.py",
        note="Pearson, Kendall and Spearman with the mean of GPT-4's scores; kappas with their median, since a mean is "
        "no grade. Answers without a grade are left out. The other rows: GPT-4's own gradings with each other. Empty: "
        "one side is constant, or, for kappas, a grade is not whole.",
    )


def _bars(correlations: dict[str, GradeCorrelation]) -> Bars:
    return bars(
        {name: [getattr(numbers, key) for key, _ in _NUMBERS] for name, numbers in correlations.items()},
        [heading for _, heading in _NUMBERS],
        name="correlations-figure",
        title="Grades and GPT-4's scores",
        x_label="Statistic",
        y_label="Value",
    )


def _findings(correlations: dict[str, GradeCorrelation]) -> list[str]:
    judge, *others = correlations.values()
    lines = []
    if judge.pearson is not None:
        lines.append(f"Pearson's correlation of the judge with GPT-4 is {format_number(judge.pearson)}.")
    itself = [numbers.pearson.value for numbers in others if numbers.pearson is not None]
    if itself:
        lines.append(f"GPT-4's own gradings correlate by {min(itself):.3f} to {max(itself):.3f}.")
    return lines
