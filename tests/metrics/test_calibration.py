import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn.calibration import calibration_curve

from judgelm.metrics.calibration import (
    bin_edges,
    calibration_error,
    error_cells,
    errors_of_sums,
    fit_temperature,
    log_odds,
    reliability,
    scale,
)
from judgelm.metrics.resampling import Resampling

HOW = Resampling(seed=0, resamples=200)


def drawn(n=1000, slope=1.0):
    """Outcomes of known probabilities, and what a judge says that multiplies their log-odds."""
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 1.5, n)
    return rng.random(n) < expit(odds), expit(slope * odds)


def test_error_by_hand():
    # bins (0, 0.5] and (0.5, 1]: |0.2 + 0.4 - 1| = 0.4 and |0.9 + 0.7 - 2| = 0.4, over 4 pairs
    outcome, probability = np.array([False, True, True, True]), np.array([0.2, 0.4, 0.9, 0.7])
    error = calibration_error(outcome, probability, bin_edges(2), list("abcd"), HOW).error
    assert (error.value, error.n) == (pytest.approx(0.2), 4)
    # by chance:
    # one pair of 0.5 is off by 0.5 whatever comes out; one of 0 and one of 1 are never off
    for probability, chance in ((0.5, 0.5), (0.0, 0.0), (1.0, 0.0)):
        result = calibration_error(np.array([True]), np.array([probability]), np.array([0.0, 1.0]), ["a"], HOW)
        assert result.by_chance == pytest.approx(chance)
    # two pairs of 0.5 in one bin: off by 1, 0, 0 or 1 of 2 with equal odds, so 1/4 on average; apart, 1/2 as alone
    outcome, probability = np.array([True, True]), np.array([0.5, 0.51])
    for ends, chance in (([0.0, 1.0], 0.25), ([0.0, 0.5, 1.0], 0.5)):
        result = calibration_error(outcome, probability, np.array(ends), ["a", "b"], HOW)
        assert result.by_chance == pytest.approx(chance, abs=0.06)


def test_pairs_of_one_question_are_one_draw_for_the_error_and_for_a_bin():
    outcome, probability = np.array([True] * 3 + [False]), np.array([0.6, 0.7, 0.8, 0.9])
    edges = np.array([0.0, 0.85, 1.0])
    error = calibration_error(outcome, probability, edges, ["a"] * 4, HOW).error
    # |0.9| in the first bin (3 - 2.1) and 0.9 in the second, over 4: always, since there is one question to draw
    assert (error.low, error.value, error.high) == pytest.approx((0.45, 0.45, 0.45))
    # three hits of one question: Wilson's low end of 1 of 1 is 1 / (1 + 1.96^2) = 0.2065
    [first, second] = reliability(outcome, probability, edges, ["a", "a", "a", "b"], HOW)
    assert (first.hits.low, second.hits.high) == pytest.approx((0.2065, 1 - 0.2065), abs=1e-4)
    assert (first.low, first.high, second.low, second.high) == (0.0, 0.85, 0.85, 1.0)


def test_the_curve_is_scikit_learns():
    outcome, probability = drawn()
    result = reliability(outcome, probability, bin_edges(7), list(range(1000)), HOW)
    share, mean = calibration_curve(outcome, probability, n_bins=7)
    assert [level.mean for level in result] == pytest.approx(mean)
    assert [level.hits.value for level in result] == pytest.approx(share)
    assert sum(level.hits.n for level in result) == 1000
    assert all(level.low <= level.mean <= level.high for level in result)
    assert all(level.hits.low <= level.hits.value <= level.hits.high for level in result)
    # an edge belongs to the lower bin, and both ends to some bin
    result = reliability(np.array([True] * 3), np.array([0.0, 0.5, 1.0]), bin_edges(2), list("abc"), HOW)
    assert [(level.low, level.high, level.hits.n) for level in result] == [(0.0, 0.5, 2), (0.5, 1.0, 1)]


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=40))
def test_error_is_a_share_and_zero_for_what_is_certain_and_so(pairs):
    outcome, probability = (np.array(column) for column in zip(*pairs, strict=True))
    edges = bin_edges(10)
    cells = error_cells(outcome, probability, edges)
    assert 0 <= errors_of_sums(cells.sum(axis=0, keepdims=True))[0] <= 1
    certain = error_cells(outcome, outcome.astype(float), edges)
    assert errors_of_sums(certain.sum(axis=0, keepdims=True))[0] == 0


def test_the_temperature_that_was_put_in_comes_out():
    outcome, probability = drawn(4000, slope=2.5)
    result = fit_temperature(outcome, probability, list(range(4000)), HOW)
    assert (result.low < 2.5 < result.high, result.n) == (True, 4000)
    assert scale(np.array([0.9]), result.value)[0] == pytest.approx(expit(logit(0.9) / result.value))
    # pairs of one question are one draw
    outcome, probability = drawn(200)
    alone = fit_temperature(outcome, probability, list(range(200)), HOW)
    outcome, probability, questions = (np.repeat(column, 5) for column in (outcome, probability, np.arange(200)))
    together = fit_temperature(outcome, probability, questions.tolist(), HOW)
    assert (together.low, together.high) == pytest.approx((alone.low, alone.high), rel=0.1)


def test_without_a_best_temperature_there_is_none():
    outcome, probability = np.array([False, False, True, True]), np.array([0.1, 0.2, 0.8, 0.9])
    assert fit_temperature(outcome, probability, list("abcd"), HOW) is None  # the colder the better
    outcome, probability = drawn(slope=-1)
    assert fit_temperature(outcome, probability, list(range(1000)), HOW) is None  # the hotter the better


def test_certainty_is_held_off_the_ends():
    # ln(1e-6 / (1 - 1e-6)) = -13.8155
    assert log_odds(np.array([0.0, 0.5, 1.0])) == pytest.approx([-13.8155, 0, 13.8155], abs=1e-4)
    outcome, probability = drawn()
    probability[:2] = (0.0, 1.0)
    assert np.isfinite(fit_temperature(outcome, probability, list(range(1000)), HOW).value)


@pytest.mark.parametrize(
    ("outcome", "probability", "finding"),
    [
        ([], [], "at least one pair"),
        ([True], [0.1, 0.2], "two arrays"),
        ([[True]], [[0.1]], "two arrays"),
        ([True], [1.2], "outside"),
    ],
)
def test_what_cannot_be_measured(outcome, probability, finding):
    with pytest.raises(ValueError, match=finding):
        calibration_error(np.array(outcome, dtype=bool), np.array(probability), bin_edges(1), ["a"], HOW)
