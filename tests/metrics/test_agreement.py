import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from judgelm.metrics.agreement import confusion, confusion_cells, position_cells, scores_of_confusion

EXPECTED = Path(__file__).parents[2].parent / "shared" / "data" / "expected" / "judgelm_metrics.json"
TRUTH = np.array([1, 1, -1, 0])
PREDICTED = np.array([1, -1, -1, 1])


def test_scores_of_four_pairs():
    [scores] = scores_of_confusion(confusion(TRUTH, PREDICTED)[None].astype(float))
    # accuracy: hits are pairs 1 and 3 -> 2/4
    # precision: first 1/2, second 1/2, tie never predicted -> 0; mean 1/3
    # recall: first 1/2, second 1/1, tie 0/1; mean 1/2
    # F1: first 2*1/(2+2) = 1/2, second 2*1/(1+2) = 2/3, tie 0; mean 7/18
    assert scores == pytest.approx([0.5, 1 / 3, 0.5, 7 / 18])


def test_confusion_rows_are_the_truth():
    assert confusion(TRUTH, PREDICTED).tolist() == [[1, 0, 1], [1, 0, 0], [0, 0, 1]]
    assert confusion_cells(TRUTH, PREDICTED).sum(axis=0).tolist() == [1, 0, 1, 1, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("labels", [[1, 0, -1], [1, -1], [1]])
def test_confusion_formulas_are_scikit_learns(labels):
    # so few pairs that some have a label in one cell alone, or in none
    samples = np.random.default_rng(3).choice(labels, size=(30, 2, 4))
    matrices = np.stack([confusion(truth, predicted) for truth, predicted in samples])
    for ours, (truth, predicted) in zip(scores_of_confusion(matrices.astype(float)), samples, strict=True):
        theirs = precision_recall_fscore_support(truth, predicted, average="macro", zero_division=0)[:3]
        assert ours == pytest.approx([accuracy_score(truth, predicted), *theirs], abs=1e-12)


@pytest.mark.parametrize("measure", [confusion, confusion_cells, position_cells])
@pytest.mark.parametrize(
    ("first", "second", "finding"),
    [([], [], "at least one pair"), ([1], [1, 0], "same shape"), ([[1, 0]], [[1, 0]], "same shape")],
)
def test_other_shapes_are_refused(measure, first, second, finding):
    with pytest.raises(ValueError, match=finding):
        measure(np.array(first, dtype=int), np.array(second, dtype=int))


def test_other_labels_are_refused():
    with pytest.raises(ValueError, match=r"got \[-2, 2\]"):
        confusion(np.array([2]), np.array([-2]))


@pytest.mark.parametrize(
    ("given", "swapped", "cells"),
    [
        # shown first wins in both orders: as given answer 1 (+1), swapped answer 2 (-1)
        ([1, 1], [-1, -1], [[0, 1, 0]] * 2),
        ([1, 0, -1], [1, 0, -1], [[1, 0, 0]] * 3),
        # pair 1 alike; pair 2: answer 1 ties when first and loses when second -> first;
        # pair 3: ties when first, wins when second -> second; pair 4: loses when first, ties when second -> second
        ([1, 0, 0, -1], [1, -1, 1, 0], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]]),
    ],
)
def test_position_cells_are_consistent_toward_first_toward_second(given, swapped, cells):
    assert position_cells(np.array(given), np.array(swapped)).tolist() == cells


def labels(items, field):
    scores = np.array([item[field] for item in items])
    return np.sign(scores[:, 0] - scores[:, 1]).astype(int)


@pytest.mark.skipif(not EXPECTED.exists(), reason=f"{EXPECTED} is absent")
@pytest.mark.parametrize("name", ["clean_no_bad", "perfect", "always_first"])
def test_same_numbers_as_the_original_code(name):
    scenario = json.loads(EXPECTED.read_text())["scenarios"][name]
    items, expected = scenario["items"], scenario["expected_filter_true"]
    truth, given = labels(items, "gt_parsed"), labels(items, "seq_parsed")
    swapped = -labels(items, "rev_parsed")  # written in the order shown; back in sample order
    [scores] = scores_of_confusion(confusion(truth, given)[None].astype(float))
    consistency, toward_first, toward_second = position_cells(given, swapped).mean(axis=0)
    assert {
        **dict(zip(("accuracy", "precision", "recall", "f1"), scores, strict=True)),
        "consistency": consistency,
        "perfer_before_rate": toward_first,
        "perfer_after_rate": toward_second,
        "delta_bias": abs(toward_first - toward_second),
        "total_bias": toward_first + toward_second,
        "total_num": len(given),
    } == pytest.approx(expected, abs=1e-9)
