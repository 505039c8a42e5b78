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
    log_odds,
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
    # two pairs of 0.5 in one bin: off by 1, 0, 0 or 1 of 2 with equal odds, so 1/4 on average; apart, 1/2 as alone
    outcome, probability = np.array([True, True]), np.array([0.5, 0.51])
    for ends, chance in (([0.0, 1.0], 0.25), ([0.0, 0.5, 1.0], 0.5)):
        found = calibration_error(outcome, probability, np.array(ends), ["a", "b"], HOW)
        assert found.by_chance == pytest.approx(chance, abs=0.06)


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


def test_edges_by_hand():
    probability = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    assert bin_edges(probability, 4, "uniform").tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert bin_edges(probability, 1, "quantile").tolist() == [0.0, 1.0]
    assert bin_edges(probability, 2, "quantile").tolist() == [0.0, 0.3, 1.0]  # the median
    assert bin_edges(np.array([0.5] * 9 + [0.7]), 5, "quantile").tolist() == [0.0, 0.5, 1.0]  # equal ones: fewer bins
    for bins, pairs in ((0, probability), (1, np.array([]))):
        with pytest.raises(ValueError, match=f"{bins} bins over {pairs.size} pairs"):
            bin_edges(pairs, bins, "uniform")


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=40))
def test_error_is_a_share_and_zero_for_what_is_certain_and_so(pairs):
    outcome, probability = (np.array(column) for column in zip(*pairs, strict=True))
    edges = bin_edges(probability, 10, "uniform")
    cells = error_cells(outcome, probability, edges)
    assert 0 <= errors_of_sums(cells.sum(axis=0, keepdims=True))[0] <= 1
    certain = error_cells(outcome, outcome.astype(float), edges)
    assert errors_of_sums(certain.sum(axis=0, keepdims=True))[0] == 0


def test_the_temperature_that_was_put_in_comes_out():
    outcome, probability = drawn(4000, slope=2.5)
    found = fit_temperature(outcome, probability, list(range(4000)), HOW)
    assert found.temperature.low < 2.5 < found.temperature.high
    assert found.slope.value == pytest.approx(1 / found.temperature.value)
    assert (found.slope.low, found.slope.high) == (1 / found.temperature.high, 1 / found.temperature.low)
    assert (found.slope.n, found.temperature.n, found.intercept) == (4000, 4000, None)
    assert found(np.array([0.9]))[0] == pytest.approx(expit(logit(0.9) / found.temperature.value))


def test_log_odds_divided_by_25_have_a_25th_of_the_temperature():
    few = Resampling(resamples=40)
    plain, timid = (fit_temperature(*drawn(200, slope=slope), list(range(200)), few) for slope in (1, 1 / 25))
    # 0.039 instead of 0.975: near the least temperature that is looked for, 0.02, and inside of the range all the same
    for side in ("value", "low", "high"):
        assert getattr(timid.temperature, side) == pytest.approx(getattr(plain.temperature, side) / 25, rel=1e-3)


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
    assert [found.intercept.value, found.slope.value] == pytest.approx(known.params.tolist(), abs=1e-6)
    assert [found.intercept.low, found.intercept.high] == pytest.approx(known.conf_int()[0].tolist(), abs=0.02)
    assert [found.slope.low, found.slope.high] == pytest.approx(known.conf_int()[1].tolist(), abs=0.02)
    assert (found.slope.n, found.intercept.n, found.temperature) == (1000, 1000, None)
    assert found(np.array([0.5, 0.9])) == pytest.approx(known.predict([[1, 0], [1, logit(0.9)]]), abs=1e-4)


def test_the_other_answers_probabilities_turn_the_slope_and_its_interval_round():
    # 1 - p has the log-odds of p with the other sign, in each resample too
    outcome, probability = drawn(60, slope=1.7, shift=0.5)
    few = Resampling(resamples=40)
    one, other = (fit_platt(outcome, p, list(range(60)), few) for p in (probability, 1 - probability))
    turned = [-other.slope.value, -other.slope.high, -other.slope.low]
    assert [one.slope.value, one.slope.low, one.slope.high] == pytest.approx(turned)
    assert [one.intercept.low, one.intercept.high] == pytest.approx([other.intercept.low, other.intercept.high])


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
    # nor where one probability has both outcomes and all others are on its right side, or on its wrong one
    probability = np.array([0.1, 0.5, 0.5, 0.9])
    for either in (outcome, ~outcome, outcome | True, outcome & False):  # nor of one outcome alone
        assert fit_platt(either, probability, list("abcd"), HOW) is None


def test_a_judge_that_is_always_wrong_has_no_temperature_but_a_negative_slope():
    outcome, probability = drawn(slope=-1)
    assert fit_temperature(outcome, probability, list(range(1000)), HOW) is None
    assert fit_platt(outcome, probability, list(range(1000)), HOW).slope.high < 0


@pytest.mark.parametrize(("seed", "lacking"), [(4, 1), (36, 2)])
def test_an_interval_bears_one_resample_in_twenty_without_a_fit(seed, lacking):
    # four pairs are on the wrong side of 0.5; a resample without them (one in 87), or with so few of them that another
    # threshold separates the outcomes, has no fit; `lacking` counts these
    probability = np.linspace(0.05, 0.95, 20)
    outcome = np.array([char == "1" for char in "00000011001100111111"])
    found = fit_platt(outcome, probability, list(range(20)), Resampling(seed=seed, resamples=20))
    ends = [found.slope.low, found.slope.high, found.intercept.low, found.intercept.high]
    assert np.isfinite(ends).tolist() == [lacking == 1] * 4


def test_certainty_is_held_off_the_ends():
    # ln(1e-6 / (1 - 1e-6)) = -13.8155
    assert log_odds(np.array([0.0, 0.5, 1.0])) == pytest.approx([-13.8155, 0, 13.8155], abs=1e-4)
    outcome, probability = drawn()
    probability[:2] = (0.0, 1.0)
    assert np.isfinite(fit_temperature(outcome, probability, list(range(1000)), HOW).temperature.value)


@pytest.mark.parametrize(
    ("outcome", "probability", "finding"),
    [
        ([], [], "undefined"),
        ([True], [0.1, 0.2], "two arrays"),
        ([[True]], [[0.1]], "two arrays"),
        ([True], [1.2], "outside"),
        ([True], [-0.2], "outside"),
    ],
)
def test_what_cannot_be_measured(outcome, probability, finding):
    pairs = (np.array(outcome, dtype=bool), np.array(probability))
    edges = np.array([0.0, 1.0])
    for measure in (
        lambda: fit_temperature(*pairs, ["a"], HOW),
        lambda: fit_platt(*pairs, ["a"], HOW),
        lambda: reliability(*pairs, edges, ["a"], HOW),
        lambda: calibration_error(*pairs, edges, ["a"], HOW),
    ):
        with pytest.raises(ValueError, match=finding):
            measure()
