import warnings

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from judgelm.metrics.agreement import agreement, confusion, confusion_cells, scores_of_confusion

TRUTH = np.array([1, 1, -1, 0])
PREDICTED = np.array([1, -1, -1, 1])


def test_agreement_of_four_pairs():
    result = agreement(TRUTH, PREDICTED)
    # hits: pairs 1 and 3 -> 2/4
    assert result.accuracy == 0.5
    # precision: first 1/2, second 1/2, tie never predicted -> 0; mean 1/3
    assert result.precision == pytest.approx(1 / 3)
    # recall: first 1/2, second 1/1, tie 0/1; mean 1/2
    assert result.recall == pytest.approx(0.5)
    # F1: first 2*1/(2+2) = 1/2, second 2*1/(1+2) = 2/3, tie 0; mean 7/18
    assert result.f1 == pytest.approx(7 / 18)
    assert result.n == 4


def test_macro_runs_over_labels_that_occur():
    # no tie in truth or prediction: two labels, not three; -1 is never predicted, of which scikit-learn would warn
    with warnings.catch_warnings(action="error"):
        result = agreement(np.array([1, -1]), np.array([1, 1]))
    # precision (1/2 + 0) / 2, recall (1 + 0) / 2
    assert (result.precision, result.recall) == (0.25, 0.5)


def test_confusion_rows_are_the_truth():
    assert confusion(TRUTH, PREDICTED).tolist() == [[1, 0, 1], [1, 0, 0], [0, 0, 1]]


def test_cells_sum_to_the_confusion_matrix():
    cells = confusion_cells(TRUTH, PREDICTED)
    assert cells.sum(axis=0).reshape(3, 3).tolist() == confusion(TRUTH, PREDICTED).tolist()


@pytest.mark.parametrize("labels", [[1, 0, -1], [1, -1], [1]])
def test_confusion_formulas_are_scikit_learns(labels):
    # so few pairs that some have a label in one cell alone, or in none
    samples = np.random.default_rng(3).choice(labels, size=(30, 2, 4))
    matrices = np.stack([confusion(truth, predicted) for truth, predicted in samples])
    for ours, (truth, predicted) in zip(scores_of_confusion(matrices.astype(float)), samples, strict=True):
        theirs = precision_recall_fscore_support(truth, predicted, average="macro", zero_division=0)[:3]
        assert ours == pytest.approx([accuracy_score(truth, predicted), *theirs], abs=1e-12)


@pytest.mark.parametrize("measure", [agreement, confusion, confusion_cells])
@pytest.mark.parametrize(
    ("truth", "predicted", "finding"),
    [
        ([], [], "none given"),
        ([1], [1, 0], "one shape"),
        ([[1, 0]], [[1, 0]], "one shape"),
        ([2], [1], "got \\[2\\]"),
        ([1], [-2], "got \\[-2\\]"),
    ],
)
def test_undefined_agreement_is_an_error(measure, truth, predicted, finding):
    with pytest.raises(ValueError, match=finding):
        measure(np.array(truth, dtype=int), np.array(predicted, dtype=int))
