"""Comparison of judges on the same labelled pairs.

Judges are compared on the pairs that both judged, resampled together: pairs that are hard for both do not widen the
interval of the difference.
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
        failures: leave out failed judgments, or count them as ties.
        order_rule: merges two orders into one label, for all judges.
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
    """Agreement of a judge with the labels.

    Attributes:
        judged: judged pairs with a label, including failures.
        read_anywhere: of these, pairs whose scores only the parser `anywhere` found.
        alone: metrics on its own pairs; None if all failed.
        common: agreement on the pairs with a verdict from every judge.
        kappa: Cohen's kappa with the labels on the common pairs; None if undefined.
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
    """Two judges on the pairs that both labelled.

    Attributes:
        difference: agreement of the first minus the second.
        same: share of pairs with the same verdict.
        kappa: Cohen's kappa between the judges; None if undefined.
        test: McNemar's exact test; `holm` is its p-value corrected for all tests of this study.
        verdicts: shape (3, 3), counts; rows are the first judge, columns the second, as `agreement.LABELS`.
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
    """Labels of every judge by sample id: +1 first better, 0 tie, -1 second better.

    Attributes:
        rows: judge -> sample id -> joined judgment and label.
        judged: judge -> sample id -> the judge's label; without excluded failures.
        common: ids with a label from every judge, in the first judge's order.
        resampling: seed and number of resamples.
    """

    rows: Mapping[str, Mapping[str, JoinedPair]]
    judged: Mapping[str, Mapping[str, int]]
    common: tuple[str, ...]
    truth: Mapping[str, int]
    clusters: Mapping[str, Hashable]
    resampling: Resampling

    def labels(self, judge: str, ids: Sequence[str]) -> NDArray[np.int_]:
        """Return a judge's labels, shape (n,)."""
        return np.array([self.judged[judge][key] for key in ids], dtype=np.int_)

    def right(self, judge: str, ids: Sequence[str]) -> NDArray[np.bool_]:
        """Return whether a judge's labels are right, shape (n,)."""
        return np.asarray(self.labels(judge, ids) == self.truths(ids), dtype=np.bool_)

    def truths(self, ids: Sequence[str]) -> NDArray[np.int_]:
        """Return the true labels, shape (n,)."""
        return np.array([self.truth[key] for key in ids], dtype=np.int_)

    def members(self, ids: Sequence[str]) -> list[Hashable]:
        """Return the clusters of the pairs."""
        return [self.clusters[key] for key in ids]

    def agreement(self, judge: str, ids: Sequence[str]) -> Estimate:
        """Return the share of pairs judged right."""
        return share(self.right(judge, ids), self.members(ids), self.resampling)

    def difference(self, first: str, second: str, ids: Sequence[str]) -> Estimate:
        """Return the agreement of the first judge minus the second, paired."""
        return paired_difference(self.right(first, ids), self.right(second, ids), self.members(ids), self.resampling)


def compare_judges(
    judges: Mapping[str, Mapping[str, Judgment]], labels: LabelledSet, options: CompareOptions = DEFAULT_OPTIONS
) -> StudyResult:
    """Compare judges: agreement of each, and paired difference, kappa, flips and McNemar's test of each two.

    Args:
        judges: name -> judgments by sample id.
        labels: of the same pairs; pairs of one question are resampled together.
        options: see `CompareOptions`.

    Raises:
        InputError: fewer than two judges, a judge without labelled pairs, no common pair, an order rule that does not
            apply, or different texts under one id.
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
    """Join the judgments of all judges with the labels.

    Raises:
        InputError: fewer than two judges, a judge without labelled pairs, or no common pair.
    """
    if len(judges) < 2:
        raise InputError(f"compare-judges: expected at least two files of judgments, got {len(judges)}")
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
        finding = f"no labelled pair has a verdict from all of {', '.join(judges)}"
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
    """Return the agreement of every judge, the best on the common pairs first."""
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
    """Compare each two judges, in the order of `names`, on all pairs that both labelled."""
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
    failures = "left out" if options.failures == "excluded" else "counted as ties"
    rule = "as each run decided" if options.order_rule == "as_judged" else f"by rule {options.order_rule}"
    return (
        f"Verdicts against labels, joined by sample id; two orders are merged "
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
        f"On the {len(votes.common):,} pairs with a verdict from every judge, agreement with the labels is "
        + "; ".join(f"{result.name} {format_share(result.common)}" for result in results[:_MAX_SENTENCES])
        + "."
    ]
    dependent = len(set(votes.members(votes.common))) < len(votes.common)
    taken = ", pairs of one question treated as independent" if dependent else ""
    for pair in comparisons[:_MAX_SENTENCES]:
        low, high, test = pair.difference.low, pair.difference.high, pair.test
        verdict = (
            "is better than" if low > 0 else "is worse than" if high < 0 else "is not significantly different from"
        )
        lines.append(
            f"{pair.first} {verdict} {pair.second}: {format_points(pair.difference)}. They agree on "
            f"{format_share(pair.same)} of pairs, kappa {format_number(pair.kappa)}. On "
            f"{test.only_first + test.only_second:,} pairs only one judge is right: {pair.first} on "
            f"{test.only_first:,}, {pair.second} on {test.only_second:,} (McNemar p = {test.p_value:.2g}{taken})."
        )
    if len(comparisons) > _MAX_SENTENCES:
        lines.append(f"The table of differences has {len(comparisons) - _MAX_SENTENCES} more pairs of judges.")
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
            lines.append(f"{without:,} judgments of {result.name} have no label and are left out.")
    least, most = min(result.judged for result in results), max(result.judged for result in results)
    if least < most:
        lines.append(f"The judges have {least:,} to {most:,} labelled pairs each: compare them on the common pairs.")
    if any(result.failed for result in results):
        shares = "; ".join(
            f"{result.name} {result.failed:,} of {result.judged:,}" for result in results if result.failed
        )
        lines.append(f"Failed: {shares}. Failures on hard pairs make a judge look better.")
    return lines


_MAX_BARS = 12
_VERDICTS = {1: "first better", 0: "tie", -1: "second better"}


def judge_table(results: Sequence[JudgeAgreement], rule: LabelRule) -> Table:
    """Return one row per judge; `rule` merged the orders."""
    return LAYOUTS.table("judges", [_judge_row(result) for result in results], rule=RULE_NAMES[rule])


def _judge_row(result: JudgeAgreement) -> Row:
    alone = result.alone
    own = (None, None) if alone is None else (alone.accuracy, alone.f1)
    orders = _order_shares(None if alone is None else alone.position)
    return (result.name, result.judged, result.failed, result.common, result.kappa, *own, *orders)


def _order_shares(position: PositionEstimates | None) -> tuple[Estimate | None, ...]:
    return (None,) * 3 if position is None else (position.consistency, position.toward_first, position.toward_second)


def difference_table(comparisons: Sequence[PairedComparison]) -> Table:
    """Return one row per two judges."""
    return LAYOUTS.table("differences", [_difference_row(pair, pair.test) for pair in comparisons])


def _difference_row(pair: PairedComparison, test: McNemar) -> Row:
    counts = (test.both, test.only_first, test.only_second, test.neither)
    return (pair.first, pair.second, pair.difference, *counts, test.p_value, pair.holm, pair.same, pair.kappa)


def verdict_table(comparisons: Sequence[PairedComparison]) -> Table:
    """Return a confusion matrix per two judges."""
    return LAYOUTS.table(
        "verdicts",
        [
            (pair.first, pair.second, name, *(int(count) for count in counts))
            for pair in comparisons
            for name, counts in zip(_VERDICTS.values(), pair.verdicts, strict=True)
        ],
    )


def group_tables(votes: AlignedVotes, names: Sequence[str], groups: Mapping[str, Mapping[str, str]]) -> Iterator[Table]:
    """Yield one table per grouping: agreement of each judge by value, and the difference from the best judge."""
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
            columns("share", agreement="Agreement", minus_best=f"Minus {best}"),
            name=f"by-{file_slug(group)}",
            title=f"By {group}",
            note=f"On the pairs with a verdict from every judge. {best} has the highest agreement.",
        )


def flip_table(votes: AlignedVotes, names: Sequence[str], samples: Mapping[str, Sample]) -> Table:
    """Return the pairs on which judges differ."""
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
        columns("count", right="Judges right"),
        columns("text", question="Question"),
        name="flips",
        title="Pairs with different verdicts",
        note=f"{len(rows):,} of the {len(votes.common):,} pairs with a verdict from every judge.",
    )


def figures(
    votes: AlignedVotes,
    results: Sequence[JudgeAgreement],
    comparisons: Sequence[PairedComparison],
    groups: Mapping[str, Mapping[str, str]],
) -> Iterator[Figure]:
    """Yield agreements, differences, and agreement by group."""
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
