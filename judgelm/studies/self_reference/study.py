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


def self_reference_study(runs: Sequence[JudgeRuns], truths: Mapping[str, AnswerTruth], how: Resampling) -> StudyResult:
    """All tables and figures of the paper for these judges.

    Args:
        runs: one entry for each judge, with CoT, self-reference or both.
        truths: by sample id.
        how: seed and number of resamples of every interval.

    Raises:
        InputError: a run joins with no truth, or its verdicts are not `correct` and `incorrect`.
    """
    board = align_votes(runs, truths, how)
    found, gained = correlations(board), gains(board)
    counts = count_votes(runs, truths, board)
    tables = _tables(board, found, gained)
    return StudyResult(
        study="self-reference",
        title="Answering and judging: self-reference",
        protocol=_protocol(board),
        findings=_findings(board, found, gained, tables),
        counts=counts,
        tables=tables,
        figures=figures(board, found),
        warnings=_warnings(board, counts),
    )


def _tables(board: AlignedVotes, found: Correlations, gained: Gains) -> tuple[Table, ...]:
    tables = [quality_table(board), split_table(board), four_way_table(board)]
    tables += [overconfidence_table(board, method) for method in board.methods]
    tables.append(correlation_table(found))
    if gained:
        tables += [gain_table(found, gained), change_table(board), crossover_table(board)]
    if len(board.judges) > 1:
        tables.append(selection_table(board))
    return tuple(tables)


def _protocol(board: AlignedVotes) -> str:
    methods = " and ".join(METHOD_NAMES[method] for method in board.methods)
    return (
        f"Judges were asked pointwise whether an agent's answer is correct ({methods}); the agents are pooled, failed "
        f"judgments are left out and counted, intervals are 95 % from {board.how.resamples} resamples of questions."
    )


def _findings(board: AlignedVotes, found: Correlations, gained: Gains, tables: tuple[Table, ...]) -> tuple[str, ...]:
    sentences = []
    for method in board.methods:
        bands = band_counts(found, method)
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
    place = [column.key for column in change.columns].index(key)
    cells = [row[place] for row in change.rows]
    values = [cell for cell in cells if isinstance(cell, Estimate)]
    if not values:
        return ""
    rises, falls = sum(one.value > 0 for one in values), sum(one.value < 0 for one in values)
    sure = sum(one.low > 0 or one.high < 0 for one in values)
    return (
        f"Where the judge {part}, self-reference raises F1 in {rises} and lowers it in {falls} of {len(values)} cases "
        f"({sure} with an interval that leaves out 0)."
    )


def _warnings(board: AlignedVotes, counts: Mapping[str, int]) -> tuple[str, ...]:
    found = []
    if counts["own answer unknown"]:
        found.append(
            f"Of {counts['own answer unknown']} answers it is not known whether the judge's own answer is right; "
            "D_J+, D_J- and correlations leave them out. Give judge_correct in the truth file, or answer and runs that "
            "hold solves."
        )
    if counts["failed"]:
        found.append(f"{counts['failed']} of {counts['judgments']} judgments failed and are in no share.")
    if len(board.judges) < 2:
        found.append("One judge: there is no choice among judges to look at.")
    return tuple(found)
