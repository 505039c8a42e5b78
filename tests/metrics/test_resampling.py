import numpy as np
import pytest

from judgelm.metrics.resampling import Resampling, bootstrap_sums, estimate, interval, share


def test_same_seed_same_interval():
    hits = np.arange(50) % 3 == 0
    assert share(hits, None, Resampling(seed=1)) == share(hits, None, Resampling(seed=1))
    draws = [bootstrap_sums(np.eye(4), None, Resampling(seed=seed)) for seed in (1, 2)]
    assert (draws[0] != draws[1]).any()


def test_interval_of_a_share_is_close_to_the_normal_one():
    hits = np.arange(1000) < 700
    result = share(hits, None, Resampling())
    # 0.7 +/- 1.96 * sqrt(0.7 * 0.3 / 1000) = 0.7 +/- 0.0284
    assert result.value == 0.7
    assert (result.low, result.high) == pytest.approx((0.6716, 0.7284), abs=0.004)


def test_clusters_widen_the_interval():
    hits = np.repeat(np.arange(100) < 50, 10)
    clusters = np.repeat(np.arange(100), 10).tolist()
    alone, together = share(hits, None, Resampling()), share(hits, clusters, Resampling())
    # ten alike pairs per question: 100 independent units instead of 1,000, sqrt(10) times as wide
    assert (together.high - together.low) / (alone.high - alone.low) == pytest.approx(10**0.5, rel=0.15)


def test_each_draw_takes_as_many_clusters_as_there_are():
    values = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    sums = bootstrap_sums(values, ["q1", "q1", "q2"], Resampling(resamples=200))
    # two draws of q1 (1, 1) or q2 (1, 0): the first column is always 2, the second 0, 1 or 2
    assert set(map(tuple, sums.tolist())) == {(2.0, 0.0), (2.0, 1.0), (2.0, 2.0)}


def test_unanimous_share_gets_wilsons_interval():
    result = share(np.ones(10, dtype=bool), None, Resampling())
    # Wilson's low bound at 10 of 10: 10 / (10 + 1.96^2) = 0.7225
    assert (result.low, result.high) == pytest.approx((0.7225, 1.0), abs=1e-4)


def test_unanimous_share_counts_clusters_not_pairs():
    result = share(np.ones(10, dtype=bool), ["a"] * 5 + ["b"] * 5, Resampling())
    # 2 / (2 + 1.96^2) = 0.3424
    assert (result.low, result.n) == (pytest.approx(0.3424, abs=1e-4), 10)


def test_estimates_share_their_resamples():
    values = np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 1.0]])
    share_a, minus_a = estimate(
        values, lambda s: np.stack([s[:, 0] / s[:, 1], -s[:, 0] / s[:, 1]], axis=1), None, Resampling()
    )
    assert (minus_a.low, minus_a.high) == (-share_a.high, -share_a.low)


def test_percentile_interval():
    # 0..100: the 2.5th and 97.5th percentiles
    assert interval(np.arange(101.0)) == pytest.approx((2.5, 97.5))
    assert interval(np.arange(101.0), level=0.9) == pytest.approx((5, 95))


def test_nothing_to_resample_is_an_error():
    with pytest.raises(ValueError, match="no rows"):
        bootstrap_sums(np.zeros((0, 2)), None, Resampling())


def test_cluster_keys_must_fit():
    with pytest.raises(ValueError, match="2 rows but 1 cluster"):
        bootstrap_sums(np.zeros((2, 2)), ["q"], Resampling())
