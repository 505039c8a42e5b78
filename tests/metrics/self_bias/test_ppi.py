import numpy as np
import pytest
from scipy import stats

from judgelm.metrics.true_win_rate import Stratum, TooFewLabels, stratified_mean

Z90 = stats.norm.ppf(0.95)


def stratum(name, seed, *, labelled=60, unlabelled=400, shift=0.0, noise=0.2):
    generator = np.random.default_rng(seed)
    truth = generator.normal(shift, 1.0, labelled + unlabelled)
    rated = truth + generator.normal(0.5, noise, truth.size)
    return Stratum(name=name, labels=truth[:labelled], rated=rated[:labelled], rated_only=rated[labelled:])


def test_labels_alone_are_weighted_by_the_size_of_their_stratum():
    first = Stratum(name="a", labels=np.array([1.0, 3]), rated=np.zeros(2), rated_only=np.zeros(4))
    second = Stratum(name="b", labels=np.array([10.0, 10]), rated=np.zeros(2), rated_only=np.zeros(0))
    result = stratified_mean([first, second], 0.90, powered=False)
    # 6/8 * 2 + 2/8 * 10 = 4; standard error 6/8 * sd 1 / sqrt 2 (the second has none)
    assert (result.value, result.n, result.level) == (4.0, 4, 0.90)
    assert result.high - result.value == pytest.approx(Z90 * 0.75 / np.sqrt(2))


# Of ppi-python 0.2.3, recorded 2026-11-26 with `pip install ppi-python==0.2.3` in an environment of its own:
#   from ppi_py import ppi_mean_ci
#   print([float(bound[0]) for bound in ppi_mean_ci(labels, rated, rated_only, alpha=0.1)])
LABELS = np.array([1.0, 2, 4, 4, 5, 7, 7, 9])
RATED = np.array([2.0, 2, 3, 5, 5, 6, 8, 9])
RATED_ONLY = np.array([1.0, 3, 3, 4, 6, 6, 7, 8, 8, 9, 10, 2])
TIMID = np.array([4.6, 4.7, 4.9, 5, 5, 5.2, 5.1, 5.5])
TIMID_ONLY = np.array([4.5, 4.8, 5, 5.3, 5.1, 4.9, 5.6, 4.7, 5.2, 5.0])


@pytest.mark.parametrize(
    ("labels", "rated", "rated_only", "recorded"),
    [
        (LABELS, RATED, RATED_ONLY, (4.08321663529042, 6.207340265435974)),
        (LABELS / 100, RATED / 100, RATED_ONLY / 100, (0.040832166352904195, 0.06207340265435973)),
        (LABELS, 10 - RATED, RATED_ONLY, (3.4084749659744973, 6.341525034025503)),  # weight held at 0
        (LABELS, TIMID, TIMID_ONLY, (3.5588134932584943, 6.211186506741507)),  # and at 1
    ],
)
def test_one_stratum_is_the_interval_of_ppi_python(labels, rated, rated_only, recorded):
    one = Stratum(name="a", labels=labels, rated=rated, rated_only=rated_only)
    estimate = stratified_mean([one], 0.90)
    assert (estimate.low, estimate.high) == pytest.approx(recorded, rel=1e-12)


def test_good_ratings_narrow_the_interval_and_their_bias_does_not_shift_it():
    strata = [stratum("a", 1), stratum("b", 2, shift=3.0)]
    # what a rating alone says is 0.5 too high
    ratings = np.mean([np.r_[one.rated, one.rated_only].mean() for one in strata])
    alone, powered = stratified_mean(strata, 0.90, powered=False), stratified_mean(strata, 0.90)
    assert powered.high - powered.low < 0.6 * (alone.high - alone.low)
    assert powered.low < ratings - 0.5 < powered.high


def test_ratings_that_are_all_alike_or_not_needed_change_nothing():
    labels = np.array([1.0, 2, 3])
    for rated, rated_only in ((np.ones(3), np.zeros(0)), (np.ones(3), np.ones(5)), (labels**2, np.zeros(0))):
        one = Stratum(name="a", labels=labels, rated=rated, rated_only=rated_only)
        assert stratified_mean([one], 0.90) == stratified_mean([one], 0.90, powered=False)


def test_one_label_has_no_variance():
    one = Stratum(name="a", labels=np.ones(1), rated=np.ones(1), rated_only=np.ones(5))
    with pytest.raises(TooFewLabels, match=r"stratum a: .*got 1"):
        stratified_mean([one], 0.90)
