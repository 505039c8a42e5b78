"""The crossed bootstrap: both sources of chance count, and what two kinds of judges share cancels."""

import numpy as np
import pytest

from benchmarks.replication.crossed import crossed_difference, crossed_estimate, crossed_sums
from judgelm.metrics.resampling import Resampling, estimate

HOW = Resampling(seed=3, resamples=4000)


def share(sums):
    return sums[:, :1] / sums[:, 1:]


def hits(array):
    """(seeds, pairs) of 0 and 1 as (seeds, pairs, 2): hit, counted."""
    return np.stack([array, np.ones_like(array)], axis=-1).astype(float)


def test_with_one_seed_it_is_the_bootstrap_over_questions():
    rng = np.random.default_rng(0)
    one = hits(rng.random((1, 300)) < 0.7)
    clusters = [i // 2 for i in range(300)]
    [crossed] = crossed_estimate(one, share, clusters, HOW)
    [plain] = estimate(one[0], share, clusters, HOW)
    assert (crossed.value, crossed.n) == (plain.value, 300)
    assert (crossed.low, crossed.high) == pytest.approx((plain.low, plain.high), abs=0.01)


def test_its_width_is_that_of_new_questions_and_new_judges():
    # variance of a mean over S seeds and Q questions: seeds' / S + questions' / Q + the rest's / (S * Q); the bootstrap
    # of both at once is known to count the rest up to three times, which is little here
    rng = np.random.default_rng(2)
    seeds, questions = 8, 400
    effects = (
        rng.normal(0, 0.1, (seeds, 1)) + rng.normal(0, 1.0, (1, questions)) + rng.normal(0, 0.1, (seeds, questions))
    )
    values = np.stack([effects, np.ones_like(effects)], axis=-1)
    samples = share(crossed_sums(values, list(range(questions)), HOW))[:, 0]
    expected = effects.mean(axis=1).var() / seeds + effects.mean(axis=0).var() / questions
    assert samples.var() == pytest.approx(expected, rel=0.15)


def test_what_two_kinds_of_judges_share_cancels():
    rng = np.random.default_rng(3)
    hard = rng.random(400)
    base = hits(np.stack([hard > 0.5 + shift for shift in (0.0, 0.1, 0.2)]))
    better = hits(np.stack([hard > 0.45 + shift for shift in (0.0, 0.1, 0.2)]))
    [found] = crossed_difference(better, base, share, list(range(400)), HOW)
    [alone] = crossed_estimate(better, share, list(range(400)), HOW)
    assert 0 < found.low < found.value < found.high
    assert found.high - found.low < 0.5 * (alone.high - alone.low)


def test_nothing_to_draw_from_is_an_error():
    with pytest.raises(ValueError, match="0 seeds"):
        crossed_sums(np.zeros((0, 3, 2)), [1, 2, 3], HOW)
    with pytest.raises(ValueError, match="2 cluster keys"):
        crossed_sums(np.zeros((1, 3, 2)), [1, 2], HOW)
