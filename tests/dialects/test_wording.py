"""Numbers and words that all dialects share."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.contract import Case, Finding
from judgelm.dialects.wording import (
    expected_grade,
    explanation,
    harmless,
    on_scale,
    winner_of_two,
    written,
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
    assert on_scale(score, scale, whole=whole) == pytest.approx(expected)


def test_numbers_have_no_needless_zeros():
    assert [written(number) for number in (8.0, 7.5, 6.333, 0.0, 100.0)] == ["8", "7.5", "6.33", "0", "100"]


@given(st.one_of(st.text(), WORDS), st.booleans())
def test_no_words_of_the_judge_can_be_read_as_a_verdict(reason, digits):
    text = harmless(reason, digits=digits)
    assert not any(re.search(verdict, text, re.IGNORECASE) for verdict in VERDICTS)
    assert text == text.strip()
    assert len(text) <= 600
    assert digits or not re.search(r"\d", text)


def test_a_phrase_cut_off_at_the_end_is_none():
    # 582 + len(" final decision is") = 600, where the text is cut
    assert harmless("x" * 582 + " final decision island") == "x" * 582


def test_words_that_say_nothing_of_a_verdict_stay():
    assert harmless("The second one is wrong,\nbut kind.") == "The second one is wrong, but kind."


def test_an_explanation_is_never_empty():
    assert explanation(Finding()) == "Judged as a whole."
    assert explanation(Finding(scores=(8.24, 6.0), reason="Short.")) == "Scores: 8.2 and 6 out of 10. Short."
    assert explanation(Finding(correct=0.826)) == "Fulfilled with probability 0.83."


@given(st.text(), st.text())
def test_a_dead_heat_does_not_depend_on_the_order(first, second):
    better = []
    for answers in ((first, second), (second, first)):
        case = Case(dialect="any", task="pair", sample=Sample(id="1", question="q", answers=answers))
        better.append(answers[winner_of_two(case, Finding(winner="tie", first_better=0.5)) - 1])
    assert better[0] == better[1]


def test_the_expected_grade_is_the_mean_of_the_grades():
    # (2 * 0.25 + 6 * 0.75) = 5
    assert expected_grade(Finding(grades=((2.0, 0.25), (6.0, 0.75)))) == 5
    assert expected_grade(Finding(scores=(7.5,), grades=((2.0, 1.0),))) == 7.5
    with pytest.raises(ValueError, match="needs"):
        expected_grade(Finding())
