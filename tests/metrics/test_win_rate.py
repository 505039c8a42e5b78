"""Win rates by hand, and the length control against another optimiser and a bootstrap of the whole fit."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from judgelm.metrics.resampling import Resampling
from judgelm.metrics.win_rate import discrete, length_controlled, weighted

HOW = Resampling(resamples=200)


def test_weighted_and_discrete_win_rates_by_hand():
    preferences = np.array([0.9, 0.6, 0.5, 0.0])
    mean = weighted(preferences, "abcd", HOW)
    # 2.0 / 4; squares of the deviations from 0.5: 0.16 + 0.01 + 0 + 0.25 = 0.42; sqrt(0.42 / 3 / 4)
    assert (mean.rate.value, mean.standard_error) == (pytest.approx(0.5), pytest.approx(np.sqrt(0.035)))
    # two wins, a tie, a loss: 2.5 / 4
    assert discrete(preferences, "abcd", HOW).rate.value == 0.625
    assert mean.rate.n == 4


def test_a_probability_of_a_sure_win_has_an_interval_that_knows_n():
    rate = weighted(np.ones(20), range(20), HOW).rate
    assert (rate.value, rate.high) == (1.0, 1.0)
    assert 0.8 < rate.low < 0.9  # Wilson's, 20 of 20: 0.839


def made(n, seed=0, with_difficulty=False):
    """Preferences of a judge who likes length; at equal length the model wins with expit(0.4)."""
    random = np.random.default_rng(seed)
    lengths = random.integers(100, 3000, (n, 2)).astype(float)
    deltas = lengths[:, 0] - lengths[:, 1]
    difficulty = random.normal(size=n) if with_difficulty else None
    shift = 0.8 * difficulty if with_difficulty else 0
    truth = expit(0.4 - 1.5 * np.tanh(deltas / deltas.std(ddof=1)) + shift)
    return np.clip(truth + random.normal(0, 0.1, n), 0, 1), lengths, difficulty


@pytest.mark.parametrize("with_difficulty", [False, True])
def test_the_length_control_agrees_with_another_optimiser(with_difficulty):
    preferences, lengths, difficulty = made(300, with_difficulty=with_difficulty)
    result = length_controlled(preferences, lengths, range(300), difficulty)
    deltas = lengths[:, 0] - lengths[:, 1]
    columns = [np.tanh(deltas / deltas.std(ddof=1)), np.ones(300), *([difficulty] if with_difficulty else [])]

    def loss(coefficients):
        linear = np.column_stack(columns) @ coefficients
        return np.sum(np.logaddexp(0, linear) - preferences * linear)

    best = minimize(loss, np.zeros(len(columns)), method="BFGS", options={"gtol": 1e-9}).x
    equal = expit(np.column_stack([np.zeros(300), *columns[1:]]) @ best).mean()
    assert (result.length, result.rate.value) == (pytest.approx(best[0], abs=1e-5), pytest.approx(equal, abs=1e-6))


def test_its_standard_error_is_that_of_refits_on_resampled_instructions():
    preferences, lengths, _ = made(150)
    result = length_controlled(preferences, lengths, range(150))
    random = np.random.default_rng(1)
    draws = [random.integers(0, 150, 150) for _ in range(300)]
    refits = [length_controlled(preferences[drawn], lengths[drawn], range(150)).rate.value for drawn in draws]
    assert result.standard_error == pytest.approx(np.std(refits, ddof=1), rel=0.2)
    assert result.rate.low < expit(0.4) < result.rate.high


@pytest.mark.parametrize(
    ("preferences", "lengths", "why"),
    [
        (np.ones(5), np.ones((5, 2)), "minimum: 10"),
        (np.full(20, 0.5), np.ones((20, 2)), "difference in length is the same"),
        (np.zeros(20), np.arange(40.0).reshape(20, 2) ** 2, "no finite solution|did not converge"),
    ],
)
def test_where_there_is_no_solution_it_says_why(preferences, lengths, why):
    result = length_controlled(preferences, lengths, range(len(preferences)))
    assert isinstance(result, str)
    assert any(part in result for part in why.split("|"))
