"""Judges that are read off the probabilities of one word."""

import math
from dataclasses import replace

import pytest

from judgelm.errors import ConfigError, InputError
from judgelm.modes import Pairwise, make_mode, mode_type
from judgelm.modes.conversation import Conversation
from judgelm.modes.multi import Multi
from judgelm.modes.single import Single
from judgelm.records import PairVerdict, RankingVerdict, Sample
from tests.support.flows import SAMPLE, broken, drive, reply, text_of

YES_NO, LETTERS, GRADE = Pairwise(template="yes-no"), Pairwise(template="letters"), Pairwise(template="grade")
SHORT = Pairwise(template="grade", scale=(1, 3))


def yes(*spellings):
    """A reply to a question of yes or no; six spellings of each, blanks last."""
    return reply("Yes", shares=spellings)


def letters(a, b, blank_a=0.0, blank_b=0.0):
    return reply("A", shares=[a, blank_a, b, blank_b])


def test_yes_and_no_are_summed_over_their_spellings_and_compared_between_answers():
    first = yes(0.3, 0.2, 0, 0.1, 0, 0, 0.2, 0, 0, 0, 0.1, 0)  # yes 0.6, no 0.3, others 0.1: odds 2
    second = yes(0.1, 0, 0, 0.1, 0, 0, 0.5, 0.3, 0, 0, 0, 0)  # yes 0.2, no 0.8: odds 1/4
    requests, judgment = drive(YES_NO, [first, second])
    assert requests[0][0].candidates[:7] == ("Yes", "yes", "YES", " Yes", " yes", " YES", "No")
    assert [request.sampling.max_tokens for request in requests[0]] == [1, 1]
    # log 2 - log 1/4 = log 8; 8 / (8 + 1)
    assert judgment.probability == pytest.approx(8 / 9)
    assert judgment.verdict == PairVerdict(winner=1)
    assert [shown.order for shown in judgment.shown] == [(0,), (1,)]
    assert judgment.shown[0].log_odds == pytest.approx(math.log(2))
    assert judgment.shown[0].grades.unassigned == pytest.approx(0.1)
    # P(yes) 2/3 and 1/5 on a scale from 1 to 10
    assert judgment.scores == (pytest.approx(7), pytest.approx(2.8))
    assert judgment.consistent is None


def test_letters_are_averaged_over_both_orders_as_log_odds():
    requests, judgment = drive(LETTERS, [letters(0.8, 0.1, 0.0, 0.1), letters(0.5, 0.5)])
    assert text_of(requests[0][0].prompt).index("\na\n") < text_of(requests[0][0].prompt).index("\nb\n")
    # (log 4 + log 1) / 2 = log 2
    assert judgment.probability == pytest.approx(2 / 3)
    assert judgment.scores == (pytest.approx(7), pytest.approx(4))
    assert [shown.order for shown in judgment.shown] == [(0, 1), (1, 0)]
    assert judgment.shown[0].distribution.first_better == pytest.approx(0.8)


@pytest.mark.parametrize(("second", "consistent"), [((0.1, 0.9), True), ((0.9, 0.1), False)])
def test_letters_are_consistent_where_both_orders_name_the_same_answer(second, consistent):
    _, judgment = drive(LETTERS, [letters(0.9, 0.1), letters(*second)])
    assert judgment.consistent is consistent


def test_exchanging_the_answers_exchanges_the_verdict():
    one, other = letters(0.7, 0.2), letters(0.6, 0.4)
    _, judgment = drive(LETTERS, [one, other])
    _, exchanged = drive(LETTERS, [other, one])
    assert exchanged.probability == pytest.approx(1 - judgment.probability)


def test_grades_are_compared_by_their_expectation():
    # (1, 2, 3) with a blank and without: 0.5 of 3 and 0.5 of 2; 1 of 2
    first, second = reply("3", shares=[0, 0, 0.5, 0, 0.25, 0.25]), reply("2", shares=[0, 0, 1, 0, 0, 0])
    _, judgment = drive(SHORT, [first, second])
    assert judgment.scores == (2.5, 2)
    assert judgment.probability == pytest.approx(1 / (1 + math.exp(-0.5)))
    assert judgment.shown[0].log_odds is None


def test_a_scale_of_two_grades_is_no_yes_and_no():
    mode = Pairwise(template="grade", scale=(0, 1))
    _, judgment = drive(mode, [reply("1", shares=[0.2, 0, 0.8, 0]), reply("0", shares=[0.9, 0, 0.1, 0])])
    assert judgment.scores == (pytest.approx(0.8), pytest.approx(0.1))
    assert (judgment.winner, judgment.shown[0].log_odds) == (1, None)


def test_the_calibration_temperature_divides_the_difference():
    mode = replace(YES_NO, calibration_temperature=2.0)
    _, judgment = drive(mode, [yes(0.8, *[0] * 5, 0.2, *[0] * 5), yes(0.2, *[0] * 5, 0.8, *[0] * 5)])
    # log 4 - log 1/4 = log 16, halved: log 4
    assert judgment.probability == pytest.approx(0.8)


@pytest.mark.parametrize(("threshold", "winner"), [(0.05, "tie"), (0.0, 1)])
def test_a_tie_is_a_probability_near_one_half(threshold, winner):
    _, judgment = drive(
        replace(YES_NO, tie_threshold=threshold),
        [yes(0.52, *[0] * 5, 0.48, *[0] * 5), yes(0.5, *[0] * 5, 0.5, *[0] * 5)],
    )
    assert judgment.winner == winner


def test_a_model_that_answers_something_else_has_failed():
    _, judgment = drive(YES_NO, [yes(0.24, *[0] * 5, 0.24, *[0] * 5), yes(1, *[0] * 11)])
    assert judgment.verdict is None
    assert judgment.failure.code == "off_grammar"
    assert judgment.failure.why == "the total probability of yes, no is only 0.48; the minimum is 0.5"


def test_an_engine_without_probabilities_is_a_failure_and_no_tie():
    _, judgment = drive(YES_NO, [reply("Yes"), reply("No")])
    assert judgment.failure.code == "engine"
    assert "needs" in judgment.failure.why


def test_one_failed_prompt_fails_the_pair():
    _, judgment = drive(LETTERS, [letters(0.9, 0.1), broken()])
    assert (judgment.verdict, judgment.probability, judgment.consistent) == (None, None, None)


def test_a_word_that_the_engine_does_not_list_has_a_least_probability():
    _, judgment = drive(YES_NO, [yes(1, *[0] * 11), yes(1, *[0] * 11)])
    assert judgment.shown[0].log_odds == pytest.approx(-math.log(1e-9), rel=1e-3)
    assert judgment.winner == "tie"


def test_one_answer_is_graded_by_the_probability_of_yes():
    sample = replace(SAMPLE, answers=("a",), reference="r")
    requests, judgment = drive(Single(template="yes-no"), [yes(0.8, *[0] * 5, 0.2, *[0] * 5)], sample=sample)
    assert judgment.verdict.score == pytest.approx(8.2)
    assert "Reference answer, which is correct:\nr\n" in text_of(requests[0][0].prompt)


def test_one_answer_is_compared_with_its_reference_by_letters():
    sample = replace(SAMPLE, answers=("a",), reference="r")
    _, judgment = drive(Single(template="letters"), [letters(0.8, 0.2), letters(0.2, 0.8)], sample=sample)
    # the reference stands first: log 4 for it in both orders
    assert judgment.verdict.score == pytest.approx(1 + 9 * 0.2)
    with pytest.raises(InputError, match="reading letters requires"):
        drive(Single(template="letters"), sample=replace(SAMPLE, answers=("a",)))


def test_answers_are_ranked_by_yes_one_by_one_and_by_letters_at_every_place():
    sample = Sample(id="1", question="q", answers=("a", "b", "c"))
    shares = [[0.5, *[0] * 5, 0.5, *[0] * 5], [0.2, *[0] * 5, 0.8, *[0] * 5], [0.9, *[0] * 5, 0.1, *[0] * 5]]
    _, judgment = drive(Multi(template="yes-no"), [reply("Yes", shares=each) for each in shares], sample=sample)
    assert judgment.verdict == RankingVerdict(order=((2,), (0,), (1,)))
    # orders abc, bca, cab; A is always 0.6, so the place decides nothing: all tied
    flat = reply("A", shares=[0.6, 0, 0.2, 0, 0.2, 0])
    requests, judgment = drive(Multi(template="letters"), [flat] * 3, sample=sample)
    assert requests[0][0].candidates == ("A", " A", "B", " B", "C", " C")
    assert judgment.verdict == RankingVerdict(order=((0, 1, 2),))
    assert judgment.consistent is False


def test_dialogues_are_judged_turn_by_turn_and_their_strengths_averaged():
    turns = [{"question": "q1", "answers": ["a1", "b1"]}, {"question": "q2", "answers": ["a2", "b2"]}]
    sample = Sample(id="1", question="q2", answers=("a2", "b2"), metadata={"turns": turns})
    even, good = yes(0.5, *[0] * 5, 0.5, *[0] * 5), yes(0.8, *[0] * 5, 0.2, *[0] * 5)
    requests, judgment = drive(Conversation(template="yes-no"), [good, even, good, even], sample=sample)
    assert "User: q1\n\nAssistant: a1\n\nUser: q2\n\n[Answer]\na2\n" in text_of(requests[0][2].prompt)
    assert judgment.probability == pytest.approx(0.8)
    assert [shown.part for shown in judgment.shown] == ["turn 1", "turn 1", "turn 2", "turn 2"]


def test_a_reason_is_asked_for_behind_the_word_as_the_next_turn():
    good, bad = yes(0.8, *[0] * 5, 0.2, *[0] * 5), reply("No", shares=[0.2, *[0] * 5, 0.8, *[0] * 5])
    why = [reply("It is right."), reply("It is wrong.")]
    requests, judgment = drive(replace(YES_NO, reasons="all"), [good, bad], why)
    assert [(span.role, span.text[:4]) for span in requests[1][1].prompt.spans[-2:]] == [
        ("assistant", "No"),
        ("user", "Why?"),
    ]
    assert [shown.reason for shown in judgment.shown] == ["It is right.", "It is wrong."]
    assert judgment.reason == "Answer 1: It is right.\n\nAnswer 2: It is wrong."


def test_a_criterion_stands_in_the_question_to_the_judge():
    mode = Pairwise(template="letters", criterion="It rhymes.")
    requests, _ = drive(mode, [letters(0.5, 0.5)] * 2)
    assert "Criterion: It rhymes." in text_of(requests[0][0].prompt)
    assert mode.template == "letters-criterion"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order_rule": "tie"}, "order_rule"),
        ({"retry_unparseable": True}, "retry_unparseable"),
        ({"temperature": 1.0}, "temperature"),
        ({"criterion": " "}, "criterion is empty"),
        ({"calibration_temperature": 0.0}, "calibration_temperature"),
        ({"template": "judgelm-v1", "criterion": "x"}, "does not support criteria"),
        ({"template": "yes-no-criterion"}, "set one with --criterion"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Pairwise(**{"template": "yes-no"} | options)


@pytest.mark.parametrize("name", ["pair", "single", "multi", "conversation"])
def test_the_modes_of_score_lines_can_be_read_by_words(name):
    mode = make_mode(name, {"criterion": "It rhymes."}, {"template": "yes-no", "scale": (1, 5), "step": 1})
    assert (type(mode), mode.template) == (mode_type(name), "yes-no-criterion")


def test_more_answers_than_letters_are_refused():
    sample = Sample(id="1", question="q", answers=tuple("x" * (n + 1) for n in range(27)))
    with pytest.raises(ConfigError, match="at most 26"):
        drive(Multi(template="letters"), sample=sample)
