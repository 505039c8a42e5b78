"""Win rates by hand, the length control against another optimiser and refits, and the control of style."""

import re

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from judgelm.metrics.resampling import Resampling
from judgelm.metrics.win_rate import control_style, discrete, length_controlled, style_differences, weighted

HOW = Resampling(resamples=200)


def test_weighted_and_discrete_win_rates_by_hand():
    preferences = np.array([0.9, 0.6, 0.5, 0.0])
    mean = weighted(preferences, "abcd", HOW)
    # 2.0 / 4; squares of the deviations from 0.5: 0.16 + 0.01 + 0 + 0.25 = 0.42; sqrt(0.42 / 3 / 4)
    assert (mean.rate.value, mean.standard_error) == (pytest.approx(0.5), pytest.approx(np.sqrt(0.035)))
    # two wins, a tie, a loss: 2.5 / 4
    assert (discrete(preferences, "abcd", HOW).rate.value, mean.rate.n) == (0.625, 4)
    # twenty sure wins
    rate = weighted(np.ones(20), range(20), HOW).rate
    assert (rate.value, rate.high) == (1.0, 1.0)
    assert 0.8 < rate.low < 0.9  # Wilson's, 20 of 20: 0.839


def made(n, seed=0):
    """Preferences of a judge who likes length; at equal length the model wins with expit(0.4)."""
    random = np.random.default_rng(seed)
    lengths = random.integers(100, 3000, (n, 2)).astype(float)
    deltas = lengths[:, 0] - lengths[:, 1]
    truth = expit(0.4 - 1.5 * np.tanh(deltas / deltas.std(ddof=1)))
    return np.clip(truth + random.normal(0, 0.1, n), 0, 1), lengths


def test_the_length_control_agrees_with_another_optimiser():
    preferences, lengths = made(300)
    result = length_controlled(preferences, lengths, range(300))
    deltas = lengths[:, 0] - lengths[:, 1]
    columns = [np.tanh(deltas / deltas.std(ddof=1)), np.ones(300)]

    def loss(coefficients):
        linear = np.column_stack(columns) @ coefficients
        return np.sum(np.logaddexp(0, linear) - preferences * linear)

    best = minimize(loss, np.zeros(len(columns)), method="BFGS", options={"gtol": 1e-9}).x
    equal = expit(np.column_stack([np.zeros(300), *columns[1:]]) @ best).mean()
    assert (result.length, result.rate.value) == (pytest.approx(best[0], abs=1e-5), pytest.approx(equal, abs=1e-6))


def test_its_standard_error_is_that_of_refits_on_resampled_instructions():
    preferences, lengths = made(150)
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
def test_without_a_solution_there_is_a_reason(preferences, lengths, why):
    assert re.search(why, length_controlled(preferences, lengths, range(len(preferences))))


STRENGTHS = {"a": 0.8, "b": 0.0, "c": -0.5}


def judged(n=900, taste=1.5, wordy=0, seed=0):
    """Pairs of a, b and c; the judge likes length; `wordy` more words by a, which is the best as well."""
    generator = np.random.default_rng(seed)
    answers, models, preferences = [], [], []
    for _ in range(n):
        names = generator.choice(list(STRENGTHS), size=2, replace=False)
        words = [int(generator.integers(5, 60)) + (wordy if name == "a" else 0) for name in names]
        answers.append(("w " * words[0], "w " * words[1]))
        models.append((str(names[0]), str(names[1])))
        preferences.append(STRENGTHS[names[0]] - STRENGTHS[names[1]])
    differences = style_differences(answers, "length")
    return np.array(preferences), differences, expit(np.array(preferences) + taste * differences.values[:, 0]), models


def test_a_taste_for_length_is_found_and_taken_out():
    strengths, differences, preferences, models = judged()
    control = control_style(preferences, differences, range(len(preferences)), models)
    assert control.terms["length"].value == pytest.approx(1.5, abs=1e-6)
    assert control.adjusted == pytest.approx(expit(strengths), abs=1e-6)
    # a model that is good and wordy keeps its merit
    _, differences, preferences, models = judged(wordy=40)
    control = control_style(preferences, differences, range(len(preferences)), models)
    assert control.terms["length"].value == pytest.approx(1.5, abs=1e-6)
    # without the models, length takes the merit of a: the coefficient is too large
    assert control_style(preferences, differences, range(len(preferences))).terms["length"].value > 1.7


def test_the_mean_of_the_adjusted_is_the_controlled_rate():
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 99, size=(400, 2))
    differences = style_differences([("w" * a, "w" * b) for a, b in lengths], "length")
    verdicts = (generator.random(400) < expit(0.3 + differences.values[:, 0])).astype(float)
    control = control_style(verdicts, differences, range(400))
    controlled = length_controlled(verdicts, lengths.astype(float), range(400))
    assert control.adjusted.mean() == pytest.approx(controlled.rate.value)


def test_markdown_has_terms_and_features_without_a_difference_are_named():
    texts = [("# T\n\n- a\n- b", "plain"), ("plain", "plain"), ("1. x", "- y\n- z")]
    differences = style_differences(texts, "length,style")
    assert (differences.terms, differences.constant) == (("length", "headers", "list items"), ("bold",))
    # list items: 2, 0, -1; their standard deviation is sqrt(7 / 3)
    assert differences.values[:, 2] == pytest.approx(np.tanh(np.array([2, 0, -1]) / np.sqrt(7 / 3)))


def test_models_that_always_win_stay_as_they_are_and_are_counted():
    _, differences, preferences, models = judged(n=300)
    with_a = np.array(["a" in names for names in models])
    preferences = np.where(with_a, [names[0] == "a" for names in models], preferences)
    control = control_style(preferences, differences, range(300), models)
    assert control.unadjusted == with_a.sum()
    assert (control.adjusted[with_a] == preferences[with_a]).all()


def test_without_a_fit_the_reason_stands():
    assert control_style(np.ones(3), style_differences([("a", "bb")] * 2 + [("a", "b")], "length"), "abc") == (
        "3 pairs are too few (minimum: 10)"
    )
    alike = style_differences([("a", "b")] * 20, "length")
    assert "no pair differs in length" in control_style(np.ones(20), alike, range(20))
    differences = style_differences([("a" * i, "b") for i in range(20)], "length")
    assert "no finite solution" in control_style(np.ones(20), differences, range(20))
