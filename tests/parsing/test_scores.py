"""Score lines of any number of answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.parsing.scores import parse_pair, parse_scores
from judgelm.records import Scores, Unparsed


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8 6 5", (8, 6, 5)),
        ("8, 6, 5\nThe first is best.", (8, 6, 5)),
        ("8|6|5", (8, 6, 5)),
        ("\n  8.5  6\t5.\n", (8.5, 6, 5)),
        ("**8 6 5**", (8, 6, 5)),
        ("Scores: [8, 6, 5]", (8, 6, 5)),
        ("8/10 6/10 5/10", (8, 6, 5)),
        ("Assistant 1: 8, Assistant 2: 6, Assistant 3: 5", (8, 6, 5)),
        ("Assistant 3: 5\nAssistant 1: 8/10\nAssistant 2: 6", (8, 6, 5)),
        ('"Assistant 1: 8, Assistant 2: 6, Assistant 3: 5."\nThe first is best.', (8, 6, 5)),
    ],
)
def test_three_scores(text, values):
    assert parse_scores(text, 3) == Scores(values)


JOINED = "3 numbers, but how they are joined can be read in more than one way"
APART = "the scores of Assistant 1 to 3 do not stand side by side"
MORE = "more text follows the scores on their line"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("8 6", "the first line holds 2 numbers, not 3"),
        ("8 6 5 4", "the first line holds 4 numbers, not 3"),
        ("8,5 6", JOINED),  # 8.5 and 6, or three scores
        ("8/6/5", JOINED),
        ("8/10 6 5", "the first line holds 4 numbers, not 3"),
        ("8/5 6/5 5/5", "a score is out of something other than 10"),
        ("Assistant 1: 8, Assistant 2: 6", APART),
        ("Assistant 1: 8, Assistant 1: 7, Assistant 2: 6", APART),
        ("Assistant 1: 8, Assistant 2: 6, Assistant 4: 5", APART),
        ("Assistant 1: 8, Assistant 2: 6, Assistant 3: 5, Assistant 4: 3", MORE),
        ("Assistant 1: 8, Assistant 2: 6, Assistant 3: 5 X", MORE),
        ("I think 8 6 5", JOINED),
        ("", "the reply is empty"),
    ],
)
def test_what_is_not_three_scores_is_said(text, why):
    assert parse_scores(text, 3) == Unparsed("off_grammar", text, why)


def test_a_score_outside_the_scale():
    assert parse_scores("8 6 11", 3) == Unparsed("out_of_range", "8 6 11", "8 6 11 is outside 1 to 10")
    assert parse_scores("0", 1).why == "0 is outside 1 to 10"
    named = "Assistant 1: 8, Assistant 2: 6, Assistant 3: 11"
    assert parse_scores(named, 3) == Unparsed("out_of_range", named, "8 6 11 is outside 1 to 10")


@pytest.mark.parametrize(("text", "values"), [("0 5", (0, 5)), ("0/5 5/5 3/5", (0, 5, 3)), ("Assistant 1: 0/5", (0,))])
def test_the_scale_is_the_cards_for_any_number_of_answers(text, values):
    assert parse_scores(text, len(values), scale=(0, 5)) == Scores(values)


@pytest.mark.parametrize("text", [" 7", "7\n", "7.", "Rating: [[7]]", "**7**/10", "Score: 7/10"])
def test_one_score(text):
    assert parse_scores(text, 1) == Scores((7,))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10 7", "the first line holds 2 numbers, not 1"),
        ("7 out of ten", "one number, but not by itself on the first line"),
        ("seven", "the first line holds 0 numbers, not 1"),
        ("7/5", "a score is out of something other than 10"),
    ],
)
def test_what_is_not_one_score(text, why):
    assert parse_scores(text, 1) == Unparsed("off_grammar", text, why)


@given(st.text(alphabet="0123456789 ,./|\nAsistan:", max_size=30))
def test_two_scores_are_read_as_a_pair_is(text):
    assert parse_scores(text, 2) == parse_pair(text)


@given(st.lists(st.integers(1, 10), min_size=1, max_size=30), st.sampled_from([" ", ", ", "; "]))
def test_what_training_writes_is_read_back(scores, between):
    found = parse_scores(between.join(map(str, scores)) + "\nbecause", len(scores))
    assert found == Scores(tuple(scores))


@given(st.text(max_size=60), st.integers(1, 5))
def test_any_text_is_scores_or_a_failure(text, count):
    found = parse_scores(text, count)
    assert isinstance(found, Unparsed) or len(found.values) == count
