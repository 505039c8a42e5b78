import math

import numpy as np
import pytest
from scipy import stats

from judgelm.metrics.correlation import band, fisher_interval, generation_judgment, partial_change
from judgelm.metrics.resampling import Resampling

HOW = Resampling(resamples=400)
EACH_CLUSTER_ONCE = Resampling(seed=0, resamples=1)  # of two clusters
ONE_CLUSTER_TWICE = Resampling(seed=3, resamples=1)
G, J, A = "G (judge's own answer right)", "J (judgment right)", "A (agent's answer right)"


def numbers(text):
    return np.array([float(char) for char in text])


def draw(n=300, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.random(n) < 0.6
    g = rng.random(n) < np.where(a, 0.8, 0.4)
    j = rng.random(n) < np.where(a, 0.9, np.where(g, 0.7, 0.3))
    return g.astype(float), j.astype(float), a.astype(float)


def residuals(values, control):
    design = np.column_stack([np.ones_like(control), control])
    return values - design @ np.linalg.lstsq(design, values, rcond=None)[0]


def test_pairwise_and_partial_by_hand():
    # 2 x 2 x 2, each of the eight once, and (1, 1, 1) once more; n = 9, sums 5, products 3:
    # each r = (9 * 3 - 25) / (9 * 5 - 25) = 2/20; partial = (0.1 - 0.01) / (1 - 0.01) = 1/11
    result = generation_judgment(numbers("000011111"), numbers("001100111"), numbers("010101011"), None, HOW)
    assert result.g_j.estimate.value == pytest.approx(0.1)
    assert result.g_a.estimate.value == pytest.approx(0.1)
    assert result.g_j_given_a.estimate.value == pytest.approx(1 / 11)
    assert result.n == 9


def test_the_partial_correlation_is_that_of_the_residuals():
    g, j, a = draw()
    result = generation_judgment(g, j, a, None, HOW).g_j_given_a
    assert result.estimate.value == pytest.approx(stats.pearsonr(residuals(g, a), residuals(j, a)).statistic)
    assert result.estimate.low < result.estimate.value < result.estimate.high
    assert result.fisher == fisher_interval(result.estimate.value, 300, controlled=1)


def test_each_correlation_is_of_the_variables_that_it_names():
    g, j, a = draw()
    result = generation_judgment(g, j, a, None, HOW)
    pairs = {"g_j": (g, j), "g_a": (g, a), "j_a": (j, a)}
    for name, (one, other) in pairs.items():
        estimate = getattr(result, name).estimate
        known, fisher = stats.pearsonr(one, other), getattr(result, name).fisher
        assert estimate.value == pytest.approx(known.statistic)
        assert (fisher.low, fisher.high) == pytest.approx(tuple(known.confidence_interval(0.95)))
        assert (estimate.low, estimate.high) == pytest.approx((fisher.low, fisher.high), abs=0.04)
        assert estimate.n == fisher.n == 300


def test_fisher_loses_a_degree_of_freedom_for_what_is_held_fixed():
    # z = atanh(0.5) = 0.5493; n = 104, one held fixed: reach 1.96 / sqrt(100) = 0.196
    result = fisher_interval(0.5, 104, controlled=1)
    assert (result.low, result.high) == pytest.approx((math.tanh(0.3533), math.tanh(0.7453)), abs=1e-4)
    assert (result.value, result.n) == (0.5, 104)
    # Spearman's z varies more; n = 109: reach 1.96 * sqrt(1.06 / 106) = 0.196 as well
    spearmans = fisher_interval(0.5, 109, variance=1.06)
    assert (spearmans.low, spearmans.high) == pytest.approx((result.low, result.high), abs=1e-4)
    assert [fisher_interval(0.5, n, controlled=1) is None for n in (4, 5)] == [True, False]
    assert [fisher_interval(value, 100) for value in (1.0, -1.0)] == [None, None]


@pytest.mark.parametrize(
    ("g", "j", "a", "why"),
    [
        ("1111", "1010", "1100", f"constant: {G}"),
        ("1010", "1111", "1100", f"constant: {J}"),
        ("1010", "1001", "0000", f"constant: {A}"),
        ("1111", "1111", "0000", f"constant: {G}, {J}, {A}"),
        ("1100", "1010", "1100", "A determines G or J (a correlation of 1 or -1)"),
        ("10", "01", "10", "A determines G or J (a correlation of 1 or -1)"),
        ("1", "1", "1", "1 judged answers; a correlation requires at least two"),
        ("", "", "", "0 judged answers; a correlation requires at least two"),
    ],
)
def test_what_is_constant_or_determined_is_undefined_and_says_so(g, j, a, why):
    result = generation_judgment(numbers(g), numbers(j), numbers(a), None, HOW).g_j_given_a
    assert result.estimate is None
    assert result.fisher is None
    assert result.why == why


@pytest.mark.parametrize(
    ("g", "j", "a", "defined"),
    [("1010", "1000", "1111", "g_j"), ("1010", "1111", "1000", "g_a"), ("1111", "1010", "1000", "j_a")],
)
def test_a_constant_leaves_the_correlation_in_which_it_has_no_part(g, j, a, defined):
    result = generation_judgment(numbers(g), numbers(j), numbers(a), None, HOW)
    # n = 4; sums 2 and 1, products 1: (4 - 2) / sqrt((8 - 4) * (4 - 1)) = 2 / sqrt(12)
    assert getattr(result, defined).estimate.value == pytest.approx(2 / 12**0.5)
    assert getattr(result, defined).why == ""
    named = {"g_j": A, "g_a": J, "j_a": G}[defined]
    for other in {"g_j", "g_a", "j_a", "g_j_given_a"} - {defined}:
        assert (getattr(result, other).estimate, getattr(result, other).why) == (None, f"constant: {named}")


def test_two_judged_answers_have_a_correlation_and_no_interval_of_fisher():
    result = generation_judgment(numbers("01"), numbers("01"), numbers("10"), None, HOW)
    assert (result.g_j.estimate.value, result.g_a.estimate.value) == (pytest.approx(1), pytest.approx(-1))
    assert result.g_j.fisher is None
    # one answer drawn twice, in half of the resamples, is constant
    assert result.g_j.undefined_resamples == pytest.approx(0.5, abs=0.08)


def test_the_gain_is_of_the_same_rows():
    g, j, a = draw()
    result = partial_change((g, j, a), (g, g, a), None, HOW)
    first = generation_judgment(g, j, a, None, HOW).g_j_given_a.estimate.value
    assert result.value == pytest.approx(1 - first)
    assert (result.low < result.value < result.high, result.n) == (True, 300)
    nothing = (numbers(""),) * 3
    assert partial_change(nothing, nothing, None, HOW) is None
    assert partial_change((g, j, a), (g, np.ones_like(g), a), None, HOW) is None


def test_the_gain_rests_on_the_resamples_that_have_it():
    # A is 1 in the one question and 0 in the other, so that a resample of one question twice has no gain
    g, j, other, a = numbers("10100011"), numbers("10010110"), numbers("11100010"), numbers("11110000")
    questions = list("ppppqqqq")
    assert partial_change((g, j, a), (g, other, a), questions, ONE_CLUSTER_TWICE) is None
    result = partial_change((g, j, a), (g, other, a), questions, EACH_CLUSTER_ONCE)
    assert result.low == result.high == pytest.approx(result.value)


def test_bands_of_the_paper():
    bands = [band(value) for value in (-0.4, 0.2999, 0.3, 0.4999, 0.5)]
    assert bands == ["weak", "weak", "moderate", "moderate", "strong"]
