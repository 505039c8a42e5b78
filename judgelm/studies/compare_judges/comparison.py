"""Measures of the comparison of judges: each against the labels, and each two against each other."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from statsmodels.stats.multitest import multipletests

from judgelm.data.labelled_set import LabelledSet
from judgelm.errors import InputError
from judgelm.metrics.agreement import McNemar, cohens_kappa, confusion, mcnemar, paired_difference
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.parsing.distribution import LabelRule
from judgelm.records import Judgment, failure_name
from judgelm.studies.evaluation import FailureHandling
from judgelm.studies.join import JoinedPair, failure_code, join, labelled
from judgelm.studies.pair_labels import TIE_THRESHOLD
from judgelm.studies.pair_metrics import PairMetrics, pair_metrics


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeResult:
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
    """Two judges over the pairs that both say something of.

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
    """Everybody's labels by sample id: +1 first better, 0 tie, -1 second better.

    Attributes:
        rows: name of a judge -> sample id -> its judgment beside the label.
        judged: name of a judge -> sample id -> its label; without those left out as failures.
        common: ids that every judge labelled, in the first judge's order.
    """

    rows: Mapping[str, Mapping[str, JoinedPair]]
    judged: Mapping[str, Mapping[str, int]]
    common: tuple[str, ...]
    truth: Mapping[str, int]
    clusters: Mapping[str, Hashable]

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

    def agreement(self, judge: str, ids: Sequence[str], resampling: Resampling) -> Estimate:
        """Share of these pairs on which a judge's label is the true one."""
        return share(self.right(judge, ids), self.members(ids), resampling)

    def difference(self, first: str, second: str, ids: Sequence[str], resampling: Resampling) -> Estimate:
        """Agreement of the first judge minus that of the second, paired."""
        return paired_difference(self.right(first, ids), self.right(second, ids), self.members(ids), resampling)


def align_votes(
    judges: Mapping[str, Mapping[str, Judgment]], labels: LabelledSet, options: CompareOptions
) -> AlignedVotes:
    """Judgments and labels brought together.

    Raises:
        InputError: fewer than two judges, a judge of none of the labelled pairs, or no pair of all judges.
    """
    if len(judges) < 2:
        raise InputError(f"compare-judges: {len(judges)} file of judgments given; two or more are compared")
    questions = {sample.id: sample.question for sample in labels.samples.values()}
    rows = {
        name: {
            row.id: row
            for row in join(judgments, labels.labels, {}, questions or None, options.order_rule, options.tie_threshold)
        }
        for name, judgments in judges.items()
    }
    failure_label = 0 if options.failures == "as_tie" else None
    judged = {
        name: {
            key: label
            for key, row in pairs.items()
            if (label := failure_label if row.judged is None else row.judged) is not None
        }
        for name, pairs in rows.items()
    }
    first = next(iter(judged.values()))
    common = tuple(key for key in first if all(key in labelled for labelled in judged.values()))
    if not common:
        failed = "; ".join(f"{name}: {_failures(pairs)}" for name, pairs in rows.items())
        finding = f"{', '.join(judges)} have no labelled pair in common that all of them judged"
        raise InputError(f"compare-judges: {finding} (failed: {failed})")
    everything = [row for pairs in rows.values() for row in pairs.values()]
    return AlignedVotes(
        rows=rows,
        judged=judged,
        common=common,
        truth={row.id: row.truth for row in everything},
        clusters={row.id: row.cluster for row in everything},
    )


def _failures(rows: Mapping[str, JoinedPair]) -> str:
    """`2 of 80 (out of range 2)`, or `0 of 80`."""
    codes = Counter(failure_code(row.judgment) for row in rows.values() if row.judged is None)
    named = ", ".join(f"{failure_name(code)} {count}" for code, count in codes.most_common())
    return f"{codes.total()} of {len(rows)}{f' ({named})' if named else ''}"


def judge_results(votes: AlignedVotes, options: CompareOptions) -> list[JudgeResult]:
    """Every judge, the one of the best agreement over the common pairs first."""
    results = [_standing(name, votes, options) for name in votes.rows]
    return sorted(results, key=lambda result: -result.common.value)


def _standing(name: str, votes: AlignedVotes, options: CompareOptions) -> JudgeResult:
    rows, resampling = list(votes.rows[name].values()), options.resampling
    failure_label = 0 if options.failures == "as_tie" else None
    counted = [labelled(row, failure_label) for row in rows if row.judged is not None or failure_label is not None]
    clusters = votes.members(votes.common)
    return JudgeResult(
        name=name,
        judged=len(rows),
        failed=sum(row.judged is None for row in rows),
        read_anywhere=sum(row.judgment.read_anywhere for row in rows),
        alone=pair_metrics(counted, resampling) if counted else None,
        common=votes.agreement(name, votes.common, resampling),
        kappa=cohens_kappa(votes.labels(name, votes.common), votes.truths(votes.common), clusters, resampling),
    )


def paired_comparisons(votes: AlignedVotes, names: Sequence[str], resampling: Resampling) -> list[PairedComparison]:
    """Every two judges, in the order of `names`, over all pairs that these two say something of."""
    comparisons = []
    for first, second in combinations(names, 2):
        ids = [key for key in votes.judged[first] if key in votes.judged[second]]
        labels = votes.labels(first, ids), votes.labels(second, ids)
        comparisons.append(
            PairedComparison(
                first=first,
                second=second,
                difference=votes.difference(first, second, ids, resampling),
                same=share(labels[0] == labels[1], votes.members(ids), resampling),
                kappa=cohens_kappa(*labels, votes.members(ids), resampling),
                test=mcnemar(votes.right(first, ids), votes.right(second, ids)),
                holm=float("nan"),
                verdicts=confusion(*labels),
            )
        )
    corrected = multipletests([pair.test.p_value for pair in comparisons], method="holm")[1]
    return [replace(pair, holm=float(holm)) for pair, holm in zip(comparisons, corrected, strict=True)]
