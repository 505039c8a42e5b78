import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from judgelm.metrics.resampling import Basis, Resampling, defined_estimates, ratio

HOW = Resampling(resamples=500)


def share_of(hits, rows, clusters=None):
    hits, rows = np.array(hits, dtype=bool), np.array(rows, dtype=bool)
    values = np.column_stack([hits & rows, rows]).astype(float)
    basis = Basis(rows=rows, kind="share")
    [result] = defined_estimates(values, lambda sums: ratio(sums[:, :1], sums[:, 1:]), [basis], clusters, HOW)
    return result


def test_resamples_without_a_row_of_the_part_are_left_out():
    # one row in three belongs to the part; (2/3)^3 = 30 % of the resamples hold none, which is no share of 0
    result = share_of([1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 1])
    assert (result.value, result.n) == (0.5, 2)
    assert (result.low, result.high) == (0.0, 1.0)


def test_no_row_of_the_part_and_no_row_at_all_are_undefined():
    assert share_of([1, 1], [0, 0]) is None
    assert share_of([], []) is None


def test_an_f1_of_none_has_the_interval_of_the_share_that_it_grows_with():
    # no hit in four rows: J up to 0.4899 (as below), F1 = 2 J / (1 + J) up to 0.9798 / 1.4899
    rows = np.ones(4, dtype=bool)
    basis = Basis(rows=rows, kind="f1", decided=rows)
    [result] = defined_estimates(np.zeros((4, 1)), lambda sums: sums, [basis], None, HOW)
    assert (result.value, result.low, result.high) == (0.0, 0.0, pytest.approx(0.6576, abs=1e-4))


def test_a_number_that_is_no_share_keeps_an_interval_without_width():
    rows = np.ones(3, dtype=bool)
    [result] = defined_estimates(np.ones((3, 1)), lambda sums: sums / 3, [Basis(rows=rows)], None, HOW)
    assert (result.value, result.low, result.high, result.n) == (1.0, 1.0, 1.0, 3)


def test_a_ratio_over_nothing_is_no_number():
    result = ratio(np.array([1.0, -1.0, 0.0]), np.array([2.0, -4.0, 0.0]))
    assert result[:2].tolist() == [0.5, 0.25]
    assert np.isnan(result[2])


def test_a_share_of_one_has_wilsons_interval_over_its_clusters():
    result = share_of([1, 1, 1, 1, 0], [1, 1, 1, 1, 0], clusters=["a", "a", "b", "c", "d"])
    low, _ = proportion_confint(3, 3, method="wilson")  # three questions, not four rows
    assert (result.value, result.low, result.high) == (1.0, pytest.approx(low), pytest.approx(1.0))
    # of 0 of 4: z^2 / (4 + z^2) = 3.8415 / 7.8415 = 0.4899
    result = share_of([0, 0, 0, 0], [1, 1, 1, 1])
    assert (result.value, result.low, result.high) == (0.0, 0.0, pytest.approx(0.4899, abs=1e-4))
