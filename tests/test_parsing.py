"""Score lines as judges really write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.parsing import parse_pair, parse_pair_original
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


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the reply is empty"),
        ("  \n \n", "the reply is empty"),
        ("8", "1 numbers, not 2"),
        ("8 6 5", "3 numbers, not 2"),
        ("8,5 6,5", "4 numbers, not 2"),
        ("8/6", "more than one way"),
        ("8-6", "more than one way"),
        ("8:6", "more than one way"),
        ("86", "1 numbers, not 2"),
        ("Both are good", "0 numbers, not 2"),
        ("8 6 because 3 points were missed", "3 numbers"),
        ("8 out of 10, 6 out of 10", "4 numbers"),
        ("8/5 6/5", "out of something other than 10"),
        ("Assistant 18 Assistant 26", "more than one way"),
        ("1*0 6", "3 numbers"),
        ("1_0 6", "3 numbers"),
        ("~~8~~ ~~6~~", "more than one way"),
        ("Assistant 1: 8 Assistant 1: 6", "do not stand side by side"),
        ("Assistant 1: 8, which is 2 more than Assistant 2: 6", "do not stand side by side"),
        ("Assistant 1: 8 Assistant 2: 6 Assistant 3: 5", "more text follows"),
    ],
)
def test_ambiguous_lines_are_refused_with_the_reason(text, why):
    found = parse_pair(text)
    assert isinstance(found, Unparsed)
    assert found.code == "off_grammar"
    assert why in found.why


@pytest.mark.parametrize("text", ["0 6", "8 11", "-1 6", "8.5 10.5", "100 90", "Assistant 1: 0 Assistant 2: 6"])
def test_scores_outside_the_scale_are_refused_as_such(text):
    found = parse_pair(text)
    assert isinstance(found, Unparsed)
    assert found.code == "out_of_range"


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
    ("text", "scores"),
    [("8 6", (8, 6)), ("8,6", (8, 6)), ("0 9\nx", (0, 9)), ("8, 6", None), (" 8 6", None), ("8 6 5", None), ("", None)],
)
def test_the_original_parser_is_reproduced_flaws_included(text, scores):
    found = parse_pair_original(text)
    assert found == Scores(scores) if scores else isinstance(found, Unparsed)


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
    assert isinstance(found, Unparsed)
    assert found.why == "a score line in quotation marks, and another one below it"


def test_a_quoted_line_alone_or_said_twice_is_the_score():
    assert parse_pair('"8 6"\nAnswer 1 says 10 1.') == parse_pair("```\n8 6\n```\n8 6") == Scores((8.0, 6.0))
