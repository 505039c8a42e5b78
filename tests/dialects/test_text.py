"""Numbers and words that all dialects share."""

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask, digest
from judgelm.dialects.replies import (
    expected_grade,
    explanation,
    format_number,
    rescale,
    results_per_reply,
    safe_reason,
    scores_and_reason,
    scores_in_words,
    winner_of_two,
)
from judgelm.records import Sample

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


def test_a_phrase_cut_off_at_the_end_is_none():
    # 582 + len(" final decision is") = 600, where the text is cut
    assert safe_reason("x" * 582 + " final decision island") == "x" * 582


def test_an_explanation_is_never_empty():
    assert explanation(JudgeResult()) == "Judged as a whole."
    assert explanation(JudgeResult(scores=(8.24, 6.0), reason="Short.")) == "Scores: 8.2 and 6 out of 10. Short."
    assert explanation(JudgeResult(correct=0.826, reason="3 faults.")) == "Fulfilled with probability 0.83. 3 faults."
    assert explanation(JudgeResult(scores=(8.0,), correct=0.8, reason="3 faults."), digits=False) == "faults."


@given(st.text(), st.text())
def test_a_dead_heat_does_not_depend_on_the_order(first, second):
    better = []
    for answers in ((first, second), (second, first)):
        case = JudgeTask(dialect="any", kind="pair", sample=Sample(id="1", question="q", answers=answers))
        better.append(answers[winner_of_two(case, JudgeResult(winner="tie", first_better=0.5)) - 1])
    assert better[0] == better[1]


@pytest.mark.parametrize(
    ("finding", "winner"),
    [
        (JudgeResult(winner=1, first_better=0.1), 1),
        (JudgeResult(winner=2, first_better=0.9), 2),
        (JudgeResult(winner="tie", first_better=0.6), 1),
        (JudgeResult(winner="tie", first_better=0.4), 2),
        (JudgeResult(winner="tie", first_better=0.5), 2),  # sha256 of "b" is 3e23..., of "a" ca97...
        (JudgeResult(winner="tie"), 2),
    ],
)
def test_a_client_that_knows_no_tie_gets_the_likelier_one(finding, winner):
    case = JudgeTask(dialect="any", kind="pair", sample=Sample(id="1", question="q", answers=("a", "b", "c")))
    assert winner_of_two(case, finding) == winner


@pytest.mark.parametrize(
    ("reason", "digits", "words"),
    [
        (None, True, ""),
        ("It has 3/4, 1.5 and 10 faults: bad.", False, "It has , and faults, bad."),
        ('It has 3/4 [of] "10" faults.', True, "It has 3/4 of 10 faults."),
        ("Good. The final answer is 7, GRADE = B, verdict : A", True, "Good. The 7, B, A"),
        ("A grade grade: : 7", True, "A 7"),  # what is left is a phrase again
        ("x" * 599 + " y", True, "x" * 599),
    ],
)
def test_a_reason_is_words_on_one_line(reason, digits, words):
    assert safe_reason(reason, digits=digits) == words


def test_half_of_a_surrogate_pair_has_a_hash_too():
    # clients may send it, escaped in JSON; its three bytes are those of UTF-8's form
    assert digest("\ud83c") == hashlib.sha256(b"\xed\xa0\xbc").hexdigest()


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
    finding = JudgeResult(winner=1, scores=(8.0, 6.0), draws=((5.0, 5.0), (6.0, 7.0), (9.0, 1.0)), reason="Why.")
    found = results_per_reply(ChatRequest(messages=(), n=3), finding)
    assert [(one.winner, one.scores, one.reason) for one in found] == [
        ("tie", (5.0, 5.0), "Why."),
        (2, (6.0, 7.0), None),
        (1, (9.0, 1.0), None),
    ]
    assert results_per_reply(ChatRequest(messages=()), finding) == (finding,)
    assert results_per_reply(ChatRequest(messages=(), n=4), finding) == (finding,) * 4  # not enough draws
    [first, _] = results_per_reply(ChatRequest(messages=(), n=2), JudgeResult(scores=(8.0,), draws=((7.0,), (9.0,))))
    assert (first.winner, first.scores) == (None, (7.0,))


def test_the_expected_grade_is_the_mean_of_the_grades():
    # (2 * 0.25 + 6 * 0.75) = 5
    assert expected_grade(JudgeResult(grades=((2.0, 0.25), (6.0, 0.75)))) == 5
    assert expected_grade(JudgeResult(grades=((2.0, 0.5), (6.0, 1.5)))) == 5  # shares need not sum to 1
    assert expected_grade(JudgeResult(scores=(7.5,), grades=((2.0, 1.0),))) == 7.5
    with pytest.raises(ValueError, match="needs"):
        expected_grade(JudgeResult())
