"""Scores wherever a reply states them: only where all that it states agrees."""

import json

import pytest

from judgelm.parsing.scores import parse_pair_anywhere, parse_pair_original
from judgelm.records import Scores, Unparsed

WHY = "The first answer is right, since 3 x 5 = 15 and (2, 4) lies on the line.\n\n"
TWO = "the reply states two different scores for one answer"
NONE = "the reply states no score for each of the two answers"


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
        (WHY + "Assistant 1: 8/20\nAssistant 2: 6/20", "off_grammar", "a score is out of something other than 10"),
        ("", "off_grammar", NONE),
    ],
)
def test_what_could_mean_two_things_or_none_is_not_read(text, code, why):
    assert parse_pair_anywhere(text) == Unparsed(code, text, why)


def reviews(shared_data):
    for folder in ("vicuna_reviews/review", "qlora_ratings/relative-gpt-3.5"):
        for path in sorted((shared_data / folder).glob("*.jsonl")):
            with open(path, encoding="utf-8", newline="\n") as file:
                yield from map(json.loads, file)


def test_real_reviews_that_people_repaired_are_read_as_they_were_repaired(shared_data):
    rejected = [one for one in reviews(shared_data) if isinstance(parse_pair_original(one["text"]), Unparsed)]
    read = [(parse_pair_anywhere(one["text"]), one["score"]) for one in rejected]
    agree = sum(found == Scores(tuple(map(float, score))) for found, score in read)
    differ = [(found, score) for found, score in read if found != Scores(tuple(map(float, score)))]
    # both replies end in "Scores:\nAssistant 1: 10\nAssistant 2: 4": the slip is the people's
    assert differ == [(Scores((10.0, 4.0)), [10, 2])] * 2
    assert (len(rejected), agree) == (66, 64)


def test_reasons_of_real_reviews_are_never_read_as_other_scores(shared_data):
    """The reviews that need no repair, without their score line: what is still read must be what it said."""
    read = []
    for one in reviews(shared_data):
        line, _, reason = one["text"].partition("\n")
        scores = parse_pair_original(line)
        if isinstance(scores, Scores) and isinstance(found := parse_pair_anywhere(reason), Scores):
            read.append(found == scores)
    assert len(read) == 114  # of 1,694: those that state their scores once more
    assert all(read)


@pytest.mark.parametrize(
    "unit", ["Assistant 1: 8 (", "both of them a score of 1", "> - ", "output tuple is (1,", "8 6\n", " " * 50]
)
def test_long_replies_are_parsed(unit):
    # pytest's time limit ends a quadratic search
    parse_pair_anywhere("x\n" + unit * (1_000_000 // len(unit)))
