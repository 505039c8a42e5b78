"""Reasons: who gets one, what is asked, and that nothing else changes with them."""

from dataclasses import replace

import pytest

from judgelm.modes import Pairwise
from judgelm.records import Truncation
from tests.support.flows import broken, drive, reply

CLOSE = {"8 6": 0.55, "6 8": 0.45}
CLEAR = {"8 6": 0.95, "6 8": 0.05}
FLIP = [reply("8 6"), reply("8 6")]  # whoever stands first
STEADY = [reply("8 6"), reply("6 8")]
WHY = reply("The first is right.\nThe second is not.\n", prompt_tokens=14, completion_tokens=9)


def test_all_explains_the_order_given():
    asked, judgment = drive(Pairwise(both_orders=True, reasons="all"), STEADY, [WHY])
    [request] = asked[1]
    assert request.prompt == replace(asked[0][0].prompt, prefill="8 6\n")
    assert (request.sampling.max_tokens, request.sampling.stop, request.candidates) == (512, (), ())
    assert request.sampling.reserve == asked[0][0].sampling.max_tokens  # so that the same answers are cut alike
    assert [one.reason for one in judgment.shown] == ["The first is right.\nThe second is not.", None]
    assert judgment.reason == "The first is right.\nThe second is not."


def test_flips_explains_both_orders_of_a_pair_whose_orders_disagree():
    asked, judgment = drive(Pairwise(both_orders=True, reasons="flips"), FLIP, [WHY, reply("The second is.")])
    assert [one.prompt.prefill for one in asked[1]] == ["8 6\n", "8 6\n"]
    assert asked[1][1].prompt.spans == asked[0][1].prompt.spans
    assert [one.reason for one in judgment.shown] == ["The first is right.\nThe second is not.", "The second is."]


def test_close_explains_what_is_nearly_a_tie():
    _, judgment = drive(Pairwise(reasons="close"), [reply("8 6", lines=CLOSE)], [WHY])
    assert judgment.probability == pytest.approx(0.55)
    assert judgment.reason


@pytest.mark.parametrize(
    "first", [reply("8 6", lines=CLEAR), reply("8 6", lines={"8 6": 0.2, "6 8": 0.2}), reply("8 6")]
)
def test_close_leaves_the_others_alone(first):
    # clear, too little mass for a probability, an engine without probabilities
    _, judgment = drive(Pairwise(reasons="close"), [first])
    assert judgment.reason is None


@pytest.mark.parametrize("reasons", ["all", "close", "flips"])
def test_a_judgment_without_verdict_gets_no_reason(reasons):
    _, judgment = drive(Pairwise(both_orders=True, reasons=reasons), [reply("8 6", lines=CLOSE), reply("dunno")])
    assert judgment.failure is not None
    assert judgment.reason is None


def test_where_one_order_is_enough_the_one_that_could_be_read_is_explained():
    mode = Pairwise(both_orders=True, accept_one_order=True, reasons="all")
    asked, judgment = drive(mode, [reply("dunno"), reply("6 8")], [WHY])
    assert asked[1][0].key == "1"
    assert [one.reason is not None for one in judgment.shown] == [False, True]


def test_a_line_is_continued_as_the_judge_wrote_it():
    asked, _ = drive(Pairwise(reasons="all"), [reply(" **8** 6")], [WHY])
    assert asked[1][0].prompt.prefill == " **8** 6\n"


def test_a_repaired_line_is_continued_from_the_retry():
    asked, judgment = drive(Pairwise(reasons="all", retry_unparseable=True), [reply("dunno")], [reply("8 6")], [WHY])
    assert asked[2][0].prompt.prefill == "8 6\n"
    assert judgment.shown[0].repaired.code == "off_grammar"


@pytest.mark.parametrize("which", ["all", "close", "flips"])
@pytest.mark.parametrize(
    "wanted", [WHY, broken("error"), broken("too_long"), reply("9 1\nno, rather this", finish="length")]
)
def test_nothing_concluded_changes_with_a_reason(which, wanted):
    first = [reply("8 6", lines=CLOSE), reply("7 6", lines=CLOSE)]
    plain = Pairwise(both_orders=True, distribution=True)
    _, without = drive(plain, first)
    _, judgment = drive(replace(plain, reasons=which), first, [wanted] * (2 if which == "flips" else 1))
    bare = tuple(replace(one, reason=None, reason_failure=None) for one in judgment.shown)
    counted = {"prompt_tokens": without.prompt_tokens, "completion_tokens": without.completion_tokens}
    assert replace(judgment, shown=bare, **counted) == without


@pytest.mark.parametrize(
    ("completion", "code", "words"),
    [
        (broken("error", "server gone"), "engine", "server gone"),
        (broken("too_long", "no room"), "too_long", "no room"),
        (reply(" \n"), "off_grammar", "nothing follows the score line"),
    ],
)
def test_a_reason_that_failed_says_why_and_the_verdict_stands(completion, code, words):
    _, judgment = drive(Pairwise(reasons="all"), [reply("8 6")], [completion])
    [shown] = judgment.shown
    assert shown.reason is None
    assert shown.reason_failure.code == code
    assert words in shown.reason_failure.text + shown.reason_failure.why
    assert judgment.failure is None
    assert judgment.verdict is not None


def test_a_reason_without_end_is_kept_and_marked():
    _, judgment = drive(
        Pairwise(reasons="all", reason_tokens=4), [reply("8 6")], [reply("It is very", finish="length")]
    )
    [shown] = judgment.shown
    assert (shown.reason, shown.reason_failure.code) == ("It is very", "truncated")
    assert shown.reason_failure.why == "no end within 4 tokens or the window"


def test_a_reason_about_answers_cut_further_is_marked():
    cut = (Truncation(answer=0, tokens_before=900, tokens_after=300),)
    _, judgment = drive(Pairwise(reasons="all"), [reply("8 6")], [reply("It is.", truncations=cut)])
    [shown] = judgment.shown
    assert (shown.reason, shown.reason_failure.code, shown.truncations) == ("It is.", "too_long", ())
