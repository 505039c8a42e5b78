"""From what judges said to numbers: a row of sums for each pair and seed, a cell's numbers, two cells' difference."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.replication.crossed import crossed_difference, crossed_estimate
from benchmarks.replication.plan import Shown
from benchmarks.replication.runs import Outcome
from judgelm.data.labelled_pair import LabelledPair
from judgelm.metrics.agreement import confusion_cells, position_cells, scores_of_confusion
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.studies.pair_labels import label_of, pair_winner

MEASURES = (
    "agreement", "precision", "recall", "f1", "consistency", "toward_first", "toward_second", "delta_bias", "impartial",
)  # fmt: skip
"""`impartial` is the agreement with the teacher as it would judge without a preference for a place."""

_FAILED = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The held-out pairs' labels under one format: +1 first better, 0 tie, -1 second better.

    Attributes:
        teacher: shape (pairs,), what the teacher said, as in the paper.
        impartial: shape (pairs,), what it would have said without its preference for a place.
        questions: one key a pair.
    """

    teacher: NDArray[np.int_]
    impartial: NDArray[np.int_]
    questions: Sequence[Hashable]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One kind of judges, tested in one format.

    Attributes:
        values: shape (seeds, pairs, 14), what `_numbers` sums up.
        failed: prompts whose reply could not be read, over seeds and orders.
    """

    values: NDArray[np.float64]
    questions: Sequence[Hashable]
    failed: int

    @property
    def seeds(self) -> int:
        """Number of judges."""
        return len(self.values)


def truth_of(teacher: Sequence[LabelledPair], impartial: Sequence[LabelledPair], shown: Shown) -> Truth:
    """Labels of the format in which judges are tested: the teacher saw a reference where they do."""
    labels = [np.array([_label(pair, shown) for pair in pairs]) for pairs in (teacher, impartial)]
    return Truth(teacher=labels[0], impartial=labels[1], questions=[str(pair.sample.question) for pair in teacher])


def cell_of(outcomes: Sequence[Outcome], truth: Truth) -> Cell:
    """The judges of one cell; a pair that a judge failed on counts in none of the numbers that need it."""
    failed = sum(labels.count(None) for outcome in outcomes for labels in (outcome.given, outcome.swapped))
    return Cell(
        values=np.stack([_rows(outcome, truth) for outcome in outcomes]), questions=truth.questions, failed=failed
    )


def measure(cell: Cell, resampling: Resampling) -> dict[str, Estimate]:
    """Every measure, as a share in [0, 1], with a 95 % interval over questions and seeds."""
    estimates = crossed_estimate(cell.values, _numbers, cell.questions, resampling)
    return dict(zip(MEASURES, estimates, strict=True))


def difference(first: Cell, second: Cell, resampling: Resampling) -> dict[str, Estimate]:
    """By how much each measure of `one` exceeds that of `other`, paired by question and seed (those that both have)."""
    seeds = min(first.seeds, second.seeds)
    estimates = crossed_difference(first.values[:seeds], second.values[:seeds], _numbers, first.questions, resampling)
    return dict(zip(MEASURES, estimates, strict=True))


def pooled(cells: Sequence[Cell]) -> Cell:
    """Several cells as one: the judges of a seed taken together, over the seeds that all have."""
    seeds = min(cell.seeds for cell in cells)
    values = np.concatenate([cell.values[:seeds] for cell in cells], axis=1)
    questions = [question for cell in cells for question in cell.questions]
    return Cell(values=values, questions=questions, failed=sum(cell.failed for cell in cells))


def _label(pair: LabelledPair, shown: Shown) -> int:
    label = pair.referenced if shown == "with" else pair.plain
    assert label is not None, "the world's teacher judges every pair both ways"
    return label_of(pair_winner(label))


def _rows(outcome: Outcome, truth: Truth) -> NDArray[np.float64]:
    """Shape (pairs, 14): nine cells of the confusion matrix, three of position, hit and count with the impartial."""
    given, swapped = (
        np.array([_FAILED if label is None else label for label in labels])
        for labels in (outcome.given, outcome.swapped)
    )
    values = np.zeros((len(given), 14))
    read, both = given != _FAILED, (given != _FAILED) & (swapped != _FAILED)
    if read.any():
        values[read, :9] = confusion_cells(truth.teacher[read], given[read])
    if both.any():
        values[both, 9:12] = position_cells(given[both], swapped[both])
    values[read, 12] = given[read] == truth.impartial[read]
    values[read, 13] = 1
    return values


def _numbers(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Column sums, shape (m, 14), to measures, shape (m, 9)."""
    places = sums[:, 9:12] / sums[:, 9:12].sum(axis=1, keepdims=True)
    delta = np.abs(places[:, 1:2] - places[:, 2:3])
    impartial = sums[:, 12:13] / sums[:, 13:14]
    return np.concatenate([scores_of_confusion(sums[:, :9].reshape(-1, 3, 3)), places, delta, impartial], axis=1)
