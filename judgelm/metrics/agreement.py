"""Agreement of a judge with labels, and its errors.

Labels are integers throughout: +1 the first answer is better, 0 tie, -1 the second is better. What to do with a
judgment that failed is not decided here (see `judgelm.studies.evaluation`): every row given is counted.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support

LABELS = (1, 0, -1)
"""Row and column order of every confusion matrix: first better, tie, second better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Shares in [0, 1]; `accuracy` is what the JudgeLM paper calls agreement."""

    accuracy: float
    precision: float
    recall: float
    f1: float
    n: int


def agreement(truth: NDArray[np.int_], predicted: NDArray[np.int_]) -> Agreement:
    """Accuracy and macro precision, recall and F1, as scikit-learn computes them.

    The macro means run over the labels present in `truth` or `predicted`; a label that is never predicted has
    precision 0, one that never occurs in the truth has recall 0.

    Args:
        truth: shape (n,), +1 first better, 0 tie, -1 second better.
        predicted: shape (n,), alike.

    Raises:
        ValueError: shapes differ, a value is no label, or n is 0 (a share of nothing is not 0).

    Example:
        >>> found = agreement(np.array([1, 1, 0, -1]), np.array([1, -1, 0, -1]))
        >>> found.accuracy, round(found.f1, 3), found.n
        (0.75, 0.778, 4)

    Source: JudgeLM, section 5 (metrics); the original code's `eval_model_judgement.py`.
    """
    _check(truth, predicted)
    precision, recall, f1, _ = precision_recall_fscore_support(truth, predicted, average="macro", zero_division=0)
    accuracy = float(accuracy_score(truth, predicted))
    return Agreement(accuracy=accuracy, precision=float(precision), recall=float(recall), f1=float(f1), n=truth.size)


def confusion(truth: NDArray[np.int_], predicted: NDArray[np.int_]) -> NDArray[np.int_]:
    """Counts of every pair of labels.

    Returns:
        shape (3, 3): row i is the truth `LABELS[i]`, column j the prediction `LABELS[j]`.

    Raises:
        ValueError: shapes differ, a value is no label, or n is 0.
    """
    _check(truth, predicted)
    return np.asarray(confusion_matrix(truth, predicted, labels=LABELS), dtype=np.int_)


def confusion_cells(truth: NDArray[np.int_], predicted: NDArray[np.int_]) -> NDArray[np.float64]:
    """One row per pair with a 1 in its cell of the flattened confusion matrix: what resampling sums up.

    Returns:
        shape (n, 9); the column sums are `confusion(...)` row by row.
    """
    _check(truth, predicted)
    return np.asarray(np.eye(9)[3 * (1 - truth) + (1 - predicted)], dtype=np.float64)


def scores_of_confusion(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Accuracy and macro precision, recall, F1 of many confusion matrices at once.

    The same numbers as `agreement` (a test compares them), without a scikit-learn call for each of 2,000 resamples.
    Within each matrix the macro means run over the labels that occur in it.

    Args:
        matrices: shape (m, 3, 3), rows are the truth; each holds at least one count.

    Returns:
        shape (m, 4): accuracy, precision, recall, F1.
    """
    hits = np.diagonal(matrices, axis1=1, axis2=2)
    in_truth, in_prediction = matrices.sum(axis=2), matrices.sum(axis=1)
    present = (in_truth + in_prediction) > 0
    precision = _ratio(hits, in_prediction)
    recall = _ratio(hits, in_truth)
    f1 = _ratio(2 * hits, in_truth + in_prediction)
    n_present = present.sum(axis=1)
    macro = [(score * present).sum(axis=1) / n_present for score in (precision, recall, f1)]
    return np.stack([hits.sum(axis=1) / matrices.sum(axis=(1, 2)), *macro], axis=1)


def _ratio(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    out = np.zeros(np.shape(numerator), dtype=np.float64)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out


def _check(truth: NDArray[np.int_], predicted: NDArray[np.int_]) -> None:
    if truth.shape != predicted.shape or truth.ndim != 1:
        raise ValueError(f"labels: expected two arrays of one shape (n,), got {truth.shape} and {predicted.shape}")
    if truth.size == 0:
        raise ValueError("labels: none given; agreement over no pairs is undefined")
    unknown = np.setdiff1d(np.union1d(truth, predicted), LABELS)
    if unknown.size:
        raise ValueError(f"labels: expected +1, 0 or -1, got {unknown.tolist()}")
