"""What a reply is put together from: scores, winners, labels, probabilities, and the words next to them."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask, sample_of
from judgelm.dialects.replies import (
    best_answer,
    consistent_scores,
    expected_grade,
    explanation,
    format_number,
    is_fulfilled,
    likelier_answer,
    probability_first,
    rescale,
    results_per_reply,
    safe_log,
    safe_reason,
    scores_and_reason,
    scores_in_words,
    verdict_logprobs,
    winner_of_two,
    winner_sentence,
    winner_with_ties,
    words_and_verdict,
)
from judgelm.records import TokenLogprobs

PAIR, THREE = (
    JudgeTask(dialect="any", kind="pair", sample=sample_of("q", answers)) for answers in (("a", "b"), ("a", "b", "c"))
)
VERDICTS = (
    r"[\[\](){}<>`*|\"]", r"grade\s*:", r"final (decision|verdict|answer) is\b", r"rating\s*:", r"score\s*:", r"[\n\r]",
    "\u2028",
)  # fmt: skip
WORDS = st.lists(
    st.sampled_from(["final", "decision", "is", " ", "\n", "\u2028", "GRADE", ":", "[[A]]", "[RESULT]", "score", "7",
                     "(b)", "Output", "<score>", "rating", "island", '{"score": 1}', "Tie", "verdict"]),
    max_size=20,
).map(" ".join)  # fmt: skip


@pytest.mark.parametrize(
    ("score", "scale", "whole", "expected"),
    [
        (1, (0, 10), False, 0),
        (10, (0, 10), False, 10),
        (5.5, (1, 5), False, 3),
        (4, (1, 10), False, 4),
        (5.5, (0, 5), True, 2),  # 2.5, to the even neighbour
        (5.5, (0, 1), True, 0),  # 0.5
        (8.5, (1, 4), True, 4),  # 1 + 7.5 / 9 * 3 = 3.5
    ],
)
def test_scores_are_mapped_linearly(score, scale, whole, expected):
    assert rescale(score, scale, whole=whole) == pytest.approx(expected)


def test_numbers_have_no_needless_zeros():
    assert [format_number(number) for number in (8.0, 7.5, 6.333, 0.0, 100.0)] == ["8", "7.5", "6.33", "0", "100"]


@given(st.one_of(st.text(), WORDS), st.booleans())
def test_no_words_of_the_judge_can_be_read_as_a_verdict(reason, digits):
    text = safe_reason(reason, digits=digits)
    assert not any(re.search(verdict, text, re.IGNORECASE) for verdict in VERDICTS)
    assert text == text.strip()
    assert len(text) <= 600
    assert digits or not re.search(r"\d", text)


def test_an_explanation_is_never_empty():
    assert explanation(JudgeResult()) == "Judged as a whole."
    assert explanation(JudgeResult(scores=(8.24, 6.0), reason="Short.")) == "Scores: 8.2 and 6 out of 10. Short."
    assert explanation(JudgeResult(correct=0.826, reason="3 faults.")) == "Fulfilled with probability 0.83. 3 faults."
    assert explanation(JudgeResult(scores=(8.0,), correct=0.8, reason="3 faults."), digits=False) == "faults."


@given(st.text(), st.text())
def test_the_winner_of_a_tie_does_not_depend_on_the_order(first, second):
    better = []
    for answers in ((first, second), (second, first)):
        task = JudgeTask(dialect="any", kind="pair", sample=sample_of("q", answers))
        better.append(answers[winner_of_two(task, JudgeResult(winner="tie", first_better=0.5)) - 1])
    assert better[0] == better[1]


@pytest.mark.parametrize(
    ("winner", "first_better", "of_two", "probability", "likelier"),
    [
        (1, 0.1, 1, 0.1, 2),  # the probability says who is likelier, whoever won
        (2, 0.9, 2, 0.9, 1),
        ("tie", 0.6, 1, 0.6, 1),
        ("tie", 0.4, 2, 0.4, 2),
        ("tie", 0.5, 2, 0.5, 2),  # sha256 of "b" is 3e23..., of "a" ca97...
        ("tie", None, 2, 0.5, 2),
        (1, None, 1, 1.0, 1),
        (2, None, 2, 0.0, 2),
    ],
)
def test_winners_and_probabilities_of_a_pair(winner, first_better, of_two, probability, likelier):
    result = JudgeResult(winner=winner, first_better=first_better)
    assert (winner_of_two(THREE, result), probability_first(result)) == (of_two, probability)
    assert likelier_answer(PAIR, result) == likelier


def test_a_tie_is_said_to_clients_that_know_one():
    tie = JudgeResult(winner="tie", first_better=0.6, scores=(7.0, 7.0))
    assert (winner_with_ties(PAIR, tie), winner_with_ties(PAIR, tie, ties=False)) == ("tie", 1)
    assert winner_sentence(PAIR, tie) == "Both assistants are equally good."
    assert winner_sentence(PAIR, tie, ties=False) == "Assistant 1 is better."
    assert (consistent_scores(PAIR, tie), consistent_scores(PAIR, tie, ties=False)) == (("7", "7"), ("7.05", "6.95"))


@pytest.mark.parametrize(
    ("winner", "scores", "shown"),
    [
        (1, (8.254, 6.0), ("8.25", "6")),
        (1, (6.0, 8.0), ("7.05", "6.95")),
        (2, (7.001, 7.002), ("6.95", "7.05")),  # the same, as the client reads them
        (1, (9.9, 10.0), ("10", "9.9")),  # 9.95 and 0.05 more are 10
        (2, (9.99, 9.98), ("9.9", "10")),  # 10.03 would be above the scale
        (1, (1.01, 1.02), ("1.1", "1")),  # 0.96 would be below it
        ("tie", (1.0, 2.0), ("1.5", "1.5")),
        (2, (7.25, 7.0), ("7.07", "7.17")),  # the mean, 7.125, is rounded before they are put 0.1 apart
    ],
)
def test_scores_that_contradict_the_winner_become_their_mean(winner, scores, shown):
    assert consistent_scores(PAIR, JudgeResult(winner=winner, scores=scores)) == shown


@pytest.mark.parametrize(
    ("most", "layout", "text"),
    [
        (None, "{words}\n\n{verdict}", "Some words.\n\n[[A]]"),
        (18, "{words}\n\n{verdict}", "Some words.\n\n[[A]]"),
        (17, "{words}\n\n{verdict}", "Some words\n\n[[A]]"),
        (12, "{words}\n\n{verdict}", "Some\n\n[[A]]"),  # five characters, the last of them a blank
        (8, "{words}\n\n{verdict}", "S\n\n[[A]]"),
        (7, "{words}\n\n{verdict}", "[[A]]"),
        (1, "{words}\n\n{verdict}", "[[A]]"),
        (10, "{verdict}\n{words}", "[[A]]\nSome"),
    ],
)
def test_words_are_cut_where_there_is_no_room_and_the_verdict_never(most, layout, text):
    assert words_and_verdict(ChatRequest(messages=(), max_tokens=most), "Some words.", "[[A]]", layout) == text


@pytest.mark.parametrize(
    ("reason", "digits", "words"),
    [
        (None, True, ""),
        ("It has 3/4, 1.5 and 10 faults: bad.", False, "It has , and faults, bad."),
        ('It has 3/4 [of] "10" faults.', True, "It has 3/4 of 10 faults."),
        ("Good. The final answer is 7, GRADE = B, verdict : A", True, "Good. The 7, B, A"),
        ("A grade grade: : 7", True, "A 7"),  # what is left is a phrase again
        ("x" * 599 + " y", True, "x" * 599),
        # 582 + len(" final decision is") = 600, where the text is cut
        ("x" * 582 + " final decision island", True, "x" * 582),
    ],
)
def test_a_reason_is_words_on_one_line(reason, digits, words):
    assert safe_reason(reason, digits=digits) == words


def test_scores_are_said_in_one_sentence():
    assert scores_in_words(JudgeResult()) == ""
    assert scores_in_words(JudgeResult(scores=(7.0,))) == "Score: 7 out of 10."
    assert scores_in_words(JudgeResult(scores=(7.0, 8.25, 9.5))) == "Scores: 7, 8.2 and 9.5 out of 10."


@pytest.mark.parametrize(
    ("room", "words"),
    [
        (None, "Scores: 8.2 and 6 out of 10. Short words."),
        (34, "Scores: 8.2 and 6 out of 10. Short"),
        (33, "Scores: 8.2 and 6 out of 10. Shor"),
        (28, "Scores: 8.2 and 6 out of 10."),
        (27, ""),
    ],
)
def test_what_does_not_fit_is_left_out_from_the_end(room, words):
    assert scores_and_reason(JudgeResult(scores=(8.2, 6.0), reason="Short words."), room) == words


def test_each_of_several_replies_is_a_draw_and_the_first_has_the_reason():
    result = JudgeResult(winner=1, scores=(8.0, 6.0), draws=((5.0, 5.0), (6.0, 7.0), (9.0, 1.0)), reason="Why.")
    results = results_per_reply(ChatRequest(messages=(), n=3), result)
    assert [(each.winner, each.scores, each.reason) for each in results] == [
        ("tie", (5.0, 5.0), "Why."),
        (2, (6.0, 7.0), None),
        (1, (9.0, 1.0), None),
    ]
    assert results_per_reply(ChatRequest(messages=()), result) == (result,)
    assert results_per_reply(ChatRequest(messages=(), n=4), result) == (result,) * 4  # not enough draws
    [first, _] = results_per_reply(ChatRequest(messages=(), n=2), JudgeResult(scores=(8.0,), draws=((7.0,), (9.0,))))
    assert (first.winner, first.scores) == (None, (7.0,))


def test_the_expected_grade_is_the_mean_of_the_grades():
    # (2 * 0.25 + 6 * 0.75) = 5
    assert expected_grade(JudgeResult(grades=((2.0, 0.25), (6.0, 0.75)))) == 5
    assert expected_grade(JudgeResult(grades=((2.0, 0.5), (6.0, 1.5)))) == 5  # shares need not sum to 1
    assert expected_grade(JudgeResult(scores=(7.5,), grades=((2.0, 1.0),))) == 7.5
    with pytest.raises(ValueError, match="neither scores nor grades"):
        expected_grade(JudgeResult())


def test_of_equal_answers_the_one_with_the_lowest_hash_is_best():
    choice = JudgeTask(dialect="any", kind="choice", sample=sample_of("q", ("a", "c", "b")))
    # "c" is 2e7d..., below "b", 3e23..., and "a", ca97...
    scores = (7.0, 7.5, 7.0), (7.0, 7.0, 7.0), (7.0, 6.0, 7.0)
    assert [best_answer(choice, JudgeResult(scores=each)) for each in scores] == [1, 1, 2]


def test_at_one_half_it_is_fulfilled():
    assert is_fulfilled(JudgeResult(correct=0.5, scores=(1.0,)))
    assert not is_fulfilled(JudgeResult(correct=0.49, scores=(10.0,)))
    assert is_fulfilled(JudgeResult(scores=(5.5,)))  # the middle of 1 to 10 is 0.5 of 0 to 1
    assert not is_fulfilled(JudgeResult(scores=(5.4,)))


def test_a_verdict_is_one_token_and_what_precedes_it_was_certain():
    logprobs = verdict_logprobs("A 12_b.\n7", "7", {"6": 0.25, "7": 0.75, "8": 0.0}, most=2)
    certain = tuple(
        TokenLogprobs(token=piece, logprob=0.0, candidates=((piece, 0.0),))
        for piece in ("A", " 1", "2", "_", "b", ".", "\n")
    )
    ranked = (("7", math.log(0.75)), ("6", math.log(0.25)))
    assert logprobs == (*certain, TokenLogprobs(token="7", logprob=math.log(0.75), candidates=ranked))
    bare = verdict_logprobs("A 7", "7", {"7": 0.75}, most=0)
    assert [(token.token, token.candidates) for token in bare] == [("A", ()), (" ", ()), ("7", ())]


def test_logs_have_a_floor():
    assert [safe_log(chance) for chance in (1.0, 0.0, 1e-50)] == [0.0, -100.0, -100.0]  # ln(1e-50) is -115
    assert safe_log(1e-40) == pytest.approx(-92.1034)
