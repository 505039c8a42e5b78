"""Replies in pieces, as OpenAI's servers send them."""

import json

import pytest

from judgelm.dialects.contract import Reply, TokenLogprobs
from judgelm.serving.chat_response import ChatResponse
from judgelm.serving.openai_format import Envelope, stream_events
from tests.support.known_judge import KnownEngine
from tests.support.served import CHAT, error_of, review, served


def events(text):
    """The chunks of a stream, which ends with [DONE]."""
    *rows, last, rest = text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    return [json.loads(row.removeprefix("data: ")) for row in rows]


def chunks(reply, **envelope):
    answered = ChatResponse(reply=reply, dialect="d", prompt_tokens=5, completion_tokens=2)
    made = Envelope(model="m", fingerprint="fp", **envelope)
    return events(b"".join(stream_events(answered, made)).decode())


def deltas(found, place=0):
    return [one["choices"][0]["delta"] for one in found if one["choices"][0]["index"] == place]


def test_a_chat_comes_as_role_content_and_end(server):
    reply = server.post(CHAT, review(stream=True))
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["x-judgelm-dialect"] == "vicuna-review"
    found = events(reply.text)
    whole = server.post(CHAT, review()).json()["choices"][0]["message"]["content"]
    assert deltas(found)[0] == {"role": "assistant", "content": "", "refusal": None}
    assert "".join(one.get("content", "") for one in deltas(found)) == whole
    assert len(found) > 4
    assert deltas(found)[-1] == {}
    assert [one["choices"][0]["finish_reason"] for one in found] == [None] * (len(found) - 1) + ["stop"]
    assert {(one["id"], one["object"]) for one in found} == {(found[0]["id"], "chat.completion.chunk")}
    assert not any("usage" in one for one in found)


def test_a_call_comes_in_pieces_too():
    found = chunks(Reply(tool="score", arguments='{"reasoning": "so", "score": true}'))
    opening, *pieces, end = deltas(found)
    [call] = opening["tool_calls"]
    assert (opening["role"], opening["content"]) == ("assistant", None)
    assert (call["index"], call["type"], call["function"]) == (0, "function", {"name": "score", "arguments": ""})
    arguments = "".join(one["tool_calls"][0]["function"]["arguments"] for one in pieces)
    assert json.loads(arguments) == {"reasoning": "so", "score": True}
    assert end == {}
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_call_of_the_form_before_tools():
    found = chunks(Reply(tool="score", arguments="{}"), function=True)
    assert [one.get("function_call") for one in deltas(found)] == [
        {"name": "score", "arguments": ""},
        {"arguments": "{}"},
        None,
    ]
    assert found[-1]["choices"][0]["finish_reason"] == "function_call"


@pytest.mark.parametrize("plain", [False, True])
def test_logprobs_come_with_their_tokens(plain):
    tokens = (TokenLogprobs(token="8", logprob=-0.5, candidates=(("8", -0.5),)), TokenLogprobs(token=" 6", logprob=0.0))
    found = [one["choices"][0] for one in chunks(Reply(texts=("8 6",), logprobs=tokens), plain=plain)]
    logprobs = [one["logprobs"] for one in found if one["logprobs"]]
    if plain:
        assert [one["text_offset"] for one in logprobs] == [[0], [1]]
        assert [one["tokens"] for one in logprobs] == [["8"], [" 6"]]
    else:
        assert [one["content"][0]["token"] for one in logprobs] == ["8", " 6"]


def test_blank_and_empty_texts_lose_nothing():
    for text in ("", "\n\n", " a  b\n", "\u2028x"):
        assert "".join(one.get("content", "") for one in deltas(chunks(Reply(texts=(text,))))) == text


def test_a_failure_before_the_stream_has_its_own_status():
    with served(KnownEngine(lambda shown: {"I like both.": 1.0})) as server:
        reply = server.post(CHAT, review(stream=True))
        assert (reply.status_code, error_of(reply)["code"]) == (422, "judge_failed")
