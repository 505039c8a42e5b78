"""Bradley-Terry by hand and against known strengths, with order effects, ties and models without a finite strength."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from statsmodels.genmod.families import Binomial
from statsmodels.genmod.generalized_linear_model import GLM

from judgelm.metrics.bradley_terry import Match, bradley_terry
from judgelm.metrics.resampling import Resampling

HOW = Resampling(resamples=100)
ELO = {"a": 200.0, "b": 50.0, "c": -250.0}


def round_robin(questions, advantage=0.0, soft=False):
    """Verdicts in both orders with the strengths of ELO, and an advantage of the first position, in points."""
    generator = np.random.default_rng(0)
    for question in range(questions):
        for first, second in itertools.permutations(ELO, 2):
            wins = expit((ELO[first] - ELO[second] + advantage) * np.log(10) / 400)
            preference = wins if soft else float(generator.random() < wins)
            yield Match(first=first, second=second, preference=preference, question=question, ordered=True)


def values(ratings):
    return {rating.model: rating.elo.value - 1000 for rating in ratings.rated}


def test_two_models_by_hand():
    preferences = [1, 1, 1, 0.5, 0.5, 0, 0.9, 0.1]
    matches = [Match(first="a", second="b", preference=p, question=i) for i, p in enumerate(preferences)]
    ratings = bradley_terry(matches, HOW)
    # 5 of 8, ties as halves: 400 log10(5 / 3) = 88.7 points apart
    points = values(ratings)
    assert points["a"] - points["b"] == pytest.approx(400 * np.log10(5 / 3), abs=1e-3)
    assert [(rating.model, rating.rank, rating.elo.n) for rating in ratings.rated] == [("a", 1, 8), ("b", 2, 8)]


def test_the_virtual_player_of_an_undefeated_model_is_fitted_by_hand():
    """`a` beat `b` and `c`; with u = P(a beats the virtual player v) and w = P(b beats v) = P(c beats v):

    v draws with all on average: u + 2 w = 3/2. b: 1/2 - w = P(b beats a) = w (1 - u) / (w (1 - u) + u (1 - w)). So
    16 w^3 - 16 w^2 + 12 w - 3 = 0, w = 0.36106, u = 0.77788, and log odds u less log odds w are 1.8241, 316.9 points.
    With v at the mean strength they would be 1.8204, 316.2 points.
    """
    ratings = bradley_terry([Match(first="a", second=other, preference=1, question=other) for other in "bc"], HOW)
    points = values(ratings)
    assert (ratings.regularised, points["b"]) == (True, pytest.approx(points["c"]))
    assert points["a"] - points["b"] == pytest.approx(316.9, abs=0.1)


def test_soft_verdicts_give_strengths_and_position_exactly():
    ratings = bradley_terry(list(round_robin(3, advantage=60, soft=True)), HOW)
    assert values(ratings) == pytest.approx(ELO, abs=0.01)
    assert ratings.position.value == pytest.approx(60, abs=0.01)
    # one pair in both orders is enough for the position
    verdicts = round_robin(3, advantage=60, soft=True)
    matches = [match for match in verdicts if match.first < match.second or (match.first, match.second) == ("b", "a")]
    assert bradley_terry(matches, HOW).position.value == pytest.approx(60, abs=0.01)


def test_hard_verdicts_hold_the_strengths_within_their_intervals():
    ratings = bradley_terry(list(round_robin(200, advantage=60)), HOW)
    for rating in ratings.rated:
        assert rating.elo.low < 1000 + ELO[rating.model] < rating.elo.high
        assert (rating.best_rank, rating.worst_rank) == (rating.rank, rating.rank)
    assert ratings.position.low < 60 < ratings.position.high


def test_matches_of_one_question_are_drawn_together():
    alone = list(round_robin(60))
    first, other = (bradley_terry(matches, HOW).rated[0].elo for matches in (alone, [*alone, *alone]))
    assert first.high - first.low == pytest.approx(other.high - other.low)


def all_won(first, second, questions, ordered=False):
    return [Match(first=first, second=second, preference=1, question=i, ordered=ordered) for i in range(questions)]


def test_an_unbeaten_model_is_first_without_an_upper_bound():
    ratings = bradley_terry([*round_robin(30), *all_won("best", "a", 30)], HOW)
    best = ratings.rated[0]
    assert (best.model, best.record, best.elo.high) == ("best", "unbeaten", np.inf)
    assert [row.model for row in ratings.rated[1:]] == ["a", "b", "c"]
    assert all(np.isfinite([row.elo.low, row.elo.high]).all() for row in ratings.rated[1:])
    assert ratings.regularised
    last = bradley_terry([*round_robin(30), *all_won("c", "worst", 30)], HOW).rated[-1]
    assert (last.model, last.record, last.elo.low, np.isfinite(last.elo.high)) == ("worst", "winless", -np.inf, True)


def test_two_models_of_which_one_always_won_by_hand():
    ratings = bradley_terry(all_won("a", "b", 1), HOW)
    # strengths x and -x, u = exp(-x): 2 (1 - s(2x)) = 2 s(x) - 1, so 3 u^3 + u^2 + u - 1 = 0
    u = next(root.real for root in np.roots([3, 1, 1, -1]) if abs(root.imag) < 1e-12)
    assert values(ratings)["a"] == pytest.approx(-400 * np.log10(u), abs=1e-3)
    won, lost = (row.elo for row in ratings.rated)
    assert (won.high, lost.low) == (np.inf, -np.inf)
    ratings = bradley_terry(all_won("a", "b", 30), HOW)
    a, b = (row.elo for row in ratings.rated)
    # p^30 = 0.025 at the lower bound of a, with b where it is
    p = 0.025 ** (1 / 30)
    assert a.low - b.value == pytest.approx(400 * np.log10(p / (1 - p)), abs=1e-3)
    # the same question 30 times says no more than once
    alike = bradley_terry([match for match in all_won("a", "b", 1) for _ in range(30)], HOW)
    a, b = (row.elo for row in alike.rated)
    assert a.low - b.value == pytest.approx(400 * np.log10(0.025 / 0.975), abs=1e-3)


def test_regularised_strengths_are_those_of_a_regression_with_the_ties_as_rows():
    matches = [*all_won("a", "b", 9), *all_won("b", "c", 4), *all_won("c", "b", 2), *all_won("a", "c", 3)]
    wins = np.array([9, 4, 3, 0.5, 0.5, 0.5])
    counts = np.array([9, 6, 3, 1, 1, 1])
    design = np.array([[1, -1, 0], [0, 1, -1], [1, 0, -1], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    fit = GLM(wins / counts, design, family=Binomial(), freq_weights=counts).fit(tol=1e-12)
    expected = 400 / np.log(10) * (fit.params - fit.params.mean())
    assert values(bradley_terry(matches, HOW)) == pytest.approx(dict(zip("abc", expected, strict=True)), abs=1e-3)


def test_a_chain_of_models_has_an_order_and_open_intervals():
    matches = [*all_won("a", "b", 20), *all_won("b", "c", 20), *all_won("c", "d", 20)]
    rated = bradley_terry(matches, HOW).rated
    assert [row.model for row in rated] == ["a", "b", "c", "d"]
    assert [(np.isinf(row.elo.low), np.isinf(row.elo.high)) for row in rated] == [
        (False, True), (True, True), (True, True), (True, False),
    ]  # fmt: skip


def test_separable_resamples_are_counted_and_cost_nothing():
    # a loses 1 question of 40: it is in none of the resamples with probability (1 - 1 / 40)^40 = 0.36
    matches = [*all_won("a", "b", 40)[1:], Match(first="b", second="a", preference=1, question=0)]
    ratings = bradley_terry(matches, Resampling(resamples=300))
    assert ratings.separable_resamples == pytest.approx(109, abs=27)
    points = values(ratings)
    assert points["a"] - points["b"] == pytest.approx(400 * np.log10(39), abs=1e-3)  # unpenalised, as 39 to 1
    assert np.isfinite(ratings.rated[0].elo.high)


def test_models_that_never_met_the_others_have_no_rating_and_a_reason():
    ratings = bradley_terry([*round_robin(30), *all_won("x", "y", 50)], HOW)
    assert (set(ratings.unrated), ratings.regularised) == ({"x", "y"}, False)
    assert "no matches with the rated models" in ratings.unrated["x"]


def test_a_position_that_cannot_be_told_from_strengths_has_no_estimate():
    always = [match for match in round_robin(30) if match.second == "c"]
    # three models in one order have three pairs for two strengths and the position: only additivity would tell
    fixed = [match for match in round_robin(30, advantage=300) if match.first < match.second]
    for matches in (always, fixed):
        assert "always shown in the same order" in bradley_terry(matches, HOW).position
    unknown = [replace(match, ordered=False) for match in always]
    assert "unknown" in bradley_terry(unknown, HOW).position


def test_a_judge_that_always_takes_the_first_answer_has_an_open_position_and_equal_models():
    matches = [match for pair in (("a", "b"), ("b", "a")) for match in all_won(*pair, 20, ordered=True)]
    ratings = bradley_terry(matches, HOW)
    assert list(values(ratings).values()) == pytest.approx([0, 0], abs=1e-6)
    assert ratings.position.high == np.inf
    # 40 wins of 40 and one tie: 40.5 of 41
    assert ratings.position.value == pytest.approx(400 * np.log10(40.5 / 0.5), abs=1e-3)
