"""Judges on the same labelled pairs, side by side and pair by pair.

Two judges of 71 % and 69 % may differ on a tenth of the pairs or on half of them. What tells them apart is counted over
the pairs that both judged, resampled together, so that what is hard for both does not widen the interval of the
difference.
"""

from collections.abc import Mapping, Sequence

from judgelm.data.labelled_set import LabelledSet
from judgelm.records import Judgment
from judgelm.studies.compare_judges import tables
from judgelm.studies.compare_judges.comparison import (
    AlignedVotes,
    CompareOptions,
    JudgeResult,
    PairedComparison,
    align_votes,
    judge_results,
    paired_comparisons,
)
from judgelm.studies.result import StudyResult
from judgelm.studies.sentences import format_number, format_points, format_share

FEW_PAIRS = 100
_MOST_SENTENCES = 6


def compare_judges(
    judges: Mapping[str, Mapping[str, Judgment]], labels: LabelledSet, options: CompareOptions | None = None
) -> StudyResult:
    """Agreement of each judge, and for every two of them: paired difference, kappa, flips, McNemar's test.

    Args:
        judges: name of each -> its judgments by sample id.
        labels: of the same pairs; pairs of one question are resampled together.
        options: the defaults when None.

    Raises:
        InputError: fewer than two judges, a judge of none of the labelled pairs, no pair of all judges, or an order
            rule that cannot be applied.
    """
    options = options or CompareOptions()
    how = options.resampling
    board = align_votes(judges, labels, options)
    ranked = judge_results(board, options)
    names = [one.name for one in ranked]
    found = paired_comparisons(board, names, how)
    return StudyResult(
        study="compare-judges",
        title=f"{' and '.join(names) if len(names) == 2 else f'{len(names)} judges'} on the same pairs",
        protocol=_protocol(options),
        findings=tuple(_findings(board, ranked, found)),
        counts=_counts(board, labels, ranked),
        tables=(
            tables.judge_table(ranked, options.order_rule),
            tables.difference_table(found),
            tables.verdict_table(found),
            *tables.group_tables(board, names, labels.groups, how),
            tables.flip_table(board, names, labels.samples),
        ),
        figures=tuple(tables.figures(board, ranked, found, labels.groups, how)),
        warnings=tuple(_warnings(judges, board, ranked)),
    )


def _protocol(options: CompareOptions) -> str:
    failures = "left out of what they concern" if options.failures == "excluded" else "counted as ties"
    rule = "as each run decided" if options.order_rule == "as_judged" else f"by rule {options.order_rule}"
    return (
        f"Winners named by the judges against those of the labels, joined by sample id; two orders make one label "
        f"{rule}; failures are {failures}; intervals are 95 % from {options.resampling.resamples} resamples of "
        f"questions (seed {options.resampling.seed})."
    )


def _counts(board: AlignedVotes, labels: LabelledSet, ranked: Sequence[JudgeResult]) -> dict[str, int]:
    counts = {"labels": len(labels.labels), "judges": len(ranked), "common_pairs": len(board.common)}
    for one in ranked:
        counts |= {f"judged by {one.name}": one.judged, f"failed by {one.name}": one.failed}
        if one.read_anywhere:
            counts |= {f"read only by --parser anywhere of {one.name}": one.read_anywhere}
    return counts


def _findings(board: AlignedVotes, ranked: Sequence[JudgeResult], found: Sequence[PairedComparison]) -> list[str]:
    lines = [
        f"Over the {len(board.common):,} pairs that every judge says something of, agreement with the labels is "
        + "; ".join(f"{one.name} {format_share(one.common)}" for one in ranked[:_MOST_SENTENCES])
        + "."
    ]
    dependent = len(set(board.members(board.common))) < len(board.common)
    taken = ", pairs of one question taken for independent" if dependent else ""
    for one in found[:_MOST_SENTENCES]:
        low, high = one.difference.low, one.difference.high
        verdict = "is ahead of" if low > 0 else "is behind" if high < 0 else "is not told apart from"
        apart = one.test.only_first + one.test.only_second
        kappa = "undefined" if one.kappa is None else format_number(one.kappa)
        lines.append(
            f"{one.first} {verdict} {one.second}: {format_points(one.difference)}. They say the same of "
            f"{format_share(one.same)} of pairs, kappa {kappa}. On {apart:,} pairs one alone is right: {one.first} on "
            f"{one.test.only_first:,}, {one.second} on {one.test.only_second:,} (McNemar p = {one.test.p_value:.2g}"
            f"{taken})."
        )
    if len(found) > _MOST_SENTENCES:
        lines.append(f"{len(found) - _MOST_SENTENCES} more pairs of judges stand in the table of differences.")
    return lines


def _warnings(
    judges: Mapping[str, Mapping[str, Judgment]], board: AlignedVotes, ranked: Sequence[JudgeResult]
) -> list[str]:
    lines = []
    if len(board.common) < FEW_PAIRS:
        lines.append(f"{len(board.common)} common pairs are few: read the intervals, not the points.")
    for one in ranked:
        without = len(judges[one.name]) - one.judged
        if without:
            lines.append(f"{without:,} judgments of {one.name} have no label and take no part.")
    least, most = min(one.judged for one in ranked), max(one.judged for one in ranked)
    if least < most:
        lines.append(f"The judges judged from {least:,} to {most:,} labelled pairs: compare them over the common ones.")
    if any(one.failed for one in ranked):
        shares = "; ".join(f"{one.name} {one.failed:,} of {one.judged:,}" for one in ranked if one.failed)
        lines.append(f"Failed: {shares}. A judge that fails on hard pairs looks better on the others.")
    return lines
