"""Correlation of yes-or-no labels, by hand and against scipy and scikit-learn."""

import numpy as np
import pytest
from scipy.stats import pearsonr
from sklearn.metrics import matthews_corrcoef

from judgelm.metrics.correlation import MeanCorrelation, Rated, correlation, mean_correlation, pearson
from judgelm.metrics.resampling import Resampling

HOW = Resampling(resamples=500)


def rated(human, judged, questions=None):
    return Rated(
        human=np.array(human, dtype=bool),
        judged=np.array(judged, dtype=bool),
        questions=questions or range(len(human)),
    )


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
    result, known = correlation(rated(human, judged), HOW), pearsonr(human.astype(float), judged.astype(float))
    assert result.value == pytest.approx(known.statistic)
    assert result.value == pytest.approx(matthews_corrcoef(human, judged))
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


def test_the_mean_of_one_group_is_that_group():
    one = rated([1, 1, 1, 0, 0, 1], [1, 1, 0, 0, 1, 1])
    alone = correlation(one, HOW)
    assert mean_correlation({"a": one}, HOW).mean == alone
    # twice the same answers to the same questions, which are drawn together, make the mean no surer
    twice = mean_correlation({"a": one, "b": one}, HOW).mean
    assert (twice.value, twice.low, twice.high, twice.n) == (alone.value, alone.low, alone.high, 12)


def test_the_mean_of_nothing_defined_is_none():
    result = mean_correlation({"a": rated([1, 1], [1, 0])}, HOW)
    assert result == MeanCorrelation(mean=None, defined=0, undefined=("a",))
    assert mean_correlation({}, HOW) == MeanCorrelation(mean=None, defined=0, undefined=())
