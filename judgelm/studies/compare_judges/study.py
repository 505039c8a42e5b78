"""Judges on the same labelled pairs, side by side and pair by pair.

Two judges of 71 % and 69 % may differ on a tenth of the pairs or on half of them. What tells them apart is counted over
the pairs that both judged, resampled together, so that what is hard for both does not widen the interval of the
difference.
"""

from collections.abc import Mapping, Sequence

from judgelm.data.labelled_set import LabelledSet, match_labels_of_runs
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
from judgelm.studies.sentences import few_pairs_sentence, format_number, format_points, format_share

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
        InputError: fewer than two judges, a judge of none of the labelled pairs, no pair of all judges, an order rule
            that cannot be applied, or other texts under one id.
    """
    options = options or CompareOptions()
    resampling = options.resampling
    labels, texts = match_labels_of_runs(judges, labels, name="the labels")
    votes = align_votes(judges, labels, options)
    results = judge_results(votes, options)
    names = [result.name for result in results]
    comparisons = paired_comparisons(votes, names, resampling)
    return StudyResult(
        study="compare-judges",
        title=f"{' and '.join(names) if len(names) == 2 else f'{len(names)} judges'} on the same pairs",
        protocol=_protocol(options),
        findings=tuple(_findings(votes, results, comparisons)),
        counts=_counts(votes, labels, results),
        tables=(
            tables.judge_table(results, options.order_rule),
            tables.difference_table(comparisons),
            tables.verdict_table(comparisons),
            *tables.group_tables(votes, names, labels.groups, resampling),
            tables.flip_table(votes, names, labels.samples),
        ),
        figures=tuple(tables.figures(votes, results, comparisons, labels.groups, resampling)),
        warnings=(*_warnings(judges, votes, results), *labels.notes(), *texts.notes()),
    )


def _protocol(options: CompareOptions) -> str:
    failures = "left out of what they concern" if options.failures == "excluded" else "counted as ties"
    rule = "as each run decided" if options.order_rule == "as_judged" else f"by rule {options.order_rule}"
    return (
        f"Winners named by the judges against those of the labels, joined by sample id; two orders make one label "
        f"{rule}; failures are {failures}; intervals are 95 % from {options.resampling.resamples} resamples of "
        f"questions (seed {options.resampling.seed})."
    )


def _counts(votes: AlignedVotes, labels: LabelledSet, results: Sequence[JudgeResult]) -> dict[str, int]:
    counts = {"labels": len(labels.labels), "judges": len(results), "common_pairs": len(votes.common)}
    for result in results:
        counts |= {f"judged by {result.name}": result.judged, f"failed by {result.name}": result.failed}
        if result.read_anywhere:
            counts |= {f"read only by --parser anywhere of {result.name}": result.read_anywhere}
    return counts


def _findings(
    votes: AlignedVotes, results: Sequence[JudgeResult], comparisons: Sequence[PairedComparison]
) -> list[str]:
    lines = [
        f"Over the {len(votes.common):,} pairs that every judge labelled, agreement with the labels is "
        + "; ".join(f"{result.name} {format_share(result.common)}" for result in results[:_MOST_SENTENCES])
        + "."
    ]
    dependent = len(set(votes.members(votes.common))) < len(votes.common)
    taken = ", pairs of one question taken for independent" if dependent else ""
    for pair in comparisons[:_MOST_SENTENCES]:
        low, high, test = pair.difference.low, pair.difference.high, pair.test
        verdict = "is ahead of" if low > 0 else "is behind" if high < 0 else "does not differ clearly from"
        kappa = "undefined" if pair.kappa is None else format_number(pair.kappa)
        lines.append(
            f"{pair.first} {verdict} {pair.second}: {format_points(pair.difference)}. They agree on "
            f"{format_share(pair.same)} of pairs, kappa {kappa}. On {test.only_first + test.only_second:,} pairs only "
            f"one is right: {pair.first} on {test.only_first:,}, {pair.second} on {test.only_second:,} (McNemar p = "
            f"{test.p_value:.2g}{taken})."
        )
    if len(comparisons) > _MOST_SENTENCES:
        lines.append(f"{len(comparisons) - _MOST_SENTENCES} more pairs of judges are in the table of differences.")
    return lines


def _warnings(
    judges: Mapping[str, Mapping[str, Judgment]], votes: AlignedVotes, results: Sequence[JudgeResult]
) -> list[str]:
    lines = []
    if len(votes.common) < FEW_PAIRS:
        lines.append(few_pairs_sentence(len(votes.common), "common pairs"))
    for result in results:
        without = len(judges[result.name]) - result.judged
        if without:
            lines.append(f"{without:,} judgments of {result.name} have no label and take no part.")
    least, most = min(result.judged for result in results), max(result.judged for result in results)
    if least < most:
        lines.append(f"The judges judged from {least:,} to {most:,} labelled pairs: compare them over the common ones.")
    if any(result.failed for result in results):
        shares = "; ".join(
            f"{result.name} {result.failed:,} of {result.judged:,}" for result in results if result.failed
        )
        lines.append(f"Failed: {shares}. A judge that fails on hard pairs looks better on the others.")
    return lines
