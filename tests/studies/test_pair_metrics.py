import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss

from judgelm.records import Judgment, Label, PairVerdict, Shown
from judgelm.studies.evaluation import EvaluationOptions, evaluate
from judgelm.studies.pair_metrics import proper_losses


def judged(key, probability):
    shown = (Shown(order=(0, 1), text="8 6", scores=(8, 6)),)
    return Judgment(
        sample_id=key, mode="pair", verdict=PairVerdict(winner=1), shown=shown, scores=(8, 6), probability=probability
    )


def scores_of(probabilities, winners):
    judgments = [judged(str(i), probability) for i, probability in enumerate(probabilities)]
    labels = {str(i): Label(sample_id=str(i), winner=winner) for i, winner in enumerate(winners)}
    return evaluate(judgments, labels, options=EvaluationOptions()).probabilities


def test_by_hand():
    # 0.8 for what is so: 0.04 and -ln 0.8; 0.6 for what is not: 0.36 and -ln 0.4
    found = scores_of([0.8, 0.6], [1, 2])
    assert found.brier.value == pytest.approx(0.2)
    assert found.log_loss.value == pytest.approx(-(math.log(0.8) + math.log(0.4)) / 2)
    assert (found.n, found.brier.n) == (2, 2)
    assert found.brier.low <= found.brier.value <= found.brier.high


def test_ties_among_the_labels_and_missing_probabilities_are_left_out_and_counted():
    found = scores_of([0.8, 0.5, None, 0.9], [1, "tie", 1, 1])
    assert (found.n, found.tied_labels, found.without) == (2, 1, 1)
    assert found.brier.value == pytest.approx((0.04 + 0.01) / 2)


def test_without_any_probability_there_is_nothing_to_score():
    assert scores_of([None, None], [1, 2]) is None


def test_only_tied_labels_leave_no_number():
    found = scores_of([0.5], ["tie"])
    assert (found.n, found.brier, found.log_loss) == (0, None, None)


def test_the_means_are_scikit_learns():
    rng = np.random.default_rng(0)
    truth, probability = rng.random(200) < 0.5, rng.random(200)
    probability[:2] = (0.0, 1.0)
    truth[:2] = (True, False)  # certain, and wrong
    brier, logs = proper_losses(truth, probability).mean(axis=0)
    assert brier == pytest.approx(brier_score_loss(truth, probability))
    assert logs == pytest.approx(log_loss(truth, probability))


def test_exchanging_all_answers_changes_no_score():
    one = scores_of([0.8, 0.3, 0.6], [1, 2, 2])
    other = scores_of([0.2, 0.7, 0.4], [2, 1, 1])
    assert other.brier.value == pytest.approx(one.brier.value)
    assert other.log_loss.value == pytest.approx(one.log_loss.value)


def test_pairs_of_one_question_are_resampled_together():
    judgments = [judged(str(i), 0.9 if i < 20 else 0.1) for i in range(40)]
    labels = {str(i): Label(sample_id=str(i), winner=1) for i in range(40)}
    clusters = {str(i): i // 10 for i in range(40)}
    alone, together = (evaluate(judgments, labels, clusters=one).probabilities.brier for one in (None, clusters))
    assert together.high - together.low > alone.high - alone.low


def test_repaired_judgments_and_reasons_are_counted():
    from judgelm.records import Unparsed

    plain = judged("a", 0.5)
    mended = replace(
        plain, sample_id="b", shown=(replace(plain.shown[0], repaired=Unparsed("off_grammar", "x"), reason="y"),)
    )
    labels = {key: Label(sample_id=key, winner=1) for key in "ab"}
    counts = evaluate([plain, mended], labels).counts
    assert (counts.judged, counts.repaired, counts.reasons) == (2, 1, 1)
