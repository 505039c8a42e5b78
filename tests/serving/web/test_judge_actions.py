"""Inputs of the judging tabs, judged by the scripted engine, and the HTML."""

import asyncio
import contextlib
from functools import partial

import pytest

from judgelm.errors import InputError
from judgelm.judge import Judge
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.web.judge_actions import (
    dialogue_input,
    image_input,
    pair_input,
    several_input,
    single_input,
    stream_judgment,
    stream_talk,
)
from tests.support.judged_items import TAKE_OVER

OPTIONS = {"both_orders": True, "reasons": "all"}


@pytest.fixture
def ask():
    """Judge with a script; returns all steps."""
    with contextlib.ExitStack() as opened:

        def shown(reply, make):
            judge = opened.enter_context(Judge(reply, engine="scripted"))
            worker = EngineWorker(judge.engine)
            opened.callback(worker.close)

            async def collect():
                return [step async for step in stream_judgment(judge, worker, lambda: make(judge))]

            return asyncio.run(collect())

        yield shown


def test_a_pair_is_judged_in_both_orders_and_explained(ask):
    steps = ask("8 6\\nThe first is shorter.", lambda judge: pair_input(judge, "q", ("a", "b"), "", OPTIONS))
    page, talk = steps[-1]
    # 8 : 6 in either order: the first place wins, so the orders disagree and the means are equal
    assert "A tie, because the orders disagree." in page
    assert "Do not rely on it" in page
    assert page.count("<svg") == 2
    assert "The first is shorter." in page
    assert talk is not None


def test_no_text_becomes_html(ask):
    # the scripted reply is also the reason, so the judge's text is hostile too
    steps = ask(f"8 6\\n{TAKE_OVER}", lambda judge: pair_input(judge, TAKE_OVER, (TAKE_OVER, "b"), TAKE_OVER, OPTIONS))
    for page, _ in steps:
        assert "<script" not in page
        assert "<img" not in page
    assert "&lt;script&gt;" in steps[-1][0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda judge: pair_input(judge, " ", ("a", "b"), "", {}), "the question is blank; fill it in"),
        (lambda judge: pair_input(judge, "q", ("a", ""), "", {}), "answer 2 is blank; fill it in"),
        (lambda judge: pair_input(judge, "q", ("a", "b"), "", {"reasons": "flips"}), "requires both orders"),
        (lambda judge: several_input(judge, "q", "", False, False, "a", "", " "), "at least two answers"),
        (lambda judge: single_input(judge, "q", "a", "r", "b", False), "a reference or another answer"),
        (lambda judge: dialogue_input(judge, [["", "", "", ""]], {}), "the dialogue is empty"),
        (
            lambda judge: dialogue_input(judge, [["q", "a", "", ""], ["q", "a", "b", ""]], {}),
            "answer 2 in turn 1 is blank",
        ),
        (lambda judge: image_input(judge, "q", "a", "", None, False), "the reference is blank"),
    ],
)
def test_a_missing_text_is_named(ask, make, message):
    [(page, talk)] = ask("8 6", make)
    assert message in page
    assert 'role="alert"' in page
    assert talk is None


def test_an_unparseable_reply_is_not_a_verdict(ask):
    page, talk = ask("I cannot say", lambda judge: pair_input(judge, "q", ("a", "b"), "", OPTIONS))[-1]
    assert "No verdict: the reply does not have the expected form" in page
    assert "I cannot say" in page
    assert talk is None


def test_several_answers_are_ranked(ask):
    page, _ = ask("5 9 7", lambda judge: several_input(judge, "q", "", False, False, *"abc"))[-1]
    assert "From best to worst: answer 2, answer 3, answer 1." in page


def test_each_answer_once_in_each_position(ask):
    page, _ = ask("5 9 7", lambda judge: several_input(judge, "q", "", True, False, *"abc"))[-1]
    assert "From best to worst: answers 1 and 2 and 3 (tied)." in page
    assert "Shown as 2, 3, 1" in page


def test_one_answer_is_graded_with_its_distribution(ask):
    page, _ = ask("7", lambda judge: single_input(judge, "q", "a", "", "", False))[-1]
    assert "The grade is 7." in page
    assert "<td>7</td><td>100.0 %</td>" in page


def test_one_dialogue_or_two(ask):
    turns = [["q1", "a1", "b1", ""], ["q2", "a2", "b2", "r2"], ["", "", "", ""]]
    page, talk = ask("8 6", lambda judge: dialogue_input(judge, turns, {"turns": "each"}))[-1]
    assert "Answer 1 is better." in page
    assert "Turn 2: answer 1 shown first" in page
    assert talk is not None
    graded = [[question, first, "", ""] for question, first, _, _ in turns]
    page, _ = ask("7", lambda judge: dialogue_input(judge, graded, {"turns": "each"}))[-1]
    assert "The grade is 7." in page


def test_a_talk_grows_by_question_and_reply(ask):
    with Judge("8 6\\nIt is shorter.", engine="scripted") as judge:
        worker = EngineWorker(judge.engine)

        async def talk():
            make = partial(pair_input, judge, "q", ("a", "b"), "", {})
            *_, (_, follow_up) = [step async for step in stream_judgment(judge, worker, make)]
            async for page, later in stream_talk(worker, follow_up, "Why?"):
                last = page, later
            blank = [step async for step in stream_talk(worker, last[1], "  ")]
            return *last, blank

        page, later, [(refused, same)] = asyncio.run(talk())
        worker.close()
    assert "Why?" in page
    assert "It is shorter." in page
    assert [turn.question for turn in later.history] == ["Why?"]
    assert "the question is blank" in refused
    assert same is later


def test_a_judge_of_many_scores_is_asked_without_distribution():
    with Judge("8 6", engine="scripted") as judge:
        object.__setattr__(judge.format, "scale", (1, 1000))
        mode, _ = pair_input(judge, "q", ("a", "b"), "", {})
    assert mode.distribution is False


def test_an_engine_that_sees_is_given_the_image():
    with Judge("8 6", engine="scripted") as judge:
        with pytest.raises(InputError, match="no image"):
            image_input(judge, "q", "a", "r", None, False)
        mode, sample = image_input(judge, "q", "a", "r", "cat.png", False)
    assert (mode.images, sample.images) == ("use", ("cat.png",))
