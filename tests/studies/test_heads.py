"""Linear heads on states, as candidates of `tune`."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from judgelm.studies.heads import HeadCandidate, HeadSetting, PromptStates, least_squares, logistic

N, HIDDEN = 80, 40


def made(seed=0, *, informative=True, n=N):
    """Pairs whose labels depend on the states of layer 2, or on nothing; layer 1 is noise."""
    draw = np.random.default_rng(seed)
    states = {layer: 3 * layer * draw.normal(size=(n, HIDDEN)) for layer in (1, 2)}
    strength = states[2][:, :3].sum(1) if informative else draw.normal(size=n)
    truth = np.sign(strength + draw.normal(size=n)).astype(int)
    return PromptStates(states=states, log_odds=draw.normal(size=n)), truth


def candidate(states, truth, **options):
    targets = (truth + 1) / 2
    return HeadCandidate(prompts={"yes-no": states}, targets=targets, questions=range(len(truth)), **options)


def everything(n=N):
    return np.ones(n, dtype=np.bool_)


@pytest.mark.parametrize("last", [1e-6, math.inf])
@pytest.mark.parametrize("fit", [logistic, least_squares])
def test_the_fit_minimises_the_penalised_loss(fit, last):
    draw = np.random.default_rng(1)
    features, targets = draw.normal(size=(30, 4)), draw.choice([0, 0.5, 1], 30)
    ridge = np.array([2.0, 2.0, 2.0, last])
    found = fit(features, targets, ridge)
    free = np.isfinite(ridge)

    def loss(weights):
        lead = features[:, free] @ weights
        losses = np.logaddexp(0, lead) - targets * lead if fit is logistic else (lead - targets) ** 2 / 2
        return losses.sum() + (ridge[free] * weights**2).sum() / 2

    best = minimize(loss, np.zeros(free.sum()), tol=1e-10).x
    assert found[free] == pytest.approx(best, abs=1e-4)
    assert not found[~free].any()


def test_an_infinite_penalty_leaves_the_log_odds_of_the_model():
    states, truth = made()
    fitted = candidate(states, truth).fitted(HeadSetting("yes-no", 1, math.inf, True, True), everything())
    assert np.corrcoef(fitted, states.log_odds)[0, 1] == pytest.approx(1 if fitted @ states.log_odds > 0 else -1)


def test_separable_labels_have_a_finite_fit():
    states, _ = made()
    truth = np.sign(states.log_odds).astype(int)
    fitted = candidate(states, truth).fitted(HeadSetting("yes-no", 1, math.inf, True, True), everything())
    assert np.isfinite(fitted).all()
    assert (np.sign(fitted) == truth).all()


def test_the_layer_with_the_information_is_chosen_and_unseen_pairs_are_predicted():
    states, truth = made()
    train = np.arange(N) < 60
    head = candidate(states, truth)
    setting, _ = head.choose(train)
    assert setting.layer == 2
    predicted, ties = head.predict(train)
    assert (np.sign(predicted) == truth)[~train].mean() > 0.7
    assert not ties.any()


def test_predictions_do_not_depend_on_the_labels_they_are_compared_with():
    states, truth = made(informative=False)
    train = np.arange(N) < 60
    for pair in (3, 70):
        flipped = truth.copy()
        flipped[pair] *= -1
        setting = HeadSetting("yes-no", 2, 0.1, False, True)
        before, after = (
            candidate(states, each).fitted(setting, train & (np.arange(N) != pair)) for each in (truth, flipped)
        )
        assert before[pair] == after[pair]
    means = [
        (
            (np.sign(candidate(*made(seed, informative=False, n=40)).predict(everything(40))[0]))
            == made(seed, informative=False, n=40)[1]
        ).mean()
        for seed in range(10)
    ]
    assert np.mean(means) < 0.6


def test_the_weights_reproduce_the_predictions_from_raw_states():
    states, truth = made()
    head = candidate(states, truth)
    for with_log_odds in (True, False):
        setting = HeadSetting("yes-no", 2, 1.0, with_log_odds, True)
        [(weights, terms)] = head.weights(setting, everything()).values()
        expected = states.states[2] @ weights + terms.log_odds * states.log_odds
        assert head.fitted(setting, everything()) == pytest.approx(expected)
        assert with_log_odds or terms.log_odds == 0
        assert terms.intercept == 0


def of_answers(kind, groups=(), n=N):
    """Single answers with a large mean state; labels depend on layer 2, in the criterion `b` with the opposite sign."""
    draw = np.random.default_rng(3)
    states = {layer: 50 + draw.normal(size=(n, HIDDEN)) for layer in (1, 2)}
    states[2][:, :4] += 4 * (states[2][:, :4] - 50)
    strength = (states[2][:, :4] - 50).sum(1) * np.array([-1 if name == "b" else 1 for name in groups or ["a"] * n])
    targets = 5 + strength if kind == "grade" else (strength > 0).astype(float)
    prompt = PromptStates(states=states, log_odds=draw.normal(size=n), centered=True)
    return HeadCandidate(
        prompts={"yes-no": prompt}, targets=targets, questions=range(n), kind=kind, groups=groups, seconds=1.0
    )


@pytest.mark.parametrize("kind", ["label", "grade"])
def test_labels_and_grades_of_single_answers_are_predicted(kind):
    head, train = of_answers(kind), np.arange(N) < 60
    setting, _ = head.choose(train)
    assert setting.layer == 2
    predicted = head.predict(train)[0][~train]
    if kind == "label":
        assert ((predicted > 0) == head.targets[~train]).mean() > 0.8
    else:
        assert np.corrcoef(predicted, head.targets[~train])[0, 1] > 0.8
    assert head.applied(head)[0] == pytest.approx(head.fitted(head.choose(everything())[0], everything()))


def test_each_criterion_has_its_own_weights():
    head, train = of_answers("label", groups=["a", "b"] * (N // 2)), np.arange(N) < 60
    assert ((head.predict(train)[0] > 0) == head.targets)[~train].mean() > 0.65
    found = head.weights(head.choose(everything())[0], everything())
    assert [terms.row for _, terms in found.values()] == [0, 1]
    assert np.corrcoef(found["a"][0], found["b"][0])[0, 1] < -0.3
    assert head.applied(head)[0] == pytest.approx(head.fitted(head.choose(everything())[0], everything()))
    assert head.part(train).groups == ["a", "b"] * 30


def test_failed_pairs_are_not_used_and_have_no_prediction():
    states, truth = made()
    whole = candidate(states, truth)
    states.log_odds[[5, 6]] = states.states[1][5] = states.states[2][5] = np.nan
    head = candidate(PromptStates(states=states.states, log_odds=states.log_odds), truth)
    predicted, _ = head.predict(everything())
    assert {setting.with_log_odds for setting in head.settings} == {False}  # pair 6 has states, but no log-odds
    assert np.flatnonzero(np.isnan(predicted)).tolist() == [5]
    assert whole.targets[5] in (0, 1)


def test_ties_are_half_a_win_or_left_out():
    states, truth = made()
    truth[:20] = 0
    settings = list(candidate(states, truth).settings)
    assert {setting.with_ties for setting in settings} == {True, False}
    assert {setting.with_ties for setting in candidate(*made()).settings} == {True}
