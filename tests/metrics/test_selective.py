import numpy as np
import pytest

from judgelm.metrics.correctness import accuracies, calibration_curve, gate_scores, thresholds
from judgelm.metrics.resampling import Resampling

HOW = Resampling(resamples=300)
NAN = float("nan")


def flags(text):
    return np.array([char == "1" for char in text], dtype=bool)


def test_gate_rate_and_precision_by_hand():
    # on for 4 of 5; of those 3 are known, 2 right
    result = gate_scores(flags("11110"), flags("11000"), flags("11101"), None, HOW)
    assert (result.rate.value, result.rate.n) == (0.8, 5)
    assert (result.precision.value, result.precision.n) == (pytest.approx(2 / 3), 3)


def test_items_of_one_question_are_one_draw():
    # all on and all right; Wilson's low end of 1 of 1 is 1 / (1 + 1.96^2) = 0.2065
    every = flags("1111")
    result = gate_scores(every, every, every, ["q"] * 4, HOW)
    [level] = calibration_curve(np.ones(4), every, ["q"] * 4, HOW)
    [condition], _ = accuracies(np.ones((4, 1)), [], ["q"] * 4, HOW)
    lows = [result.rate.low, result.precision.low, level.right.low, condition.low]
    assert lows == pytest.approx([0.2065] * 4, abs=1e-4)


def test_a_gate_that_is_never_on_has_no_precision():
    result = gate_scores(flags("000"), flags("111"), flags("111"), None, HOW)
    assert result.rate.value == 0.0
    assert result.rate.high > 0.0
    assert result.precision is None


def test_accuracies_and_their_difference_leave_out_what_does_not_count():
    credits = np.array([[1.0, 1.0], [0.0, 0.5], [0.0, 1.0], [1.0, NAN]])
    [first, second], [gain] = accuracies(credits, [(1, 0)], None, HOW)
    # 2 of 4; (1 + 0.5 + 1) of 3
    assert (first.value, first.n) == (0.5, 4)
    assert (second.value, second.n) == (pytest.approx(2.5 / 3), 3)
    assert (gain.value, gain.n) == (pytest.approx(2.5 / 3 - 0.5), 3)


def test_accuracies_of_no_items_are_undefined():
    assert accuracies(np.empty((0, 2)), [(1, 0)], [], HOW) == ([None, None], [None])


def test_calibration_has_a_point_for_each_level():
    result = calibration_curve(np.array([1.0, 1.0, 0.6, 0.6, 0.6, 0.8]), flags("111000"), None, HOW)
    assert [(level.agreement, level.n, level.right.value) for level in result] == [
        (0.6, 3, pytest.approx(1 / 3)), (0.8, 1, 0.0), (1.0, 2, 1.0),
    ]  # fmt: skip
    assert calibration_curve(np.array([]), flags(""), [], HOW) == ()


def test_levels_that_differ_by_rounding_alone_are_one():
    [result] = calibration_curve(np.array([0.6, 0.1 * 6, 3 / 5 + 1e-12]), flags("110"), None, HOW)
    assert (result.agreement, result.n, result.right.value) == (0.6, 3, pytest.approx(2 / 3))


def test_thresholds_are_those_at_which_the_gate_changes():
    assert thresholds([5, 5]) == (0.2, 0.4, 0.6, 0.8, 1.0)
    assert thresholds([2, 4]) == (0.25, 0.5, 0.75, 1.0)
