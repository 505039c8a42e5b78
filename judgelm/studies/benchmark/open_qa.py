"""EVOUNA: verdicts on answers to open questions against people's, beside lexical match."""

import re
import string
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from judgelm.data.sources.source import Source, protocol_of
from judgelm.errors import InputError
from judgelm.metrics.correctness import CorrectnessScores, quality
from judgelm.metrics.resampling import Resampling
from judgelm.records import LabelVerdict
from judgelm.studies.benchmark.joined import JoinedJudgment, protocol_of_intervals
from judgelm.studies.result import Bars, Row, StudyResult, Table, bars, columns, table
from judgelm.studies.sentences import format_share

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
        findings=tuple(_findings(groups[0])),
        counts={"judged": len(joined), "failed": failed, "rows_without_judgment": missing},
        tables=(_table(groups),),
        figures=(_bars(groups[1:]),),
        warnings=(f"{missing:,} of {labels:,} rows have no judgment: this is not the whole benchmark.",)
        * (missing > 0),
    )


class _Group(NamedTuple):
    """The answers of one model to one data set, or all; `lexical` is None for labels without texts."""

    name: str
    n: int
    judged: CorrectnessScores
    lexical: CorrectnessScores | None


def _table(groups: Sequence[_Group]) -> Table:
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


def _bars(groups: Sequence[_Group]) -> Bars:
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


def _quality(members: Sequence[JoinedJudgment], resampling: Resampling) -> CorrectnessScores:
    truth, judged = (np.array([flag(member) for member in members]) for flag in (_truth, _verdict))
    return quality(truth, judged, [member.cluster for member in members], resampling)


def _lexical_quality(members: Sequence[JoinedJudgment], resampling: Resampling) -> CorrectnessScores | None:
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


def _findings(group: _Group) -> list[str]:
    lines = []
    if group.judged.accuracy is not None:
        lines.append(f"Accuracy over {group.n:,} answers: {format_share(group.judged.accuracy)}.")
    if group.judged.f1 is not None:
        lines.append(f"F1 of correct: {format_share(group.judged.f1)}.")
    if group.lexical is not None and group.lexical.accuracy is not None:
        lines.append(f"Accuracy of lexical match: {format_share(group.lexical.accuracy)}.")
    return lines
