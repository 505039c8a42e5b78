import numpy as np
import pytest

from judgelm.metrics.drift import DriftLimits, drift_reasons, probability_drift, verdict_drift
from judgelm.metrics.resampling import Resampling

RESAMPLING = Resampling(resamples=500)


def test_the_size_is_the_mean_over_orders_and_pairs():
    before = np.array([[0.5, 0.5], [0.2, 0.8]])
    after = np.array([[0.6, 0.4], [0.2, 0.9]])
    drift = probability_drift(before, after, ["a", "b"], RESAMPLING)
    # |differences| (0.1, 0.1) and (0, 0.1): 0.1 and 0.05, mean 0.075; signed 0 and 0.05, mean 0.025
    assert drift.size.value == pytest.approx(0.075)
    assert drift.largest == pytest.approx(0.1)
    assert drift.shift.value == pytest.approx(0.025)
    assert drift.size.n == 2


def test_a_shift_of_five_pairs_has_the_exact_p_value():
    before = np.full((5, 2), 0.5)
    drift = probability_drift(before, before + np.linspace(0.1, 0.2, 5)[:, None], list(range(5)), RESAMPLING)
    # all 5 signs alike: 2 of the 32 sign patterns are as far from 0
    assert drift.shift_p == pytest.approx(2 / 32)


def test_without_any_difference_there_is_no_shift():
    same = np.full((3, 2), 0.7)
    drift = probability_drift(same, same, [1, 2, 3], RESAMPLING)
    assert (drift.size.value, drift.size.high, drift.shift_p) == (0.0, 0.0, 1.0)


def test_pairs_without_a_probability_take_no_part():
    before, after = np.array([[0.5, np.nan], [0.5, 0.5]]), np.array([[0.9, 0.9], [0.5, 0.6]])
    assert probability_drift(before, after, [1, 2], RESAMPLING).size.value == pytest.approx(0.05)
    assert probability_drift(before[:1], after[:1], [1], RESAMPLING) is None


def test_changed_verdicts_are_counted_by_direction_and_a_failure_is_a_verdict():
    drift = verdict_drift([1, 0, -1, None, 1], [1, 1, 1, None, None], [None] * 5)
    assert (drift.count, drift.to_first, drift.to_second) == (3, 2, 0)
    assert drift.changed.value == pytest.approx(0.6)
    assert drift.sign_p == pytest.approx(0.5)  # two of two: 2 / 4
    assert drift.right is None


def test_the_interval_of_no_change_is_wilsons():
    drift = verdict_drift([1] * 60, [1] * 60, [1] * 60)
    # z^2 / (n + z^2) = 3.8415 / 63.8415
    assert drift.changed.high == pytest.approx(0.0602, abs=1e-4)
    assert drift.right.both == 60


def test_each_limit_gives_its_reason():
    rng = np.random.default_rng(0)
    before = rng.uniform(0.2, 0.8, (60, 2))
    small = probability_drift(before, before + 0.005, list(range(60)), RESAMPLING)
    large = probability_drift(before, before + 0.05, list(range(60)), RESAMPLING)
    same = verdict_drift([1] * 60, [1] * 60, [1] * 60)
    turned = verdict_drift([1] * 60, [-1] * 10 + [1] * 50, [1] * 60)
    limits = DriftLimits()
    assert drift_reasons(small, same, limits) == []
    assert ["tolerance" in reason for reason in drift_reasons(large, same, limits)] == [True]
    reasons = drift_reasons(small, turned, limits)
    assert [reason.split(" (")[0] for reason in reasons] == [
        "10 of 60 verdicts changed",
        "changed verdicts turn one way: 0 to the first answer, 10 to the second",
        "rightness changed: 10 verdicts right before alone, 0 right now alone",
    ]


def test_arrays_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        probability_drift(np.zeros((2, 2)), np.zeros((3, 2)), [1, 2], RESAMPLING)
    with pytest.raises(ValueError, match="no pair"):
        verdict_drift([], [], [])
