import math

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss

from judgelm.records import Label
from judgelm.studies.evaluation import EvaluationOptions, evaluate
from judgelm.studies.pair_metrics import proper_losses
from tests.support.studies import judged_pair


def scores_of(probabilities, winners):
    judgments = [judged_pair(str(i), 1, probability=probability) for i, probability in enumerate(probabilities)]
    labels = {str(i): Label(sample_id=str(i), winner=winner) for i, winner in enumerate(winners)}
    return evaluate(judgments, labels, options=EvaluationOptions()).probabilities


def test_by_hand():
    # 0.8 for what is so: 0.04 and -ln 0.8; 0.6 for what is not: 0.36 and -ln 0.4
    result = scores_of([0.8, 0.6], [1, 2])
    assert result.brier.value == pytest.approx(0.2)
    assert result.log_loss.value == pytest.approx(-(math.log(0.8) + math.log(0.4)) / 2)
    assert (result.n, result.brier.n) == (2, 2)
    assert result.brier.low <= result.brier.value <= result.brier.high


def test_ties_among_the_labels_and_missing_probabilities_are_left_out_and_counted():
    result = scores_of([0.8, 0.5, None, 0.9], [1, "tie", 1, 1])
    assert (result.n, result.tied_labels, result.without) == (2, 1, 1)
    assert result.brier.value == pytest.approx((0.04 + 0.01) / 2)


def test_only_tied_labels_leave_no_number_and_no_probability_no_scores():
    result = scores_of([0.5], ["tie"])
    assert (result.n, result.brier, result.log_loss) == (0, None, None)
    assert scores_of([None, None], [1, 2]) is None


def test_the_means_are_scikit_learns():
    rng = np.random.default_rng(0)
    truth, probability = rng.random(200) < 0.5, rng.random(200)
    probability[:2] = (0.0, 1.0)
    truth[:2] = (True, False)  # certain, and wrong
    brier, logs = proper_losses(truth, probability).mean(axis=0)
    assert brier == pytest.approx(brier_score_loss(truth, probability))
    assert logs == pytest.approx(log_loss(truth, probability))
