"""Score lines as judges write them, of any number of answers, anywhere in a reply, and their probabilities."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.errors import ConfigError
from judgelm.parsing.scores import (
    antisymmetrised,
    pair_distribution,
    parse_pair,
    parse_pair_anywhere,
    parse_pair_original,
    parse_scores,
    score_grammar,
    score_lines,
    winner_by,
)
from judgelm.records import Grammar, Scores, Unparsed, winner_of
from tests.support.flows import logs

PAIR_LINES = [
    "8 6", "8,6", "8, 6", "8  6", "8\t6", " 8 6 ", "\n8 6\nBoth are fine.", "8.0 6.0", "8/10 6/10", "8 / 10, 6 / 10",
    "**8 6**", "**8** **6**", "`8 6`", "8;6", "8 | 6", "(8, 6)", "[8, 6]", "Assistant 1: 8 Assistant 2: 6",
    "Assistant 1：8\nAssistant 2：6", "Assistant 1: 8, Assistant 2: 6", "Assistant 1: 8\nAssistant 2: 6\nBecause.",
    "**Assistant 1:** 8/10; **Assistant 2:** 6/10", "Assistant 2: 6, Assistant 1: 8", "Answer 1 = 8, Answer 2 = 6.",
    "Assistant 1's score: 8 and Assistant 2's score: 6", "+8 6", "8 6.", "\ufeff8 6", "8 6\u200b", "\u202a8 6\u202c",
    "\u20668\u2069\uff0c\u20666\u2069", "8\u30016", "8 6\0", '"8 6"', "Scores: 8 6", "```\n8 6\n```",
    "Assistant 1 8, Assistant 2 6", '"Assistant 1: 8\nAssistant 2: 6"', '"Assistant 1: 8 Assistant 2: 6"\nBecause.',
    "Scores: Assistant 1: 8, Assistant 2: 6", "(Assistant 1: 8, Assistant 2: 6)",
]  # fmt: skip
THREE_LINES = [
    "8 6 5", "8, 6, 5\nThe first is best.", "8|6|5", "**8 6 5**", "Scores: [8, 6, 5]",
    "8/10 6/10 5/10", "Assistant 1: 8, Assistant 2: 6, Assistant 3: 5",
    "Assistant 3: 5\nAssistant 1: 8/10\nAssistant 2: 6",
    '"Assistant 1: 8, Assistant 2: 6, Assistant 3: 5."\nThe first is best.',
]  # fmt: skip
ONE_LINES = [" 7", "7\n", "7.", "Rating: [[7]]", "**7**/10", "Score: 7/10"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        *((text, (8, 6)) for text in PAIR_LINES),
        *((text, (8, 6, 5)) for text in THREE_LINES),
        ("\n  8.5  6\t5.\n", (8.5, 6, 5)),
        *((text, (7,)) for text in ONE_LINES),
    ],
)
def test_score_lines_are_read(text, values):
    assert parse_scores(text, len(values)) == Scores(values)


JOINED = "separator is ambiguous"
APART = "not next to each other"
MORE = "followed by more text"


@pytest.mark.parametrize(
    ("text", "count", "why"),
    [
        ("", 2, "empty"),
        ("  \n \n", 2, "empty"),
        ("8", 2, "the first line has 1 numbers, not 2"),
        ("8 6 5", 2, "the first line has 3 numbers, not 2"),
        ("8,5 6,5", 2, "the first line has 4 numbers, not 2"),
        ("8/6", 2, JOINED),
        ("8-6", 2, JOINED),
        ("8:6", 2, JOINED),
        ("86", 2, "the first line has 1 numbers, not 2"),
        ("Both are good", 2, "the first line has 0 numbers, not 2"),
        ("8 6 because 3 points were missed", 2, "the first line has 3 numbers, not 2"),
        ("8 out of 10, 6 out of 10", 2, "the first line has 4 numbers, not 2"),
        ("8/5 6/5", 2, "denominator other than 10"),
        ("Assistant 18 Assistant 26", 2, JOINED),
        ("1*0 6", 2, "the first line has 3 numbers, not 2"),
        ("1_0 6", 2, "the first line has 3 numbers, not 2"),
        ("~~8~~ ~~6~~", 2, JOINED),
        ("X8 6", 2, JOINED),
        ("Assistant 1: 8 Assistant 1: 6", 2, APART),
        ("Assistant 1: 8, which is 2 more than Assistant 2: 6", 2, APART),
        ("Assistant 1: 8 Assistant 2: 6 Assistant 3: 5", 2, MORE),
        ("Assistant 1: 8 Assistant 2: 6 X", 2, MORE),
        # a quoted line above another score line
        ('"10 1"\n8 6', 2, "in quotation marks"),
        ("`10 1`\n\nScores: 8 6", 2, "in quotation marks"),
        ("```\n10 1\n```\n8 6", 2, "in quotation marks"),
        ("“10 1”\n**8** **6**", 2, "in quotation marks"),
        ("8 6", 3, "the first line has 2 numbers, not 3"),
        ("8,5 6", 3, JOINED),  # 8.5 and 6, or three scores
        ("8/6/5", 3, JOINED),
        ("8/10 6 5", 3, "the first line has 4 numbers, not 3"),
        ("8/5 6/5 5/5", 3, "other than 10"),
        ("Assistant 1: 8, Assistant 2: 6", 3, APART),
        ("Assistant 1: 8, Assistant 1: 7, Assistant 2: 6", 3, APART),
        ("Assistant 1: 8, Assistant 2: 6, Assistant 4: 5", 3, APART),
        ("Assistant 1: 8, Assistant 2: 6, Assistant 3: 5, Assistant 4: 3", 3, MORE),
        ("Assistant 1: 8, Assistant 2: 6, Assistant 3: 5 X", 3, MORE),
        ("I think 8 6 5", 3, JOINED),
        ("", 3, "empty"),
        ("10 7", 1, "the first line has 2 numbers, not 1"),
        ("7 out of ten", 1, "other text"),
        ("seven", 1, "the first line has 0 numbers, not 1"),
        ("7/5", 1, "other than 10"),
    ],
)
def test_ambiguous_lines_are_rejected_with_the_reason(text, count, why):
    result = parse_scores(text, count)
    assert (result.code, result.text) == ("off_grammar", text)
    assert why in result.why


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        *((text, text) for text in ("0 6", "8 11", "-1 6", "8.5 10.5", "100 90", "8 6 11", "0")),
        ("Assistant 1: 0 Assistant 2: 6", "0 6"),
        ("Assistant 1: 8, Assistant 2: 6, Assistant 3: 11", "8 6 11"),
    ],
)
def test_scores_outside_the_scale_are_rejected(text, scores):
    expected = Unparsed("out_of_range", text, f"{scores} is outside 1 to 10")
    assert parse_scores(text, len(scores.split())) == expected


@pytest.mark.parametrize(
    ("text", "values"), [("0 5", (0, 5)), ("3/5 4/5", (3, 4)), ("0/5 5/5 3/5", (0, 5, 3)), ("Assistant 1: 0/5", (0,))]
)
def test_the_scale_is_that_of_the_card(text, values):
    assert parse_scores(text, len(values), scale=(0, 5)) == Scores(values)
    assert "denominator other than 4.5" in parse_pair("8/10 6/10", scale=(0, 4.5)).why


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
    expected, result = original_scores(text), parse_pair_original(text)
    if isinstance(result, Unparsed):
        assert expected == [-1, -1]
        return
    assert repr(list(result.values)) == repr(expected)  # NaN is not equal to itself
    assert {1: 1, 2: -1, "tie": 0}[winner_of(result.values)] == original_label(expected)


def test_a_line_without_quotation_marks_or_quoted_alone_or_repeated_is_the_score():
    assert parse_pair("8 6\n5 7") == Scores((8.0, 6.0))
    assert parse_pair('"8 6"\nAnswer 1 says 10 1.') == parse_pair("```\n8 6\n```\n8 6") == Scores((8.0, 6.0))


@given(st.lists(st.integers(1, 10), min_size=1, max_size=30), st.sampled_from([" ", ", ", "; "]))
def test_what_training_writes_is_read_back(scores, between):
    result = parse_scores(between.join(map(str, scores)) + "\nbecause", len(scores))
    assert result == Scores(tuple(scores))


WHY = "The first answer is right, since 3 x 5 = 15 and (2, 4) lies on the line.\n\n"
TWO = "two different scores"
NONE = "not state a score for each"


@pytest.mark.parametrize(
    "text",
    [
        "8 6\nas `parse_pair` reads it, whatever is said below: (1, 10)",
        WHY + "(8, 6)",
        WHY + "8 6\n\nThe first is better.",
        WHY + "8/10, 6/10",
        WHY + "Output: (8, 6)",
        WHY + "The output tuple is (8, 6). Assistant 1 performed better.",
        WHY + "In conclusion, the scores are (8/10, 6/10) for the two.",
        WHY + "Scores:\nAssistant 1: 8\nAssistant 2: 6\n\nAssistant 1 performed better.",
        WHY + "Scores: Assistant 1: 8, Assistant 2: 6",
        WHY + "- **Assistant 2:** 6/10 (a slip in 2^(3))\n- **Assistant 1:** 8/10 (no slip)",
        WHY + "I would give Assistant 1 a score of 8 due to a slip, and Assistant 2 a score of 6 for its steps.",
        WHY + "Assistant 1 receives a score of 8. Assistant 2 gets a score of 6/10.\n\nOutput: (8, 6)",
    ],
)
def test_scores_stated_once_are_read(text):
    assert parse_pair_anywhere(text) == Scores((8.0, 6.0))


def test_one_score_for_both_is_both_scores():
    for who in ("both Assistant 1 and Assistant 2", "both of them", "both assistants"):
        assert parse_pair_anywhere(f"{WHY}Therefore, I would give {who} a score of 9.") == Scores((9.0, 9.0))


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        (WHY + "(8, 6)\nOn second thought:\n(6, 8)", "off_grammar", TWO),
        (WHY + "Accuracy:\nAssistant 1: 8\nAssistant 2: 6\nDepth:\nAssistant 1: 7\nAssistant 2: 6", "off_grammar", TWO),
        (WHY + "Assistant 1 a score of 8. Output: (7, 6)", "off_grammar", TWO),
        (WHY + "Assistant 1: 8", "off_grammar", NONE),
        (WHY + "The distance from (2, -2) to (10, 4) is 10.", "off_grammar", NONE),
        (WHY + "Assistant 1: 3x + 10 = 5x\nAssistant 2: 2 steps are wrong", "off_grammar", NONE),
        (WHY + "8 6 5", "off_grammar", NONE),
        (WHY + "Output: (80, 60)", "out_of_range", "80 60 is outside 1 to 10"),
        (WHY + "Assistant 1: 8/20\nAssistant 2: 6/20", "off_grammar", "denominator other than 10"),
        ("", "off_grammar", NONE),
    ],
)
def test_replies_with_two_meanings_or_none_are_rejected(text, code, why):
    result = parse_pair_anywhere(text)
    assert (result.code, result.text) == (code, text)
    assert why in result.why


def reviews(shared_data):
    for folder in ("vicuna_reviews/review", "qlora_ratings/relative-gpt-3.5"):
        for path in sorted((shared_data / folder).glob("*.jsonl")):
            with open(path, encoding="utf-8", newline="\n") as file:
                yield from map(json.loads, file)


def test_real_reviews_that_people_repaired_are_read_as_they_were_repaired(shared_data):
    rejected = [row for row in reviews(shared_data) if isinstance(parse_pair_original(row["text"]), Unparsed)]
    read = [(parse_pair_anywhere(row["text"]), Scores(tuple(map(float, row["score"])))) for row in rejected]
    differ = [(result, repaired) for result, repaired in read if result != repaired]
    # both replies end in "Scores:\nAssistant 1: 10\nAssistant 2: 4": the slip is the people's
    assert differ == [(Scores((10.0, 4.0)), Scores((10.0, 2.0)))] * 2
    assert len(rejected) == 66


def test_reasons_of_real_reviews_are_never_read_as_other_scores(shared_data):
    """The reviews that need no repair, without their score line: what is still read must be what it said."""
    read = []
    for row in reviews(shared_data):
        line, _, reason = row["text"].partition("\n")
        scores = parse_pair_original(line)
        if isinstance(scores, Scores) and isinstance(result := parse_pair_anywhere(reason), Scores):
            read.append(result == scores)
    assert len(read) == 114  # of 1,694: those that state their scores once more
    assert all(read)


@pytest.mark.parametrize(
    "unit", ["Assistant 1: 8 (", "both of them a score of 1", "> - ", "output tuple is (1,", "8 6\n", " " * 50]
)
def test_long_replies_are_parsed(unit):
    # pytest's time limit ends a quadratic search
    parse_pair_anywhere("x\n" + unit * (1_000_000 // len(unit)))


SMALL = score_lines((1, 2), 1)  # 1 1, 1 2, 2 1, 2 2
GIVEN, SWAPPED = (0, 1), (1, 0)


def masses(lines):
    """Probabilities of all lines and of none of them, summing to 1; at least some on the lines."""
    weights = st.lists(st.floats(0, 1), min_size=len(lines.pairs) + 1, max_size=len(lines.pairs) + 1)
    some = weights.filter(lambda shares: sum(shares[:-1]) > 0.01)
    return some.map(lambda shares: [share / sum(shares) for share in shares])


def test_lines_are_written_as_training_writes_them():
    lines = score_lines((1, 10), 1)
    assert (len(lines.texts), lines.texts[0], lines.texts[-1]) == (100, "1 1", "10 10")
    assert lines.pairs[lines.texts.index("8 6")] == (8, 6)
    assert {"8.5 6", "8 6.5", "10 10"} <= set(score_lines((1, 10), 0.5).texts)
    assert score_lines((1, 2), 1).texts == ("1 1", "1 2", "2 1", "2 2")
    assert len(score_lines((1, 100), 1).pairs) == 100**2
    assert score_lines((0.5, 3.9), 1).values == (1, 2, 3)  # ends that are not multiples of the step are left out


@pytest.mark.parametrize(("scale", "step"), [((1, 10), 1), ((1, 10), 0.1), ((0, 5), 0.25), ((-1, 1), 0.5)])
def test_every_line_reads_as_its_scores(scale, step):
    lines = score_lines(scale, step)
    assert [parse_pair(text, scale).values for text in lines.texts] == list(lines.pairs)


@pytest.mark.parametrize(
    ("scale", "step", "finding"),
    [
        ((1, 10), 0, "must be a positive number"),
        ((1, 10), -1, "must be a positive number"),
        ((1, 10), math.nan, "must be a positive number"),
        ((1, 10), 0.05, "has 181 scores"),
        ((0, 100), 1, "has 101 scores"),
        ((1, 10), 20, "has 0 scores"),
        ((1, 1.5), 1, "has 1 scores"),
        ((1, 10), math.inf, "must be a positive number"),
        ((-math.inf, math.inf), 1, "must be a positive number"),
    ],
)
def test_an_absurd_grid_is_rejected(scale, step, finding):
    with pytest.raises(ConfigError, match=finding):
        score_lines(scale, step)


def test_a_distribution_by_hand():
    # 1 2: 0.2, 2 1: 0.4, 2 2: 0.2, 0.2 on something else; over the 0.8 that is assigned:
    # E1 = (0.2 + 0.8 + 0.4) / 0.8 = 1.75, E2 = (0.4 + 0.4 + 0.4) / 0.8 = 1.5, tie 0.25, first 0.5 + 0.125
    distribution = pair_distribution(SMALL, logs(0, 0.2, 0.4, 0.2), "top 20")
    assert distribution.expected == pytest.approx((1.75, 1.5))
    assert (distribution.first_better, distribution.tie, distribution.unassigned) == pytest.approx((0.625, 0.25, 0.2))
    assert [line[:2] for line in distribution.likeliest] == [(2, 1), (1, 2), (2, 2)]
    assert distribution.approximation == "top 20"


def test_likely_lines_are_listed_from_one_in_ten_thousand_on_to_six_places():
    distribution = pair_distribution(SMALL, logs(0.00009, 0.12345678, 0.5, 0.12345678))
    # equally likely lines come in order of their scores
    assert distribution.likeliest == ((2, 1, 0.5), (1, 2, 0.123457), (2, 2, 0.123457))
    assert distribution.approximation == ""


def test_lines_without_probability_have_no_expected_scores():
    distribution = pair_distribution(SMALL, logs(0, 0, 0, 0))
    assert distribution.unassigned == 1
    assert all(math.isnan(value) for value in (*distribution.expected, distribution.first_better, distribution.tie))
    assert antisymmetrised([(GIVEN, distribution)]) is None


@pytest.mark.parametrize(("assigned", "there"), [(0.5, True), (0.49, False)])
def test_less_than_half_of_the_mass_gives_no_probability(assigned, there):
    distribution = pair_distribution(SMALL, logs(0, 0, assigned, 0))
    assert (antisymmetrised([(GIVEN, distribution)]) is not None) == there


def test_two_orders_are_averaged_in_sample_order():
    # given: 0.9 for the first; swapped, the one shown first has 0.3, so the sample's first has 0.7
    given_order = pair_distribution(SMALL, logs(0, 0.1, 0.9, 0))
    swapped = pair_distribution(SMALL, logs(0, 0.7, 0.3, 0))
    assert antisymmetrised([(GIVEN, given_order), (SWAPPED, swapped)]) == pytest.approx(0.8)


@given(masses(SMALL))
def test_shares_stay_shares(probabilities):
    distribution = pair_distribution(SMALL, logs(*probabilities[:-1]))
    assert 0 <= distribution.tie <= 1 + 1e-12
    assert 0 <= distribution.first_better <= 1
    assert distribution.unassigned == pytest.approx(probabilities[-1], abs=1e-9)
    assert sum(line[2] for line in distribution.likeliest) <= 1 - distribution.unassigned + 1e-5
    assert all(1 <= score <= 2 + 1e-12 for score in distribution.expected)


@given(masses(score_lines((1, 3), 0.5)))
def test_exchanging_the_answers_exchanges_everything(probabilities):
    lines = score_lines((1, 3), 0.5)
    exchanged = {(s2, s1): p for (s1, s2), p in zip(lines.pairs, probabilities, strict=False)}
    one = pair_distribution(lines, logs(*probabilities[:-1]))
    other = pair_distribution(lines, logs(*(exchanged[pair] for pair in lines.pairs)))
    assert other.first_better == pytest.approx(1 - one.first_better)
    assert other.expected == pytest.approx(one.expected[::-1])
    assert other.tie == pytest.approx(one.tie)


@given(masses(SMALL), masses(SMALL))
def test_the_probability_is_antisymmetric_and_independent_of_the_order_of_prompts(left, right):
    one, two = (pair_distribution(SMALL, logs(*shares[:-1])) for shares in (left, right))
    p = antisymmetrised([(GIVEN, one), (SWAPPED, two)])
    assert antisymmetrised([(SWAPPED, two), (GIVEN, one)]) == p
    turned = antisymmetrised([(SWAPPED, one), (GIVEN, two)])
    assert (p is None) == (turned is None)
    assert p is None or turned == pytest.approx(1 - p)


@pytest.mark.parametrize(
    ("probability", "band", "winner"),
    [(0.55, 0.05, "tie"), (0.45, 0.05, "tie"), (0.56, 0.05, 1), (0.44, 0.05, 2), (0.5, 0, "tie"), (0.51, 0, 1)],
)
def test_the_tie_threshold_holds_its_ends(probability, band, winner):
    assert winner_by(probability, band) == winner


def test_the_grammar_tries_the_longest_number_first_and_is_always_the_same_text():
    assert score_grammar(score_lines((8, 10), 1)) == Grammar("regex", r"(10|8|9) (10|8|9)\n?")
    assert score_grammar(score_lines((1, 2), 0.5)) == Grammar("regex", r"(1\.5|1|2) (1\.5|1|2)\n?")


@pytest.mark.parametrize(("scale", "step"), [((1, 10), 1), ((0, 5), 0.5), ((-1, 1), 0.5)])
def test_the_grammar_takes_the_lines_and_nothing_else(scale, step):
    lines = score_lines(scale, step)
    grammar = re.compile(score_grammar(lines).text)
    assert all(grammar.fullmatch(text) and grammar.fullmatch(text + "\n") for text in lines.texts)
    assert not any(grammar.fullmatch(text) for text in ("8", "8 6 5", "11 6", "8  6", "8 6x", "8x5 6", ""))
