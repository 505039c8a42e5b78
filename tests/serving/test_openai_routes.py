"""OpenAI's routes: complete and streamed replies, models and names, and unusual requests of real clients."""

import json

import pytest

from judgelm.dialects.contract import Reply
from judgelm.errors import EngineError
from judgelm.records import TokenLogprobs
from judgelm.serving.chat_response import ChatResponse
from judgelm.serving.openai_format import Envelope, completion_body, stream_events
from judgelm.serving.openai_routes import header_text
from tests.support import captures
from tests.support.known_judge import KnownEngine, quality
from tests.support.served import CHAT, error_of, prompt, review, served

SCORES = f"{quality('one')} {quality('two')}"


def content(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["message"]["content"]


def test_a_chat_completion_has_the_fields_that_clients_read(server):
    reply, another = server.post(CHAT, review()), server.post(CHAT, review()).json()
    body, [choice] = reply.json(), reply.json()["choices"]
    assert content(reply).split("\n")[0] == SCORES
    assert body["id"].startswith("chatcmpl-")
    assert (another["id"] != body["id"], another["system_fingerprint"]) == (True, body["system_fingerprint"])
    assert body["system_fingerprint"].startswith("fp_")
    assert (body["object"], body["model"], type(body["created"])) == ("chat.completion", "gpt-4", int)
    assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "stop", "assistant")
    assert "reasoning_content" not in choice["message"]
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    assert reply.headers["x-judgelm-dialect"] == "vicuna-review"
    assert "x-judgelm-note" not in reply.headers


def test_logprobs_are_where_alpaca_eval_reads_them(server, shared_data):
    body = captures.bodies(shared_data, "alpaca_eval__weighted_alpaca_eval_gpt4_turbo")[0]
    choice = server.post(CHAT, body).json()["choices"][0]
    tokens = choice["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens) == choice["message"]["content"]
    assert {"m", "M"} <= {top["token"] for top in tokens[0]["top_logprobs"]}
    assert all(-9999 <= top["logprob"] <= 0 for top in tokens[0]["top_logprobs"])
    assert tokens[0]["bytes"] == list(tokens[0]["token"].encode())


def test_plain_completions_have_their_own_form_of_logprobs():
    tokens = (
        TokenLogprobs(token="8", logprob=-0.5, candidates=(("8", -0.5), ("7", float("-inf")))),
        TokenLogprobs(token=" 6", logprob=0.0),
    )
    answered = ChatResponse(
        reply=Reply(texts=("8 6", "7 6"), logprobs=tokens), dialect="judgelm", prompt_tokens=3, completion_tokens=2
    )
    body = json.loads(completion_body(answered, Envelope(model="m", fingerprint="fp", plain=True)))
    assert body["object"] == "text_completion"
    assert body["choices"][0]["logprobs"] == {
        "tokens": ["8", " 6"],
        "token_logprobs": [-0.5, 0.0],
        "top_logprobs": [{"8": -0.5, "7": -9999.0}, {}],
        "text_offset": [0, 1],
    }
    assert body["choices"][1] == {"index": 1, "text": "7 6", "logprobs": None, "finish_reason": "stop"}


@pytest.mark.parametrize(
    "path",
    [
        CHAT,
        *("/v1/engines/gpt-4/chat/completions", "/v1/openai/deployments/gpt-4/chat/completions?api-version=2023"),
        "/openai/v1/chat/completions?api-version=2024-06-01",
        "/openai/deployments/gpt-4/chat/completions?api-version=2024-06-01",
    ],
)
def test_the_model_is_in_the_path_or_the_default(server, path):
    body = review()
    del body["model"]
    reply = server.post(path, body, **{"api-key": "unused"})
    assert content(reply).split("\n")[0] == SCORES
    assert reply.json()["model"] == ("gpt-4" if "gpt-4" in path else "judge")


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        (CHAT, "model", ["gpt-4"]),
        *((CHAT, "stream", value) for value in ("yes", 1, [])),
        ("/v1/completions", "prompt", ["a", "b"]),
        ("/v1/completions", "echo", True),
    ],
)
def test_an_unsupported_field_is_named(server, path, field, value):
    reply = server.post(path, review(prompt=prompt()) | {field: value})
    assert (reply.status_code, error_of(reply)["param"]) == (400, field)


@pytest.mark.parametrize("form", [str, lambda text: [text]])
def test_a_plain_completion_takes_one_prompt(server, form):
    reply = server.post("/v1/completions", {"model": "judge", "prompt": form(prompt()), "max_tokens": 16})
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["text"].split("\n")[0] == SCORES
    assert reply.json()["id"].startswith("cmpl-")
    assert reply.headers["x-judgelm-dialect"] == "judgelm"


def test_without_names_every_model_is_accepted(server):
    assert [model["id"] for model in server.http.get("/v1/models").json()["data"]] == ["judge"]
    assert server.http.get("/v1/models/meta/llama-3").json()["id"] == "meta/llama-3"


def test_with_names_other_models_are_refused():
    names = ("gpt-4", "gpt-4-1106-preview")
    with served(settings={"names": names}) as server:
        listed = server.http.get("/v1/models").json()["data"]
        assert [(model["id"], model["object"]) for model in listed] == [(name, "model") for name in names]
        assert server.post(CHAT, review(model="gpt-4")).status_code == 200
        refused = [
            server.post(CHAT, review(model="gpt-5")),
            server.http.get("/v1/models/gpt-5"),
            server.post("/v1/engines/gpt-5/chat/completions", review()),
        ]
        for reply in refused:
            assert (reply.status_code, error_of(reply)["code"]) == (404, "model_not_found")
            assert "gpt-4-1106-preview" in error_of(reply)["message"]
    assert server.handler.worker.counts.submitted == 1


def test_an_unknown_prompt_is_refused_or_answered():
    hello = {"messages": [{"role": "user", "content": "Hello, who are you?"}]}
    with served() as server:
        reply = server.post(CHAT, hello)
        assert (reply.status_code, error_of(reply)["code"]) == (400, "unrecognised_prompt")
    with served(KnownEngine(lambda prompt: {"I am a judge.": 1.0}), unknown="answer") as server:
        reply = server.post(CHAT, hello)
        assert content(reply) == "I am a judge.\n"
        assert reply.headers["x-judgelm-dialect"] == "none"
        assert "unrecognised prompt" in reply.headers["x-judgelm-note"]


def raising(error):
    def script(prompt):
        raise error

    return served(KnownEngine(script))


def test_an_engine_error_on_a_request_is_only_logged():
    with raising(LookupError("/home/judge/secret/script.json")) as server:
        reply = server.post(CHAT, review(first="private text"))
        assert (reply.status_code, error_of(reply)["code"]) == (502, "engine_failed")
        assert "private" not in reply.text
        assert server.http.get("/healthz").status_code == 200


def test_a_broken_engine_is_not_healthy():
    with raising(EngineError("CUDA error at /opt/secret/kernel.cu")) as server:
        judged = [server.post(CHAT, review()) for _ in range(2)]
        for reply in (*judged, server.http.get("/healthz"), server.http.get("/livez")):
            assert (reply.status_code, error_of(reply)["code"]) == (503, "engine_unavailable")
            assert "secret" not in reply.text


def test_a_note_fits_into_a_header():
    assert header_text("a\r\nSet-Cookie: x\u2028ü\x7f") == "a Set-Cookie: x \\xfc?"
    assert len(header_text("x" * 10_000)) == 2000
    assert header_text("a\tb \0").isascii()


def events(text):
    """The chunks of a stream, which ends with [DONE]."""
    *rows, last, rest = text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    return [json.loads(row.removeprefix("data: ")) for row in rows]


def chunks(reply, **envelope):
    answered = ChatResponse(reply=reply, dialect="d", prompt_tokens=5, completion_tokens=2)
    made = Envelope(model="m", fingerprint="fp", **envelope)
    return events(b"".join(stream_events(answered, made)).decode())


def deltas(rows):
    return [row["choices"][0]["delta"] for row in rows]


def test_a_streamed_chat_has_role_content_and_end(server):
    reply = server.post(CHAT, review(stream=True))
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["x-judgelm-dialect"] == "vicuna-review"
    rows = events(reply.text)
    whole = server.post(CHAT, review()).json()["choices"][0]["message"]["content"]
    assert deltas(rows)[0] == {"role": "assistant", "content": "", "refusal": None}
    assert "".join(delta.get("content", "") for delta in deltas(rows)) == whole
    assert deltas(rows)[-1] == {}
    assert len(rows) > 4
    assert [row["choices"][0]["finish_reason"] for row in rows] == [None] * (len(rows) - 1) + ["stop"]
    assert {(row["id"], row["object"]) for row in rows} == {(rows[0]["id"], "chat.completion.chunk")}
    assert not any("usage" in row for row in rows)


def test_a_streamed_call_has_pieces():
    rows = chunks(Reply(tool="score", arguments='{"reasoning": "so", "score": true}'))
    opening, *pieces, end = deltas(rows)
    [call] = opening["tool_calls"]
    assert (opening["role"], opening["content"]) == ("assistant", None)
    assert (call["index"], call["type"], call["function"]) == (0, "function", {"name": "score", "arguments": ""})
    arguments = "".join(piece["tool_calls"][0]["function"]["arguments"] for piece in pieces)
    assert json.loads(arguments) == {"reasoning": "so", "score": True}
    assert (end, rows[-1]["choices"][0]["finish_reason"]) == ({}, "tool_calls")


def test_a_streamed_call_in_the_deprecated_function_form():
    rows = chunks(Reply(tool="score", arguments="{}"), function=True)
    calls = [{"name": "score", "arguments": ""}, {"arguments": "{}"}, None]
    assert [delta.get("function_call") for delta in deltas(rows)] == calls
    assert rows[-1]["choices"][0]["finish_reason"] == "function_call"


@pytest.mark.parametrize("plain", [False, True])
def test_streamed_logprobs_are_with_their_tokens(plain):
    tokens = (TokenLogprobs(token="8", logprob=-0.5, candidates=(("8", -0.5),)), TokenLogprobs(token=" 6", logprob=0.0))
    choices = [row["choices"][0] for row in chunks(Reply(texts=("8 6",), logprobs=tokens), plain=plain)]
    logprobs = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    if plain:
        assert [(row["text_offset"], row["tokens"]) for row in logprobs] == [([0], ["8"]), ([1], [" 6"])]
    else:
        assert [row["content"][0]["token"] for row in logprobs] == ["8", " 6"]


def test_streamed_blank_and_empty_texts_are_complete():
    for text in ("", "\n\n", " a  b\n", "\u2028x"):
        assert "".join(delta.get("content", "") for delta in deltas(chunks(Reply(texts=(text,))))) == text


def test_a_failure_before_a_stream_has_its_own_status():
    with served(KnownEngine(lambda shown: {"I like both.": 1.0})) as server:
        reply = server.post(CHAT, review(stream=True))
        assert (reply.status_code, error_of(reply)["code"]) == (422, "judge_failed")
