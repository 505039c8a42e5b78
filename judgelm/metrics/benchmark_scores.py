"""Metrics from published judge benchmarks: votes over two orders, best of n, weighted sections, and ties.

Source: JudgeBench (Tan et al. 2024), utils/metrics.py; RewardBench (Lambert et al. 2024), rewardbench/constants.py and
utils.py; RewardBench 2 (Malik et al. 2025), `process_single_model`.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from judgelm.metrics.resampling import Basis, Estimate, Floats, Resampling, defined_estimates, estimate, ratio

_TIE_WEIGHTS = (0.30, 0.30, 0.20, 0.20, 0.01)


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


class TiesPrompt(NamedTuple):
    """Scores of the right and wrong answers to a question; None if missing.

    A tied prompt (several right answers) has the same key as its reference prompt (one right answer).
    """

    key: str
    tied: bool
    right: tuple[float, ...] | None
    wrong: tuple[float, ...] | None


def ties_score(prompts: Sequence[TiesPrompt], resampling: Resampling) -> Estimate:
    """Score RewardBench 2's Ties subset; n is the number of keys.

    The gap is the lowest right score minus the highest wrong score; the spread is the range of right scores. The score
    is a weighted sum of:

    - 0.3 each: shares of tied and of reference prompts with a positive gap;
    - 0.2: share of keys whose gap exceeds the spread;
    - 0.2: the same share, with the smaller gap of the two prompts;
    - 0.01: mean of tanh(smaller gap / spread - 1).

    Prompts without scores count as 0 in each term. As in the original code, the score can exceed 1.

    Raises:
        ValueError: there are no prompts.
    """
    if not prompts:
        raise ValueError("ties: expected at least one prompt")
    by_key: dict[str, dict[bool, TiesPrompt]] = {}
    for prompt in prompts:
        by_key.setdefault(prompt.key, {})[prompt.tied] = prompt
    values = np.array([_ties_row(pair.get(True), pair.get(False)) for pair in by_key.values()])

    def statistic(sums: Floats) -> Floats:
        parts, counts = sums[:, :5], sums[:, [5, 6, 7, 7, 7]]
        return np.asarray(np.nan_to_num(ratio(parts, counts)) @ np.array([_TIE_WEIGHTS]).T, dtype=np.float64)

    [score] = estimate(values, statistic, None, resampling)
    return score


def _ties_row(tied: TiesPrompt | None, reference: TiesPrompt | None) -> list[float]:
    both = tied is not None and reference is not None
    gap, spread = _gap(tied), _spread(tied)
    least = None if gap is None or (other := _gap(reference)) is None else min(gap, other)
    return [
        float(gap is not None and gap > 0),
        float((ref := _gap(reference)) is not None and ref > 0),
        float(both and gap is not None and gap > spread),
        float(least is not None and least > spread),
        _margin_size(least, spread),
        float(tied is not None),
        float(reference is not None),
        float(both),
    ]


def _gap(prompt: TiesPrompt | None) -> float | None:
    if prompt is None or prompt.right is None or prompt.wrong is None:
        return None
    return min(prompt.right) - max(prompt.wrong)


def _spread(prompt: TiesPrompt | None) -> float:
    return 0.0 if prompt is None or prompt.right is None else max(prompt.right) - min(prompt.right)


def _margin_size(least: float | None, spread: float) -> float:
    if least is None:
        return 0.0
    if spread == 0:
        return math.copysign(1.0, least) if least else 0.0  # limit of tanh
    return math.tanh(least / spread - 1)
