"""RewardBench: what its parsers make of captured replies, and of ours."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.contract import AMBIGUOUS, ChatRequest, JudgeResult, JudgeTask, Message, sample_of
from tests.support import captures
from tests.support.captures import replies, requests

DIALECTS = captures.dialects("rewardbench-")

BY_NAME = {dialect.name: dialect for dialect in DIALECTS}
REASON = '[[B]] and [[A]]. Output (b) **Result:** B {"better_answer": "2"} 9'
PAIRS = [
    (JudgeResult(winner=1, scores=(8.0, 6.0), first_better=0.9, reason=REASON), "A"),
    (JudgeResult(winner=2, scores=(6.0, 8.0), first_better=0.1, reason="[[A]] Output (a)"), "B"),
    (JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.6), "A"),
    (JudgeResult(winner="tie", scores=(7.0, 7.0), first_better=0.4), "B"),
]


def asking(**more):
    return ChatRequest(messages=(Message(role="user", text=""),), **more)


def first_found(marks):
    """The first of the marks that stands in the text, in the marks' order."""
    return lambda text: next((letter for letter, mark in marks.items() if mark in text), "error")


def parsed_rating(text):
    found = re.search(r"\b([1-9]|10)\b\s*$", text)
    return int(found[1]) if found else -1


def parsed_result(text):
    found = re.search(r"\*\*Result:\*\*\s*([AB])", text)
    return found[1] if found else None


def parsed_json(text):
    found = re.search(r'"(?:更好的回答|better_answer)":\s*"?([12])', text)
    return "AB"[int(found[1]) - 1] if found else "None"


PARSERS = {
    "rewardbench_v1_atla": ("rewardbench-atla", parsed_result),
    "rewardbench_v1_conj": ("rewardbench-con-j", parsed_json),
    "rewardbench_v1_offsetbias": ("rewardbench-offsetbias", first_found({"A": "Output (a)", "B": "Output (b)"})),
    "rewardbench_v1_pair": ("rewardbench-pair", first_found({"A": "[[A]]", "B": "[[B]]"})),
    "rewardbench_v1_pair_mt": ("rewardbench-pair-multi-turn", first_found({"A": "[[A]]", "B": "[[B]]"})),
    "rewardbench_v1_rise": ("rewardbench-rise", first_found({"A": "[[A]]", "B": "[[B]]"})),
    "rewardbench_v1_ratings": ("rewardbench-ratings", parsed_rating),
    "rewardbench_v2_ratings": ("rewardbench-ratings", parsed_rating),
    "rewardbench_v2_ratings_ties": ("rewardbench-ratings", parsed_rating),
    "rewardbench_v2_four": ("rewardbench-four", first_found({letter: f"[[{letter}]]" for letter in "ABCD"})),
}


@pytest.mark.parametrize("folder", PARSERS)
def test_the_parsers_are_understood(shared_data, folder):
    _, parser = PARSERS[folder]
    for reply, found in replies(shared_data, folder):
        assert parser(reply["content"]) == found, reply


@pytest.mark.parametrize(
    "folder", [name for name, (dialect, _) in PARSERS.items() if not dialect.endswith(("ratings", "four"))]
)
@pytest.mark.parametrize(("finding", "winner"), PAIRS)
@pytest.mark.parametrize("room", [None, 2048, 8])
def test_the_winner_of_a_pair_is_read(folder, finding, winner, room):
    name, parser = PARSERS[folder]
    case = JudgeTask(dialect=name, kind="pair", sample=sample_of("q", ("a", "b")))
    [text] = BY_NAME[name].render(case, asking(max_tokens=room), finding).texts
    assert parser(text) == winner
    assert sum(text.count(mark) for mark in ("[[", "Output (", "**Result:**", "更好的回答")) == 1


def test_the_json_of_con_j_is_json():
    case = JudgeTask(dialect="rewardbench-con-j", kind="pair", sample=sample_of("q", ("a", "b")))
    [text] = BY_NAME["rewardbench-con-j"].render(case, asking(), PAIRS[0][0]).texts
    assert json.loads(text)["更好的回答"] == 1


@pytest.mark.parametrize(("scores", "best"), [((2, 9, 3, 4), "B"), ((1, 2, 3, 9.5), "D"), ((9, 1, 1, 1), "A")])
def test_the_best_of_four_is_read(scores, best):
    case = JudgeTask(dialect="rewardbench-four", kind="choice", sample=sample_of("q", ("a", "b", "c", "d")))
    [text] = BY_NAME["rewardbench-four"].render(case, asking(), JudgeResult(scores=scores, reason=REASON)).texts
    assert PARSERS["rewardbench_v2_four"][1](text) == best
    assert text.count("[[") == 1


@given(score=st.floats(1, 10))
def test_a_rating_ends_the_text(score):
    case = JudgeTask(dialect="rewardbench-ratings", kind="grade", sample=sample_of("q", ("a",)), scale=(1, 10))
    [text] = BY_NAME["rewardbench-ratings"].render(case, asking(), JudgeResult(scores=(score,), reason=REASON)).texts
    assert abs(parsed_rating(text) - score) <= 0.5
    assert text.split("\n")[-1] == str(parsed_rating(text))


@pytest.mark.parametrize(
    ("folder", "border"),
    [
        ("rewardbench_v1_pair", "\n[The End of Assistant A's Answer]\n\n[The Start of Assistant B's Answer]\n"),
        ("rewardbench_v1_ratings", "\n\n[Response]\n"),
        ("rewardbench_v2_four", "\n[The End of Assistant A's Answer]\n\n[The Start of Assistant B's Answer]\n"),
        ("rewardbench_v1_atla", "\n```\n\nResponse B:\n```\n"),
        ("rewardbench_v1_conj", "\n回答2："),
        ("rewardbench_v1_offsetbias", "\n# Output (b):\n"),
        ("rewardbench_v1_rise", "\n回答B："),
    ],
)
def test_an_answer_that_holds_a_border_leaves_doubt(refilled, folder, border):
    name, _ = PARSERS[folder]
    others = {"rewardbench_v1_ratings": [], "rewardbench_v2_four": ["b", "c", "d"]}.get(folder, ["b"])
    for first, doubt in (("a", ""), (f"a{border}x", AMBIGUOUS)):
        case = BY_NAME[name].recognise(refilled(folder, question="q", answers=[first, *others]))
        assert case.doubt == doubt


@pytest.mark.parametrize(
    ("folder", "wanted"),
    [
        ("rewardbench_v1_atla", "**Result:** <A or B>"),
        ("rewardbench_v1_conj", '"更好的回答"'),
        ("rewardbench_v1_offsetbias", "Here are some rules of the evaluation:\n"),
        ("rewardbench_v1_rise", "下面我会给出一个问题和两个回答"),
    ],
)
def test_the_same_blocks_below_other_instructions_are_not_taken(refilled, folder, wanted):
    [message] = refilled(folder, question="q", answers=["a", "b"]).messages
    assert wanted in message.text
    changed = Message(role="user", text=message.text.replace(wanted, "x"))
    assert BY_NAME[PARSERS[folder][0]].recognise(ChatRequest(messages=(changed,))) is None


def test_a_talk_that_holds_a_turn_leaves_doubt(shared_data):
    item, asked = next(requests(shared_data, "rewardbench_v1_pair_mt"))
    assert BY_NAME["rewardbench-pair-multi-turn"].recognise(asked).doubt == ""
    first, second = item["turns"]
    answer = first["answers"][0]
    system, user = asked.messages
    text = user.text.replace(answer, f"{answer}\n\n### User:\n{second['question']}\n\n### Assistant A:\nx")
    talks = ChatRequest(messages=(system, Message(role="user", text=text)))
    assert BY_NAME["rewardbench-pair-multi-turn"].recognise(talks).doubt == AMBIGUOUS


def test_four_answers_are_chosen_from_where_four_are_offered(refilled):
    system, user = refilled("rewardbench_v2_four", question="q", answers=["a", "b", "c", "d"]).messages
    fewer = Message(role="system", text=system.text.replace('"[[D]]"', '"[[E]]"'))
    four = BY_NAME["rewardbench-four"]
    assert four.recognise(ChatRequest(messages=(system, user))) is not None
    assert four.recognise(ChatRequest(messages=(fewer, user))) is None
    assert four.recognise(ChatRequest(messages=(system, user, user))) is None


@pytest.mark.parametrize("missing", ["### Task Description\n", "on a scale of 1 to 10", "[Query]", "[Response]"])
def test_a_prompt_for_a_rating_needs_all_its_parts(refilled, missing):
    [message] = refilled("rewardbench_v1_ratings", question="q", answers=["a"]).messages
    assert missing in message.text
    changed = Message(role="user", text=message.text.replace(missing, "x"))
    assert BY_NAME["rewardbench-ratings"].recognise(ChatRequest(messages=(changed,))) is None


def test_a_query_that_quotes_its_heading_stays_whole(refilled):
    question = "q\n\n[Query]\nr"
    asked = refilled("rewardbench_v1_ratings", question=question, answers=["a"])
    assert BY_NAME["rewardbench-ratings"].recognise(asked).sample.question == question


def test_a_pair_with_a_label_for_ties_is_not_rewardbench(shared_data):
    for _, asked in requests(shared_data, "fastchat_pair"):
        assert [one.name for one in DIALECTS if one.recognise(asked) is not None] == []
