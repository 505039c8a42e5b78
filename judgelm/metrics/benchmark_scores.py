"""Metrics from published judge benchmarks: votes over two orders, best of n, and weighted sections.

Source: JudgeBench (Tan et al. 2024), utils/metrics.py; RewardBench (Lambert et al. 2024), rewardbench/constants.py and
utils.py; RewardBench 2 (Malik et al. 2025), `process_single_model`.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from judgelm.metrics.resampling import Basis, Estimate, Floats, Resampling, defined_estimates, ratio


def right_by_vote(labels: Sequence[int | None], truth: int) -> bool:
    """Apply JudgeBench's rule: each verdict counts +1 if right, -1 if wrong, and 0 for a tie or failure (None)."""
    return sum((label == truth) - (label == -truth) for label in labels if label is not None) > 0


def first_place_share(scores: Sequence[float], right: int) -> float:
    """Return RewardBench 2's best-of-n credit: 1/k if the right answer shares first place with k - 1 other answers."""
    best = max(scores)
    return 1 / sum(score == best for score in scores) if scores[right] == best else 0.0


class Scored(NamedTuple):
    """A prompt with its credit, in [0, 1]; prompts in the same cluster are resampled together."""

    subset: str
    credit: float
    cluster: Hashable


class SectionScores(NamedTuple):
    """Means over non-empty subsets and sections; `overall` is the unweighted mean of the sections."""

    subsets: Mapping[str, Estimate]
    sections: Mapping[str, Estimate]
    overall: Estimate


def section_scores(
    scored: Sequence[Scored], sections: Mapping[str, Mapping[str, float]], resampling: Resampling
) -> SectionScores:
    """Score subsets and sections (name -> subset -> weight).

    Raises:
        ValueError: there are no prompts, or a subset is not in any section.
    """
    present = {prompt.subset for prompt in scored}
    known = {subset: weight for weights in sections.values() for subset, weight in weights.items()}
    if not present or present - known.keys():
        raise ValueError(f"sections: no section has {', '.join(sorted(present - known.keys())) or 'a prompt'}")
    names = [subset for subset in known if subset in present]
    values = np.zeros((len(scored), 2 * len(names)))
    for row, prompt in enumerate(scored):
        column = names.index(prompt.subset)
        values[row, column], values[row, len(names) + column] = prompt.credit, 1.0
    subsets_by_section = {section: [name for name in names if name in weights] for section, weights in sections.items()}
    subsets_by_section = {section: members for section, members in subsets_by_section.items() if members}
    shares = np.array(
        [[known[name] if name in members else 0.0 for name in names] for members in subsets_by_section.values()]
    )

    def statistic(sums: Floats) -> Floats:
        credits, counts = sums[:, : len(names)], sums[:, len(names) :]
        means = ratio(credits, counts)
        by_section = ratio(np.nan_to_num(means) @ shares.T, (counts > 0).astype(np.float64) @ shares.T)
        return np.column_stack([means, by_section, np.nanmean(by_section, axis=1)])

    members = [{name} for name in names] + [set(subsets) for subsets in subsets_by_section.values()] + [set(names)]
    bases = [Basis(rows=np.array([prompt.subset in inside for prompt in scored]), kind="share") for inside in members]
    estimates = defined_estimates(values, statistic, bases, [prompt.cluster for prompt in scored], resampling)
    sized = [score for score in estimates if score is not None]  # no score is None because each subset has a prompt
    return SectionScores(
        subsets=dict(zip(names, sized[: len(names)], strict=True)),
        sections=dict(zip(subsets_by_section, sized[len(names) : -1], strict=True)),
        overall=sized[-1],
    )
