"""Correlations of labels and grades, and partial correlations: by hand, and against scipy and scikit-learn."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score, matthews_corrcoef

from judgelm.metrics.correlation import (
    MeanCorrelation,
    Rated,
    band,
    correlation,
    fisher_interval,
    generation_judgment,
    grade_correlation,
    kappas,
    kendalls,
    mean_correlation,
    partial_change,
    pearson,
    pearsons,
    spearmans,
)
from judgelm.metrics.resampling import Resampling

HOW = Resampling(resamples=500)


def rated(human, judged):
    human, judged = (np.array(labels, dtype=bool) for labels in (human, judged))
    return Rated(human=human, judged=judged, questions=range(len(human)))


@pytest.mark.parametrize(
    ("human", "judged", "phi"),
    [
        ([1, 1, 1, 0], [1, 1, 0, 0], 2 / 12**0.5),  # (2*1 - 1*0) / sqrt(3*1*2*2)
        ([1, 0, 1], [1, 0, 1], 1),
        ([1, 0, 1], [0, 1, 0], -1),
        ([1, 0], [1, 0], 1),  # two answers are enough
    ],
)
def test_of_two_binary_variables_it_is_phi(human, judged, phi):
    assert pearson(human, judged) == pytest.approx(phi)
    assert correlation(rated(human, judged), HOW).value == pytest.approx(phi)


def test_random_labels_agree_with_scipy_and_scikit_learn():
    rng = np.random.default_rng(0)
    human = rng.random(300) < 0.6
    judged = np.where(rng.random(300) < 0.8, human, ~human)
    result, known = correlation(rated(human, judged), HOW), stats.pearsonr(human.astype(float), judged.astype(float))
    assert (result.value, result.value) == pytest.approx((known.statistic, matthews_corrcoef(human, judged)))
    assert (result.low, result.high) == pytest.approx(tuple(known.confidence_interval()), abs=0.05)
    assert result.n == 300


@pytest.mark.parametrize(
    ("human", "judged"), [([1, 0, 1], [0, 0, 0]), ([1, 1, 1], [1, 0, 1]), ([1], [1]), ([], []), ([1, 1], [1, 1])]
)
def test_a_constant_has_no_correlation(human, judged):
    assert pearson(human, judged) is None
    assert correlation(rated(human, judged), HOW) is None


def test_the_mean_leaves_out_what_is_undefined_and_names_it():
    groups = {
        "a": rated([1, 1, 1, 0], [1, 1, 0, 0]),  # 2 / sqrt(12), as above
        "b": rated([1, 1, 1, 0], [0, 0, 0, 0]),
        "c": rated([1, 0, 1, 0], [1, 0, 1, 0]),  # 1
        "d": rated([1, 0, 1, 0], [0, 1, 0, 1]),  # -1
    }
    result = mean_correlation(groups, HOW)
    assert result.mean.value == pytest.approx(2 / 12**0.5 / 3)
    assert (result.defined, result.undefined, result.mean.n) == (3, ("b",), 12)
    assert result.mean.low <= result.mean.value <= result.mean.high


def test_the_mean_of_one_group_is_that_group_and_of_none_undefined():
    group = rated([1, 1, 1, 0, 0, 1], [1, 1, 0, 0, 1, 1])
    alone = correlation(group, HOW)
    assert mean_correlation({"a": group}, HOW).mean == alone
    # twice the same answers to the same questions, which are drawn together, make the mean no surer
    twice = mean_correlation({"a": group, "b": group}, HOW).mean
    assert (twice.value, twice.low, twice.high, twice.n) == (alone.value, alone.low, alone.high, 12)
    # nothing defined
    result = mean_correlation({"a": rated([1, 1], [1, 0])}, HOW)
    assert result == MeanCorrelation(mean=None, defined=0, undefined=("a",))
    assert mean_correlation({}, HOW) == MeanCorrelation(mean=None, defined=0, undefined=())


def drawn(n=60, seed=0):
    generator = np.random.default_rng(seed)
    reference = generator.integers(1, 6, n)
    return np.clip(reference + generator.integers(-1, 2, n), 1, 5), reference


def table(x, y):
    return np.array([[[np.sum((x == i) & (y == j)) for j in range(1, 6)] for i in range(1, 6)]], dtype=float)


@pytest.mark.parametrize("seed", range(3))
def test_numbers_of_tables_are_scipys_and_scikit_learns(seed):
    x, y = drawn(seed=seed)
    tables, levels = table(x, y), np.arange(1.0, 6.0)
    assert pearsons(tables, levels, levels)[0] == pytest.approx(stats.pearsonr(x, y).statistic)
    assert spearmans(tables)[0] == pytest.approx(stats.spearmanr(x, y).statistic)
    assert kendalls(tables)[0] == pytest.approx(stats.kendalltau(x, y).statistic)
    assert kappas(tables, quadratic=False)[0] == pytest.approx(cohen_kappa_score(x, y))
    assert kappas(tables, quadratic=True)[0] == pytest.approx(cohen_kappa_score(x, y, weights="quadratic"))


def estimates(result):
    return [result.pearson, result.kendall, result.spearman, result.kappa, result.weighted_kappa]


def test_four_grades_by_hand():
    # 3 and 4 changed places: of 6 pairs 5 concordant, 1 discordant, tau 4/6; Pearson and Spearman 1 - 6 * 2 / (4 * 15)
    result = grade_correlation([1, 2, 4, 3], [1, 2, 3, 4], None, None, HOW)
    # kappa: half the same, a quarter expected: (1/2 - 1/4) / (3/4); squares 2 against 4 * 4 * 2.5 / 4 = 10: 1 - 2/10
    assert [estimate.value for estimate in estimates(result)] == pytest.approx([0.8, 4 / 6, 0.8, 1 / 3, 0.8])
    for estimate in estimates(grade_correlation(*drawn(), None, None, HOW)):
        assert (estimate.low < estimate.value < estimate.high, estimate.n) == (True, 60)


@pytest.mark.parametrize(
    ("grades", "reference", "why"),
    [([3, 3, 3], [1, 2, 3], "constant: grades"), ([1, 2, 3], [4, 4, 4], "constant: reference"), ([1], [1], "1 grades")],
)
def test_a_correlation_with_a_constant_is_undefined(grades, reference, why):
    result = grade_correlation(grades, reference, None, None, HOW)
    assert estimates(result) == [None] * 5
    assert result.why.startswith(why)


def test_kappa_needs_whole_grades():
    halves = grade_correlation([1.5, 2, 3], [1, 2, 3], None, None, HOW)
    assert (halves.kappa is None, halves.pearson is None) == (True, False)
    means = grade_correlation([1, 2, 3], [1, 2.33, 3], [1, 2, 3], None, HOW)  # kappa of the categories
    assert means.kappa.value == 1.0


def test_too_few_defined_resamples_give_no_interval():
    result = grade_correlation([3, 3, 3, 4], [1, 2, 3, 4], None, None, HOW)  # (3/4)^4 = 0.32 of them have threes alone
    assert (result.pearson.value > 0, np.isnan(result.pearson.low)) == (True, True)


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
    values = [each.estimate.value for each in (result.g_j, result.g_a, result.g_j_given_a)]
    assert (values, result.n) == (pytest.approx([0.1, 0.1, 1 / 11]), 9)


def test_the_partial_correlation_is_that_of_the_residuals():
    g, j, a = draw()
    result = generation_judgment(g, j, a, None, HOW).g_j_given_a
    assert result.estimate.value == pytest.approx(stats.pearsonr(residuals(g, a), residuals(j, a)).statistic)
    assert result.estimate.low < result.estimate.value < result.estimate.high
    assert result.fisher == fisher_interval(result.estimate.value, 300, controlled=1)


def test_each_correlation_is_of_the_variables_that_it_names():
    g, j, a = draw()
    result = generation_judgment(g, j, a, None, HOW)
    for named, pair in ((result.g_j, (g, j)), (result.g_a, (g, a)), (result.j_a, (j, a))):
        estimate, fisher, known = named.estimate, named.fisher, stats.pearsonr(*pair)
        assert estimate.value == pytest.approx(known.statistic)
        assert (fisher.low, fisher.high) == pytest.approx(tuple(known.confidence_interval(0.95)))
        assert (estimate.low, estimate.high) == pytest.approx((fisher.low, fisher.high), abs=0.04)
        assert estimate.n == fisher.n == 300


def test_fisher_loses_a_degree_of_freedom_for_what_is_held_fixed():
    # z = atanh(0.5) = 0.5493; n = 104, one held fixed: reach 1.96 / sqrt(100) = 0.196
    result = fisher_interval(0.5, 104, controlled=1)
    assert (result.low, result.high) == pytest.approx((np.tanh(0.3533), np.tanh(0.7453)), abs=1e-4)
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
def test_a_constant_or_determined_variable_has_no_partial_correlation_and_a_reason(g, j, a, why):
    result = generation_judgment(numbers(g), numbers(j), numbers(a), None, HOW).g_j_given_a
    assert (result.estimate, result.fisher, result.why) == (None, None, why)


@pytest.mark.parametrize(
    ("g", "j", "a", "defined"),
    [("1010", "1000", "1111", "g_j"), ("1010", "1111", "1000", "g_a"), ("1111", "1010", "1000", "j_a")],
)
def test_a_constant_does_not_affect_the_correlation_of_the_other_two(g, j, a, defined):
    result = generation_judgment(numbers(g), numbers(j), numbers(a), None, HOW)
    # n = 4; sums 2 and 1, products 1: (4 - 2) / sqrt((8 - 4) * (4 - 1)) = 2 / sqrt(12)
    known = getattr(result, defined)
    assert (known.estimate.value, known.why) == (pytest.approx(2 / 12**0.5), "")
    named = {"g_j": A, "g_a": J, "j_a": G}[defined]
    for other in {"g_j", "g_a", "j_a", "g_j_given_a"} - {defined}:
        assert (getattr(result, other).estimate, getattr(result, other).why) == (None, f"constant: {named}")


def test_two_judged_answers_have_a_correlation_and_no_interval_of_fisher():
    result = generation_judgment(numbers("01"), numbers("01"), numbers("10"), None, HOW)
    values = (result.g_j.estimate.value, result.g_a.estimate.value, result.g_j.fisher)
    assert values == (pytest.approx(1), pytest.approx(-1), None)
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


def test_the_gains_interval_uses_only_resamples_that_define_it():
    # A is 1 in the one question and 0 in the other, so that a resample of one question twice has no gain
    g, j, other, a = numbers("10100011"), numbers("10010110"), numbers("11100010"), numbers("11110000")
    questions = list("ppppqqqq")
    assert partial_change((g, j, a), (g, other, a), questions, ONE_CLUSTER_TWICE) is None
    result = partial_change((g, j, a), (g, other, a), questions, EACH_CLUSTER_ONCE)
    assert result.low == result.high == pytest.approx(result.value)


def test_bands_of_the_paper():
    bands = [band(value) for value in (-0.4, 0.2999, 0.3, 0.4999, 0.5)]
    assert bands == ["weak", "weak", "moderate", "moderate", "strong"]
