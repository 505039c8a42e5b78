import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn.calibration import calibration_curve
from statsmodels.api import GLM, add_constant
from statsmodels.genmod.families import Binomial

from judgelm.metrics.calibration import (
    bin_edges,
    calibration_error,
    error_cells,
    errors_of_sums,
    fit_platt,
    fit_temperature,
    reliability,
)
from judgelm.metrics.resampling import Resampling

HOW = Resampling(seed=0, resamples=200)


def drawn(n=1000, slope=1.0, shift=0.0, seed=0):
    """Outcomes of known probabilities, and what a judge says that multiplies their log-odds."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(0, 1.5, n)
    return rng.random(n) < expit(odds + shift), expit(slope * odds)


def test_error_by_hand():
    # bins (0, 0.5] and (0.5, 1]: |0.2 + 0.4 - 1| = 0.4 and |0.9 + 0.7 - 2| = 0.4, over 4 pairs
    outcome, probability = np.array([False, True, True, True]), np.array([0.2, 0.4, 0.9, 0.7])
    found = calibration_error(outcome, probability, bin_edges(probability, 2, "uniform"), list("abcd"), HOW)
    assert found.error.value == pytest.approx(0.2)
    assert found.error.n == 4


def test_error_by_chance_by_hand():
    # one pair of 0.5 is off by 0.5 whatever comes out; one of 0 and one of 1 are never off
    edges = np.array([0.0, 1.0])
    for probability, chance in ((0.5, 0.5), (0.0, 0.0), (1.0, 0.0)):
        found = calibration_error(np.array([True]), np.array([probability]), edges, ["a"], HOW)
        assert found.by_chance == pytest.approx(chance)


@pytest.mark.parametrize("binning", ["uniform", "quantile"])
def test_the_curve_is_scikit_learns(binning):
    outcome, probability = drawn()
    found = reliability(outcome, probability, bin_edges(probability, 7, binning), list(range(1000)), HOW)
    share, mean = calibration_curve(outcome, probability, n_bins=7, strategy=binning)
    assert [one.mean for one in found] == pytest.approx(mean)
    assert [one.hits.value for one in found] == pytest.approx(share)
    assert sum(one.hits.n for one in found) == 1000
    assert all(one.low <= one.mean <= one.high and one.hits.low <= one.hits.value <= one.hits.high for one in found)


def test_edges_belong_to_the_lower_bin_and_both_ends_to_some():
    probability = np.array([0.0, 0.5, 1.0])
    found = reliability(np.array([True] * 3), probability, bin_edges(probability, 2, "uniform"), list("abc"), HOW)
    assert [(one.low, one.high, one.hits.n) for one in found] == [(0.0, 0.5, 2), (0.5, 1.0, 1)]


def test_equal_probabilities_make_fewer_quantile_bins():
    assert bin_edges(np.array([0.5] * 9 + [0.7]), 5, "quantile").tolist() == [0.0, 0.5, 1.0]


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=40))
def test_error_is_a_share_and_zero_for_what_is_certain_and_so(pairs):
    outcome, probability = (np.array(column) for column in zip(*pairs, strict=True))
    edges = bin_edges(probability, 10, "uniform")
    cells = error_cells(outcome, probability, edges)
    assert 0 <= errors_of_sums(cells.sum(axis=0, keepdims=True))[0] <= 1
    certain = error_cells(outcome, outcome.astype(float), edges)
    assert errors_of_sums(certain.sum(axis=0, keepdims=True))[0] == 0


def test_a_calibrated_judge_has_about_the_error_of_chance_and_temperature_one():
    outcome, probability = drawn(4000)
    clusters = list(range(4000))
    error = calibration_error(outcome, probability, bin_edges(probability, 10, "uniform"), clusters, HOW)
    assert error.error.value < 2 * error.by_chance
    temperature = fit_temperature(outcome, probability, clusters, HOW).temperature
    assert temperature.low < 1 < temperature.high


def test_the_temperature_that_was_put_in_comes_out():
    outcome, probability = drawn(4000, slope=2.5)
    found = fit_temperature(outcome, probability, list(range(4000)), HOW)
    assert found.temperature.low < 2.5 < found.temperature.high
    assert found.slope.value == pytest.approx(1 / found.temperature.value)
    assert found(np.array([0.9]))[0] == pytest.approx(expit(logit(0.9) / found.temperature.value))


def test_a_temperature_keeps_exchanged_answers_exchanged():
    outcome, probability = drawn(slope=2)
    scaling = fit_temperature(outcome, probability, list(range(1000)), HOW)
    turned = fit_temperature(~outcome, 1 - probability, list(range(1000)), HOW)
    assert turned.temperature.value == pytest.approx(scaling.temperature.value)
    assert scaling(1 - probability) == pytest.approx(1 - scaling(probability))


def test_platt_is_the_logistic_regression_of_statsmodels():
    outcome, probability = drawn(slope=1.7, shift=0.5)
    found = fit_platt(outcome, probability, list(range(1000)), HOW)
    known = GLM(outcome.astype(float), add_constant(logit(probability)), family=Binomial()).fit()
    assert [found.intercept.value, found.slope.value] == pytest.approx(known.params.tolist(), abs=1e-4)
    assert [found.intercept.low, found.intercept.high] == pytest.approx(known.conf_int()[0].tolist(), abs=0.05)


def test_one_question_of_many_pairs_is_one_draw():
    outcome, probability = drawn(200)
    alone = fit_temperature(outcome, probability, list(range(200)), HOW).temperature
    copies = [np.repeat(one, 5) for one in (outcome, probability, np.arange(200))]
    together = fit_temperature(copies[0], copies[1], copies[2].tolist(), HOW).temperature
    assert (together.low, together.high) == (pytest.approx(alone.low, rel=0.1), pytest.approx(alone.high, rel=0.1))


def test_outcomes_that_a_threshold_separates_have_no_best_scaling():
    outcome, probability = np.array([False, False, True, True]), np.array([0.1, 0.2, 0.8, 0.9])
    assert fit_temperature(outcome, probability, list("abcd"), HOW) is None
    assert fit_platt(outcome, probability, list("abcd"), HOW) is None


def test_a_judge_that_is_always_wrong_has_no_temperature_but_a_negative_slope():
    outcome, probability = drawn(slope=-1)
    assert fit_temperature(outcome, probability, list(range(1000)), HOW) is None
    assert fit_platt(outcome, probability, list(range(1000)), HOW).slope.high < 0


def test_certainty_is_held_off_the_ends():
    outcome, probability = drawn()
    probability[:2] = (0.0, 1.0)
    assert np.isfinite(fit_temperature(outcome, probability, list(range(1000)), HOW).temperature.value)


@pytest.mark.parametrize(
    ("outcome", "probability", "finding"),
    [([], [], "undefined"), ([True], [0.1, 0.2], "two arrays"), ([True], [1.2], "outside")],
)
def test_what_cannot_be_measured(outcome, probability, finding):
    with pytest.raises(ValueError, match=finding):
        fit_temperature(np.array(outcome, dtype=bool), np.array(probability), ["a"], HOW)
