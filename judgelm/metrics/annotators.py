"""Agreement among people, and of the judge with people.

A judge measured against a majority vote looks better than it does against a single person, and so would a person.
Both numbers here are mean agreements with single annotators over the same pairs, so they may be compared.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa

from judgelm.metrics.resampling import Estimate, Resampling, estimate, widened


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanAgreement:
    """Agreement among people and of the judge with them.

    Attributes:
        human_human: per pair the share of annotator pairs that agree, averaged over pairs.
        judge_human: per pair the share of annotators that the judge agrees with, averaged over the same pairs.
        difference: `judge_human` minus `human_human`, resampled together.
        fleiss_kappa: among the people; None where pairs have different numbers of votes, or all votes are alike.
        annotators: votes per pair, smallest and largest.
    """

    human_human: Estimate
    judge_human: Estimate
    difference: Estimate
    fleiss_kappa: float | None
    annotators: tuple[int, int]


def human_agreement(
    judged: Sequence[int], votes: Sequence[Sequence[int]], clusters: Sequence[Hashable] | None, resampling: Resampling
) -> HumanAgreement:
    """Mean pairwise agreement between annotators, and of the judge with single annotators.

    Args:
        judged: n labels of the judge.
        votes: n lists of labels, at least two each.
        clusters: as in `resampling.bootstrap_sums`.
        resampling: seed and number of resamples.

    Raises:
        ValueError: n is 0, the lengths differ, or a pair has fewer than two votes.
    """
    if not votes or min(map(len, votes)) < 2:
        raise ValueError("votes: at least one pair, and two votes on each, are needed")
    rows = [
        (float(np.mean([own == vote for vote in ballot])), _pairwise(ballot), 1.0)
        for own, ballot in zip(judged, votes, strict=True)
    ]
    judge, human, difference = estimate(np.array(rows), _means, clusters, resampling)
    return HumanAgreement(
        human_human=widened(human, clusters),
        judge_human=widened(judge, clusters),
        difference=difference,
        fleiss_kappa=_fleiss(votes),
        annotators=(min(map(len, votes)), max(map(len, votes))),
    )


def _pairwise(ballot: Sequence[int]) -> float:
    return float(np.mean([a == b for a, b in combinations(ballot, 2)]))


def _means(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    judge, human = sums[:, 0] / sums[:, 2], sums[:, 1] / sums[:, 2]
    return np.stack([judge, human, judge - human], axis=1)


def _fleiss(votes: Sequence[Sequence[int]]) -> float | None:
    alike = len({vote for ballot in votes for vote in ballot}) == 1
    if alike or len({len(ballot) for ballot in votes}) > 1:
        return None
    counts, _ = aggregate_raters(np.array(votes))
    return float(fleiss_kappa(counts))
