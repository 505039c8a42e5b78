"""The choice of a reading: fits by hand, nested estimates, and what labels cannot tell."""

import math

import numpy as np
import pytest

from judgelm.errors import InputError
from judgelm.metrics.resampling import Resampling
from judgelm.modes import Pairwise
from judgelm.records import Sample
from judgelm.runs.runner import judge
from judgelm.studies.heads import folds_of
from judgelm.studies.tuning import (
    ReadingCandidate,
    ReadingFit,
    TuningLabels,
    TuningOptions,
    fit_reading,
    strength_difference,
    tune,
)
from tests.support.word_engine import WordEngine

NAN = math.nan


def tuned(candidates, truth, *, default="a", questions=None, longer=None):
    made = {name: ReadingCandidate(differences=np.array(each, dtype=float)) for name, each in candidates.items()}
    options = TuningOptions(default=default, folds=5, resampling=Resampling(seed=0, resamples=300))
    places = list(range(len(truth)))
    lengths = np.array([[2 + sign, 2] for sign in longer or [0] * len(truth)])
    return tune(made, TuningLabels(truth=np.array(truth), questions=questions or places, lengths=lengths), options)


def test_temperatures_by_hand():
    # right with odds 3 : 1 at a difference of 2 both ways: sigmoid(2 / T) = 3 / 4, so T = 2 / ln 3
    fit = fit_reading(np.array([2.0, -2.0, 2.0, 2.0]), np.zeros(4), np.array([1, -1, 1, -1]))
    assert fit.temperature == pytest.approx(2 / math.log(3), rel=1e-3)
    assert fit.tie_threshold == 0  # no label is a tie
    # the likelihood has no maximum; the largest difference gets P = 1 - 1e-6: T = 4 / ln(999,999)
    fit = fit_reading(np.array([4.0, -1.0]), np.zeros(2), np.array([1, -1]))
    assert fit.temperature == pytest.approx(4 / math.log(999_999), rel=1e-2)


def test_the_tie_threshold_lies_halfway_between_ties_and_winners():
    # T as above; the ties' largest difference is 0.5, the winners' smallest 3
    fit = fit_reading(np.array([3.0, 0.5, -0.4, -3.0]), np.zeros(4), np.array([1, 0, 0, -1]))
    leads = [1 / (1 + math.exp(-difference / fit.temperature)) - 0.5 for difference in (0.5, 3.0)]
    assert fit.tie_threshold == pytest.approx(sum(leads) / 2)
    assert fit.verdicts(np.array([3.0, 0.5, -0.4, -3.0, NAN])).tolist()[:4] == [1, 0, 0, -1]


def test_a_tie_word_takes_its_share_as_in_judging():
    # P(first better) = (1 - t) sigmoid(d) + t / 2; with t = 0.2 and sigmoid(d) = 3 / 4, that is 0.7
    fit = ReadingFit()
    assert fit.lead(np.array([math.log(3)]), np.array([0.2])) == pytest.approx(0.2)
    # the tie is likeliest if t > (1 - t) 3 / 4, so for t above 3 / 7
    assert fit.verdicts(np.full(2, math.log(3)), np.array([0.42, 0.43])).tolist() == [1, 0]


def test_a_failure_is_wrong_and_never_a_tie():
    truth = [1, -1] * 12 + [0] * 4
    candidates = {"a": [*([1.0, -1.0] * 12), NAN, NAN, 0.0, 0.0], "b": [1.0, -1.0] * 14}
    scores = tuned(candidates, truth).candidates["a"]
    # right are all but the failed ones, whose labels are ties
    assert (scores.failed, scores.accuracy.n, scores.accuracy.value) == (2, 28, pytest.approx(26 / 28))


def test_the_best_of_many_guesses_is_no_better_on_held_out_questions():
    rng = np.random.default_rng(0)
    guesses = {f"guess {i}": rng.normal(size=40) for i in range(8)}
    result = tuned(guesses, rng.choice([-1, 1], size=40), default="guess 0")
    apparent = result.candidates[result.best].accuracy.value
    assert apparent >= 0.6 > 0.5 + 1e-9 > result.nested.value
    assert (result.chosen, result.gain.low < 0) == ("guess 0", True)
    kept = result.candidates["guess 0"].accuracy
    assert f"guess 0 on held-out questions is {kept.value:.1%}"[:-1] in result.sentences()[1]


def test_only_a_clearly_better_candidate_is_chosen():
    truth = [1, -1] * 20
    result = tuned({"a": [1.0, 1.0] * 20, "b": [1.0, -1.0] * 20}, truth)
    assert (result.chosen, result.best, result.selected) == ("b", "b", ("b",) * 25)
    assert (result.nested.value, result.gain.value) == (1.0, 0.5)
    assert result.sentences()[0].startswith("b is chosen. On held-out questions")
    # b is right on three pairs more of 40: 0.95^40 or so of all resamples have none of them
    result = tuned({"a": [-1.0] * 20 + [1.0] * 20, "b": [-1.0] * 17 + [1.0] * 23}, [1] * 40)
    assert (result.best, result.chosen) == ("b", "a")
    assert "b is not significantly better than a" in result.sentences()[0]
    # 2.8 standard errors fit into the gain with n (2.8 error / gain)^2 pairs, and an interval is 3.92 of them
    error = (result.gain.high - result.gain.low) / 3.92
    assert result.pairs_needed == math.ceil(40 * (2.8 * error / result.gain.value) ** 2)
    assert f"about {result.pairs_needed:,} labelled pairs" in result.sentences()[0]


def test_pairs_of_one_question_are_held_out_together():
    questions = [f"q{index // 4}" for index in range(40)]
    folds = folds_of(questions, 5, seed=0)
    assert all(len(set(folds[start : start + 4])) == 1 for start in range(0, 40, 4))
    assert sorted(folds) == [fold for fold in range(5) for _ in range(8)]  # two questions of four pairs each


def test_the_share_of_longer_answers_counts_pairs_with_a_longer_one():
    # first better on all; longer: first 10 times, second 5 times, neither 5 times
    result = tuned({"a": [1.0] * 20}, [1] * 20, longer=[1] * 10 + [-1] * 5 + [0] * 5)
    assert result.candidates["a"].longer == pytest.approx(10 / 15)
    assert result.sentences()[0] == "a was the only candidate."
    assert "is 100.0 % (95 % interval 83.9 to 100.0, n = 20)" in result.sentences()[1]  # Wilson's


@pytest.mark.parametrize("order", ["dcba", "bdac"])
def test_the_order_of_the_candidates_changes_nothing(order):
    rng = np.random.default_rng(0)
    truth = rng.choice([-1, 0, 1], p=[0.45, 0.1, 0.45], size=60)
    values = {name: rng.normal(size=60) + scale * truth for scale, name in enumerate("abcd")}
    values["d"] = values["c"]  # equally good
    expected = tuned(values, truth).to_json()
    assert tuned({name: values[name] for name in order}, truth).to_json() == expected


@pytest.mark.parametrize(
    ("truth", "questions", "finding"),
    [
        ([1] * 19 + [0] * 30, None, "expected at least 20 pairs with a winner, got 19"),
        ([1] * 40, [0, 1, 2, 3] * 10, "expected at least 5 questions .*, got 4"),
    ],
)
def test_too_few_labels_or_questions_are_rejected(truth, questions, finding):
    with pytest.raises(InputError, match=finding):
        tuned({"a": [1.0] * len(truth)}, truth, questions=questions)


def judged(answer, template):
    sample = Sample(id="1", question="q", answers=(answer, "-1 0.5"))
    return next(iter(judge([sample], Pairwise(template=template, tie_threshold=0.0), WordEngine())))


@pytest.mark.parametrize("template", ["yes-no", "letters", "grade"])
def test_the_difference_of_strengths_is_that_of_the_judges_probability(template):
    # yes-no and grade: 1.5 against -1 (a grade of 6 against 4); letters: 2 against 0.5 in both orders
    judgment = judged("1.5 2", template)
    difference = strength_difference(judgment)
    assert difference == pytest.approx({"yes-no": 2.5, "letters": 1.5, "grade": 2.0}[template])
    assert judgment.probability == pytest.approx(1 / (1 + math.exp(-difference)))


def test_a_missing_or_failed_judgment_has_no_difference():
    for judgment in (judged("mute", "letters"), None):
        assert math.isnan(strength_difference(judgment))
