"""Score lines as judges really write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.modes.pairwise import winner_of
from judgelm.parsing.scores import parse_pair, parse_pair_original
from judgelm.records import Scores, Unparsed


@pytest.mark.parametrize(
    "text",
    [
        "8 6",
        "8,6",
        "8, 6",
        "8  6",
        "8\t6",
        " 8 6 ",
        "\n8 6\nBoth are fine.",
        "8.0 6.0",
        "8/10 6/10",
        "8 / 10, 6 / 10",
        "**8 6**",
        "**8** **6**",
        "`8 6`",
        "8;6",
        "8 | 6",
        "(8, 6)",
        "[8, 6]",
        "Assistant 1: 8 Assistant 2: 6",
        "Assistant 1：8\nAssistant 2：6",
        "Assistant 1: 8, Assistant 2: 6",
        "Assistant 1: 8\nAssistant 2: 6\nBecause.",
        "**Assistant 1:** 8/10; **Assistant 2:** 6/10",
        "Assistant 2: 6, Assistant 1: 8",
        "Assistant 1's score: 8 and Assistant 2's score: 6",
        "Answer 1 = 8, Answer 2 = 6.",
        "+8 6",
        "8 6.",
        "\ufeff8 6",
        "8 6\u200b",
        '"8 6"',
        "Scores: 8 6",
        "```\n8 6\n```",
        "Assistant 1 8, Assistant 2 6",
    ],
)
def test_readable_score_lines(text):
    assert parse_pair(text) == Scores((8.0, 6.0))


def test_decimals_are_kept():
    assert parse_pair("8.5 6.25\nreason") == Scores((8.5, 6.25))


JOINED = "two numbers, but how they are joined can be read in more than one way"
APART = "the scores of Assistant 1 and 2 do not stand side by side"
MORE = "more text follows the two scores on their line"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the reply is empty"),
        ("  \n \n", "the reply is empty"),
        ("8", "the first line holds 1 numbers, not 2"),
        ("8 6 5", "the first line holds 3 numbers, not 2"),
        ("8,5 6,5", "the first line holds 4 numbers, not 2"),
        ("8/6", JOINED),
        ("8-6", JOINED),
        ("8:6", JOINED),
        ("86", "the first line holds 1 numbers, not 2"),
        ("Both are good", "the first line holds 0 numbers, not 2"),
        ("8 6 because 3 points were missed", "the first line holds 3 numbers, not 2"),
        ("8 out of 10, 6 out of 10", "the first line holds 4 numbers, not 2"),
        ("8/5 6/5", "a score is out of something other than 10"),
        ("Assistant 18 Assistant 26", JOINED),
        ("1*0 6", "the first line holds 3 numbers, not 2"),
        ("1_0 6", "the first line holds 3 numbers, not 2"),
        ("~~8~~ ~~6~~", JOINED),
        ("X8 6", JOINED),
        ("Assistant 1: 8 Assistant 1: 6", APART),
        ("Assistant 1: 8, which is 2 more than Assistant 2: 6", APART),
        ("Assistant 1: 8 Assistant 2: 6 Assistant 3: 5", MORE),
        ("Assistant 1: 8 Assistant 2: 6 X", MORE),
    ],
)
def test_ambiguous_lines_are_refused_with_the_reason(text, why):
    assert parse_pair(text) == Unparsed("off_grammar", text, why)


@pytest.mark.parametrize("text", ["0 6", "8 11", "-1 6", "8.5 10.5", "100 90", "Assistant 1: 0 Assistant 2: 6"])
def test_scores_outside_the_scale_are_refused_as_such(text):
    found = parse_pair(text)
    assert isinstance(found, Unparsed)
    assert (found.code, found.text) == ("out_of_range", text)


def test_a_score_outside_the_scale_is_named_with_the_scale():
    assert parse_pair("8.5 10.5").why == "8.5 10.5 is outside 1 to 10"
    assert parse_pair("8/10 6/10", scale=(0, 4.5)).why == "a score is out of something other than 4.5"


def test_the_scale_is_the_cards():
    assert parse_pair("0 5", scale=(0, 5)) == Scores((0.0, 5.0))
    assert parse_pair("3/5 4/5", scale=(0, 5)) == Scores((3.0, 4.0))


@given(st.text())
def test_parsing_never_raises_and_keeps_the_text(text):
    found = parse_pair(text)
    if isinstance(found, Unparsed):
        assert found.text == text
    else:
        assert all(1 <= value <= 10 for value in found.values)


@given(st.integers(1, 10), st.integers(1, 10), st.sampled_from([" ", ", ", "\t", "  ", ";"]), st.text())
def test_what_follows_the_score_line_does_not_matter(first, second, between, reason):
    assert parse_pair(f"{first}{between}{second}\n{reason}") == Scores((float(first), float(second)))


@pytest.mark.parametrize(
    ("text", "scores"), [("8 6", (8, 6)), ("8,6", (8, 6)), ("0 9\nx", (0, 9)), ("-1 1e3\n8 6", (-1, 1000))]
)
def test_the_original_parser_reads_any_two_numbers(text, scores):
    assert parse_pair_original(text) == Scores(scores)


def original_scores(review):
    """What the authors' parser gives, in our words: -1, -1 for whatever raises."""
    words = review.split("\n")[0].replace(",", " ").split(" ")
    try:
        first, second = words
        return [float(first), float(second)]
    except ValueError:
        return [-1, -1]


def original_label(scores):
    """What their metric code makes of a pair: a win by more than 0 points for either side, else a draw."""
    first, second = scores
    return (first - second > 0) - (second - first > 0)


PIECES = st.sampled_from([
    "8", "6", "-1", "8.5", ".5", "1e3", "1e400", "1_0", "1__0", "٣", "inf", "-inf", "Infinity", "nan", "NaN", "-nan",
    "0x8", "ten", " ", " ", " ", ",", "\n", "\t", "\r", "\u00a0", "\u2028", "/10",
])  # fmt: skip


@given(st.one_of(st.text(), st.lists(PIECES, max_size=6).map("".join), st.tuples(PIECES, PIECES).map(" ".join)))
def test_the_original_parser_is_the_authors_down_to_infinity_and_nan(text):
    expected, found = original_scores(text), parse_pair_original(text)
    if isinstance(found, Unparsed):
        assert expected == [-1, -1]
        return
    assert repr(list(found.values)) == repr(expected)  # NaN is not equal to itself
    assert {1: 1, 2: -1, "tie": 0}[winner_of(found.values)] == original_label(expected)


@pytest.mark.parametrize(
    ("text", "winner"),
    [("inf 5", 1), ("5 inf", 2), ("-inf 5", 2), ("inf inf", "tie"), ("nan 5", "tie"), ("5 nan", "tie")],
)
def test_infinite_scores_have_a_winner_and_nan_is_a_tie_as_in_the_original(text, winner):
    found = parse_pair_original(text)
    assert isinstance(found, Scores)
    assert winner_of(found.values) == winner


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        ("8, 6", "off_grammar", "the first line has 3 parts, not 2"),
        (" 8 6", "off_grammar", "the first line has 3 parts, not 2"),
        ("", "off_grammar", "the first line has 1 parts, not 2"),
        ("\n8 6", "off_grammar", "the first line has 1 parts, not 2"),
        ("8 six", "off_grammar", "the first line is not two numbers"),
    ],
)
def test_the_original_parser_refuses_the_rest_flaws_included(text, code, why):
    assert parse_pair_original(text) == Unparsed(code, text, why)


@pytest.mark.parametrize(
    "text",
    [
        '"Assistant 1: 8\nAssistant 2: 6"',
        '"Assistant 1: 8 Assistant 2: 6"\nBecause.',
        "Scores: Assistant 1: 8, Assistant 2: 6",
        "(Assistant 1: 8, Assistant 2: 6)",
    ],
)
def test_named_scores_are_read_behind_what_dresses_them(text):
    assert parse_pair(text) == Scores((8.0, 6.0))


@pytest.mark.parametrize("text", ['"10 1"\n8 6', "`10 1`\n\nScores: 8 6", "```\n10 1\n```\n8 6", "“10 1”\n**8** **6**"])
def test_a_quoted_line_above_another_score_line_is_not_taken_for_the_score(text):
    found = parse_pair(text)
    assert found == Unparsed("off_grammar", text, "a score line in quotation marks, and another one below it")


def test_another_score_line_below_one_without_quotation_marks_belongs_to_the_reason():
    assert parse_pair("8 6\n5 7") == Scores((8.0, 6.0))


def test_a_quoted_line_alone_or_said_twice_is_the_score():
    assert parse_pair('"8 6"\nAnswer 1 says 10 1.') == parse_pair("```\n8 6\n```\n8 6") == Scores((8.0, 6.0))
