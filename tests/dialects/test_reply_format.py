"""A `response_format` is honoured or refused, never answered with plain text."""

import asyncio
import json
from dataclasses import replace

import pytest

from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask, Reply, sample_of
from judgelm.dialects.prompt_file import read_dialects
from judgelm.dialects.reply_format import in_format
from judgelm.errors import InputError
from judgelm.records import TokenLogprobs
from tests.support.captures import chat
from tests.support.known_judge import handler_of, of_quality

TASK = JudgeTask(dialect="some-client", kind="pair", sample=sample_of("q", ("a", "b")))
GRADE = JudgeTask(dialect="some-client", kind="grade", sample=sample_of("q", ("a",)), scale=(1.0, 5.0))
FIRST = JudgeResult(winner=1, scores=(8.0, 6.0), first_better=0.9, tie=0.0)
TEXT = Reply(texts=("[[A]]",), logprobs=(TokenLogprobs(token="[[A]]", logprob=0.0),))


def request_for(schema=None, **fields):
    return ChatRequest(messages=(), schema=schema, **fields)


def held(fields, task=TASK, result=FIRST, **schema):
    reply = in_format(TEXT, task, request_for({"type": "object", "properties": fields} | schema), result)
    assert reply.logprobs == ()
    return json.loads(reply.texts[0])


def test_a_reply_stays_without_a_format_and_if_it_is_json_of_the_schema():
    assert in_format(TEXT, TASK, request_for(), FIRST) is TEXT
    call = Reply(tool="f", arguments="{}")
    assert in_format(call, TASK, request_for({"type": "object"}, forced_tool="f"), FIRST) is call
    reply = Reply(texts=('{"score":  true}',))
    schema = {"type": "object", "properties": {"score": {"type": "boolean"}}, "required": ["score"]}
    assert in_format(reply, TASK, request_for(schema), FIRST) is reply
    assert in_format(reply, TASK, request_for(json_object=True), FIRST) is reply


@pytest.mark.parametrize(
    ("choices", "first", "second", "tie"),
    [
        (["A", "B", "tie"], "A", "B", "tie"),
        (["Assistant A", "Assistant B"], "Assistant A", "Assistant B", "Assistant A"),
        ([1, 2, "draw"], 1, 2, "draw"),
        (["model_b", "model_a", "C"], "model_a", "model_b", "C"),
        (["[[A]]", "[[B]]", "[[C]]"], "[[A]]", "[[B]]", "[[C]]"),
    ],
)
def test_the_winner_is_one_of_the_choices(choices, first, second, tie):
    fields = {"explanation": {"type": "string"}, "winner": {"enum": choices}}
    for winner, better, expected in ((1, 0.9, first), (2, 0.1, second), ("tie", 0.6, tie)):
        row = held(fields, result=replace(FIRST, winner=winner, first_better=better), required=list(fields))
        assert row["winner"] == expected
        assert "8 and 6" in row["explanation"]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"winner": {"enum": ["A", "B", "C", "D"]}}},
        {"type": "object", "properties": {"winner": {"enum": ["yes", "no"]}}},
        {"type": "object", "properties": {"winner": {"enum": ["A", "tie"]}}},
        {"type": "object", "properties": {"a": {"enum": ["A", "B"]}, "b": {"enum": ["A", "B"]}}},
        {"type": "object", "properties": {"winner": {"enum": ["A", "B"]}, "points": {"type": "number"}}},
        {"type": "object", "properties": {"winner": {"enum": ["A", "B"]}}, "required": ["other"]},
        {"type": "object", "properties": {"winner": {"enum": ["A", "B"], "pattern": "(a+)+$"}}},
        {"type": "object", "properties": {"winner": {"$ref": "#"}}, "$ref": "#"},
        {"type": "array", "items": {"enum": ["A", "B"]}},
        {"type": "object", "properties": {"winner": "A"}},
        {"type": "object", "properties": {"words": {"type": "string"}}},
        {"type": "object", "properties": {"winner": {"enum": ["A", "B", *map(str, range(9000))]}}},
    ],
)
def test_what_cannot_be_said_so_is_refused_with_the_reason(schema):
    with pytest.raises(InputError, match=r'^"response_format": '):
        in_format(TEXT, TASK, request_for(schema), FIRST)


def test_a_grade_is_a_number_of_the_scale_and_of_no_other():
    result = JudgeResult(scores=(5.5,), grades=((5.5, 1.0),))
    assert held({"rating": {"type": "number"}}, GRADE, result) == {"rating": 3.0}
    whole = {"type": "integer", "minimum": 1, "maximum": 5}
    assert held({"rating": whole}, GRADE, result) == {"rating": 3}
    ten = {"type": "number", "minimum": 1, "maximum": 10}
    for field in (ten, {"type": "integer", "minimum": 0}, {"type": "boolean"}, {"enum": [1, 2]}):
        with pytest.raises(InputError, match="omit response_format"):
            held({"rating": field}, GRADE, result)


@pytest.mark.parametrize(
    ("reply", "field", "value"),
    [
        ("pair: {first: X, second: Y}", {"enum": ["X", "Y"]}, "X"),
        ("pair: {first: B, second: A}", {"enum": ["A", "B"]}, "B"),
        ("pair: {first: X, second: Y}", {"enum": ["A", "B"]}, "A"),
        ("label: {fulfilled: PASS, failed: FAIL}", {"enum": ["PASS", "FAIL"]}, "PASS"),
        ("label: {fulfilled: PASS, failed: FAIL}", {"type": "boolean"}, True),
        ("grade: {poor: 0, fair: 0.5, good: 1}", {"enum": ["good", "fair", "poor"]}, "good"),
    ],
)
def test_the_words_of_a_prompt_file_are_choices(tmp_path, reply, field, value):
    answers = "{answer_1} or {answer_2}" if "pair" in reply else "{answer}"
    (tmp_path / "own.yaml").write_text(f"prompt: 'Own: {answers}?'\nreply: {{{reply}}}")
    shown = f"{of_quality(9)} or {of_quality(2)}" if "pair" in reply else of_quality(9)
    schema = {"type": "object", "properties": {"v": field}, "required": ["v"]}
    request = replace(chat(f"Own: {shown}?"), schema=schema)
    with handler_of(prompts=read_dialects(tmp_path / "own.yaml")) as handler:
        assert json.loads(asyncio.run(handler.respond(request)).reply.texts[0]) == {"v": value}


def test_text_is_no_json_object_and_no_call():
    for request in (request_for(json_object=True), request_for({"type": "object"})):
        with pytest.raises(InputError, match=r"some-client.*not JSON"):
            in_format(TEXT, TASK, request, FIRST)
    with pytest.raises(InputError, match="not a JSON object"):
        in_format(Reply(texts=("[1]",)), TASK, request_for(json_object=True), FIRST)
    with pytest.raises(InputError, match=r'^"tool_choice"'):
        in_format(TEXT, TASK, request_for(forced_tool="f"), FIRST)
