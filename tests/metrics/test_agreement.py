"""Agreement of labels: scores, position bias, judges against people, and two judges on the same pairs."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, cohen_kappa_score, precision_recall_fscore_support
from statsmodels.stats.inter_rater import cohens_kappa as statsmodels_kappa

from judgelm.metrics.agreement import (
    cohens_kappa,
    confusion,
    confusion_cells,
    human_agreement,
    mcnemar,
    paired_difference,
    position_cells,
    scores_of_confusion,
)
from judgelm.metrics.correlation import kappas
from judgelm.metrics.resampling import Resampling, bootstrap_sums, interval

EXPECTED = Path(__file__).parents[2].parent / "shared" / "data" / "expected" / "judgelm_metrics.json"
HOW = Resampling(seed=0, resamples=2000)
TRUTH = np.array([1, 1, -1, 0])
PREDICTED = np.array([1, -1, -1, 1])


def test_scores_of_four_pairs():
    [scores] = scores_of_confusion(confusion(TRUTH, PREDICTED)[None].astype(float))
    # accuracy: hits are pairs 1 and 3 -> 2/4
    # precision: first 1/2, second 1/2, tie never predicted -> 0; mean 1/3
    # recall: first 1/2, second 1/1, tie 0/1; mean 1/2
    # F1: first 2*1/(2+2) = 1/2, second 2*1/(1+2) = 2/3, tie 0; mean 7/18
    assert scores == pytest.approx([0.5, 1 / 3, 0.5, 7 / 18])
    # rows are the truth
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


@pytest.mark.parametrize(
    "measure",
    [confusion, confusion_cells, position_cells, mcnemar, partial(paired_difference, clusters=None, resampling=HOW)],
)
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
    bias = {"consistency": consistency, "perfer_before_rate": toward_first, "perfer_after_rate": toward_second}
    bias |= {"delta_bias": abs(toward_first - toward_second), "total_bias": toward_first + toward_second}
    scores = dict(zip(("accuracy", "precision", "recall", "f1"), scores, strict=True))
    assert scores | bias | {"total_num": len(given)} == pytest.approx(expected, abs=1e-9)


def test_agreement_of_people_by_hand():
    result = human_agreement([1, 0], [[1, 1, -1], [0, 0, 0]], None, HOW)
    # people: pair 1 agrees in 1 of 3 annotator pairs, pair 2 in 3 of 3 -> (1/3 + 1) / 2 = 2/3
    # judge: 2 of 3 annotators, then 3 of 3 -> 5/6
    values = (result.human_human.value, result.judge_human.value, result.difference.value)
    assert values == pytest.approx((2 / 3, 5 / 6, 1 / 6))
    assert result.annotators == (3, 3)
    # two raters, three pairs: agree on +1, agree on -1, differ. P = (1 + 1 + 0) / 3 = 2/3;
    # shares 1/2 and 1/2, so chance is 1/2: kappa = (2/3 - 1/2) / (1 - 1/2) = 1/3
    result = human_agreement([1, 1, 1], [[1, 1], [-1, -1], [1, -1]], None, HOW)
    assert result.fleiss_kappa == pytest.approx(1 / 3)
    # uneven or unanimous votes have no kappa
    assert human_agreement([1, 1], [[1, 1], [1, -1, 0]], None, HOW).fleiss_kappa is None
    assert human_agreement([1], [[1, 1]], None, HOW).fleiss_kappa is None
    assert human_agreement([1, 1, 1], [[1, 1], [1, 1, 0], [1, 0, 0, 1]], None, HOW).annotators == (2, 4)


def test_pairs_of_one_question_are_one_draw_for_people_and_judge():
    # 8 pairs of 2 questions, all alike: Wilson's low end of 2 of 2 is 2 / (2 + 1.96^2) = 0.3424, of 8 of 8 0.6756
    clusters = ["a"] * 4 + ["b"] * 4
    result = human_agreement([1] * 8, [[1, 1]] * 8, clusters, HOW)
    assert [result.human_human.low, result.judge_human.low] == pytest.approx([0.3424] * 2, abs=1e-4)
    # one question all right and one all wrong: the mean of two draws is 0 or 1 in a quarter of the resamples each
    halves = human_agreement([1] * 8, [[1, 1]] * 4 + [[-1, 0]] * 4, clusters, HOW)
    assert (halves.human_human.low, halves.human_human.high) == (0, 1)
    assert (halves.judge_human.low, halves.judge_human.high) == (0, 1)


@pytest.mark.parametrize("votes", [[], [[1]], [[1, 1], [1]]])
def test_one_vote_is_not_agreement(votes):
    with pytest.raises(ValueError, match="two or more votes"):
        human_agreement([1] * len(votes), votes, None, HOW)


def bits(text):
    return np.array([letter == "1" for letter in text])


def test_difference_by_hand():
    # right on 3 of 4 and on 1 of 4
    result = paired_difference(bits("1110"), bits("1000"), None, HOW)
    assert (result.value, result.n) == (0.5, 4)
    # of two pairs that differ and two alike, four draws hold 0 to 4 that differ; 0 and 4 in 6 % of the resamples each
    assert (result.low, result.high) == (0.0, 1.0)
    # Wilson's upper end for 0 of 4: z^2 / (n + z^2) = 3.8415 / 7.8415 = 0.4899
    result = paired_difference(bits("1100"), bits("1100"), None, HOW)
    assert (result.value, result.low, result.high) == pytest.approx((0, -0.4899, 0.4899), abs=1e-4)
    # one judge always right, the other never:
    # Wilson's upper end for 0 of 2 is 3.8415 / 5.8415 = 0.6576, of 0 of 1 question 3.8415 / 4.8415 = 0.7935
    result = paired_difference(bits("11"), bits("00"), None, HOW)
    assert (result.value, result.low, result.high, result.n) == (1, pytest.approx(0.3424, abs=1e-4), 1, 2)
    turned = paired_difference(bits("00"), bits("11"), ["q", "q"], HOW)
    assert (turned.value, turned.low, turned.high) == (-1, -1, pytest.approx(-0.2065, abs=1e-4))


def test_mcnemar_counts_and_is_the_binomial_test():
    result = mcnemar(bits("11110001"), bits("11000010"))
    # both: 0, 1; only first: 2, 3, 7; only second: 6; neither: 4, 5
    assert (result.both, result.only_first, result.only_second, result.neither) == (2, 3, 1, 2)
    assert result.p_value == pytest.approx(binomtest(3, 4).pvalue)
    assert mcnemar(bits("10"), bits("10")).p_value == 1


def test_kappa_by_hand():
    # observed 3/4; chance: 1/2 * 3/4 + 1/2 * 1/4 = 1/2; (3/4 - 1/2) / (1 - 1/2) = 1/2
    result = cohens_kappa(np.array([1, 1, -1, -1]), np.array([1, 1, 1, -1]), None, HOW)
    assert result.value == pytest.approx(0.5)
    # of one label throughout it agrees as often as that occurs, which is chance; 0/0 where both have but one
    assert cohens_kappa(np.array([1, 1, 1, 1]), np.array([1, -1, 1, -1]), None, HOW).value == 0
    assert cohens_kappa(np.array([1, 1]), np.array([1, 1]), None, HOW) is None


def test_kappa_is_scikit_learns_and_its_interval_near_statsmodels():
    rng = np.random.default_rng(1)
    first = rng.integers(-1, 2, 600)
    second = np.where(rng.random(600) < 0.6, first, rng.integers(-1, 2, 600))
    result = cohens_kappa(first, second, None, HOW)
    known = statsmodels_kappa(confusion(first, second))
    assert (result.value, result.n) == (pytest.approx(cohen_kappa_score(first, second)), 600)
    sums = bootstrap_sums(confusion_cells(first, second), None, HOW)
    assert (result.low, result.high) == interval(kappas(sums.reshape(-1, 3, 3), quadratic=False))
    assert (result.low, result.high) == pytest.approx((known.kappa_low, known.kappa_upp), abs=0.01)
    assert kappas(confusion(first, second)[None].astype(float), quadratic=False)[0] == pytest.approx(result.value)


def test_kappa_draws_the_pairs_of_one_question_together():
    # ten pairs of a question are judged alike and ten of another the other way round: kappa 1, 0 or -1
    first, second = np.array([1, -1] * 10), np.array([1, -1] * 5 + [-1, 1] * 5)
    result = cohens_kappa(first, second, ["p"] * 10 + ["q"] * 10, HOW)
    assert (result.value, result.low, result.high) == (0, -1, 1)


@pytest.mark.parametrize(("seed", "undefined", "ends"), [(3, 1, (1, 1)), (2, 2, (np.nan, np.nan))])
def test_kappa_has_no_interval_where_more_than_one_resample_in_twenty_is_undefined(seed, undefined, ends):
    labels, how = np.array([1, 1, -1, -1]), Resampling(seed=seed, resamples=20)
    sums = bootstrap_sums(confusion_cells(labels, labels), None, how)
    samples = kappas(sums.reshape(-1, 3, 3), quadratic=False)
    assert np.isnan(samples).sum() == undefined
    result = cohens_kappa(labels, labels, None, how)
    assert result.value == 1
    assert (result.low, result.high) == pytest.approx(ends, nan_ok=True)
