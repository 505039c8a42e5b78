"""Replies of the form `Explanation: ..., Answer: ...`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.modes.rubric import PLAY_FAVORITES
from judgelm.parsing.verdicts import parse_level
from judgelm.records import Unparsed

CORRECTNESS = ("correct", "partially correct", "incorrect")


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("Explanation: It is correct up to the sum, Answer: incorrect", "incorrect"),
        ("Explanation: not incorrect at all, Answer: correct", "correct"),
        ("Explanation: ...\n\nAnswer: Partially  Correct.", "partially correct"),
        ("**Explanation:** so. **Answer:** **correct**", "correct"),
        ("Answer:\n[incorrect]", "incorrect"),
        ('ANSWER: "correct"\n\nI hope this helps.', "correct"),
        ("- Answer: - correct", "correct"),
        ("The candidate's answer: 42. That is right, Answer: correct", "correct"),
        ("Answer: correct. Once more, Answer: correct", "correct"),
    ],
)
def test_the_level_is_read(text, level):
    assert parse_level(text, CORRECTNESS) == level


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the reply is empty"),
        ("It is correct.", "the reply has no `Answer:`"),
        ("Answer: correct, mostly", "what follows `Answer:` is none of the levels: 'correct, mostly'"),
        ("Answer: not correct", "what follows `Answer:` is none of the levels: 'not correct'"),
        ("Answer: correct or incorrect", "what follows `Answer:` is none of the levels: 'correct or incorrect'"),
        ("Answer:", "what follows `Answer:` is none of the levels: ''"),
        ("Answer: NA", "what follows `Answer:` is none of the levels: 'NA'"),
        (
            "First thought, Answer: correct\nNo. Answer: incorrect",
            "verdicts that differ: correct on line 1 and incorrect on line 2",
        ),
        ("Explanation: [Explanation], Answer: [Answer]", "what follows `Answer:` is none of the levels: '[Answer]'"),
        ("My myanswer: correct", "the reply has no `Answer:`"),
    ],
)
def test_what_is_no_level_is_a_failure_with_its_reason(text, why):
    assert parse_level(text, CORRECTNESS) == Unparsed("off_grammar", text, why)


def test_markup_in_a_levels_own_name_does_not_count():
    assert parse_level("Answer: fully correct", ("**fully** correct", "wrong")) == "**fully** correct"


@pytest.mark.parametrize("name", PLAY_FAVORITES)
def test_every_level_of_the_paper_is_told_from_the_others(name):
    levels = list(PLAY_FAVORITES[name].levels)
    assert [parse_level(f"Explanation: {levels}, Answer: {one.upper()}.", levels) for one in levels] == levels


@given(st.text(max_size=80))
def test_any_text_is_a_level_or_a_failure(text):
    found = parse_level(text, CORRECTNESS)
    assert isinstance(found, Unparsed) or found in CORRECTNESS
