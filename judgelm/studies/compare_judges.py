"""Judges on the same labelled pairs, side by side and pair by pair.

Two judges of 71 % and 69 % may differ on a tenth of the pairs or on half of them. They are compared over the pairs that
both judged, resampled together, so that pairs that are hard for both do not widen the interval of the difference.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from statsmodels.stats.multitest import multipletests

from judgelm.data.labelled_set import LabelledSet, match_labels_of_runs
from judgelm.errors import InputError
from judgelm.metrics.agreement import McNemar, cohens_kappa, confusion, mcnemar, paired_difference
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.parsing.scores import LabelRule
from judgelm.records import Judgment, Sample, failure_name
from judgelm.studies.evaluation import FailureHandling
from judgelm.studies.pair_labels import (
    RULE_NAMES,
    TIE_THRESHOLD,
    JoinedPair,
    failure_code,
    group_by_value,
    join,
    questions_of,
)
from judgelm.studies.pair_metrics import PairMetrics, PositionEstimates, pair_metrics
from judgelm.studies.result import Bars, Figure, Layouts, Row, StudyResult, Table, bars, columns, forest, table
from judgelm.studies.sentences import excerpt, few_pairs_sentence, file_slug, format_number, format_points, format_share

LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """Options of the comparison.

    Attributes:
        failures: pairs on which a judge failed are left out of what it takes part in, or count as its ties.
        order_rule: how two orders make one label, for all judges alike.
        tie_threshold: under order rule `probability`.
        resampling: seed and number of resamples.
    """

    failures: FailureHandling = "excluded"
    order_rule: LabelRule = "as_judged"
    tie_threshold: float = TIE_THRESHOLD
    resampling: Resampling = field(default_factory=Resampling)


DEFAULT_OPTIONS = CompareOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAgreement:
    """One judge against the labels.

    Attributes:
        judged: pairs that it judged and that have a label, the failed ones included.
        read_anywhere: of them, those whose scores only the parser `anywhere` found.
        alone: its numbers over its own pairs; None where all of them failed.
        common: its agreement over the pairs that every judge labelled.
        kappa: Cohen's, with the labels, over those; None where undefined.
    """

    name: str
    judged: int
    failed: int
    read_anywhere: int
    alone: PairMetrics | None
    common: Estimate
    kappa: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """Two judges over the pairs that both labelled.

    Attributes:
        difference: agreement of the first with the labels minus that of the second.
        same: share of pairs on which both say the same.
        kappa: Cohen's, between the two; None where undefined.
        test: McNemar's exact one; `holm` is its p-value corrected for all the tests of this study.
        verdicts: shape (3, 3), counts; rows what the first says, columns the second, as `agreement.LABELS`.
    """

    first: str
    second: str
    difference: Estimate
    same: Estimate
    kappa: Estimate | None
    test: McNemar
    holm: float
    verdicts: NDArray[np.int_]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedVotes:
    """Every judge's labels by sample id: +1 first better, 0 tie, -1 second better.

    Attributes:
        rows: name of a judge -> sample id -> its judgment beside the label.
        judged: name of a judge -> sample id -> its label; without those left out as failures.
        common: ids that every judge labelled, in the first judge's order.
        resampling: seed and number of resamples of every interval.
    """

    rows: Mapping[str, Mapping[str, JoinedPair]]
    judged: Mapping[str, Mapping[str, int]]
    common: tuple[str, ...]
    truth: Mapping[str, int]
    clusters: Mapping[str, Hashable]
    resampling: Resampling

    def labels(self, judge: str, ids: Sequence[str]) -> NDArray[np.int_]:
        """A judge's labels of these pairs, shape (n,)."""
        return np.array([self.judged[judge][key] for key in ids], dtype=np.int_)

    def right(self, judge: str, ids: Sequence[str]) -> NDArray[np.bool_]:
        """True where a judge's label is the true one, shape (n,)."""
        return np.asarray(self.labels(judge, ids) == self.truths(ids), dtype=np.bool_)

    def truths(self, ids: Sequence[str]) -> NDArray[np.int_]:
        """The labels of these pairs, shape (n,)."""
        return np.array([self.truth[key] for key in ids], dtype=np.int_)

    def members(self, ids: Sequence[str]) -> list[Hashable]:
        """The clusters of these pairs."""
        return [self.clusters[key] for key in ids]

    def agreement(self, judge: str, ids: Sequence[str]) -> Estimate:
        """Share of these pairs on which a judge's label is the true one."""
        return share(self.right(judge, ids), self.members(ids), self.resampling)

    def difference(self, first: str, second: str, ids: Sequence[str]) -> Estimate:
        """Agreement of the first judge minus that of the second, paired."""
        return paired_difference(self.right(first, ids), self.right(second, ids), self.members(ids), self.resampling)


def compare_judges(
    judges: Mapping[str, Mapping[str, Judgment]], labels: LabelledSet, options: CompareOptions = DEFAULT_OPTIONS
) -> StudyResult:
    """Agreement of each judge, and for every two of them: paired difference, kappa, flips, McNemar's test.

    Args:
        judges: name of each -> its judgments by sample id.
        labels: of the same pairs; pairs of one question are resampled together.
        options: treatment of failures and orders, and resampling.

    Raises:
        InputError: fewer than two judges, a judge of none of the labelled pairs, no pair of all judges, an order rule
            that cannot be applied, or other texts under one id.
    """
    labels, texts = match_labels_of_runs(judges, labels, name="the labels")
    votes = align_votes(judges, labels, options)
    results = judge_agreements(votes, options.failures)
    names = [result.name for result in results]
    comparisons = paired_comparisons(votes, names)
    return StudyResult(
        study="compare-judges",
        title=f"{' and '.join(names) if len(names) == 2 else f'{len(names)} judges'} on the same pairs",
        protocol=_protocol(options),
        findings=tuple(_findings(votes, results, comparisons)),
        counts=_counts(votes, labels, results),
        tables=(
            judge_table(results, options.order_rule),
            difference_table(comparisons),
            verdict_table(comparisons),
            *group_tables(votes, names, labels.groups),
            flip_table(votes, names, labels.samples),
        ),
        figures=tuple(figures(votes, results, comparisons, labels.groups)),
        warnings=(*_warnings(judges, votes, results), *labels.notes(), *texts.notes()),
    )


def align_votes(
    judges: Mapping[str, Mapping[str, Judgment]], labels: LabelledSet, options: CompareOptions
) -> AlignedVotes:
    """Judgments and labels brought together.

    Raises:
        InputError: fewer than two judges, a judge of none of the labelled pairs, or no pair of all judges.
    """
    if len(judges) < 2:
        raise InputError(f"compare-judges: {len(judges)} file of judgments given; two or more are compared")
    questions = questions_of(labels)
    joined = {
        name: join(judgments, labels.labels, {}, questions, options.order_rule, options.tie_threshold)
        for name, judgments in judges.items()
    }
    judged = {
        name: {row.id: row.judged or 0 for row in rows if row.judged is not None or options.failures == "as_tie"}
        for name, rows in joined.items()
    }
    first = next(iter(judged.values()))
    common = tuple(key for key in first if all(key in labelled for labelled in judged.values()))
    if not common:
        failed = "; ".join(f"{name}: {_failures(rows)}" for name, rows in joined.items())
        finding = f"{', '.join(judges)} have no labelled pair in common that all of them judged"
        raise InputError(f"compare-judges: {finding} (failed: {failed})")
    return AlignedVotes(
        rows={name: {row.id: row for row in rows} for name, rows in joined.items()},
        judged=judged,
        common=common,
        truth={row.id: row.truth for rows in joined.values() for row in rows},
        clusters={row.id: row.cluster for rows in joined.values() for row in rows},
        resampling=options.resampling,
    )


def _failures(rows: Sequence[JoinedPair]) -> str:
    """`2 of 80 (out of range 2)`, or `0 of 80`."""
    codes = Counter(failure_code(row.judgment) for row in rows if row.judged is None)
    named = ", ".join(f"{failure_name(code)} {count}" for code, count in codes.most_common())
    return f"{codes.total()} of {len(rows)}{f' ({named})' if named else ''}"


def judge_agreements(votes: AlignedVotes, failures: FailureHandling) -> list[JudgeAgreement]:
    """Every judge, the one of the best agreement over the common pairs first."""
    failure = 0 if failures == "as_tie" else None
    truths, clusters = votes.truths(votes.common), votes.members(votes.common)
    results = [
        JudgeAgreement(
            name=name,
            judged=len(rows),
            failed=sum(row.judged is None for row in rows.values()),
            read_anywhere=sum(row.judgment.read_anywhere for row in rows.values()),
            alone=pair_metrics(list(rows.values()), votes.resampling, failure=failure),
            common=votes.agreement(name, votes.common),
            kappa=cohens_kappa(votes.labels(name, votes.common), truths, clusters, votes.resampling),
        )
        for name, rows in votes.rows.items()
    ]
    return sorted(results, key=lambda result: -result.common.value)


def paired_comparisons(votes: AlignedVotes, names: Sequence[str]) -> list[PairedComparison]:
    """Every two judges, in the order of `names`, over all pairs that these two labelled."""
    comparisons = []
    for first, second in combinations(names, 2):
        ids = [key for key in votes.judged[first] if key in votes.judged[second]]
        labels, clusters = (votes.labels(first, ids), votes.labels(second, ids)), votes.members(ids)
        comparisons.append(
            PairedComparison(
                first=first,
                second=second,
                difference=votes.difference(first, second, ids),
                same=share(labels[0] == labels[1], clusters, votes.resampling),
                kappa=cohens_kappa(*labels, clusters, votes.resampling),
                test=mcnemar(votes.right(first, ids), votes.right(second, ids)),
                holm=float("nan"),
                verdicts=confusion(*labels),
            )
        )
    corrected = multipletests([pair.test.p_value for pair in comparisons], method="holm")[1]
    return [replace(pair, holm=float(holm)) for pair, holm in zip(comparisons, corrected, strict=True)]


FEW_PAIRS = 100
_MAX_SENTENCES = 6


def _protocol(options: CompareOptions) -> str:
    failures = "left out of what they concern" if options.failures == "excluded" else "counted as ties"
    rule = "as each run decided" if options.order_rule == "as_judged" else f"by rule {options.order_rule}"
    return (
        f"Winners named by the judges against those of the labels, joined by sample id; two orders make one label "
        f"{rule}; failures are {failures}; intervals are 95 % from {options.resampling.resamples} resamples of "
        f"questions (seed {options.resampling.seed})."
    )


def _counts(votes: AlignedVotes, labels: LabelledSet, results: Sequence[JudgeAgreement]) -> dict[str, int]:
    counts = {"labels": len(labels.labels), "judges": len(results), "common_pairs": len(votes.common)}
    for result in results:
        counts |= {f"judged by {result.name}": result.judged, f"failed by {result.name}": result.failed}
        if result.read_anywhere:
            counts |= {f"read only by --parser anywhere of {result.name}": result.read_anywhere}
    return counts


def _findings(
    votes: AlignedVotes, results: Sequence[JudgeAgreement], comparisons: Sequence[PairedComparison]
) -> list[str]:
    lines = [
        f"Over the {len(votes.common):,} pairs that every judge labelled, agreement with the labels is "
        + "; ".join(f"{result.name} {format_share(result.common)}" for result in results[:_MAX_SENTENCES])
        + "."
    ]
    dependent = len(set(votes.members(votes.common))) < len(votes.common)
    taken = ", pairs of one question taken for independent" if dependent else ""
    for pair in comparisons[:_MAX_SENTENCES]:
        low, high, test = pair.difference.low, pair.difference.high, pair.test
        verdict = "is ahead of" if low > 0 else "is behind" if high < 0 else "does not differ clearly from"
        lines.append(
            f"{pair.first} {verdict} {pair.second}: {format_points(pair.difference)}. They agree on "
            f"{format_share(pair.same)} of pairs, kappa {format_number(pair.kappa)}. On "
            f"{test.only_first + test.only_second:,} pairs only one is right: {pair.first} on {test.only_first:,}, "
            f"{pair.second} on {test.only_second:,} (McNemar p = {test.p_value:.2g}{taken})."
        )
    if len(comparisons) > _MAX_SENTENCES:
        lines.append(f"{len(comparisons) - _MAX_SENTENCES} more pairs of judges are in the table of differences.")
    return lines


def _warnings(
    judges: Mapping[str, Mapping[str, Judgment]], votes: AlignedVotes, results: Sequence[JudgeAgreement]
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


_MAX_BARS = 12
_VERDICTS = {1: "first better", 0: "tie", -1: "second better"}


def judge_table(results: Sequence[JudgeAgreement], rule: LabelRule) -> Table:
    """Each judge by itself; `rule` made two orders into one label."""
    return LAYOUTS.table("judges", [_judge_row(result) for result in results], rule=RULE_NAMES[rule])


def _judge_row(result: JudgeAgreement) -> Row:
    alone = result.alone
    own = (None, None) if alone is None else (alone.accuracy, alone.f1)
    orders = _order_shares(None if alone is None else alone.position)
    return (result.name, result.judged, result.failed, result.common, result.kappa, *own, *orders)


def _order_shares(position: PositionEstimates | None) -> tuple[Estimate | None, ...]:
    return (None,) * 3 if position is None else (position.consistency, position.toward_first, position.toward_second)


def difference_table(comparisons: Sequence[PairedComparison]) -> Table:
    """Every two judges."""
    return LAYOUTS.table("differences", [_difference_row(pair, pair.test) for pair in comparisons])


def _difference_row(pair: PairedComparison, test: McNemar) -> Row:
    counts = (test.both, test.only_first, test.only_second, test.neither)
    return (pair.first, pair.second, pair.difference, *counts, test.p_value, pair.holm, pair.same, pair.kappa)


def verdict_table(comparisons: Sequence[PairedComparison]) -> Table:
    """Verdicts of two judges against each other, as counts."""
    return LAYOUTS.table(
        "verdicts",
        [
            (pair.first, pair.second, name, *(int(count) for count in counts))
            for pair in comparisons
            for name, counts in zip(_VERDICTS.values(), pair.verdicts, strict=True)
        ],
    )


def group_tables(votes: AlignedVotes, names: Sequence[str], groups: Mapping[str, Mapping[str, str]]) -> Iterator[Table]:
    """One table for each grouping: agreement of every judge by value, and its distance from the best judge."""
    best = names[0]
    for group, members in groups.items():
        rows: list[Row] = []
        for value, ids in group_by_value(votes.common, members.get).items():
            for name in names:
                minus = None if name == best else votes.difference(name, best, ids)
                rows.append((value, name, votes.agreement(name, ids), minus))
        yield table(
            rows,
            columns("text", value=group, judge="Judge"),
            columns("share", agreement="Agreement", minus_best=f"Minus that of {best}"),
            name=f"by-{file_slug(group)}",
            title=f"By {group}",
            note=f"Over the pairs that every judge labelled. {best} has the best agreement over all of them.",
        )


def flip_table(votes: AlignedVotes, names: Sequence[str], samples: Mapping[str, Sample]) -> Table:
    """The pairs on which judges differ."""
    rows: list[Row] = []
    for key in votes.common:
        labels = [votes.judged[name][key] for name in names]
        if len(set(labels)) > 1:
            verdicts = [_VERDICTS[label] for label in (votes.truth[key], *labels)]
            question = excerpt(samples[key].question) if key in samples else ""
            rows.append((key, *verdicts, labels.count(votes.truth[key]), question))
    return table(
        rows,
        columns("text", id="Pair", label="Label"),
        columns("text", ((f"judge_{index}", name) for index, name in enumerate(names, 1))),
        columns("count", right="Judges that are right"),
        columns("text", question="Question"),
        name="flips",
        title="Pairs that the judges do not judge alike",
        note=f"{len(rows):,} of the {len(votes.common):,} pairs that every judge labelled.",
    )


def figures(
    votes: AlignedVotes,
    results: Sequence[JudgeAgreement],
    comparisons: Sequence[PairedComparison],
    groups: Mapping[str, Mapping[str, str]],
) -> Iterator[Figure]:
    """Agreements, differences, and agreement by group."""
    truths = votes.truths(votes.common).tolist()
    commonest = max(truths.count(label) for label in _VERDICTS) / len(truths)
    agreements = [(result.name, result.common) for result in results]
    yield forest(agreements, **LAYOUTS.figure("agreement"), no_effect=commonest)
    yield forest(
        [(f"{result.first} − {result.second}", result.difference) for result in comparisons],
        **LAYOUTS.figure("paired-differences"),
    )
    names = [result.name for result in results]
    for group, members in groups.items():
        values = list(group_by_value(votes.common, members.get).items())
        if len(values) > 1:
            yield _group_bars(votes, names, group, values)


def _group_bars(
    votes: AlignedVotes,
    names: Sequence[str],
    group: str,
    values: Sequence[tuple[str, list[str]]],
) -> Bars:
    largest = values[:_MAX_BARS]
    return bars(
        {name: [votes.agreement(name, ids) for _, ids in largest] for name in names},
        [value for value, _ in largest],
        name=f"agreement-by-{file_slug(group)}",
        title=f"Agreement by {group}"
        + (f", the {_MAX_BARS} largest of {len(values)}" if len(values) > _MAX_BARS else ""),
        x_label=group,
        y_label="Agreement (share of pairs, 0 to 1)",
    )
