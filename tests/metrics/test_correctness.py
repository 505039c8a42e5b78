"""Scores of judgments that call answers correct or not, and of gates on the agreement of self-solves."""

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from judgelm.metrics.correctness import (
    accuracies,
    calibration_curve,
    four_way,
    gate_scores,
    generation_accuracy,
    overconfidence,
    quality,
    split_change,
    split_quality,
    thresholds,
)
from judgelm.metrics.resampling import Resampling

HOW = Resampling(resamples=300)


def flags(text):
    return np.array([char == "1" for char in text], dtype=bool)


def values(*estimates):
    return [None if estimate is None else pytest.approx(estimate.value) for estimate in estimates]


def test_precision_recall_and_f1_by_hand():
    # judged correct 4, of them 3 are; correct 5: P = 3/4, R = 3/5, F1 = 2 * 0.45 / 1.35 = 2/3; incorrect: 2 of (3, 4)
    result = quality(flags("11111000"), flags("11100001"), None, HOW)
    scores = values(result.precision, result.recall, result.f1, result.accuracy, result.f1_incorrect)
    assert scores == [3 / 4, 3 / 5, 2 / 3, 5 / 8, 2 * 2 / (3 + 4)]
    assert (result.precision.n, result.recall.n) == (4, 5)


@pytest.mark.parametrize(
    ("truth", "judged", "expected"),
    [
        ("000", "010", [0.0, None, None, 2 / 3]),  # nothing to find
        ("110", "000", [None, 0.0, 0.0, 1 / 3]),  # nothing judged correct
        ("", "", [None] * 4),
    ],
)
def test_numbers_over_nothing_are_undefined(truth, judged, expected):
    result = quality(flags(truth), flags(judged), None, HOW)
    assert values(result.precision, result.recall, result.f1, result.accuracy) == expected
    assert result.n == len(truth)


def test_shapes_that_differ_are_refused():
    two, single = flags("11"), flags("1")
    for measure, columns in ((quality, 1), (overconfidence, 1), (split_quality, 2), (four_way, 2)):
        with pytest.raises(ValueError, match="same shape"):
            measure(*[two] * columns, single, None, HOW)


def f1_high_of_none(rows):
    _, high = proportion_confint(0, rows, method="wilson")
    return pytest.approx(2 * high / (1 + high))


def test_an_f1_of_zero_or_one_has_the_interval_of_the_rows_that_it_looks_at():
    # two missed and one named so wrongly: J = 0/3, whatever the true negatives are
    result = quality(flags("1100"), flags("0010"), None, HOW).f1
    assert (result.value, result.high, result.n) == (0.0, f1_high_of_none(3), 4)
    # of the incorrect: two missed, one named so wrongly, and two rightly called correct
    result = quality(flags("11100"), flags("11011"), None, HOW).f1_incorrect
    assert (result.value, result.high, result.n) == (0.0, f1_high_of_none(3), 5)
    # all of three: TP 3, TN 2: J = 3/3
    # TP 3, TN 2: J = 3/3, Wilson over three rows; F1 = 2J / (1 + J)
    result = quality(flags("11100"), flags("11100"), None, HOW).f1
    low, _ = proportion_confint(3, 3, method="wilson")
    assert (result.value, result.low, result.high) == (1.0, pytest.approx(2 * low / (1 + low)), pytest.approx(1.0))
    assert result.n == 5


def test_an_f1_by_own_answer_looks_at_rows_of_its_part_alone():
    own, truth, judged = flags("111110000"), flags("110001100"), flags("110000010")
    # D_J+: J = 2/2 and three true negatives; D_J-: two missed and one named so wrongly, J = 0/3
    result = split_quality(own, truth, judged, None, HOW)
    low, _ = proportion_confint(2, 2, method="wilson")
    assert (result.right.value, result.right.low) == (1.0, pytest.approx(2 * low / (1 + low)))
    assert (result.wrong.value, result.wrong.high) == (0.0, f1_high_of_none(3))


# Wilson's low end of 1 of 1, which is all that rows of one question are: 1 / (1 + 1.96^2); and what F1 makes of it
ONE = pytest.approx(0.2065, abs=1e-4)
ONE_F1 = pytest.approx(2 * 0.2065 / 1.2065, abs=1e-4)


def test_rows_of_one_question_are_one_draw():
    truth = flags("11100")
    result = quality(truth, truth, ["q"] * 5, HOW)
    assert (result.precision.low, result.recall.low, result.accuracy.low) == (ONE, ONE, ONE)
    assert (result.f1.low, result.f1_incorrect.low) == (ONE_F1, ONE_F1)
    assert split_quality(flags("11111"), truth, truth, ["q"] * 5, HOW).right.low == ONE_F1
    cells = four_way(flags("11111"), truth, truth, ["q"] * 5, HOW)
    assert (cells[0].accuracy.low, cells[1].accuracy.low) == (ONE, ONE)
    assert (cells[0].own_class_f1.low, cells[0].own_class_f1.high) == (ONE_F1, pytest.approx(1))
    # ten answers each of two questions: both draws are of the first in a quarter of the resamples, or of the second
    two = ["p"] * 10 + ["q"] * 10
    first, every = np.array([key == "p" for key in two]), flags("1" * 20)
    over = overconfidence(first, every, two, HOW)
    assert (over.value, over.low, over.high) == (0.5, 0.0, 1.0)
    # the second way misses the ten of q: F1 = 20 / 30 instead of 1; of p alone 1, of q alone 0
    change = split_change(every, every, (every, first), two, HOW).f1
    assert (change.value, change.low, change.high) == (pytest.approx(-1 / 3), -1.0, 0.0)


def test_f1_by_own_answer_and_its_gap():
    own, truth, judged = flags("111110000"), flags("111001100"), flags("110101001")
    # D_J+: TP 2, FN 1, FP 1: 4/6. D_J-: TP 0 (110 0 -> judged 1,0,0,1): TP 1, FN 1, FP 1: 2/4
    result = split_quality(own, truth, judged, None, HOW)
    assert values(result.right, result.wrong, result.gap) == [4 / 6, 2 / 4, 4 / 6 - 2 / 4]
    assert (result.right.n, result.wrong.n, result.gap.n) == (5, 4, 9)
    right = split_quality(flags("111"), flags("110"), flags("110"), None, HOW)  # it answers everything right
    assert (right.right.value, right.wrong, right.gap) == (1.0, None, None)


def test_the_four_ways_have_accuracy_and_own_class_f1():
    own, truth, judged = flags("111100"), flags("110011"), flags("111000")
    # J+ correct: 2/2; J+ incorrect: 1/2, F1 of incorrect = 2 * 0.5 / 1.5; J- correct: 0/2; J- incorrect: none
    cells = four_way(own, truth, judged, None, HOW)
    assert [cell.n for cell in cells] == [2, 2, 2, 0]
    assert values(*(cell.accuracy for cell in cells)) == [1.0, 0.5, 0.0, None]
    assert values(*(cell.own_class_f1 for cell in cells)) == [1.0, 2 / 3, 0.0, None]
    assert (cells[2].own_class_f1.low, cells[2].own_class_f1.high) == (0.0, f1_high_of_none(2))


def test_change_is_second_minus_first_on_the_same_answers():
    own, truth = flags("1100"), flags("1010")
    # the first says correct to all: F1 = 2/3 in both parts; the second is right on all of J+ and wrong on all of J-
    result = split_change(own, truth, (flags("1111"), flags("1001")), None, HOW)
    assert values(result.f1_right, result.f1_wrong) == [1 - 2 / 3, 0 - 2 / 3]
    assert values(result.f1) == [2 * 1 / (2 + 1 + 1) - 2 * 2 / (4 + 2)]
    assert values(*result.accuracies) == [0.0, 1.0, -1.0, 0.0]
    # one, two, three and four answers in the cells, of which the first two are D_J+
    own, truth = flags("1110000000"), flags("1001110000")
    result = split_change(own, truth, (flags("1" * 10), flags("0" * 10)), None, HOW)
    assert (result.f1.n, result.f1_right.n, result.f1_wrong.n) == (10, 3, 7)
    assert [accuracy.n for accuracy in result.accuracies] == [1, 2, 3, 4]


def test_overconfidence_is_judged_correct_minus_correct():
    result = overconfidence(flags("1100"), flags("1110"), None, HOW)
    assert (result.value, result.n) == (0.25, 4)
    assert overconfidence(flags("11"), flags("10"), None, HOW).value == -0.5
    assert overconfidence(flags(""), flags(""), None, HOW) is None


def test_generation_accuracy_counts_each_question_once():
    # q1 right in three rows, q2 wrong in one, q3 right in one of two: (1 + 0 + 1/2) / 3
    result = generation_accuracy(flags("111010"), ["q1", "q1", "q1", "q2", "q3", "q3"], HOW)
    assert (result.value, result.n) == (0.5, 3)
    assert generation_accuracy(flags(""), [], HOW) is None
    # Wilson's low end of 2 of 2 questions: 2 / (2 + 1.96^2)
    assert generation_accuracy(flags("111"), ["q1", "q1", "q2"], HOW).low == pytest.approx(0.3424, abs=1e-4)
    with pytest.raises(ValueError, match="argument 2 is longer"):
        generation_accuracy(flags("11"), ["q1"], HOW)


def test_gate_rate_and_precision_by_hand():
    # on for 4 of 5; of those 3 are known, 2 right
    result = gate_scores(flags("11110"), flags("11000"), flags("11101"), None, HOW)
    assert (result.rate.value, result.rate.n) == (0.8, 5)
    assert (result.precision.value, result.precision.n) == (pytest.approx(2 / 3), 3)
    # never on: no precision
    result = gate_scores(flags("000"), flags("111"), flags("111"), None, HOW)
    assert (result.rate.value, result.rate.high > 0.0, result.precision) == (0.0, True, None)


def test_items_of_one_question_are_one_draw():
    # all on and all right
    every = flags("1111")
    result = gate_scores(every, every, every, ["q"] * 4, HOW)
    [level] = calibration_curve(np.ones(4), every, ["q"] * 4, HOW)
    [condition], _ = accuracies(np.ones((4, 1)), [], ["q"] * 4, HOW)
    assert [result.rate.low, result.precision.low, level.right.low, condition.low] == [ONE] * 4


def test_accuracies_and_their_difference_leave_out_what_does_not_count():
    credits = np.array([[1.0, 1.0], [0.0, 0.5], [0.0, 1.0], [1.0, np.nan]])
    [first, second], [gain] = accuracies(credits, [(1, 0)], None, HOW)
    # 2 of 4; (1 + 0.5 + 1) of 3
    assert (first.value, first.n) == (0.5, 4)
    assert (second.value, second.n) == (pytest.approx(2.5 / 3), 3)
    assert (gain.value, gain.n) == (pytest.approx(2.5 / 3 - 0.5), 3)
    assert accuracies(np.empty((0, 2)), [(1, 0)], [], HOW) == ([None, None], [None])


def test_calibration_has_a_point_for_each_level():
    result = calibration_curve(np.array([1.0, 1.0, 0.6, 0.6, 0.6, 0.8]), flags("111000"), None, HOW)
    assert [(level.agreement, level.n, level.right.value) for level in result] == [
        (0.6, 3, pytest.approx(1 / 3)), (0.8, 1, 0.0), (1.0, 2, 1.0),
    ]  # fmt: skip
    assert calibration_curve(np.array([]), flags(""), [], HOW) == ()
    # levels that differ only by rounding
    [result] = calibration_curve(np.array([0.6, 0.1 * 6, 3 / 5 + 1e-12]), flags("110"), None, HOW)
    assert (result.agreement, result.n, result.right.value) == (0.6, 3, pytest.approx(2 / 3))


def test_thresholds_are_those_at_which_the_gate_changes():
    assert thresholds([5, 5]) == (0.2, 0.4, 0.6, 0.8, 1.0)
    assert thresholds([2, 4]) == (0.25, 0.5, 0.75, 1.0)
