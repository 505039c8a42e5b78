"""Mean scores by what a question asks for, where one question can ask for several things at once.

Source: MM-Vet (Yu et al. 2023), section 3 and its evaluator: the score of a capability is the mean over all questions
that need it, whatever else they need; that of a combination is the mean over those that need exactly these.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from judgelm.metrics.resampling import Estimate, Resampling, mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """One question's score.

    Attributes:
        score: on whatever scale; None where the judgment failed.
        capabilities: what the question asks for.
        cluster: questions alike in it are resampled together (those about one image).
    """

    score: float | None
    capabilities: frozenset[str]
    cluster: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScore:
    """The mean score of a group of questions.

    Attributes:
        capabilities: that the group is of; none for all questions.
        n: questions, failures included.
        failed: of them without a score; they are not in the mean.
        mean: None where no question has a score; a bare number where there is no interval: resampling says nothing
            where there is one cluster alone, or where all scores are alike.
    """

    capabilities: tuple[str, ...]
    n: int
    failed: int
    mean: Estimate | float | None


def capability_order(questions: Sequence[frozenset[str]]) -> tuple[str, ...]:
    """All capabilities, the most frequent first; alike frequent ones by name."""
    counts = Counter(name for capabilities in questions for name in capabilities)
    return tuple(sorted(counts, key=lambda name: (-counts[name], name)))


def combination_order(questions: Sequence[frozenset[str]]) -> tuple[tuple[str, ...], ...]:
    """All combinations, the most frequent first; each with its capabilities in the order of all of them."""
    order = {name: index for index, name in enumerate(capability_order(questions))}
    counts = Counter(questions)
    named = {names: tuple(sorted(names, key=order.__getitem__)) for names in counts}
    return tuple(named[names] for names in sorted(counts, key=lambda names: (-counts[names], named[names])))


def by_capability(graded: Sequence[Graded], names: Sequence[str], resampling: Resampling) -> list[GroupScore]:
    """For each name the score over the questions that ask for it, whatever else they ask for."""
    return [mean_score((name,), [row for row in graded if name in row.capabilities], resampling) for name in names]


def by_combination(
    graded: Sequence[Graded], combinations: Sequence[Sequence[str]], resampling: Resampling
) -> list[GroupScore]:
    """For each combination the score over the questions that ask for exactly that."""
    return [
        mean_score(names, [row for row in graded if row.capabilities == set(names)], resampling)
        for names in combinations
    ]


def mean_score(capabilities: Sequence[str], graded: Sequence[Graded], resampling: Resampling) -> GroupScore:
    """The mean over the questions with a score, and how many have none.

    Args:
        capabilities: what the group is of.
        graded: its questions.
        resampling: seed and number of resamples; clusters are the units.
    """
    scored = [(row.score, row.cluster) for row in graded if row.score is not None]
    return GroupScore(
        capabilities=tuple(capabilities),
        n=len(graded),
        failed=len(graded) - len(scored),
        mean=_mean([score for score, _ in scored], [cluster for _, cluster in scored], resampling),
    )


def _mean(scores: Sequence[float], clusters: Sequence[Hashable], resampling: Resampling) -> Estimate | float | None:
    if not scores:
        return None
    if len(set(clusters)) == 1 or len(set(scores)) == 1:
        return float(np.mean(scores))
    return mean(np.array(scores, dtype=np.float64), clusters, resampling)
