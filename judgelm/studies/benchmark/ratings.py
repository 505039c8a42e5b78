"""Single-answer benchmarks: Prometheus (compared with GPT-4's grades) and EVOUNA (compared with human verdicts)."""

import re
import string
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from judgelm.data.sources.prometheus import SCORES_FIELD
from judgelm.data.sources.source import Source, protocol_of
from judgelm.errors import InputError
from judgelm.metrics.correctness import CorrectnessScores, quality
from judgelm.metrics.correlation import grade_correlation
from judgelm.metrics.resampling import Resampling
from judgelm.records import GradeVerdict, LabelVerdict
from judgelm.studies.benchmark.scoring_rules import LAYOUTS, JoinedJudgment, Report, by_subset
from judgelm.studies.sentences import format_number, format_share

_NUMBERS = ("pearson", "kendall", "spearman", "kappa", "weighted_kappa")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _grade(joined: JoinedJudgment, wanted: str) -> float | None:
    verdict = joined.judgment.verdict
    if verdict is None or isinstance(verdict, GradeVerdict):
        return None if verdict is None else verdict.score
    raise InputError(f"judgment {joined.judgment.sample_id}: expected a grade for one {wanted}")


def grades_report(benchmark: Source, joined: Sequence[JoinedJudgment], resampling: Resampling) -> Report:
    """Correlate the judge's grades with GPT-4's, and repeated GPT-4 grades with each other (Prometheus)."""
    gradings = [_gpt4_scores(member) for member in joined]
    clusters = [member.cluster for member in joined]
    wanted = f"answer; judge with judgelm-batch {protocol_of(benchmark).judge_with}"
    grades = [_grade(member, wanted) for member in joined]
    graded = [index for index, grade in enumerate(grades) if grade is not None]
    correlations = {
        "judge and GPT-4": grade_correlation(
            [grade for grade in grades if grade is not None],
            [float(np.mean(gradings[index])) for index in graded],
            [float(np.median(gradings[index])) for index in graded],  # because kappa requires whole grades
            [clusters[index] for index in graded],
            resampling,
        )
    }
    for first, second in combinations(range(min(map(len, gradings))), 2):
        sides = ([scores[first] for scores in gradings], [scores[second] for scores in gradings])
        name = f"GPT-4, grades {first + 1} and {second + 1}"
        correlations[name] = grade_correlation(*sides, None, clusters, resampling)
    values = {name: [getattr(numbers, key) for key in _NUMBERS] for name, numbers in correlations.items()}
    rows = [(name, correlations[name].n, *numbers) for name, numbers in values.items()]
    grade_table = LAYOUTS.table("correlations", rows)
    judge, *others = (numbers.pearson for numbers in correlations.values())
    findings = []
    if judge is not None:
        findings.append(f"Pearson's correlation of the judge with GPT-4 is {format_number(judge)}.")
    if itself := [pearson.value for pearson in others if pearson is not None]:
        findings.append(f"The correlation between repeated GPT-4 grades is {min(itself):.3f} to {max(itself):.3f}.")
    undefined = [f"{name}: no correlation ({numbers.why})." for name, numbers in correlations.items() if numbers.why]
    return Report(findings, [grade_table], warnings=undefined)


def _gpt4_scores(joined: JoinedJudgment) -> tuple[float, ...]:
    scores = None if joined.sample is None else joined.sample.metadata.get(SCORES_FIELD)
    if not isinstance(scores, list | tuple) or not all(isinstance(score, int | float) for score in scores):
        raise InputError(f'row {joined.label.sample_id}: no GPT-4 scores in "{SCORES_FIELD}"; pass the imported rows')
    return tuple(float(score) for score in scores)


class _Group(NamedTuple):
    name: str
    n: int
    judged: CorrectnessScores
    lexical: CorrectnessScores | None


def open_qa_report(benchmark: Source, joined: Sequence[JoinedJudgment], resampling: Resampling) -> Report:
    """Compute accuracy and F1 by data set and model, and overall (EVOUNA); failed judgments count as wrong."""
    everything, *groups = (
        _group(name, members, resampling) for name, members in ({"all": joined} | by_subset(joined)).items()
    )
    rows = [
        (name, n, judged.accuracy, judged.f1, lexical and lexical.accuracy, lexical and lexical.f1)
        for name, n, judged, lexical in (everything, *groups)
    ]
    shares = {
        f"Accuracy over {everything.n:,} answers": everything.judged.accuracy,
        "F1 of the class correct": everything.judged.f1,
        "Accuracy of lexical match": everything.lexical.accuracy if everything.lexical else None,
    }
    findings = [f"{name}: {format_share(share)}." for name, share in shares.items() if share is not None]
    return Report(findings, [LAYOUTS.table("answers", rows)])


def _group(name: str, members: Sequence[JoinedJudgment], resampling: Resampling) -> _Group:
    truth = np.array([_truth(member) for member in members])
    clusters = [member.cluster for member in members]
    judged = quality(truth, np.array([_verdict(member) for member in members]), clusters, resampling)
    lexical = None
    if all(member.sample is not None for member in members):
        lexical = quality(truth, np.array([_lexical_match(member) for member in members]), clusters, resampling)
    return _Group(name, len(members), judged, lexical)


def _truth(joined: JoinedJudgment) -> bool:
    if joined.label.scores not in ((0.0,), (1.0,)):
        raise InputError(f"row {joined.label.sample_id}: no human verdict; pass the imported rows")
    return joined.label.scores == (1.0,)


def _verdict(joined: JoinedJudgment) -> bool:
    verdict = joined.judgment.verdict
    if verdict is None:
        return not _truth(joined)
    if not isinstance(verdict, LabelVerdict):
        raise InputError(
            f"judgment {joined.judgment.sample_id}: expected a verdict on an answer; judge with judgelm-batch --mode "
            "qa --mode-arg judge_all=true"
        )
    return verdict.label == "correct"


def _lexical_match(joined: JoinedJudgment) -> bool:
    sample = joined.sample
    assert sample is not None, "checked by the caller"
    golds = sample.metadata.get("references")
    texts = golds if isinstance(golds, list | tuple) else [sample.reference or ""]
    answer = _normalised(sample.answers[0])
    return any(_normalised(str(gold)) in answer for gold in texts)


def _normalised(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())
