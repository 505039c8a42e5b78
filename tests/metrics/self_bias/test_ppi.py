import warnings

import numpy as np
import pytest
from scipy import stats

from judgelm.metrics.self_bias.ppi import Stratum, TooFewLabels, stratified_mean

Z90 = stats.norm.ppf(0.95)


def stratum(name, seed, *, labelled=60, unlabelled=400, shift=0.0, noise=0.2):
    generator = np.random.default_rng(seed)
    truth = generator.normal(shift, 1.0, labelled + unlabelled)
    rated = truth + generator.normal(0.5, noise, truth.size)
    return Stratum(name=name, labels=truth[:labelled], rated=rated[:labelled], rated_only=rated[labelled:])


def test_labels_alone_are_weighted_by_the_size_of_their_stratum():
    first = Stratum(name="a", labels=np.array([1.0, 3]), rated=np.zeros(2), rated_only=np.zeros(4))
    second = Stratum(name="b", labels=np.array([10.0, 10]), rated=np.zeros(2), rated_only=np.zeros(0))
    found = stratified_mean([first, second], 0.90, powered=False)
    # 6/8 * 2 + 2/8 * 10 = 4; standard error 6/8 * sd 1 / sqrt 2 (the second has none)
    assert (found.value, found.n, found.level) == (4.0, 4, 0.90)
    assert found.high - found.value == pytest.approx(Z90 * 0.75 / np.sqrt(2))


def test_one_stratum_is_the_power_tuned_estimate_by_formula():
    one = stratum("a", 0)
    found = stratified_mean([one], 0.90)
    n, m = len(one.labels), len(one.rated_only)
    everything = np.r_[one.rated, one.rated_only]
    # PPI++: lambda = cov(Y, f) / ((1 + n/N) var f), the mean lambda f over the unlabelled plus the mean of Y - lambda f
    weight = np.cov(one.labels, one.rated, ddof=0)[0, 1] / ((1 + n / m) * everything.var())
    value = weight * one.rated_only.mean() + (one.labels - weight * one.rated).mean()
    error = np.sqrt(weight**2 * one.rated_only.var() / m + (one.labels - weight * one.rated).var() / n)
    assert found.value == pytest.approx(value, abs=0.01)
    assert found.high - found.value == pytest.approx(Z90 * error, rel=0.02)


def test_good_ratings_narrow_the_interval_and_their_bias_does_not_shift_it():
    strata = [stratum("a", 1), stratum("b", 2, shift=3.0)]
    # what a rating alone says is 0.5 too high
    ratings = np.mean([np.r_[one.rated, one.rated_only].mean() for one in strata])
    alone, powered = stratified_mean(strata, 0.90, powered=False), stratified_mean(strata, 0.90)
    assert powered.high - powered.low < 0.6 * (alone.high - alone.low)
    assert powered.low < ratings - 0.5 < powered.high


def test_the_unit_of_the_scores_does_not_matter():
    # normalised scores differ by less than 1 throughout
    one = stratum("a", 1)
    small = Stratum(name="a", labels=one.labels / 100, rated=one.rated / 100, rated_only=one.rated_only / 100)
    found, known = stratified_mean([small], 0.90), stratified_mean([one], 0.90)
    assert (100 * found.value, 100 * found.high) == pytest.approx((known.value, known.high))


def test_ratings_that_are_all_alike_or_not_needed_change_nothing():
    labels = np.array([1.0, 2, 3])
    for rated, rated_only in ((np.ones(3), np.zeros(0)), (np.ones(3), np.ones(5)), (labels**2, np.zeros(0))):
        one = Stratum(name="a", labels=labels, rated=rated, rated_only=rated_only)
        assert stratified_mean([one], 0.90) == stratified_mean([one], 0.90, powered=False)


def test_one_label_has_no_variance():
    one = Stratum(name="a", labels=np.ones(1), rated=np.ones(1), rated_only=np.ones(5))
    with pytest.raises(TooFewLabels, match="stratum a: 1 labels"):
        stratified_mean([one], 0.90)


def test_the_package_does_not_silence_the_warnings_of_the_process():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("heard", UserWarning, stacklevel=1)
    assert len(caught) == 1
    assert not any(
        action == "ignore" and message is None and kind is Warning for action, message, kind, *_ in warnings.filters
    )
