"""Correlations and kappa of grades: scipy's and scikit-learn's numbers, and intervals of the same statistics."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from judgelm.metrics.correlation import grade_correlation, kappas, kendalls, pearsons, spearmans
from judgelm.metrics.resampling import Resampling

HOW = Resampling(resamples=200)


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


def test_four_grades_by_hand():
    # 3 and 4 changed places: of 6 pairs 5 concordant, 1 discordant, tau 4/6; Pearson and Spearman 1 - 6 * 2 / (4 * 15)
    result = grade_correlation([1, 2, 4, 3], [1, 2, 3, 4], None, None, HOW)
    assert result.kendall.value == pytest.approx(4 / 6)
    assert result.pearson.value == pytest.approx(0.8)
    assert result.spearman.value == pytest.approx(0.8)
    # half the same, a quarter expected: (1/2 - 1/4) / (3/4); squares 2 against 4 * 4 * 2.5 / 4 = 10: 1 - 2/10
    assert result.kappa.value == pytest.approx(1 / 3)
    assert result.weighted_kappa.value == pytest.approx(0.8)
    more = grade_correlation(*drawn(), None, None, HOW)
    for one in (more.pearson, more.kendall, more.spearman, more.kappa, more.weighted_kappa):
        assert one.low < one.value < one.high
        assert one.n == 60


@pytest.mark.parametrize(
    ("grades", "reference", "why"),
    [([3, 3, 3], [1, 2, 3], "constant: grades"), ([1, 2, 3], [4, 4, 4], "constant: reference"), ([1], [1], "1 grades")],
)
def test_a_correlation_with_a_constant_is_undefined(grades, reference, why):
    result = grade_correlation(grades, reference, None, None, HOW)
    assert (result.pearson, result.kendall, result.spearman, result.kappa, result.weighted_kappa) == (None,) * 5
    assert result.why.startswith(why)


def test_kappa_needs_whole_grades():
    halves = grade_correlation([1.5, 2, 3], [1, 2, 3], None, None, HOW)
    assert halves.kappa is None
    assert halves.pearson is not None
    means = grade_correlation([1, 2, 3], [1, 2.33, 3], [1, 2, 3], None, HOW)  # kappa of the categories
    assert means.kappa.value == 1.0


def test_an_interval_of_few_resamples_is_not_given():
    result = grade_correlation([3, 3, 3, 4], [1, 2, 3, 4], None, None, HOW)  # (3/4)^4 = 0.32 of them have threes alone
    assert result.pearson.value > 0
    assert np.isnan(result.pearson.low)
