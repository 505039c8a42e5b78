"""Metrics of published benchmarks of judges: votes over two orders, shared first places, weighted sections, ties.

Source: JudgeBench (Tan et al. 2024), utils/metrics.py; RewardBench (Lambert et al. 2024), rewardbench/constants.py and
utils.py; RewardBench 2 (Malik et al. 2025), `process_single_model`.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from judgelm.metrics.resampling import Basis, Estimate, Floats, Resampling, defined_estimates, estimate, ratio

_TIE_WEIGHTS = (0.30, 0.30, 0.20, 0.20, 0.01)
"""Of tied prompts right, reference prompts right, margins kept, margins kept beside the reference, margin size."""


def right_by_vote(labels: Sequence[int | None], truth: int) -> bool:
    """JudgeBench's rule: an order that names the right answer counts +1, one that names the wrong one -1.

    A tie and an order that could not be read count 0, so one right order beside either of them is enough.

    Args:
        labels: label of each order, put back in sample order: +1, 0, -1; None where it failed.
        truth: +1 or -1.
    """
    return sum((label == truth) - (label == -truth) for label in labels if label is not None) > 0


def first_place_share(scores: Sequence[float], right: int) -> float:
    """RewardBench 2's credit for a best of n: 1 where the right answer alone is best, 1/k where k share that place.

    Args:
        scores: one per answer.
        right: index of the right answer.
    """
    best = max(scores)
    return 1 / sum(score == best for score in scores) if scores[right] == best else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One prompt's credit, in [0, 1], in its subset; prompts of one cluster are resampled together."""

    subset: str
    credit: float
    cluster: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionScores:
    """Weighted means; a subset without a prompt takes no part, nor does a section without a subset.

    That is so in resamples too, which may leave a small subset out: its interval is that of those that hold it.

    Attributes:
        subsets: mean credit of each subset that has a prompt.
        sections: mean of a section's subsets with their weights.
        overall: mean of the sections, each counting the same.
    """

    subsets: Mapping[str, Estimate]
    sections: Mapping[str, Estimate]
    overall: Estimate


def section_scores(
    scored: Sequence[Scored], sections: Mapping[str, Mapping[str, float]], resampling: Resampling
) -> SectionScores:
    """Scores of subsets, of sections as weighted means of subsets, and their mean.

    Args:
        scored: every prompt, its subset in one of the sections.
        sections: name -> subset -> weight.
        resampling: seed and number of resamples.

    Raises:
        ValueError: no prompt, or one of a subset that is in no section.
    """
    present = {prompt.subset for prompt in scored}
    known = {subset: weight for weights in sections.values() for subset, weight in weights.items()}
    if not present or present - known.keys():
        raise ValueError(f"sections: {', '.join(sorted(present - known.keys())) or 'no prompt'}: in none of them")
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
    sized = [prompt for prompt in estimates if prompt is not None]  # all of them: each has a prompt
    return SectionScores(
        subsets=dict(zip(names, sized[: len(names)], strict=True)),
        sections=dict(zip(subsets_by_section, sized[len(names) : -1], strict=True)),
        overall=sized[-1],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TiesPrompt:
    """A question with scored right and wrong answers; None where the judge gave no scores.

    Attributes:
        key: what a tied prompt, of several right answers, shares with its reference prompt, of one.
        tied: which of the two it is.
        right: scores of the right answers, at least one.
        wrong: scores of the wrong ones, at least one.
    """

    key: str
    tied: bool
    right: tuple[float, ...] | None
    wrong: tuple[float, ...] | None


def ties_score(prompts: Sequence[TiesPrompt], resampling: Resampling) -> Estimate:
    """RewardBench 2's score of its subset Ties: all right answers above all wrong ones, and by margins.

    0.3 of tied and 0.3 of reference prompts on which every right answer is above every wrong one; of prompts of both
    kinds 0.2 for the worst right answer being further above the best wrong one than the right ones lie apart, 0.2 for
    the same with the smaller of both prompts' distances; and 0.01 of tanh(that distance / that spread - 1). A prompt
    without scores is right in nothing, and its margin's size counts 0. The published score, too, can exceed 1.

    Args:
        prompts: tied and reference ones; several of a key and kind are one.
        resampling: seed and number of resamples; a tied prompt and its reference are resampled together.

    Returns:
        With n the number of keys.

    Raises:
        ValueError: there is no prompt.
    """
    if not prompts:
        raise ValueError("ties: no prompt")
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
    """Tied right, reference right, margin kept, kept beside the reference, its size; how many of each count."""
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
        return math.copysign(1.0, least) if least else 0.0  # what tanh tends to
    return math.tanh(least / spread - 1)
