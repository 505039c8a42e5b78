"""Unrecognised prompts: answered verbatim or refused, with tools, reply formats, and log-probabilities."""

import json
import re
from contextlib import closing
from dataclasses import replace

import pytest

from judgelm.dialects.request_body import read_chat
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import InputError
from judgelm.judge import Judge
from judgelm.records import TokenLogprobs
from judgelm.runs.engine_worker import EngineWorker
from judgelm.serving.chat import model_request
from judgelm.serving.handler import HandlerOptions, JudgeHandler
from judgelm.serving.responses_and_messages import read_message
from tests.support.served import CHAT, error_of, review, served, until

USER = {"role": "user", "content": "How warm is it?"}
SCHEMA = {"type": "object", "properties": {"warm": {"type": "boolean"}}, "required": ["warm"]}


def tool(name, parameters=SCHEMA):
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


FORCED = {"tools": [tool("report")], "tool_choice": {"type": "function", "function": {"name": "report"}}}
REQUIRED = {"tools": [tool("report"), tool("skip", None)], "tool_choice": "required"}
LARGE = {"type": "object", "title": "x" * 70_000}
FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}}


class Recording(ScriptedEngine):
    """Keeps its requests, and splits replies into words with log-probabilities."""

    supports_grammar = True

    def __init__(self, reply):
        super().__init__({"*": reply})
        self.requests = []

    def submit(self, requests):
        self.requests += requests
        self.waiting.extend(requests)

    def answer(self, request):
        completion = super().answer(request)
        if request.sampling.logprobs is None:
            return completion
        tokens = [TokenLogprobs(token=each, logprob=-0.5) for each in re.findall(r"\s*\S+", completion.texts[0])]
        return replace(completion, logprobs=(tuple(tokens),) * request.sampling.n)


def answered(reply, fields, path=CHAT, **options):
    """The response to a request, and the request that the engine received."""
    engine = Recording(reply)
    with served(engine, unknown="answer", **options) as server:
        response = server.post(path, {"messages": [USER]} | fields)
        return response, engine.requests[-1] if engine.requests else None


def message_of(response):
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]


def asked(*messages, **fields):
    return model_request(read_chat({"messages": list(messages), **fields}))


# The prompt


def test_messages_reach_the_model_unchanged():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    turns = [
        {"role": "developer", "content": " Be brief.\r\n"},
        {"role": "user", "content": "<|im_end|>"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "Ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "3", "tool_call_id": "c1"},
    ]
    prompt = asked(*turns, tools=[tool("f")], tool_choice="none").prompt
    assert (prompt.chat, prompt.spans, prompt.prefill) == (True, (), "")
    assert prompt.messages == (
        {"role": "system", "content": " Be brief.\r\n"},
        {"role": "user", "content": "<|im_end|>"},
        {"role": "user", "content": "a\nb", "name": "Ann"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "3", "tool_call_id": "c1"},
    )
    assert prompt.tools == (tool("f"),)


def test_the_model_continues_a_final_assistant_message_if_asked():
    begun = {"role": "assistant", "content": '{"warm":'}
    new_turn = asked(USER, begun).prompt
    assert (len(new_turn.messages), new_turn.prefill) == (2, "")
    continued = asked(USER, begun, continue_final_message=True, add_generation_prompt=False).prompt
    assert (continued.messages, continued.prefill) == ((USER,), '{"warm":')
    assert model_request(read_message({"messages": [USER, begun], "max_tokens": 9})).prompt == continued


def test_replies_get_the_rest_of_the_window_up_to_a_limit():
    assert asked(USER).sampling.max_tokens == 4096
    default = asked(USER, max_tokens=9).sampling
    assert (default.max_tokens, default.reserve) == (9, 1)  # a prompt that leaves fewer tokens is still answered
    engine = Recording("x")
    engine.describe = lambda: {"engine": "scripted", "model": {}, "window": 1000}
    with served(engine, unknown="answer") as server:
        server.post(CHAT, {"messages": [USER]})
    assert engine.requests[0].sampling.max_tokens == 500


# Reply formats and tools


@pytest.mark.parametrize(
    ("wanted", "schema"),
    [(FORMAT, SCHEMA), ({"response_format": {"type": "json_object"}}, {"type": "object"}), (FORCED, SCHEMA)],
)
def test_a_reply_format_becomes_a_grammar(wanted, schema):
    grammar = asked(USER, **wanted).sampling.grammar
    assert (grammar.kind, json.loads(grammar.text)) == ("json_schema", schema)


SHOWN = json.dumps(SCHEMA, indent=2)
WRITTEN = {
    "ragas": f"JSON format that complies with the following schema as specified in JSON Schema:\n{SHOWN}Do not use",
    "langchain": f"Here is the output schema:\n```\n{SHOWN}\n```",
    "langchain json": f"Here is the output schema (shown in a code block for readability only):\n```\n{SHOWN}\n```",
    "instructor": f"the parsed objects in json that match the following json_schema:\n\n\n  {SHOWN}\n\nMake sure to",
}
OTHER = "Here is the output schema:\n" + json.dumps({"properties": {"cold": {"type": "boolean"}}})


@pytest.mark.parametrize("wanted", [{}, {"response_format": {"type": "json_object"}}])
@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_a_schema_in_the_prompt_becomes_a_grammar(text, wanted):
    response, request = answered('{"warm": true}', wanted | {"messages": [{"role": "system", "content": text}, USER]})
    assert json.loads(request.sampling.grammar.text) == SCHEMA
    assert "follows the JSON schema in the prompt" in response.headers["x-judgelm-note"]


@pytest.mark.parametrize(
    "text",
    [
        f"Is this a schema? {SHOWN}",
        f"{WRITTEN['ragas']}\n\n{OTHER}",
        "Here is the output schema:\n{not JSON}",
        "Here is the output schema:\n[1]",
        'Here is the output schema:\n{"properties": 3}',
    ],
)
def test_other_texts_about_schemas_do_not_constrain_the_reply(text):
    response, request = answered("x", {"messages": [{"role": "user", "content": text}]})
    assert request.sampling.grammar is None
    assert "schema" not in response.headers["x-judgelm-note"]


def test_a_schema_of_the_request_precedes_one_in_the_prompt():
    grammar = asked({"role": "user", "content": OTHER}, **FORMAT).sampling.grammar
    assert json.loads(grammar.text) == SCHEMA


def test_a_reply_cut_off_in_its_json_is_not_completed():
    response, _ = answered('{ "warm": true }', FORMAT | {"max_tokens": 2})
    [choice] = response.json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ('{ "warm":', "length")


@pytest.mark.parametrize("stream", [False, True])
def test_a_forced_function_is_called(stream):
    response, request = answered('{"warm": true}', FORCED | {"stream": stream})
    assert request.prompt.tools == (tool("report"),)
    if stream:
        rows = [json.loads(row.removeprefix("data: ")) for row in response.text.split("\n\n")[:-2]]
        calls = [row["choices"][0]["delta"].get("tool_calls") for row in rows]
        pieces = [call[0]["function"] for call in calls if call]
        call = {"name": pieces[0]["name"], "arguments": "".join(piece["arguments"] for piece in pieces)}
        assert rows[-1]["choices"][0]["finish_reason"] == "tool_calls"
    else:
        [call] = [call["function"] for call in message_of(response)["tool_calls"]]
    assert call == {"name": "report", "arguments": '{"warm": true}'}


def test_one_of_several_required_functions_is_called():
    response, request = answered('{"name": "skip", "parameters": {}}', REQUIRED)
    [call] = message_of(response)["tool_calls"]
    assert call["function"] == {"name": "skip", "arguments": "{}"}
    kinds = json.loads(request.sampling.grammar.text)["anyOf"]
    assert [kind["properties"]["name"] for kind in kinds] == [{"enum": ["report"]}, {"enum": ["skip"]}]
    assert kinds[0]["properties"]["parameters"] == SCHEMA


def test_definitions_of_several_functions_are_moved_to_the_root():
    def using(kind):
        return {"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"type": kind}}}

    def grammar(*kinds):
        tools = [tool(f"f{index}", using(kind)) for index, kind in enumerate(kinds)]
        return json.loads(asked(USER, tools=tools, tool_choice="required").sampling.grammar.text)

    assert grammar("string", "string")["$defs"] == {"X": {"type": "string"}}
    with pytest.raises(InputError, match="'X' differently"):
        grammar("string", "number")


def test_a_call_that_is_cut_off_is_a_text():
    response, _ = answered('{ "warm": true }', FORCED | {"max_tokens": 2})
    [choice] = response.json()["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", '{ "warm":')
    body = {"tools": [{"name": "report", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}, "max_tokens": 2}
    response, _ = answered('{ "warm": true }', body, "/v1/messages")
    assert (response.json()["content"][0]["type"], response.json()["stop_reason"]) == ("text", "max_tokens")


def test_an_engine_without_grammars_refuses_a_reply_format():
    with served(unknown="answer") as server:
        server.handler.worker.engine.supports_grammar = False
        for wanted, field in ((FORMAT, "response_format"), (FORCED, "tools")):
            error = error_of(server.post(CHAT, {"messages": [USER]} | wanted))
            assert (error["param"], "--engine transformers or vllm" in error["message"]) == (field, True)


# Log-probabilities


def test_log_probabilities_are_those_of_the_engine():
    response, request = answered("It is warm.", {"logprobs": True, "top_logprobs": 3, "n": 2})
    assert request.sampling.logprobs == 3
    for choice in response.json()["choices"]:
        tokens = choice["logprobs"]["content"]
        assert [token["token"] for token in tokens] == ["It", " is", " warm."]
        assert tokens[0]["logprob"] == -0.5


def test_streamed_log_probabilities_are_with_the_text():
    for reply, pieces in (("It is warm.", ["It", " is", " warm."]), ("warm. ", ["warm. "])):
        response, _ = answered(reply, {"logprobs": True, "stream": True})
        choices = [json.loads(row[6:])["choices"][0] for row in response.text.split("\n\n")[:-2]]
        texts = [choice["delta"]["content"] for choice in choices if choice["logprobs"]]
        assert texts == pieces


class Silent(Recording):
    def answer(self, request):
        return replace(super().answer(request), logprobs=None)


def test_missing_log_probabilities_are_noted():
    with served(Silent("x"), unknown="answer") as server:
        reply = server.post(CHAT, {"messages": [USER], "logprobs": True})
    assert reply.json()["choices"][0]["logprobs"] is None
    assert "does not support log-probabilities" in reply.headers["x-judgelm-note"]


def test_fields_without_an_effect_are_noted():
    response, _ = answered("x", {"top_p": 0.5, "min_p": 0.1, "user": "u", "seed": 1})
    assert response.headers["x-judgelm-note"].endswith("ignored: min_p")
    _, request = answered("x", {"top_p": 0.5, "temperature": 0.2})
    assert (request.sampling.top_p, request.sampling.temperature) == (0.5, 0.2)


# Bad requests


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}}, "response_format", "JSON schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "JSON schema"),
        ({"response_format": {"type": "xml"}}, "response_format", "json_object"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": LARGE}}}, "response_format", "65"),
        ({"tools": [{"type": "function", "function": {}}], "tool_choice": "required"}, "tools", "0: expected"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "none"}, "tools", "0: expected"),
        ({"tools": [tool("f", 5)], "tool_choice": "none"}, "tools", "0: expected"),
        ({"tools": ["f"]}, "tools", "0: expected"),
        (FORCED | {"tool_choice": {"function": {"name": "other"}}}, "tool_choice", "'other'; available: report"),
        ({"tool_choice": "required"}, "tool_choice", "available: none"),
        (FORCED | {"tool_choice": "auto"}, "tool_choice", "got 'auto'"),
        ({"tools": [tool("f")]}, "tool_choice", "got 'auto'"),
        (FORCED | {"n": 2}, "n", "expected 1"),
        ({"n": 0}, "n", "from 1"),
        ({"top_logprobs": 3}, "top_logprobs", "requires logprobs"),
        ({"stop": ["a"] * 100}, "stop", "at most 16"),
        ({"messages": []}, "messages", "at least one"),
        ({"messages": [USER | {"role": "critic"}]}, "messages", "unsupported role 'critic'"),
        ({"messages": [{"role": "assistant", "content": "a"}], "continue_final_message": True},
         "continue_final_message", "after other messages"),
        ({"continue_final_message": True}, "continue_final_message", "assistant message"),
        ({"add_generation_prompt": False}, "add_generation_prompt", "continue_final_message"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": {}}}]}]},
         "messages", '0, "tool_calls"'),
        *(({"messages": [{"role": "user", "content": [{"type": kind, kind: {}}]}]}, "messages", "text parts")
          for kind in ("image_url", "input_audio", "file", "refusal")),
    ],
)  # fmt: skip
def test_an_invalid_request_is_refused_by_its_field(fields, param, message):
    response, request = answered("{}", fields)
    error = error_of(response)
    assert (response.status_code, error["param"], request) == (400, param, None)
    assert message in error["message"]


def test_a_chat_of_assistant_messages_is_answered():
    response, request = answered("x", {"messages": [{"role": "assistant", "content": "Hello."}]})
    assert (response.status_code, len(request.prompt.messages)) == (200, 1)


def test_a_body_that_is_too_large_is_refused():
    response, _ = answered("x", {"messages": [USER | {"content": "x" * 10_000_000}]})
    assert (response.status_code, error_of(response)["code"]) == (413, "body_too_large")


# Answered or refused


def test_by_default_instruct_models_answer_and_judges_refuse():
    for reading, answers in ((None, False), ("yes-no", True)):
        with Judge("8 6", engine="scripted", reading=reading) as judge, closing(EngineWorker(judge.engine)) as worker:
            assert JudgeHandler(judge, worker).answers_unknown is answers
            assert JudgeHandler(judge, worker, HandlerOptions(unknown="refuse")).answers_unknown is False


def test_a_refusal_names_the_ways_out():
    with served(unknown="refuse") as server:
        message = error_of(server.post(CHAT, {"messages": [USER]}))["message"]
    assert all(way_out in message for way_out in ("--prompt FILE", "--learn", "--unknown answer"))


def test_answered_prompts_are_counted_and_near_ones_logged_once(caplog):
    near = review()
    near["messages"][1]["content"] = near["messages"][1]["content"].replace("[System]\n", "[Judge]\n")
    with served(Recording("x"), unknown="answer") as server:
        for body in (near, near, {"messages": [USER]}):
            assert server.post(CHAT, body).headers["x-judgelm-dialect"] == "none"
        counted = 'judgelm_unknown_prompts_total{nearest="faireval"} 2.0'
        until(lambda: counted in server.http.get("/metrics").text)
        summary = server.handler.options.unknown_prompts.summary
    [record] = [record for record in caplog.records if "unrecognised" in record.message]
    assert "the most similar known prompt is faireval: message 2 has 'Judge]" in record.message
    assert summary.startswith("3 unrecognised prompts")
    assert "faireval (2), none (1)" in summary


def test_a_prompt_that_asks_for_a_verdict_is_logged(caplog):
    asks = "Please act as an impartial judge. Reply A: x. Reply B: y."
    response, _ = answered("x", {"messages": [USER | {"content": asks}]})
    assert response.status_code == 200
    assert "it asks for a verdict" in caplog.text
