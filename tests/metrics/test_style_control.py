"""The control of style on preferences whose taste is known."""

import numpy as np
import pytest
from scipy.special import expit

from judgelm.metrics.win_rate import control_style, length_controlled, style_differences

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


def test_a_model_that_is_good_and_wordy_keeps_its_merit():
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
    assert differences.terms == ("length", "headers", "list items")
    assert differences.constant == ("bold",)
    # list items: 2, 0, -1; their standard deviation is sqrt(7 / 3)
    assert differences.values[:, 2] == pytest.approx(np.tanh(np.array([2, 0, -1]) / np.sqrt(7 / 3)))


def test_models_that_always_win_stay_as_they_are_and_are_counted():
    _, differences, preferences, models = judged(n=300)
    preferences = preferences.copy()
    for index, names in enumerate(models):
        if "a" in names:
            preferences[index] = float(names[0] == "a")
    control = control_style(preferences, differences, range(300), models)
    with_a = np.array(["a" in names for names in models])
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
