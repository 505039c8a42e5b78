import numpy as np
import pytest

from judgelm.metrics import resampling as resampling_module
from judgelm.metrics.resampling import Resampling, bootstrap_sums, estimate, interval, share


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
    share_a, minus_a = estimate(
        values, lambda s: np.stack([s[:, 0] / s[:, 1], -s[:, 0] / s[:, 1]], axis=1), None, Resampling()
    )
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
    monkeypatch.setattr(resampling_module, "_MAX_DRAWS", 5_000)  # ten resamples at once
    # the same counts are drawn; only their sums may be rounded otherwise
    assert bootstrap_sums(values, None, Resampling(resamples=101)) == pytest.approx(whole, rel=1e-12)
