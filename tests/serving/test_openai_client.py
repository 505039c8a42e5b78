"""The official Python client against a real server."""

import asyncio
import json

import openai
import pytest

from tests.support.known_judge import quality
from tests.support.served import HeldEngine, prompt, review, served


@pytest.fixture(scope="module")
def server():
    with served(settings={"names": ("gpt-4",), "api_keys": ("sk-right",)}) as one:
        yield one


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-right", max_retries=0) as one:
        yield one


def captured(shared_data, folder):
    path = shared_data / "dialects" / folder / "requests.jsonl"
    with open(path, encoding="utf-8", newline="\n") as file:
        return json.loads(next(file))["body"] | {"model": "gpt-4"}


LINE = f"{quality('one')} {quality('two')}"


def test_a_completion(client):
    found = client.chat.completions.create(**review())
    assert found.choices[0].message.content.split("\n")[0] == LINE
    assert found.usage.total_tokens > 0
    assert found.system_fingerprint.startswith("fp_")


def test_a_stream(client):
    stream = client.chat.completions.create(**review(), stream=True, stream_options={"include_usage": True})
    found = list(stream)
    text = "".join(one.choices[0].delta.content or "" for one in found if one.choices)
    assert text.split("\n")[0] == LINE
    assert found[-1].usage.total_tokens > 0


def test_the_clients_own_helper_puts_a_stream_together(client):
    with client.chat.completions.stream(**review()) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content.split("\n")[0] == LINE
    assert final.choices[0].finish_reason == "stop"


def test_plain_completions(client):
    found = client.completions.create(model="gpt-4", prompt=prompt(), max_tokens=16)
    assert found.choices[0].text.split("\n")[0] == LINE
    pieces = client.completions.create(model="gpt-4", prompt=prompt(), stream=True)
    assert "".join(one.choices[0].text for one in pieces).split("\n")[0] == LINE


def test_logprobs(client, shared_data):
    body = captured(shared_data, "alpaca_eval__weighted_alpaca_eval_gpt4_turbo")
    found = client.chat.completions.create(**body)
    tops = {one.token: one.logprob for one in found.choices[0].logprobs.content[0].top_logprobs}
    assert {"m", "M"} <= tops.keys()


def test_a_tool_is_called(client, shared_data):
    body = captured(shared_data, "alpaca_eval__alpaca_eval_gpt4_turbo_fn")
    found = client.chat.completions.create(**body)
    [call] = found.choices[0].message.tool_calls
    ranked = json.loads(call.function.arguments)["ordered_models"]
    assert {one["rank"] for one in ranked} == {1, 2}
    with client.chat.completions.stream(
        **{key: body[key] for key in ("model", "messages", "tools", "tool_choice")}
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == call.function.name
    assert final.choices[0].message.tool_calls[0].function.arguments == call.function.arguments


def test_many_at_once_through_the_asynchronous_client(server):
    answers = [(f"first {n}", f"second {n}") for n in range(60)]

    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sk-right") as client:

            async def one(first, second):
                stream = await client.chat.completions.create(**review(first=first, second=second), stream=True)
                return "".join([part.choices[0].delta.content or "" async for part in stream])

            return await asyncio.gather(*(one(*pair) for pair in answers))

    lines = [text.split("\n")[0] for text in asyncio.run(ask())]
    assert lines == [f"{quality(first)} {quality(second)}" for first, second in answers]


def test_errors_are_the_clients_own(server, client):
    with pytest.raises(openai.NotFoundError) as found:
        client.chat.completions.create(**review(model="gpt-5"))
    assert (found.value.code, found.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as found:
        client.chat.completions.create(model="gpt-4", messages=[{"role": "user", "content": "Hello."}])
    assert found.value.code == "unrecognised_prompt"
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError) as found:
            stranger.models.list()
        assert found.value.code == "invalid_api_key"


def test_it_asks_again_when_the_server_is_busy():
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

        assert asyncio.run(ask())[1].choices[0].message.content.split("\n")[0] == LINE
