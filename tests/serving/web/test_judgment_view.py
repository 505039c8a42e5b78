"""How judgments are made from the inputs of the page and shown: the HTML, charts, and reasons for doubt."""

import asyncio
import contextlib
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import partial

import pytest

from judgelm.errors import InputError
from judgelm.judge import Judge
from judgelm.parsing.scores import score_lines
from judgelm.records import GradeDistribution, PairDistribution, Truncation
from judgelm.runs.engine_worker import EngineWorker
from judgelm.serving.web.charts import grade_bars, heat_map, score_bars
from judgelm.serving.web.judge_actions import (
    dialogue_input,
    image_input,
    pair_input,
    several_input,
    single_input,
    stream_judgment,
    stream_talk,
)
from judgelm.serving.web.judgment_view import doubts, doubts_html
from tests.support.judged_items import TAKE_OVER, failed_judgment, pair_judgment
from tests.support.word_engine import WordEngine

OPTIONS = {"both_orders": True, "reasons": "all"}
TEN = score_lines((1, 10), 1).values


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
    for words in ("A tie, because the orders disagree.", "Do not rely on it", "The first is shorter."):
        assert words in page
    assert (page.count("<svg"), talk is None) == (2, False)


def test_no_text_becomes_html(ask):
    # the scripted reply is also the reason, so the judge's text is hostile too
    steps = ask(f"8 6\\n{TAKE_OVER}", lambda judge: pair_input(judge, TAKE_OVER, (TAKE_OVER, "b"), TAKE_OVER, OPTIONS))
    assert not any(tag in page for page, _ in steps for tag in ("<script", "<img"))
    assert "&lt;script&gt;" in steps[-1][0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda judge: pair_input(judge, " ", ("a", "b"), "", {}), "the question is blank; fill it in"),
        (lambda judge: pair_input(judge, "q", ("a", ""), "", {}), "answer 2 is blank; fill it in"),
        (lambda judge: pair_input(judge, "q", ("a", "b"), "", {"reasons": "flips"}), "requires both orders"),
        (lambda judge: several_input(judge, "q", "", False, False, ("a", "", " ")), "at least two answers"),
        (lambda judge: single_input(judge, "q", "a", "r", "b", False), "a reference or another answer"),
        (lambda judge: dialogue_input(judge, [["", "", "", ""]], {}), "the dialogue is empty"),
        (lambda judge: dialogue_input(judge, [["q", "a", "", ""], [*"qab", ""]], {}), "answer 2 in turn 1 is blank"),
        (lambda judge: image_input(judge, "q", "a", "", None, False), "the reference is blank"),
    ],
)
def test_a_missing_text_is_named(ask, make, message):
    [(page, talk)] = ask("8 6", make)
    assert (message in page, 'role="alert"' in page, talk) == (True, True, None)


def test_an_unparseable_reply_is_not_a_verdict(ask):
    page, talk = ask("I cannot say", lambda judge: pair_input(judge, "q", ("a", "b"), "", OPTIONS))[-1]
    assert ("No verdict: the reply does not have" in page, "I cannot say" in page, talk) == (True, True, None)


@pytest.mark.parametrize(
    ("each_position", "words"),
    [
        (False, ["From best to worst: answer 2, answer 3, answer 1."]),
        (True, ["From best to worst: answers 1 and 2 and 3 (tied).", "Shown as 2, 3, 1"]),
    ],
)
def test_several_answers_are_ranked(ask, each_position, words):
    page, _ = ask("5 9 7", lambda judge: several_input(judge, "q", "", each_position, False, "abc"))[-1]
    assert [part for part in words if part not in page] == []


def test_one_answer_is_graded_with_its_distribution(ask):
    page, _ = ask("7", lambda judge: single_input(judge, "q", "a", "", "", False))[-1]
    assert ("The grade is 7." in page, "<td>7</td><td>100.0 %</td>" in page) == (True, True)


def test_one_dialogue_or_two(ask):
    turns = [["q1", "a1", "b1", ""], ["q2", "a2", "b2", "r2"], ["", "", "", ""]]
    page, talk = ask("8 6", lambda judge: dialogue_input(judge, turns, {"turns": "each"}))[-1]
    assert ("Answer 1 is better." in page, "Turn 2: answer 1 shown first" in page, talk is None) == (True, True, False)
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
    assert ("Why?" in page, "It is shorter." in page, "the question is blank" in refused) == (True, True, True)
    assert ([turn.question for turn in later.history], same is later) == (["Why?"], True)


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


def distribution(*likeliest):
    return PairDistribution(expected=(5.0, 5.0), first_better=0.5, tie=0.0, unassigned=0.0, likeliest=likeliest)


def drawing(html):
    """The SVG, parsed: it must be well formed."""
    return ET.fromstring(re.search("<svg.*?</svg>", html, re.DOTALL)[0])


def texts(html):
    return [element.text.strip() for element in drawing(html).iter("text")]


def shape(element):
    """Left, top, width and height of a drawn rectangle."""
    points = [tuple(map(float, point)) for point in re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", element.get("d"))]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)


def rectangles(html, fill):
    paths = [e for e in drawing(html).iter("path") if f"fill: {fill}" in (e.get("style") or "") and e.get("d")]
    return [shape(element) for element in paths]


FULLEST = "#08306b"  # the dark end of the shades


@pytest.mark.parametrize(("order", "scores"), [((0, 1), (8, 6)), ((1, 0), (6, 8))])
def test_a_cell_is_at_its_scores_in_sample_order(order, scores):
    # shown 8 : 6; in the swapped order that is 6 for answer 1. The axes have a column and a row for each of 1 to 10
    html = heat_map(distribution((8.0, 6.0, 1.0)), order, TEN)
    [cell] = rectangles(html, FULLEST)
    left, top, width, height = next(shape(e) for e in drawing(html).iter("path") if "fill: #ffffff" in e.get("style")
                                    and shape(e)[2] < 0.9 * float(drawing(html).get("width")[:-2]))  # fmt: skip
    column, row = (cell[0] - left) / (width / 10), (top + height - cell[1] - cell[3]) / (height / 10)
    assert (round(column) + 1, round(row) + 1) == scores


def test_the_likeliest_cell_is_darkest_and_has_its_number():
    html = heat_map(distribution((8.0, 6.0, 0.75), (7.0, 7.0, 0.25)), (0, 1), TEN)
    assert len(rectangles(html, FULLEST)) == 1
    words = texts(html)
    axes = {"Score of answer 1 (points)", "Score of answer 2 (points)"}
    assert {"75", "25", "n = 2 score lines", "Probability (%)"} | axes <= set(words)
    assert all(words.count(str(score)) >= 2 for score in range(1, 10))
    assert "Most likely: 8 for answer 1 and 6 for answer 2 (75.0 %)." in drawing(html).get("aria-label")
    assert "<td>8</td><td>6</td><td>75.0 %</td>" in html


def test_a_fine_scale_has_few_ticks():
    fine = score_lines((1, 10), 0.1).values
    html = heat_map(distribution((8.1, 6.0, 1.0)), (0, 1), fine)
    assert len(texts(html)) <= 24 + 20  # the ticks of both axes; names, and the ticks of the colours
    assert "<td>8.1</td><td>6</td><td>100.0 %</td>" in html


def test_an_empty_distribution_is_drawn():
    assert "All score lines have probability 0." in heat_map(distribution(), (0, 1), TEN)


def test_each_score_has_a_bar():
    html = grade_bars(GradeDistribution(expected=7.0, unassigned=0.0, likeliest=((7.0, 0.8), (6.0, 0.2))), TEN)
    tall = [height for *_, height in rectangles(html, "#0072b2")]
    assert len(tall) == 10  # 1 to 10, of which 6 and 7 have any probability
    assert tall[6] == pytest.approx(4 * tall[5], rel=1e-3)
    assert tall[0] == 0
    assert {"80", "20", "n = 2 scores", "Score (points)", "Probability (%)"} <= set(texts(html))
    assert "width:50.0%" in score_bars([5.5], (1, 10))  # measured on the judge's scale


def test_a_flip_is_the_first_doubt():
    flipped = replace(pair_judgment("a", "tie", swapped=(8.0, 6.0)), probability=0.55)
    first, second = doubts(flipped)
    assert first.startswith("The orders disagree")
    assert "P(first better) is 0.55" in second


def test_a_truncated_answer_is_numbered_in_sample_order():
    given = pair_judgment("a", 1, swapped=(6.0, 8.0))
    # the first answer shown in the swapped order is answer 2
    cut = replace(given.shown[1], truncations=(Truncation(answer=0, tokens_before=900, tokens_after=400),))
    judgment = replace(given, shown=(given.shown[0], cut))
    assert doubts(judgment) == ["Answer 2 was truncated from 900 to 400 tokens."]


def test_doubts_of_one_order_of_a_failure_and_of_a_certain_verdict():
    [doubt] = doubts(pair_judgment("a", 1))
    assert "Only one order" in doubt
    assert doubts_html(failed_judgment("a")) == ""
    certain = replace(pair_judgment("a", 1, swapped=(6.0, 8.0)), probability=0.9)
    assert doubts(certain) == []
    assert "can still be wrong" in doubts_html(certain)


@pytest.fixture
def ask_prompt(tmp_path):
    """Judge with a prompt file and word probabilities; returns the last step."""
    with contextlib.ExitStack() as opened:

        def shown(text, make):
            (tmp_path / "mine.txt").write_text(text)
            judge = opened.enter_context(Judge("Yes", engine="scripted", prompt=tmp_path / "mine.txt"))
            judge.engine = WordEngine()
            worker = EngineWorker(judge.engine)
            opened.callback(worker.close)

            async def collect():
                return [step async for step in stream_judgment(judge, worker, lambda: make(judge))]

            return asyncio.run(collect())[-1]

        yield shown


def test_a_label_is_shown_with_the_probability_of_its_word(ask_prompt):
    prompt = "{context}: {answer}\nreply: Yes/No"
    page, _ = ask_prompt(prompt, lambda judge: single_input(judge, "", "1 0", "", "", False, "a policy"))
    # log-odds of 1: sigmoid(1) = 0.73
    for words in ("The label is yes.", "P(fulfilled) 0.73", "P(Yes) 0.73"):
        assert words in page


def test_a_pair_is_shown_with_the_probability_of_each_word_and_can_be_discussed(ask_prompt):
    prompt = "{question} {answer_1} {answer_2}\nreply: A/B/C"
    options = {"both_orders": True, "reasons": "none"}
    page, talk = ask_prompt(prompt, lambda judge: pair_input(judge, "q", ("0 1", "0 -1"), "", options))
    # a difference of 2: sigmoid(2) = 0.88
    assert "Answer 1 is better." in page
    assert "P(A) 0.88, P(B) 0.12, P(C) 0.00" in page
    [request] = next(talk("Why?"))
    assert request.prompt.spans[-2].text == "Yes"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("{question} {answer}\nreply: Yes/No", "the question is blank"),
        ("{reference} {answer}\nreply: Yes/No", "the reference is blank"),
        ("{context} {answer}\nreply: Yes/No", "context is blank"),
    ],
)
def test_each_field_of_a_prompt_is_required(ask_prompt, prompt, message):
    values = [""] if "context" in prompt else []
    assert message in ask_prompt(prompt, lambda judge: single_input(judge, "", "1 0", "", "", False, *values))[0]
