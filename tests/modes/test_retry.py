"""A second try, held to the grammar, for replies that could not be read."""

import re

import pytest

from judgelm.modes import Pairwise
from judgelm.records import PairVerdict
from tests.support.flows import broken, drive, reply

BOTH = Pairwise(retry_unparseable=True, both_orders=True)


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (reply("the first is better"), "off_grammar"),
        (reply("80 6"), "out_of_range"),
        (reply("8 6 and on and on", finish="length"), "truncated"),
    ],
)
def test_the_judges_own_failures_are_tried_again(first, code):
    asked, judgment = drive(Pairwise(retry_unparseable=True), [first], [reply("8 6")])
    [retry] = asked[1]
    assert retry.prompt == asked[0][0].prompt
    assert re.fullmatch(retry.sampling.grammar, "10 7")
    assert not re.fullmatch(retry.sampling.grammar, "11 7")
    assert (retry.sampling.temperature, retry.candidates) == (0, ())
    [shown] = judgment.shown
    assert (shown.text, shown.scores, shown.failure, shown.repaired.code) == ("8 6", (8, 6), None, code)
    assert shown.repaired.text == first.texts[0]  # what the judge really wrote is kept
    assert judgment.verdict == PairVerdict(winner=1)
    assert judgment.repaired


@pytest.mark.parametrize("first", [broken("error"), broken("too_long"), reply("8 6")])
def test_nothing_else_is_tried_again(first):
    _, judgment = drive(Pairwise(retry_unparseable=True), [first])
    assert not judgment.repaired


def test_only_the_failed_order_is_tried_again_and_stays_in_its_place():
    asked, judgment = drive(BOTH, [reply("8 6"), reply("dunno")], [reply("3 9")])
    assert [request.key for request in asked[1]] == ["1"]
    assert asked[1][0].prompt == asked[0][1].prompt
    assert [one.repaired is None for one in judgment.shown] == [True, False]
    # 8 6 and, put back in sample order, 9 3
    assert (judgment.scores, judgment.consistent) == ((8.5, 4.5), True)


@pytest.mark.parametrize(
    ("retry", "words"),
    [
        (broken("error", "server gone"), "engine, server gone"),
        (reply("8", finish="length"), "truncated, no end within"),
        (reply("dunno"), "off_grammar, the first line holds 0 numbers"),
    ],
)
def test_when_the_retry_fails_too_the_first_failure_stands_and_says_so(retry, words):
    _, judgment = drive(Pairwise(retry_unparseable=True), [reply("80 6")], [retry])
    assert (judgment.failure.code, judgment.failure.text) == ("out_of_range", "80 6")
    assert f"a retry held to the grammar failed too: {words}" in judgment.failure.why
    assert not judgment.repaired


def test_a_retry_is_greedy_at_any_temperature_and_its_tokens_count():
    first = reply("dunno", prompt_tokens=100, completion_tokens=20, sanitized=1)
    second = reply("8 6", prompt_tokens=100, completion_tokens=4, sanitized=1)
    asked, judgment = drive(Pairwise(retry_unparseable=True, temperature=0.7), [first], [second])
    assert asked[1][0].sampling.temperature == 0
    assert (judgment.prompt_tokens, judgment.completion_tokens, judgment.sanitized) == (200, 24, 1)


def test_the_distribution_stays_that_of_the_first_reply():
    mode = Pairwise(retry_unparseable=True, distribution=True)
    _, judgment = drive(mode, [reply("dunno", lines={"8 6": 0.6})], [reply("8 6")])
    assert judgment.shown[0].distribution.unassigned == pytest.approx(0.4)
    assert judgment.probability == 1
