import math

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import cohens_kappa as statsmodels_kappa

from judgelm.metrics.agreement import cohens_kappa, confusion, confusion_cells, mcnemar, paired_difference
from judgelm.metrics.correlation import kappas
from judgelm.metrics.resampling import Resampling, bootstrap_sums, interval

HOW = Resampling(seed=0, resamples=2000)


def bits(text):
    return np.array([letter == "1" for letter in text])


def test_difference_by_hand():
    # right on 3 of 4 and on 1 of 4
    result = paired_difference(bits("1110"), bits("1000"), None, HOW)
    assert (result.value, result.n) == (0.5, 4)
    # of two pairs that differ and two alike, four draws hold 0 to 4 that differ; 0 and 4 in 6 % of the resamples each
    assert (result.low, result.high) == (0.0, 1.0)


def test_judges_right_about_the_same_pairs_have_an_interval_all_the_same():
    # Wilson's upper end for 0 of 4: z^2 / (n + z^2) = 3.8415 / 7.8415 = 0.4899
    result = paired_difference(bits("1100"), bits("1100"), None, HOW)
    assert (result.value, result.low, result.high) == pytest.approx((0, -0.4899, 0.4899), abs=1e-4)


def test_one_judge_right_throughout_and_the_other_never_have_an_interval_too():
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


@pytest.mark.parametrize(("seed", "undefined", "ends"), [(3, 1, (1, 1)), (2, 2, (math.nan, math.nan))])
def test_kappa_has_no_interval_where_more_than_one_resample_in_twenty_is_undefined(seed, undefined, ends):
    labels, how = np.array([1, 1, -1, -1]), Resampling(seed=seed, resamples=20)
    sums = bootstrap_sums(confusion_cells(labels, labels), None, how)
    samples = kappas(sums.reshape(-1, 3, 3), quadratic=False)
    assert np.isnan(samples).sum() == undefined
    result = cohens_kappa(labels, labels, None, how)
    assert result.value == 1
    assert (result.low, result.high) == pytest.approx(ends, nan_ok=True)


@pytest.mark.parametrize("measure", [mcnemar, lambda a, b: paired_difference(a, b, None, HOW)])
def test_nothing_to_compare(measure):
    with pytest.raises(ValueError, match="at least one pair"):
        measure(bits(""), bits(""))
    with pytest.raises(ValueError, match="same shape"):
        measure(bits("1"), bits("10"))
