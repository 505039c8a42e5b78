"""The official clients against a real server: OpenAI's completions and Responses API, Anthropic's Messages API."""

import asyncio
import json
from typing import Literal

import openai
import pydantic
import pytest

from tests.support import captures
from tests.support.known_judge import quality
from tests.support.served import HeldEngine, prompt, review, served

VERDICT = f"{quality('one')} {quality('two')}"
"""The first line of every reply to the review."""
SYSTEM, USER = (message["content"] for message in review()["messages"])


@pytest.fixture(scope="module")
def server():
    with served(settings={"names": ("gpt-4",), "api_keys": ("sk-right",)}) as server:
        yield server


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-right", max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic():
    return pytest.importorskip("anthropic", reason="anthropic is not installed: pip install -e '.[dev]'")


@pytest.fixture
def messages(server, anthropic):
    with anthropic.Anthropic(base_url=server.url, api_key="sk-right", max_retries=0) as client:
        yield client.messages


def line(text):
    return text.split("\n")[0]


def test_replies_and_streams_of_both_completions_routes(client):
    whole = client.chat.completions.create(**review())
    assert (line(whole.choices[0].message.content), whole.usage.total_tokens > 0) == (VERDICT, True)
    pieces = list(client.chat.completions.create(**review(), stream=True, stream_options={"include_usage": True}))
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert (text, pieces[-1].usage) == (whole.choices[0].message.content, whole.usage)
    with client.chat.completions.stream(**review()) as stream:  # its own helper puts the pieces together
        assert stream.get_final_completion().choices[0].message.content == text
    plain = client.completions.create(model="gpt-4", prompt=prompt(), max_tokens=16)
    assert line(plain.choices[0].text) == VERDICT
    pieces = client.completions.create(model="gpt-4", prompt=prompt(), max_tokens=16, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == plain.choices[0].text


def test_a_tool_is_called(client, shared_data):
    body = captures.bodies(shared_data, "alpaca_eval__alpaca_eval_gpt4_turbo_fn")[0] | {"model": "gpt-4"}
    [call] = client.chat.completions.create(**body).choices[0].message.tool_calls
    assert {row["rank"] for row in json.loads(call.function.arguments)["ordered_models"]} == {1, 2}
    kept = {key: body[key] for key in ("model", "messages", "tools", "tool_choice")}
    with client.chat.completions.stream(**kept) as stream:
        streamed = stream.get_final_completion().choices[0].message.tool_calls[0].function
    assert (streamed.name, streamed.arguments) == (call.function.name, call.function.arguments)


def test_openais_client_retries_when_the_server_is_busy():
    engine = HeldEngine()
    with served(engine, max_queue=1) as server:

        async def ask():
            async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=5) as client:
                first = asyncio.create_task(client.chat.completions.create(**review(first="other")))
                while server.counts.submitted == 0:
                    await asyncio.sleep(0.01)
                second = asyncio.create_task(client.chat.completions.create(**review()))
                while server.counts.refused == 0:
                    await asyncio.sleep(0.01)
                engine.gate.set()
                return await asyncio.gather(first, second)

        assert len(asyncio.run(ask())) == 2


def test_a_response_holds_the_reply_of_a_chat(client):
    response = client.responses.create(model="gpt-4", instructions=SYSTEM, input=USER)
    assert (line(response.output_text), response.status) == (VERDICT, "completed")
    assert response.usage.input_tokens > 0
    parts = [{"type": "input_text", "text": USER}]
    rows = [{"role": "developer", "content": SYSTEM}, {"role": "user", "content": parts}]
    assert client.responses.create(model="gpt-4", input=rows).output_text == response.output_text


def test_a_verdict_is_parsed_into_a_model(client):
    class Verdict(pydantic.BaseModel):
        explanation: str
        winner: Literal["A", "B", "tie"]

    response = client.responses.parse(model="gpt-4", instructions=SYSTEM, input=USER, text_format=Verdict)
    assert response.output_parsed.winner == ("A" if quality("one") > quality("two") else "B")


def test_a_function_is_called_in_both_other_apis(client, messages, shared_data):
    body = captures.bodies(shared_data, "alpaca_eval__alpaca_eval_gpt4_turbo_fn")[0]
    [tool] = [tool["function"] for tool in body["tools"]]
    system, user = (message["content"] for message in body["messages"])
    flat = {"type": "function", **tool, "strict": False}
    choice = {"type": "function", "name": tool["name"]}
    [call] = client.responses.create(
        model="gpt-4", instructions=system, input=user, tools=[flat], tool_choice=choice
    ).output
    schema = {"name": tool["name"], "input_schema": tool["parameters"]}
    answer = messages.create(
        model="gpt-4", max_tokens=500, system=system, messages=[{"role": "user", "content": user}], tools=[schema],
        tool_choice={"type": "tool", "name": tool["name"]},
    )  # fmt: skip
    assert (call.type, answer.stop_reason) == ("function_call", "tool_use")
    assert {row["rank"] for row in json.loads(call.arguments)["ordered_models"]} == {1, 2}
    assert answer.content[0].input == json.loads(call.arguments)


def test_a_message_holds_the_reply_of_a_chat(messages, anthropic):
    body = {"model": "gpt-4", "max_tokens": 500, "system": SYSTEM, "messages": [{"role": "user", "content": USER}]}
    assert line(messages.create(**body).content[0].text) == VERDICT
    with pytest.raises(anthropic.BadRequestError, match="stream"):
        messages.create(**body, stream=True)
    [short] = messages.create(**body | {"max_tokens": 4}).content
    assert short.text == VERDICT[: len(short.text)]


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"input": 7}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"temperature": 9}, "temperature"),
        ({"stream": True}, "stream"),
    ],
)
def test_unsupported_fields_of_a_response_are_named(client, changed, param):
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(model="gpt-4", input=changed.get("input", prompt()), extra_body=changed)
    assert error.value.param == param


HELLO = {"model": "gpt-4", "messages": [{"role": "user", "content": "Hello."}]}


def test_errors_are_openais_own(server, client):
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(**review(model="gpt-5"))
    assert (error.value.code, error.value.param) == ("model_not_found", "model")
    for create, body in (
        (client.chat.completions.create, HELLO),
        (client.responses.create, {"model": "gpt-4", "input": "Hello."}),
    ):
        with pytest.raises(openai.BadRequestError) as error:
            create(**body)
        assert error.value.code == "unrecognised_prompt"
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError) as error:
            stranger.models.list()
        assert error.value.code == "invalid_api_key"


def test_errors_are_anthropics_own(server, messages, anthropic):
    with pytest.raises(anthropic.NotFoundError):
        messages.create(**HELLO | {"model": "gpt-5"}, max_tokens=9)
    stranger = anthropic.Anthropic(base_url=server.url, api_key="sk-wrong", max_retries=0)
    with stranger, pytest.raises(anthropic.AuthenticationError):
        stranger.messages.create(**HELLO, max_tokens=9)
