import krippendorff
import numpy as np
import pandas as pd
import pytest

from judgelm.metrics.ratings import annotator_agreement, attention_accuracy, gold_accuracy, rank_correlation
from judgelm.metrics.resampling import Resampling

HOW = Resampling(resamples=200)


def test_alpha_of_two_levels_by_hand():
    # units (1, 1), (1, 1), (2, 2), (1, 2); 8 values, five 1s and three 2s
    # disagreement observed: one pair of four, 1/4; expected: 2 * 5 * 3 / (8 * 7) = 15/28; 1 - (1/4) / (15/28) = 8/15
    ratings = np.array([[1.0, 1], [1, 1], [2, 2], [1, 2]])
    result = annotator_agreement(ratings, HOW)
    assert result.alpha.value == pytest.approx(8 / 15)
    assert result.alpha.low < result.alpha.value <= result.alpha.high
    assert (result.observed.value, result.observed.n) == (0.75, 4)


def test_a_resample_of_one_value_has_no_alpha():
    # (1, 1) and (1, 2): 1 - 6/6 = 0; the second twice -1/2; the first twice is left out
    ratings = np.array([[1.0, 1], [1, 2]])
    result = annotator_agreement(ratings, HOW).alpha
    assert (result.value, result.low, result.high) == pytest.approx((0, -0.5, 0))
    # seed 3 draws nothing else
    result = annotator_agreement(ratings, Resampling(seed=3, resamples=1)).alpha
    assert (result.value, result.low, result.high) == pytest.approx((0, np.nan, np.nan), nan_ok=True)


# Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), sections C and D: four observers of twelve units
OBSERVERS = "1 2 3 3 2 1 4 1 2 . . .|1 2 3 3 2 2 4 1 2 5 . 3|. 3 3 3 2 3 4 2 2 5 1 .|1 2 3 3 2 4 4 1 2 5 1 ."
RATINGS = np.array([[np.nan if one == "." else float(one) for one in line.split()] for line in OBSERVERS.split("|")])


def test_alpha_is_krippendorffs_and_that_of_the_package():
    result = annotator_agreement(RATINGS.T, HOW)
    assert result.alpha.value == pytest.approx(0.815, abs=5e-4)
    assert result.alpha.value == pytest.approx(
        krippendorff.alpha(reliability_data=RATINGS, level_of_measurement="ordinal")
    )
    # the twelfth unit has one rating; of the other eleven, 2, 6 and 8 have more than one value
    assert (result.alpha.n, result.observed.n, result.observed.value) == (11, 11, pytest.approx(8 / 11))


def test_completions_with_one_rating_say_nothing():
    ratings = np.array([[1.0, 1, np.nan], [2, np.nan, np.nan], [1, 2, 2]])
    result = annotator_agreement(ratings, HOW)
    assert (result.observed.n, result.observed.value) == (2, 0.5)
    with pytest.raises(ValueError, match="no completion has two ratings"):
        annotator_agreement(ratings[1:2], HOW)


def test_alpha_of_ratings_that_are_all_alike_is_undefined():
    result = annotator_agreement(np.ones((4, 3)), HOW)
    assert result.alpha is None
    assert result.observed.value == 1


def rows(scores, items="abc"):
    return pd.DataFrame({"item": list(items), "dimension": "d", "model": "m", "score": scores})


def test_a_rating_within_the_gold_range_is_accurate():
    gold = pd.concat([rows([1, 4, 2]), rows([3, 4, np.nan]), rows([2, 5, np.nan])])
    # ranges a 1-3, b 4-5, c 2-2; ratings 3 (in), 3 (out), 2 (in); one without a score does not count
    ratings = pd.concat([rows([3, 3, 2]), rows([np.nan] * 3)])
    result = gold_accuracy(ratings, gold, HOW)
    assert (result.value, result.n) == (pytest.approx(2 / 3), 3)
    assert gold_accuracy(rows([1, 1, 1], items="xyz"), gold, HOW) is None


def test_an_attention_check_passes_below_the_middle():
    assert attention_accuracy(rows([1, 3, np.nan]), 3.0, HOW).value == 0.5
    assert attention_accuracy(rows([np.nan] * 3), 3.0, HOW) is None


def test_the_same_order_and_the_reverse_have_no_interval():
    rising = np.array([1.0, 2, 3, 4, 9])
    for other, value in ((rising**2, 1), (-rising, -1)):
        result = rank_correlation(rising, other)
        assert (result.value, result.low, result.high, result.n) == (value, value, value, 5)


def test_rank_correlation_has_mean_ranks_for_ties():
    # ranks 1.5 1.5 3 4 and 1 2.5 2.5 4: deviations -1 -1 .5 1.5 and -1.5 0 0 1.5
    # products 1.5 + 0 + 0 + 2.25 = 3.75; squares 4.5 each: 3.75 / 4.5
    result = rank_correlation(np.array([1.0, 1, 2, 3]), np.array([1.0, 2, 2, 3]))
    assert (result.value, result.n) == (pytest.approx(3.75 / 4.5), 4)
    # z = atanh(.8333) = 1.1989, half width 1.95996 * sqrt((1 + .6944 / 2) / 1) = 2.2749
    assert (result.low, result.high) == (
        pytest.approx(np.tanh(1.19895 - 2.27491), abs=1e-4),
        pytest.approx(np.tanh(3.47386), abs=1e-4),
    )


def test_a_correlation_with_a_constant_is_undefined():
    assert rank_correlation(np.ones(9), np.arange(9.0)) is None
    assert rank_correlation(np.arange(9.0), np.ones(9)) is None
    assert rank_correlation(np.arange(3.0), np.arange(3.0)) is None
