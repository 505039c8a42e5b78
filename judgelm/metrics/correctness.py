"""Metrics for correctness judgments, split by whether the judge can answer the question, and for the gate.

Arrays have shape (n,); different shapes raise `ValueError`. Exclude failed judgments first.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from judgelm.metrics.resampling import Basis, Clusters, Estimate, Flags, Floats, Resampling, defined_estimates, ratio


class GateScores(NamedTuple):
    """Share of items whose gate is on, and share of these items whose majority answer is right; None if undefined."""

    rate: Estimate | None
    precision: Estimate | None


def gate_scores(on: Flags, right: Flags, known: Flags, clusters: Clusters, resampling: Resampling) -> GateScores:
    """Compute the gate-on rate and gate precision; `right` is used only where `known` is True.

    Source: SSR-Judge, section 4.1 (metrics) and Table 1.
    """
    every = np.ones_like(on)
    counted = on & known
    values = np.column_stack([on, every, counted & right, counted]).astype(np.float64)
    bases = [Basis(rows=every, kind="share"), Basis(rows=counted, kind="share")]
    return GateScores(*defined_estimates(values, _pairs_of_sums, bases, clusters, resampling))


def accuracies(
    credits: Floats, differences: Sequence[tuple[int, int]], clusters: Clusters, resampling: Resampling
) -> tuple[list[Estimate | None], list[Estimate | None]]:
    """Compute PreferenceAcc for c conditions, and differences between conditions; None if there are no eligible items.

    `credits` has shape (n, c); NaN excludes the item.
    """
    counted = ~np.isnan(credits)
    width = credits.shape[1]
    values = np.column_stack([np.where(counted, credits, 0.0), counted.astype(np.float64)])

    def statistic(sums: Floats) -> Floats:
        shares = ratio(sums[:, :width], sums[:, width:])
        return np.column_stack([shares, *(shares[:, first] - shares[:, second] for first, second in differences)])

    bases = [Basis(rows=counted[:, first], kind="share") for first in range(width)]
    bases += [Basis(rows=counted[:, first] & counted[:, second]) for first, second in differences]
    estimates = defined_estimates(values, statistic, bases, clusters, resampling)
    return estimates[:width], estimates[width:]


class LevelScores(NamedTuple):
    """Number of items at a level of agreement, and the share with a right majority answer."""

    agreement: float
    n: int
    right: Estimate | None


def calibration_curve(
    agreement: Floats, right: Flags, clusters: Clusters, resampling: Resampling
) -> tuple[LevelScores, ...]:
    """Compute the share of right majority answers for each level of agreement, lowest first.

    Source: SSR-Judge, section 4.4 and Figure 3.
    """
    levels = np.unique(np.round(agreement, 9))
    masks = [np.isclose(agreement, level, atol=1e-6) for level in levels]
    if not masks:
        return ()
    values = np.column_stack([column for mask in masks for column in (mask & right, mask)]).astype(np.float64)
    bases = [Basis(rows=mask, kind="share") for mask in masks]
    estimates = defined_estimates(values, _pairs_of_sums, bases, clusters, resampling)
    sizes = [int(mask.sum()) for mask in masks]
    return tuple(map(LevelScores, map(float, levels), sizes, estimates))


def thresholds(ks: Sequence[int]) -> tuple[float, ...]:
    """Return every tau at which the gate changes: m / k for every k and m from 1 to k."""
    return tuple(sorted({round(votes / k, 9) for k in set(ks) for votes in range(1, k + 1)}))


def _pairs_of_sums(sums: Floats) -> Floats:
    return ratio(sums[:, 0::2], sums[:, 1::2])


FOUR_WAYS = ((True, True), (True, False), (False, True), (False, False))
"""(judge's own answer right, agent's answer right), in the order of Self-Reference's Figure 2."""


class CorrectnessScores(NamedTuple):
    """Equations 7-9 for the class `correct`; None if undefined.

    Precision is undefined if no answer is judged correct. Recall and F1 are undefined if no answer is correct.
    """

    n: int
    precision: Estimate | None
    recall: Estimate | None
    f1: Estimate | None
    accuracy: Estimate | None
    f1_incorrect: Estimate | None


class SplitQuality(NamedTuple):
    """F1 on questions that the judge answers correctly (D_J+) or incorrectly (D_J-), and their difference."""

    right: Estimate | None
    wrong: Estimate | None
    gap: Estimate | None


class FourWayCell(NamedTuple):
    """A cell of the four-way split; all answers in the cell have the same true label.

    `own_class_f1` is F1 for this label: 2a / (1 + a) for accuracy a, because precision is 1.
    """

    n: int
    accuracy: Estimate | None
    own_class_f1: Estimate | None


class SplitChange(NamedTuple):
    """Changes with the second method: F1 on all answers, D_J+, and D_J-, and accuracy in each of `FOUR_WAYS`."""

    f1: Estimate | None
    f1_right: Estimate | None
    f1_wrong: Estimate | None
    accuracies: tuple[Estimate | None, ...]


def quality(truth: Flags, judged: Flags, clusters: Clusters, resampling: Resampling) -> CorrectnessScores:
    """Compute precision, recall, and F1 for `correct`, accuracy, and F1 for `incorrect`.

    Source: Self-Reference, equations 7-9.
    """
    _check(truth, judged)
    every = np.ones_like(truth)
    bases = [
        Basis(rows=judged, kind="share"),
        Basis(rows=truth, kind="share"),
        Basis(rows=every, kind="f1", decided=truth | judged),
        Basis(rows=every, kind="share"),
        Basis(rows=every, kind="f1", decided=~(truth & judged)),
    ]
    estimates = defined_estimates(_cells(truth, judged), _quality_of_counts, bases, clusters, resampling)
    return CorrectnessScores(truth.size, *estimates)


def split_quality(own: Flags, truth: Flags, judged: Flags, clusters: Clusters, resampling: Resampling) -> SplitQuality:
    """Compute F1 on D_J+ and D_J-; `own` is whether the judge's own answer is right (G_i, equation 10).

    Source: Self-Reference, Table 1.
    """
    _check(own, truth, judged)

    def statistic(sums: Floats) -> Floats:
        right, wrong = _f1(sums[:, :4]), _f1(sums[:, 4:])
        return np.stack([right, wrong, right - wrong], axis=1)

    bases = [*(_f1_basis(rows, truth, judged) for rows in (own, ~own)), Basis(rows=np.ones_like(own))]
    return SplitQuality(*defined_estimates(_split_cells(own, truth, judged), statistic, bases, clusters, resampling))


def four_way(
    own: Flags, truth: Flags, judged: Flags, clusters: Clusters, resampling: Resampling
) -> tuple[FourWayCell, ...]:
    """Compute accuracy and own-class F1 in each of `FOUR_WAYS`.

    Source: Self-Reference, section 4.2 and Figure 2.
    """
    _check(own, truth, judged)
    masks = [(own == own_right) & (truth == agent_right) for own_right, agent_right in FOUR_WAYS]
    bases = [Basis(rows=mask, kind="share") for mask in masks]
    accuracies = defined_estimates(_split_cells(own, truth, judged), _four_accuracies, bases, clusters, resampling)
    return tuple(
        FourWayCell(n=int(mask.sum()), accuracy=accuracy, own_class_f1=accuracy and _own_class_f1(accuracy))
        for mask, accuracy in zip(masks, accuracies, strict=True)
    )


def _own_class_f1(accuracy: Estimate) -> Estimate:
    value, low, high = (2 * a / (1 + a) for a in (accuracy.value, accuracy.low, accuracy.high))
    return replace(accuracy, value=value, low=low, high=high)


def split_change(
    own: Flags, truth: Flags, judged: tuple[Flags, Flags], clusters: Clusters, resampling: Resampling
) -> SplitChange:
    """Compute how F1 and accuracies change with a second method; `judged` contains the labels from both methods.

    Source: Self-Reference, appendix C.5 and Figures 15-17.
    """
    _check(own, truth, *judged)

    def scores(sums: Floats) -> Floats:
        both = sums[:, :4] + sums[:, 4:]
        return np.column_stack([_f1(both), _f1(sums[:, :4]), _f1(sums[:, 4:]), _four_accuracies(sums)])

    def statistic(sums: Floats) -> Floats:
        return scores(sums[:, 8:]) - scores(sums[:, :8])

    rows = [np.ones_like(own), own, ~own]
    rows += [(own == own_right) & (truth == agent_right) for own_right, agent_right in FOUR_WAYS]
    values = np.column_stack([_split_cells(own, truth, verdicts) for verdicts in judged])
    bases = [Basis(rows=mask) for mask in rows]
    f1, right, wrong, *cells = defined_estimates(values, statistic, bases, clusters, resampling)
    return SplitChange(f1=f1, f1_right=right, f1_wrong=wrong, accuracies=tuple(cells))


def overconfidence(truth: Flags, judged: Flags, clusters: Clusters, resampling: Resampling) -> Estimate | None:
    """Compute the share of answers judged correct minus the share of correct answers; None if empty.

    Source: Self-Reference, Table 2.
    """
    _check(truth, judged)
    values = np.column_stack([judged.astype(np.float64) - truth, np.ones(truth.size)])
    [difference] = defined_estimates(values, _pairs_of_sums, [Basis(rows=np.ones_like(truth))], clusters, resampling)
    return difference


def generation_accuracy(own: Flags, questions: Sequence[Hashable], resampling: Resampling) -> Estimate | None:
    """Compute the share of questions that the judge answers correctly, averaging over the rows of each question.

    Source: Self-Reference, equation 3.
    """
    by_question: dict[Hashable, list[bool]] = {}
    for key, flag in zip(questions, own.tolist(), strict=True):
        by_question.setdefault(key, []).append(flag)
    values = np.array([[float(np.mean(flags)), 1.0] for flags in by_question.values()]).reshape(-1, 2)
    basis = Basis(rows=np.ones(len(values), dtype=np.bool_), kind="share")
    [accuracy] = defined_estimates(values, _pairs_of_sums, [basis], None, resampling)
    return accuracy


def _f1_basis(rows: Flags, truth: Flags, judged: Flags) -> Basis:
    return Basis(rows=rows, kind="f1", decided=rows & (truth | judged))


def _cells(truth: Flags, judged: Flags) -> Floats:
    return np.asarray(np.eye(4)[2 * ~truth + ~judged], dtype=np.float64)


def _split_cells(own: Flags, truth: Flags, judged: Flags) -> Floats:
    cells = _cells(truth, judged)
    return np.column_stack([cells * own[:, None], cells * ~own[:, None]])


def _quality_of_counts(sums: Floats) -> Floats:
    hit, missed, false, passed = sums.T
    precision, recall = ratio(hit, hit + false), ratio(hit, hit + missed)
    accuracy = ratio(hit + passed, sums.sum(axis=1))
    return np.stack([precision, recall, _f1(sums), accuracy, _f1(sums[:, ::-1])], axis=1)


def _f1(sums: Floats) -> Floats:
    hit, missed, false, _ = sums.T
    return np.where(hit + missed > 0, ratio(2 * hit, 2 * hit + missed + false), np.nan)


def _four_accuracies(sums: Floats) -> Floats:
    pairs = sums.reshape(len(sums), 4, 2)  # in the order of FOUR_WAYS: judged correct, judged incorrect
    as_they_are = pairs[:, [0, 1, 2, 3], [0, 1, 0, 1]]
    return ratio(as_they_are, pairs.sum(axis=2))


def _check(*flags: Flags) -> None:
    if any(array.ndim != 1 or array.shape != flags[0].shape for array in flags):
        raise ValueError(f"correctness: expected arrays of the same shape (n,), got {[array.shape for array in flags]}")
