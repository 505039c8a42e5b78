"""Does a judge judge better what it can answer itself, and does its own answer as a reference help?

Source: Self-Reference ("Do Before You Judge"). Files are described in `judgelm.studies.self_reference.truth`.
"""

from collections.abc import Mapping, Sequence

from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.studies.result import StudyResult, Table
from judgelm.studies.self_reference.aligned_votes import METHOD_NAMES, AlignedVotes, align_votes, count_votes
from judgelm.studies.self_reference.correlation import (
    Correlations,
    band_counts,
    correlation_table,
    correlations,
    gain_table,
    gains,
    mean_gain,
)
from judgelm.studies.self_reference.figures import figures
from judgelm.studies.self_reference.selection import crossover_table, selection_table
from judgelm.studies.self_reference.tables import (
    CHANGE,
    change_table,
    four_way_table,
    overconfidence_table,
    quality_table,
    split_table,
)
from judgelm.studies.self_reference.truth import AnswerTruth, JudgeRuns

Gains = Mapping[tuple[str, str], Estimate | None]


def self_reference_study(
    runs: Sequence[JudgeRuns], truths: Mapping[str, AnswerTruth], resampling: Resampling
) -> StudyResult:
    """All tables and figures of the paper for these judges.

    Args:
        runs: one entry for each judge, with CoT, self-reference or both.
        truths: by sample id.
        resampling: seed and number of resamples of every interval.

    Raises:
        InputError: a run joins with no truth, or its verdicts are not `correct` and `incorrect`.
    """
    votes = align_votes(runs, truths, resampling)
    correlated, gained = correlations(votes), gains(votes)
    counts = count_votes(runs, truths, votes)
    tables = _tables(votes, correlated, gained)
    return StudyResult(
        study="self-reference",
        title="Answering and judging: self-reference",
        protocol=_protocol(votes),
        findings=_findings(votes, correlated, gained, tables),
        counts=counts,
        tables=tables,
        figures=figures(votes, correlated),
        warnings=_warnings(votes, counts),
    )


def _tables(votes: AlignedVotes, correlated: Correlations, gained: Gains) -> tuple[Table, ...]:
    tables = [quality_table(votes), split_table(votes), four_way_table(votes)]
    tables += [overconfidence_table(votes, method) for method in votes.methods]
    tables.append(correlation_table(correlated))
    if gained:
        tables += [gain_table(correlated, gained), change_table(votes), crossover_table(votes)]
    if len(votes.judges) > 1:
        tables.append(selection_table(votes))
    return tuple(tables)


def _protocol(votes: AlignedVotes) -> str:
    methods = " and ".join(METHOD_NAMES[method] for method in votes.methods)
    return (
        f"Judges were asked pointwise whether an agent's answer is correct ({methods}); the agents are pooled, failed "
        f"judgments are left out and counted, intervals are 95 % from {votes.resampling.resamples} resamples of "
        "questions."
    )


def _findings(
    votes: AlignedVotes, correlated: Correlations, gained: Gains, tables: tuple[Table, ...]
) -> tuple[str, ...]:
    sentences = []
    for method in votes.methods:
        bands = band_counts(correlated, method)
        sentences.append(
            f"{METHOD_NAMES[method]}: the partial correlation of answering and judging is weak in {bands.weak}, "
            f"moderate in {bands.moderate} and strong in {bands.strong} of {bands.cases} cases, undefined in "
            f"{bands.undefined}."
        )
    if mean := mean_gain(gained):
        sentences.append(
            f"Self-reference raises the partial correlation by {mean[0]:.3f} on average, over n = {mean[1]} cases "
            "(a plain mean of cases)."
        )
    for change in (table for table in tables if table.name == CHANGE):
        sentences += [
            sentence
            for key, part in (("f1_right", "answers right (D_J+)"), ("f1_wrong", "answers wrong (D_J-)"))
            if (sentence := _change_sentence(change, key, part))
        ]
    return tuple(sentences)


def _change_sentence(change: Table, key: str, part: str) -> str:
    """In how many cases F1 rises and falls on one part."""
    values = [cell for cell in change.column(key) if isinstance(cell, Estimate)]
    if not values:
        return ""
    rises, falls = sum(estimate.value > 0 for estimate in values), sum(estimate.value < 0 for estimate in values)
    sure = sum(estimate.low > 0 or estimate.high < 0 for estimate in values)
    return (
        f"Where the judge {part}, self-reference raises F1 in {rises} and lowers it in {falls} of {len(values)} cases "
        f"({sure} with an interval that leaves out 0)."
    )


def _warnings(votes: AlignedVotes, counts: Mapping[str, int]) -> tuple[str, ...]:
    warnings = []
    if counts["own answer unknown"]:
        warnings.append(
            f"Of {counts['own answer unknown']} answers it is not known whether the judge's own answer is right; "
            "D_J+, D_J- and correlations leave them out. Give judge_correct in the truth file, or answer and runs that "
            "hold solves."
        )
    if counts["failed"]:
        warnings.append(f"{counts['failed']} of {counts['judgments']} judgments failed and are in no share.")
    if len(votes.judges) < 2:
        warnings.append("One judge: there is no choice among judges to look at.")
    return tuple(warnings)
