"""The bootstrap: clusters, intervals, and resamples in which a number is undefined."""

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from judgelm.metrics import resampling
from judgelm.metrics.resampling import Resampling, bootstrap_sums, defined_estimates, estimate, interval, ratio, share

HOW = Resampling(resamples=500)


def test_same_seed_same_interval():
    hits = np.arange(50) % 3 == 0
    assert share(hits, None, Resampling(seed=1)) == share(hits, None, Resampling(seed=1))
    draws = [bootstrap_sums(np.eye(4), None, Resampling(seed=seed)) for seed in (1, 2)]
    assert (draws[0] != draws[1]).any()


def test_each_draw_takes_as_many_clusters_as_there_are():
    values = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    sums = bootstrap_sums(values, ["q1", "q1", "q2"], Resampling(resamples=200))
    # two draws of q1 (1, 1) or q2 (1, 0): the first column is always 2, the second 0, 1 or 2
    assert set(map(tuple, sums.tolist())) == {(2.0, 0.0), (2.0, 1.0), (2.0, 2.0)}


def test_unanimous_share_gets_wilsons_interval():
    # Wilson's low bound at 10 of 10: 10 / (10 + 1.96^2) = 0.7225; of two clusters 2 / (2 + 1.96^2) = 0.3424
    for clusters, low in ((None, 0.7225), (["a"] * 5 + ["b"] * 5, 0.3424)):
        result = share(np.ones(10, dtype=bool), clusters, Resampling())
        assert (result.low, result.high, result.n) == pytest.approx((low, 1.0, 10), abs=1e-4)


def test_estimates_share_their_resamples():
    values = np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 1.0]])
    share_a, minus_a = estimate(values, lambda sums: sums[:, :1] / sums[:, 1:] * [1, -1], None, Resampling())
    assert (minus_a.low, minus_a.high) == (-share_a.high, -share_a.low)


def test_percentile_interval():
    # 0..100: the 2.5th and 97.5th percentiles
    assert interval(np.arange(101.0)) == pytest.approx((2.5, 97.5))
    assert interval(np.arange(101.0), level=0.9) == pytest.approx((5, 95))


def test_nothing_to_resample_is_an_error():
    for rows, clusters, finding in ((0, None, "no rows"), (2, ["q"], "2 rows but 1 cluster")):
        with pytest.raises(ValueError, match=finding):
            bootstrap_sums(np.zeros((rows, 2)), clusters, Resampling())


def test_resamples_in_blocks_are_those_of_one_draw(monkeypatch):
    values = np.random.default_rng(0).random((500, 2))
    whole = bootstrap_sums(values, None, Resampling(resamples=101))
    monkeypatch.setattr(resampling, "_MAX_DRAWS", 5_000)  # ten resamples at once
    # the same counts are drawn; only their sums may be rounded otherwise
    assert bootstrap_sums(values, None, Resampling(resamples=101)) == pytest.approx(whole, rel=1e-12)


def share_of(hits, rows, clusters=None):
    hits, rows = np.array(hits, dtype=bool), np.array(rows, dtype=bool)
    values = np.column_stack([hits & rows, rows]).astype(float)
    basis = resampling.Basis(rows=rows, kind="share")
    [result] = defined_estimates(values, lambda sums: ratio(sums[:, :1], sums[:, 1:]), [basis], clusters, HOW)
    return result


def test_resamples_without_a_row_of_the_part_are_left_out():
    # one row in three belongs to the part; (2/3)^3 = 30 % of the resamples hold none, which is no share of 0
    result = share_of([1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 1])
    assert (result.value, result.n, result.low, result.high) == (0.5, 2, 0.0, 1.0)
    # neither rows of the part nor rows at all
    assert share_of([1, 1], [0, 0]) is None
    assert share_of([], []) is None


def test_an_f1_of_none_has_the_interval_of_the_share_that_it_grows_with():
    # no hit in four rows: J up to 0.4899 (as below), F1 = 2 J / (1 + J) up to 0.9798 / 1.4899
    rows = np.ones(4, dtype=bool)
    basis = resampling.Basis(rows=rows, kind="f1", decided=rows)
    [result] = defined_estimates(np.zeros((4, 1)), lambda sums: sums, [basis], None, HOW)
    assert (result.value, result.low, result.high) == (0.0, 0.0, pytest.approx(0.6576, abs=1e-4))
    # only shares get Wilson's interval
    rows = np.ones(3, dtype=bool)
    [result] = defined_estimates(np.ones((3, 1)), lambda sums: sums / 3, [resampling.Basis(rows=rows)], None, HOW)
    assert (result.value, result.low, result.high, result.n) == (1.0, 1.0, 1.0, 3)


def test_a_ratio_over_nothing_is_nan():
    result = ratio(np.array([1.0, -1.0, 0.0]), np.array([2.0, -4.0, 0.0]))
    np.testing.assert_array_equal(result, [0.5, 0.25, np.nan])


def test_a_share_of_one_has_wilsons_interval_over_its_clusters():
    result = share_of([1, 1, 1, 1, 0], [1, 1, 1, 1, 0], clusters=["a", "a", "b", "c", "d"])
    low, _ = proportion_confint(3, 3, method="wilson")  # three questions, not four rows
    assert (result.value, result.low, result.high) == (1.0, pytest.approx(low), pytest.approx(1.0))
    # of 0 of 4: z^2 / (4 + z^2) = 3.8415 / 7.8415 = 0.4899
    result = share_of([0, 0, 0, 0], [1, 1, 1, 1])
    assert (result.value, result.low, result.high) == (0.0, 0.0, pytest.approx(0.4899, abs=1e-4))
