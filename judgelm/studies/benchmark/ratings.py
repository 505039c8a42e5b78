"""JUDGE-BENCH: a judge's grades against people's ratings of the same texts, property by property."""

from collections.abc import Mapping, Sequence

import numpy as np

from judgelm.data.sources.source import Source, protocol_of
from judgelm.errors import InputError
from judgelm.metrics.correlation import GradeCorrelation, grade_correlation
from judgelm.metrics.resampling import Resampling
from judgelm.records import GradeVerdict
from judgelm.studies.benchmark.joined import JoinedJudgment, protocol_of_intervals
from judgelm.studies.result import Bars, Row, StudyResult, Table, bars, columns, table


def ratings_study(
    benchmark: Source, joined: Sequence[JoinedJudgment], labels: int, resampling: Resampling
) -> StudyResult:
    """Correlations for each property, and Spearman's as the mean over the properties of each data set.

    Args:
        benchmark: its protocol.
        joined: judgments with their rows.
        labels: number of rows.
        resampling: seed and number of resamples.

    Raises:
        InputError: a judgment is no grade, or a row has no rating.
    """
    by_property: dict[str, list[JoinedJudgment]] = {}
    for member in joined:
        by_property.setdefault(member.subset, []).append(member)
    correlations = {name: _correlation(members, resampling) for name, members in by_property.items()}
    means = _means(correlations)
    failed = sum(member.judgment.failure is not None for member in joined)
    missing = labels - len(joined)
    warnings = [f"{name}: no correlation ({numbers.why})." for name, numbers in correlations.items() if numbers.why]
    if missing:
        warnings.append(f"{missing:,} of {labels:,} rows have no judgment: this is not the whole of these data sets.")
    return StudyResult(
        study="benchmark",
        title=f"{benchmark.name} by its own protocol",
        protocol=f"{protocol_of(benchmark).metric} {protocol_of_intervals(resampling)}",
        findings=tuple(
            f"{name}: Spearman's correlation {mean:.2f} over {count} properties." for name, mean, count in means
        ),
        counts={"judged": len(joined), "failed": failed, "rows_without_judgment": missing},
        tables=(_means_table(means), _table(correlations)),
        figures=(_bars(correlations),),
        warnings=tuple(warnings),
    )


def _correlation(members: Sequence[JoinedJudgment], resampling: Resampling) -> GradeCorrelation:
    graded = []
    for member in members:
        verdict, scores = member.judgment.verdict, member.label.scores
        if scores is None or len(scores) != 1:
            raise InputError(f"row {member.label.sample_id}: no rating by people; give the rows as imported")
        if isinstance(verdict, GradeVerdict):
            graded.append(
                (verdict.score, scores[0], member.cluster if member.sample is None else member.sample.answers)
            )
        elif verdict is not None:
            raise InputError(
                f"judgment {member.judgment.sample_id} is no grade of one text; judge with judgelm-batch --mode single"
            )
    grades, ratings, clusters = zip(*graded, strict=True) if graded else ((), (), ())
    return grade_correlation(grades, ratings, None, clusters, resampling)


def _means(correlations: Mapping[str, GradeCorrelation]) -> list[tuple[str, float, int]]:
    """Data set, mean of Spearman's correlations, and the number of properties that have one."""
    by_data_set: dict[str, list[float]] = {}
    for name, numbers in correlations.items():
        values = by_data_set.setdefault(name.partition(":")[0], [])
        if numbers.spearman is not None:
            values.append(numbers.spearman.value)
    return [(name, float(np.mean(values)), len(values)) for name, values in by_data_set.items() if values]


def _means_table(means: Sequence[tuple[str, float, int]]) -> Table:
    return table(
        means,
        columns("text", data_set="Data set"),
        columns("number", spearman="Spearman, mean over properties"),
        columns("count", properties="Properties"),
        name="data-sets",
        title="Data sets",
        source="JUDGE-BENCH, results/utils/generate_tables.py",
        note="A mean over properties of the same texts has no interval here; those of the properties are below.",
    )


def _table(correlations: Mapping[str, GradeCorrelation]) -> Table:
    rows: list[Row] = [
        (name, numbers.n, numbers.spearman, numbers.pearson, numbers.kendall) for name, numbers in correlations.items()
    ]
    return table(
        rows,
        columns("text", property="Property"),
        columns("count", texts="Texts"),
        columns("number", spearman="Spearman", pearson="Pearson", kendall="Kendall's tau-b"),
        name="properties",
        title="Grades and people's mean ratings",
        note="Texts without a grade are left out. Empty: one side is constant.",
    )


def _bars(correlations: Mapping[str, GradeCorrelation]) -> Bars:
    return bars(
        {"Spearman": [numbers.spearman for numbers in correlations.values()]},
        correlations,
        name="by-property",
        title="Correlation with people's ratings",
        x_label="Property",
        y_label="Spearman's correlation",
    )
