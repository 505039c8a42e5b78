"""JUDGE-BENCH: a judge's grades against people's ratings of the same texts, property by property."""

import re
import string
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from judgelm.data.sources.graded import SCORES_FIELD
from judgelm.data.sources.source import Source, protocol_of
from judgelm.errors import InputError
from judgelm.metrics.correctness import Quality, quality
from judgelm.metrics.grade_correlation import GradeCorrelation, grade_correlation
from judgelm.metrics.resampling import Resampling
from judgelm.records import GradeVerdict, LabelVerdict
from judgelm.studies.benchmark.scoring_rules import JoinedJudgment, protocol_of_intervals
from judgelm.studies.result import (
    Bars,
    Cell,
    Row,
    StudyResult,
    Table,
    bars,
    columns,
    format_number,
    format_share,
    table,
)


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
        tables=(_means_table(means), _rating_table(correlations)),
        figures=(_rating_bars(correlations),),
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


def _rating_table(correlations: Mapping[str, GradeCorrelation]) -> Table:
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


def _rating_bars(correlations: Mapping[str, GradeCorrelation]) -> Bars:
    return bars(
        {"Spearman": [numbers.spearman for numbers in correlations.values()]},
        correlations,
        name="by-property",
        title="Correlation with people's ratings",
        x_label="Property",
        y_label="Spearman's correlation",
    )


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
        findings=tuple(_grade_findings(correlations)),
        counts={"judged": len(joined), "failed": len(joined) - len(graded), "rows_without_judgment": missing},
        tables=(_grade_table(correlations),),
        figures=(_grade_bars(correlations),),
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


def _grade_table(correlations: dict[str, GradeCorrelation]) -> Table:
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


def _grade_bars(correlations: dict[str, GradeCorrelation]) -> Bars:
    return bars(
        {name: [getattr(numbers, key) for key, _ in _NUMBERS] for name, numbers in correlations.items()},
        [heading for _, heading in _NUMBERS],
        name="correlations-figure",
        title="Grades and GPT-4's scores",
        x_label="Statistic",
        y_label="Value",
    )


def _grade_findings(correlations: dict[str, GradeCorrelation]) -> list[str]:
    judge, *others = correlations.values()
    lines = []
    if judge.pearson is not None:
        lines.append(f"Pearson's correlation of the judge with GPT-4 is {format_number(judge.pearson)}.")
    itself = [numbers.pearson.value for numbers in others if numbers.pearson is not None]
    if itself:
        lines.append(f"GPT-4's own gradings correlate by {min(itself):.3f} to {max(itself):.3f}.")
    return lines


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def open_qa_study(
    benchmark: Source, joined: Sequence[JoinedJudgment], labels: int, resampling: Resampling
) -> StudyResult:
    """Accuracy and F1 for each data set and model, and over all answers.

    Args:
        benchmark: its protocol.
        joined: judgments with their rows.
        labels: number of rows.
        resampling: seed and number of resamples.

    Raises:
        InputError: a judgment is no verdict on an answer, or a row has not the label of a person.
    """
    by_subset = {"all": list(joined)}
    for member in joined:
        by_subset.setdefault(member.subset, []).append(member)
    groups = [
        _Group(name, len(members), _quality(members, resampling), _lexical_quality(members, resampling))
        for name, members in by_subset.items()
    ]
    missing = labels - len(joined)
    failed = sum(member.judgment.failure is not None for member in joined)
    return StudyResult(
        study="benchmark",
        title=f"{benchmark.name} by its own protocol",
        protocol=f"{protocol_of(benchmark).metric} {protocol_of_intervals(resampling)}",
        findings=tuple(_answer_findings(groups[0])),
        counts={"judged": len(joined), "failed": failed, "rows_without_judgment": missing},
        tables=(_answer_table(groups),),
        figures=(_answer_bars(groups[1:]),),
        warnings=(f"{missing:,} of {labels:,} rows have no judgment: this is not the whole benchmark.",)
        * (missing > 0),
    )


class _Group(NamedTuple):
    """The answers of one model to one data set, or all; `lexical` is None for labels without texts."""

    name: str
    n: int
    judged: Quality
    lexical: Quality | None


def _answer_table(groups: Sequence[_Group]) -> Table:
    rows: list[Row] = []
    for name, n, judged, lexical in groups:
        matched = (None, None) if lexical is None else (lexical.accuracy, lexical.f1)
        rows.append((name, n, judged.accuracy, judged.f1, *matched))
    return table(
        rows,
        columns("text", answers="Data set and model"),
        columns("count", n="Answers"),
        columns("share", accuracy="Accuracy", f1="F1"),
        columns("share", lexical_accuracy="Accuracy, lexical match", lexical_f1="F1, lexical match"),
        name="answers",
        title="Verdicts against people's",
        source="QA-Eval, lexical_match.py",
        note="F1 has correct as the class to be found. Empty: no answer is correct, or the rows have no texts.",
    )


def _answer_bars(groups: Sequence[_Group]) -> Bars:
    return bars(
        {"accuracy": [group.judged.accuracy for group in groups]},
        [group.name for group in groups],
        name="by-model",
        title="Accuracy of the verdicts",
        x_label="Data set and model",
        y_label="Accuracy",
    )


def _truth(joined: JoinedJudgment) -> bool:
    scores = joined.label.scores
    if scores is None or len(scores) != 1 or scores[0] not in (0.0, 1.0):
        raise InputError(f"row {joined.label.sample_id}: no verdict of a person; give the rows as imported")
    return scores[0] == 1.0


def _verdict(joined: JoinedJudgment) -> bool:
    """The verdict; a failure is the wrong one."""
    verdict = joined.judgment.verdict
    if verdict is None:
        return not _truth(joined)
    if not isinstance(verdict, LabelVerdict):
        raise InputError(
            f"judgment {joined.judgment.sample_id} is no verdict on an answer; judge with judgelm-batch "
            f"--mode qa --mode-arg judge_all=true"
        )
    return verdict.label == "correct"


def _quality(members: Sequence[JoinedJudgment], resampling: Resampling) -> Quality:
    truth, judged = (np.array([flag(member) for member in members]) for flag in (_truth, _verdict))
    return quality(truth, judged, [member.cluster for member in members], resampling)


def _lexical_quality(members: Sequence[JoinedJudgment], resampling: Resampling) -> Quality | None:
    if any(member.sample is None for member in members):
        return None
    truth, matched = (np.array([flag(member) for member in members]) for flag in (_truth, _lexical_match))
    return quality(truth, matched, [member.cluster for member in members], resampling)


def _lexical_match(joined: JoinedJudgment) -> bool:
    """True if a gold answer occurs in the answer, both normalised."""
    sample = joined.sample
    assert sample is not None, "the caller looks"
    golds = sample.metadata.get("references")
    texts = golds if isinstance(golds, list | tuple) else [sample.reference or ""]
    answer = _normalised(sample.answers[0])
    return any(_normalised(str(gold)) in answer for gold in texts)


def _normalised(text: str) -> str:
    """Lower case without punctuation, articles and further blanks, as in the authors' code."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _answer_findings(group: _Group) -> list[str]:
    lines = []
    if group.judged.accuracy is not None:
        lines.append(f"Accuracy over {group.n:,} answers: {format_share(group.judged.accuracy)}.")
    if group.judged.f1 is not None:
        lines.append(f"F1 of correct: {format_share(group.judged.f1)}.")
    if group.lexical is not None and group.lexical.accuracy is not None:
        lines.append(f"Accuracy of lexical match: {format_share(group.lexical.accuracy)}.")
    return lines
