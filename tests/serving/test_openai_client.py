"""The official Python client against a real server."""

import asyncio
import json

import openai
import pytest

from tests.support import captures
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


def line(text):
    return text.split("\n")[0]


def test_whole_replies_and_streams_of_both_routes(client):
    scores = f"{quality('one')} {quality('two')}"
    whole = client.chat.completions.create(**review())
    assert (line(whole.choices[0].message.content), whole.usage.total_tokens > 0) == (scores, True)
    pieces = list(client.chat.completions.create(**review(), stream=True, stream_options={"include_usage": True}))
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert (text, pieces[-1].usage) == (whole.choices[0].message.content, whole.usage)
    with client.chat.completions.stream(**review()) as stream:  # its own helper puts the pieces together
        assert stream.get_final_completion().choices[0].message.content == text
    plain = client.completions.create(model="gpt-4", prompt=prompt(), max_tokens=16)
    assert line(plain.choices[0].text) == scores
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

        assert len(asyncio.run(ask())) == 2
