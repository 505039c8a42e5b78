"""What a finding concludes: a winner, the best of several, a yes or a no, and the log-probabilities of a verdict."""

import math

import pytest

from judgelm.dialects.contract import JudgeResult, JudgeTask, TokenLogprobs, sample_of
from judgelm.dialects.replies import (
    best_answer,
    is_fulfilled,
    likelier_answer,
    probability_first,
    safe_log,
    verdict_logprobs,
)

PAIR = JudgeTask(dialect="any", kind="pair", sample=sample_of("q", ("a", "b")))


@pytest.mark.parametrize(
    ("finding", "chance", "likelier"),
    [
        (JudgeResult(winner=1, first_better=0.4), 0.4, 2),
        (JudgeResult(winner=2, first_better=0.6), 0.6, 1),
        (JudgeResult(winner=1), 1.0, 1),
        (JudgeResult(winner=2), 0.0, 2),
        (JudgeResult(winner="tie"), 0.5, 2),  # sha256 of "b" is 3e23..., of "a" ca97...
    ],
)
def test_the_distribution_goes_before_the_winner(finding, chance, likelier):
    assert probability_first(finding) == chance
    assert likelier_answer(PAIR, finding) == likelier


def test_of_equal_answers_the_one_with_the_lowest_hash_is_best():
    several = JudgeTask(dialect="any", kind="choice", sample=sample_of("q", ("a", "c", "b")))
    assert best_answer(several, JudgeResult(scores=(7.0, 7.5, 7.0))) == 1
    # "c" is 2e7d..., below "b", 3e23..., and "a", ca97...
    assert best_answer(several, JudgeResult(scores=(7.0, 7.0, 7.0))) == 1
    assert best_answer(several, JudgeResult(scores=(7.0, 6.0, 7.0))) == 2


@pytest.mark.parametrize(
    ("finding", "yes"),
    [
        (JudgeResult(correct=0.5, scores=(1.0,)), True),
        (JudgeResult(correct=0.49, scores=(10.0,)), False),
        (JudgeResult(scores=(5.5,)), True),  # the middle of 1 to 10 is 0.5 of 0 to 1
        (JudgeResult(scores=(5.4,)), False),
    ],
)
def test_at_one_half_it_is_fulfilled(finding, yes):
    assert is_fulfilled(finding) is yes


def test_a_verdict_is_one_token_and_what_stands_before_it_was_certain():
    found = verdict_logprobs("A 12_b.\n7", "7", {"6": 0.25, "7": 0.75, "8": 0.0}, most=2)
    certain = tuple(
        TokenLogprobs(token=piece, logprob=0.0, candidates=((piece, 0.0),))
        for piece in ("A", " 1", "2", "_", "b", ".", "\n")
    )
    ranked = (("7", math.log(0.75)), ("6", math.log(0.25)))
    assert found == (*certain, TokenLogprobs(token="7", logprob=math.log(0.75), candidates=ranked))
    bare = verdict_logprobs("A 7", "7", {"7": 0.75}, most=0)
    assert [(one.token, one.candidates) for one in bare] == [("A", ()), (" ", ()), ("7", ())]


def test_logs_have_a_floor():
    assert [safe_log(chance) for chance in (1.0, 0.0, 1e-50)] == [0.0, -100.0, -100.0]  # ln(1e-50) is -115
    assert safe_log(1e-40) == pytest.approx(-92.1034)
