"""The gate's interval by hand, its three outcomes, and its error rates by simulation."""

import numpy as np
import pytest

from judgelm.errors import InputError
from judgelm.studies.gate import check_mean, mean_interval

PERCENT = (-100.0, 100.0)


def test_the_bounds_include_an_extreme_value():
    # values 0 and 2, bounds 0 to 4: with 4 the mean is 2 and the sum of squares 8, so the standard error is
    # sqrt(3/2 * 8) / 3 = 1.1547; t(0.975, 2) = 4.3027, and 2 + 4.9683 = 6.9683. With 0 the mean is 2/3, the sum of
    # squares 8/3, the standard error 2/3, and 2/3 - 2.8684 = -2.2018.
    low, high = mean_interval(np.array([0.0, 2.0]), ["a", "b"], (0.0, 4.0))
    assert (low, high) == (pytest.approx(-2.2018, abs=1e-4), pytest.approx(6.9683, abs=1e-4))


def test_pairs_of_one_question_count_as_one_cluster():
    values, bounds = np.array([0.0, 2.0, 0.0, 2.0, 1.0, 1.0]), (0.0, 2.0)
    apart = mean_interval(values, list("abcdef"), bounds)
    together = mean_interval(np.repeat(values, 4), list(np.repeat(list("abcdef"), 4)), bounds)
    assert together == pytest.approx(apart)


@pytest.mark.parametrize(
    ("drop", "outcome", "is_maximum"),
    [(0.0, "passed", True), (8.0, "failed", True), (3.0, "undecided", True), (0.0, "failed", False)],
)
def test_a_check_decides_only_if_the_interval_is_on_one_side(drop, outcome, is_maximum):
    values = drop + np.tile([-5.0, 5.0], 200)
    check = check_mean("drop", values, range(400), limit=3.0, bounds=PERCENT, is_maximum=is_maximum)
    assert (check.value, check.outcome, check.n) == (pytest.approx(drop), outcome, 400)
    assert check.needed is None  # decided, or the drop equals the limit


def test_more_pairs_are_needed_the_closer_the_mean_is_to_the_limit():
    def needed(limit):
        values = np.tile([-100.0, 100.0], 50)
        return check_mean("drop", values, range(100), limit=limit, bounds=PERCENT, is_maximum=True).needed

    assert needed(10.0) == pytest.approx(4 * needed(20.0), rel=0.01)  # as 1 / distance squared
    # the reach is about 2 standard errors of 10 points: 20.8 points; (20.8 / 10)^2 * 100 pairs
    assert 400 < needed(10.0) < 480


def test_a_check_without_pairs_is_refused():
    with pytest.raises(InputError, match="drop: no pairs were judged in both runs"):
        check_mean("drop", np.array([]), [], limit=3.0, bounds=PERCENT, is_maximum=True)


def flips(down, up):
    return lambda draws, n: draws.choice([100.0, 0.0, -100.0], size=n, p=[down, 1 - down - up, up])


def steps(draws, n):
    return np.where(draws.random(n) < 0.1, 3.0, 0.0)  # a mean drop of 0.3 points on a scale from 1 to 10


@pytest.mark.parametrize(
    ("draw", "limit", "reach"),
    [(flips(0.03, 0), 3, 100), (flips(0.12, 0.09), 3, 100), (flips(0.3, 0.27), 3, 100), (steps, 0.3, 9)],
)
@pytest.mark.parametrize(("n", "size"), [(30, 1), (100, 1), (100, 5), (500, 1)])
def test_a_drop_of_exactly_the_limit_passes_and_fails_rarely(draw, limit, reach, n, size):
    draws, runs = np.random.default_rng(n + size), 600
    clusters = list(np.repeat(range(n // size), size))
    outcomes = []
    for _ in range(runs):
        values = np.repeat(draw(draws, n // size), size)
        check = check_mean("drop", values, clusters, limit=limit, bounds=(-reach, reach), is_maximum=True)
        outcomes.append(check.outcome)
    # 5 % of 600 runs and three standard errors
    assert max(outcomes.count("passed"), outcomes.count("failed")) <= 30 + 3 * (600 * 0.05 * 0.95) ** 0.5
