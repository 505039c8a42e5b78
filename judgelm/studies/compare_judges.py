"""Comparison of judges on the same labelled pairs.

Two judges are compared on the pairs that both of them judged. Their verdicts are resampled together, so pairs that are
hard for both judges do not widen the interval of the difference.
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
from judgelm.studies import pair_labels
from judgelm.studies.evaluation import FailureHandling
from judgelm.studies.pair_labels import RULE_NAMES, TIE_THRESHOLD, JoinedPair
from judgelm.studies.pair_metrics import PairMetrics, pair_metrics
from judgelm.studies.result import Figure, Layouts, Row, StudyResult, Table, columns, forest
from judgelm.studies.sentences import excerpt, few_pairs_sentence, file_slug, format_number, format_points, format_share

LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """Options for the comparison.

    `order_rule` is the rule for merging two orders into one label. `tie_threshold` applies to the rule `probability`.
    """

    failures: FailureHandling = "excluded"
    order_rule: LabelRule = "as_judged"
    tie_threshold: float = TIE_THRESHOLD
    resampling: Resampling = field(default_factory=Resampling)


DEFAULT_OPTIONS = CompareOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class _JudgeAgreement:
    name: str
    judged: int
    failed: int
    read_anywhere: int
    alone: PairMetrics | None
    common: Estimate
    kappa: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairedComparison:
    """`holm` is the p-value of `test`, corrected for multiple tests."""

    first: str
    second: str
    difference: Estimate
    same: Estimate
    kappa: Estimate | None
    test: McNemar
    holm: float
    verdicts: NDArray[np.int_]


@dataclass(frozen=True, slots=True, kw_only=True)
class _AlignedVotes:
    """`judged` omits excluded failures; `common` contains the ids that every judge labelled."""

    rows: Mapping[str, Mapping[str, JoinedPair]]
    judged: Mapping[str, Mapping[str, int]]
    common: tuple[str, ...]
    truth: Mapping[str, int]
    clusters: Mapping[str, Hashable]
    resampling: Resampling

    def labels(self, judge: str, ids: Sequence[str]) -> NDArray[np.int_]:
        return np.array([self.judged[judge][key] for key in ids], dtype=np.int_)

    def right(self, judge: str, ids: Sequence[str]) -> NDArray[np.bool_]:
        return np.asarray(self.labels(judge, ids) == self.truths(ids), dtype=np.bool_)

    def truths(self, ids: Sequence[str]) -> NDArray[np.int_]:
        return np.array([self.truth[key] for key in ids], dtype=np.int_)

    def members(self, ids: Sequence[str]) -> list[Hashable]:
        return [self.clusters[key] for key in ids]

    def agreement(self, judge: str, ids: Sequence[str]) -> Estimate:
        return share(self.right(judge, ids), self.members(ids), self.resampling)

    def difference(self, first: str, second: str, ids: Sequence[str]) -> Estimate:
        return paired_difference(self.right(first, ids), self.right(second, ids), self.members(ids), self.resampling)


def compare_judges(
    judges: Mapping[str, Mapping[str, Judgment]], labels: LabelledSet, options: CompareOptions = DEFAULT_OPTIONS
) -> StudyResult:
    """Compare judges by agreement with labels, and pairwise by paired difference, kappa, flips, and McNemar's test.

    Raises:
        InputError: there are fewer than two judges or no common pairs, the order rule does not apply, or the same id
            has different texts.
    """
    labels, texts = match_labels_of_runs(judges, labels, name="the labels")
    votes = _align_votes(judges, labels, options)
    results = _judge_agreements(votes, options.failures)
    names = [result.name for result in results]
    comparisons = _paired_comparisons(votes, names)
    return StudyResult(
        study="compare-judges",
        title=f"{' and '.join(names) if len(names) == 2 else f'{len(names)} judges'} on the same pairs",
        protocol=_protocol(options),
        findings=tuple(_findings(votes, results, comparisons)),
        counts=_counts(votes, labels, results),
        tables=(
            LAYOUTS.table("judges", map(_judge_row, results), rule=RULE_NAMES[options.order_rule]),
            _difference_table(comparisons),
            _verdict_table(comparisons),
            *_group_tables(votes, names, labels.groups),
            _flip_table(votes, names, labels.samples),
        ),
        figures=tuple(_figures(votes, results, comparisons, labels.groups)),
        warnings=(*_warnings(judges, votes, results), *labels.notes(), *texts.notes()),
    )


def _align_votes(
    judges: Mapping[str, Mapping[str, Judgment]], labels: LabelledSet, options: CompareOptions
) -> _AlignedVotes:
    if len(judges) < 2:
        raise InputError(f"compare-judges: expected at least two judgment files, got {len(judges)}")
    questions = pair_labels.questions_of(labels)
    joined = {
        name: pair_labels.join(judgments, labels.labels, {}, questions, options.order_rule, options.tie_threshold)
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
        finding = f"no labelled pair has a verdict from every judge ({', '.join(judges)})"
        raise InputError(f"compare-judges: {finding} (failures: {failed})")
    return _AlignedVotes(
        rows={name: {row.id: row for row in rows} for name, rows in joined.items()},
        judged=judged,
        common=common,
        truth={row.id: row.truth for rows in joined.values() for row in rows},
        clusters={row.id: row.cluster for rows in joined.values() for row in rows},
        resampling=options.resampling,
    )


def _failures(rows: Sequence[JoinedPair]) -> str:
    codes = Counter(pair_labels.failure_code(row.judgment) for row in rows if row.judged is None)
    named = ", ".join(f"{failure_name(code)} {count}" for code, count in codes.most_common())
    return f"{codes.total()} of {len(rows)}{f' ({named})' if named else ''}"


def _judge_agreements(votes: _AlignedVotes, failures: FailureHandling) -> list[_JudgeAgreement]:
    failure = 0 if failures == "as_tie" else None
    truths, clusters = votes.truths(votes.common), votes.members(votes.common)
    results = [
        _JudgeAgreement(
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


def _paired_comparisons(votes: _AlignedVotes, names: Sequence[str]) -> list[_PairedComparison]:
    comparisons = []
    for first, second in combinations(names, 2):
        ids = [key for key in votes.judged[first] if key in votes.judged[second]]
        labels, clusters = (votes.labels(first, ids), votes.labels(second, ids)), votes.members(ids)
        comparisons.append(
            _PairedComparison(
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
    failures = "excluded" if options.failures == "excluded" else "counted as ties"
    rule = "as in each run" if options.order_rule == "as_judged" else f"with the order rule {options.order_rule}"
    return (
        f"Verdicts and labels are joined by sample id. The two orders of a pair are merged "
        f"{rule}. Failures are {failures}. Intervals are 95 % from {options.resampling.resamples} resamples of "
        f"questions (seed {options.resampling.seed})."
    )


def _counts(votes: _AlignedVotes, labels: LabelledSet, results: Sequence[_JudgeAgreement]) -> dict[str, int]:
    counts = {"labels": len(labels.labels), "judges": len(results), "common_pairs": len(votes.common)}
    for result in results:
        counts |= {f"judged by {result.name}": result.judged, f"failed by {result.name}": result.failed}
        if result.read_anywhere:
            counts |= {f"read only by --parser anywhere of {result.name}": result.read_anywhere}
    return counts


def _findings(
    votes: _AlignedVotes, results: Sequence[_JudgeAgreement], comparisons: Sequence[_PairedComparison]
) -> list[str]:
    lines = [
        f"Agreement with the labels, on the {len(votes.common):,} pairs with a verdict from every judge: "
        + "; ".join(f"{result.name} {format_share(result.common)}" for result in results[:_MAX_SENTENCES])
        + "."
    ]
    dependent = len(set(votes.members(votes.common))) < len(votes.common)
    taken = "; pairs with the same question are treated as independent" if dependent else ""
    for pair in comparisons[:_MAX_SENTENCES]:
        low, high, test = pair.difference.low, pair.difference.high, pair.test
        verdict = "better than" if low > 0 else "worse than" if high < 0 else "not significantly different from"
        lines.append(
            f"{pair.first} is {verdict} {pair.second}: {format_points(pair.difference)}. They agree on "
            f"{format_share(pair.same)} of the pairs; kappa is {format_number(pair.kappa)}. Only one is right on "
            f"{test.only_first + test.only_second:,} pairs: {pair.first} on {test.only_first:,}, and {pair.second} on "
            f"{test.only_second:,} (McNemar p = {test.p_value:.2g}{taken})."
        )
    if len(comparisons) > _MAX_SENTENCES:
        lines.append(f"See the table of differences for {len(comparisons) - _MAX_SENTENCES} more pairs of judges.")
    return lines


def _warnings(
    judges: Mapping[str, Mapping[str, Judgment]], votes: _AlignedVotes, results: Sequence[_JudgeAgreement]
) -> list[str]:
    lines = []
    if len(votes.common) < FEW_PAIRS:
        lines.append(few_pairs_sentence(len(votes.common), "common pairs"))
    for result in results:
        without = len(judges[result.name]) - result.judged
        if without:
            lines.append(f"{without:,} judgments by {result.name} have no label and are excluded.")
    least, most = min(result.judged for result in results), max(result.judged for result in results)
    if least < most:
        lines.append(
            f"The number of labelled pairs differs between judges ({least:,} to {most:,}); compare them on the common "
            "pairs."
        )
    if any(result.failed for result in results):
        shares = "; ".join(f"{each.name} {each.failed:,} of {each.judged:,}" for each in results if each.failed)
        lines.append(f"Failed judgments: {shares}. Failures on hard pairs make a judge look better than it is.")
    return lines


_VERDICTS = {1: "first better", 0: "tie", -1: "second better"}


def _judge_row(result: _JudgeAgreement) -> Row:
    alone = result.alone
    own = (None, None) if alone is None else (alone.accuracy, alone.f1)
    position = None if alone is None else alone.position
    orders: Row = (None, None, None)
    if position is not None:
        orders = (position.consistency, position.toward_first, position.toward_second)
    return (result.name, result.judged, result.failed, result.common, result.kappa, *own, *orders)


def _difference_table(comparisons: Sequence[_PairedComparison]) -> Table:
    rows: list[Row] = []
    for pair in comparisons:
        test = pair.test
        counts = (test.both, test.only_first, test.only_second, test.neither)
        agreement = (test.p_value, pair.holm, pair.same, pair.kappa)
        rows.append((pair.first, pair.second, pair.difference, *counts, *agreement))
    return LAYOUTS.table("differences", rows)


def _verdict_table(comparisons: Sequence[_PairedComparison]) -> Table:
    return LAYOUTS.table(
        "verdicts",
        [
            (pair.first, pair.second, name, *(int(count) for count in counts))
            for pair in comparisons
            for name, counts in zip(_VERDICTS.values(), pair.verdicts, strict=True)
        ],
    )


def _group_tables(
    votes: _AlignedVotes, names: Sequence[str], groups: Mapping[str, Mapping[str, str]]
) -> Iterator[Table]:
    best = names[0]
    for group, members in groups.items():
        rows: list[Row] = []
        for value, ids in pair_labels.group_by_value(votes.common, members.get).items():
            for name in names:
                minus = None if name == best else votes.difference(name, best, ids)
                rows.append((value, name, votes.agreement(name, ids), minus))
        yield LAYOUTS.table("by-group", rows, group=group, slug=file_slug(group), best=best)


def _flip_table(votes: _AlignedVotes, names: Sequence[str], samples: Mapping[str, Sample]) -> Table:
    rows: list[Row] = []
    for key in votes.common:
        labels = [votes.judged[name][key] for name in names]
        if len(set(labels)) > 1:
            verdicts = [_VERDICTS[label] for label in (votes.truth[key], *labels)]
            question = excerpt(samples[key].question) if key in samples else ""
            rows.append((key, *verdicts, labels.count(votes.truth[key]), question))
    judges = columns("text", ((f"judge_{index}", name) for index, name in enumerate(names, 1)))
    rest = [*columns("count", right="Judges right"), *columns("text", question="Question")]
    return LAYOUTS.table("flips", rows, *judges, *rest, differing=len(rows), common=len(votes.common))


def _figures(
    votes: _AlignedVotes,
    results: Sequence[_JudgeAgreement],
    comparisons: Sequence[_PairedComparison],
    groups: Mapping[str, Mapping[str, str]],
) -> Iterator[Figure]:
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
        values = list(pair_labels.group_by_value(votes.common, members.get).items())
        if len(values) > 1:
            rows = [(value, votes.agreement(name, ids), name) for value, ids in values for name in names]
            yield forest(rows, **LAYOUTS.figure("agreement-by-group", group=group, slug=file_slug(group)))
