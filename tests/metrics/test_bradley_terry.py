"""Bradley-Terry by hand and against known strengths, with order effects, ties and models without a finite strength."""

import numpy as np
import pytest
from scipy.special import expit

from judgelm.metrics.bradley_terry import Match, bradley_terry
from judgelm.metrics.resampling import Resampling

HOW = Resampling(resamples=100)
ELO = {"a": 200.0, "b": 50.0, "c": -250.0}


def round_robin(questions, advantage=0.0, seed=0, soft=False):
    """Verdicts in both orders with the strengths of ELO, and an advantage of the first position, in points."""
    generator = np.random.default_rng(seed)
    for question in range(questions):
        for first in ELO:
            for second in ELO:
                if first == second:
                    continue
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


def test_soft_verdicts_give_strengths_and_position_exactly():
    ratings = bradley_terry(list(round_robin(3, advantage=60, soft=True)), HOW)
    assert values(ratings) == pytest.approx(ELO, abs=0.01)
    assert ratings.position.value == pytest.approx(60, abs=0.01)


def test_hard_verdicts_hold_the_strengths_within_their_intervals():
    ratings = bradley_terry(list(round_robin(200, advantage=60)), HOW)
    for rating in ratings.rated:
        assert rating.elo.low < 1000 + ELO[rating.model] < rating.elo.high
        assert (rating.best_rank, rating.worst_rank) == (rating.rank, rating.rank)
    assert ratings.position.low < 60 < ratings.position.high


def test_matches_of_one_question_are_drawn_together():
    alone = list(round_robin(60))
    doubled = [*alone, *alone]
    widths = [
        bradley_terry(matches, HOW).rated[0].elo.high - bradley_terry(matches, HOW).rated[0].elo.low
        for matches in (alone, doubled)
    ]
    assert widths[0] == pytest.approx(widths[1])


def test_a_model_that_never_lost_has_no_rating_and_a_reason():
    matches = [*round_robin(30), *(Match(first="best", second="a", preference=1, question=i) for i in range(30))]
    ratings = bradley_terry(matches, HOW)
    assert "best" not in values(ratings)
    assert "no win or no loss" in ratings.unrated["best"]


def test_a_position_that_cannot_be_told_from_a_model_has_no_estimate():
    always = [match for match in round_robin(30) if match.second == "c"]
    assert "always shown at one position" in bradley_terry(always, HOW).position
    unknown = [Match(first=m.first, second=m.second, preference=m.preference, question=m.question) for m in always]
    assert "unknown" in bradley_terry(unknown, HOW).position


def test_models_that_never_met_are_refused():
    with pytest.raises(ValueError, match="no two models have beaten each other"):
        bradley_terry([Match(first="a", second="b", preference=1, question=0)], HOW)
