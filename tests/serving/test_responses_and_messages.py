"""OpenAI's Responses API and Anthropic's Messages API, by their official clients against a real server."""

import json
from typing import Literal

import openai
import pydantic
import pytest

from tests.support import captures
from tests.support.known_judge import quality
from tests.support.served import prompt, review, served

anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed: pip install -e '.[dev]'")


@pytest.fixture(scope="module")
def server():
    with served(settings={"names": ("gpt-4",), "api_keys": ("sk-right",)}) as one:
        yield one


@pytest.fixture
def responses(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-right", max_retries=0) as one:
        yield one.responses


@pytest.fixture
def messages(server):
    with anthropic.Anthropic(base_url=server.url, api_key="sk-right", max_retries=0) as one:
        yield one.messages


@pytest.fixture
def verdict():
    """The first line of every reply to the review."""
    return f"{quality('one')} {quality('two')}"


def system_and_user():
    return [message["content"] for message in review()["messages"]]


def test_a_response_holds_the_reply_of_a_chat(responses, verdict):
    system, user = system_and_user()
    said = responses.create(model="gpt-4", instructions=system, input=user)
    parts = [{"type": "input_text", "text": user}]
    listed = responses.create(
        model="gpt-4", input=[{"role": "developer", "content": system}, {"role": "user", "content": parts}]
    )
    assert said.output_text.split("\n")[0] == verdict
    assert listed.output_text == said.output_text
    assert (said.status, said.usage.input_tokens > 0) == ("completed", True)


def test_a_verdict_is_parsed_into_a_model(responses):
    class Verdict(pydantic.BaseModel):
        explanation: str
        winner: Literal["A", "B", "tie"]

    system, user = system_and_user()
    parsed = responses.parse(model="gpt-4", instructions=system, input=user, text_format=Verdict).output_parsed
    assert parsed.winner == ("A" if quality("one") > quality("two") else "B")


def test_a_function_is_called_in_both_apis(responses, messages, shared_data):
    body = captures.bodies(shared_data, "alpaca_eval__alpaca_eval_gpt4_turbo_fn")[0]
    [tool] = [tool["function"] for tool in body["tools"]]
    system, user = (message["content"] for message in body["messages"])
    flat = {"type": "function", **tool, "strict": False}
    choice = {"type": "function", "name": tool["name"]}
    said = responses.create(model="gpt-4", instructions=system, input=user, tools=[flat], tool_choice=choice)
    [call] = said.output
    schema = {"name": tool["name"], "input_schema": tool["parameters"]}
    answer = messages.create(
        model="gpt-4", max_tokens=500, system=system, messages=[{"role": "user", "content": user}], tools=[schema],
        tool_choice={"type": "tool", "name": tool["name"]},
    )  # fmt: skip
    assert (call.type, answer.stop_reason) == ("function_call", "tool_use")
    assert {row["rank"] for row in json.loads(call.arguments)["ordered_models"]} == {1, 2}
    assert answer.content[0].input == json.loads(call.arguments)


def test_a_message_holds_the_reply_of_a_chat(messages, verdict):
    system, user = system_and_user()
    asked = {"model": "gpt-4", "max_tokens": 500, "system": system, "messages": [{"role": "user", "content": user}]}
    said = messages.create(**asked)
    assert said.content[0].text.split("\n")[0] == verdict
    with pytest.raises(anthropic.BadRequestError, match="stream"):
        messages.create(**asked, stream=True)
    [short] = messages.create(**asked | {"max_tokens": 4}).content
    assert short.text == verdict[: len(short.text)]


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
def test_what_is_not_understood_is_refused_by_its_name(responses, changed, param):
    asked = {"model": "gpt-4", "input": prompt()} | changed
    with pytest.raises(openai.BadRequestError) as found:
        responses.create(
            **{name: value for name, value in asked.items() if name in ("model", "input")}, extra_body=changed
        )
    assert found.value.param == param


def test_errors_are_each_clients_own(server, responses, messages):
    with pytest.raises(openai.BadRequestError) as found:
        responses.create(model="gpt-4", input="Hello.")
    assert found.value.code == "unrecognised_prompt"
    with pytest.raises(anthropic.NotFoundError):
        messages.create(model="gpt-5", max_tokens=9, messages=[{"role": "user", "content": "Hello."}])
    with (
        anthropic.Anthropic(base_url=server.url, api_key="sk-wrong", max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError),
    ):
        stranger.messages.create(model="gpt-4", max_tokens=9, messages=[{"role": "user", "content": "Hello."}])
