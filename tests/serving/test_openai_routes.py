"""OpenAI's routes: whole replies, models and names, and all the odd things that real clients send."""

import json

import pytest

from judgelm.dialects.contract import Reply, TokenLogprobs
from judgelm.errors import EngineError
from judgelm.serving.chat_response import ChatResponse
from judgelm.serving.openai_format import Envelope, completion_body
from judgelm.serving.openai_routes import header_text
from tests.support import captures
from tests.support.known_judge import KnownEngine, quality
from tests.support.served import CHAT, error_of, prompt, review, served


def content(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["message"]["content"]


def first_line(first="one", second="two"):
    return f"{quality(first)} {quality(second)}"


def test_a_chat_completion_has_all_that_clients_look_at(server):
    reply = server.post(CHAT, review())
    body = reply.json()
    assert content(reply).split("\n")[0] == first_line()
    assert body["id"].startswith("chatcmpl-")
    another = server.post(CHAT, review()).json()
    assert (another["id"] != body["id"], another["system_fingerprint"]) == (True, body["system_fingerprint"])
    assert "reasoning_content" not in body["choices"][0]["message"]
    assert body["object"] == "chat.completion"
    assert isinstance(body["created"], int)
    assert body["model"] == "gpt-4"
    assert body["system_fingerprint"].startswith("fp_")
    assert body["choices"][0]["message"]["role"] == "assistant"
    assert (body["choices"][0]["index"], body["choices"][0]["finish_reason"]) == (0, "stop")
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    assert reply.headers["x-judgelm-dialect"] == "vicuna-review"
    assert "x-judgelm-note" not in reply.headers


def test_alpaca_evals_logprobs_are_where_it_looks_for_them(server, shared_data):
    body = captures.bodies(shared_data, "alpaca_eval__weighted_alpaca_eval_gpt4_turbo")[0]
    choice = server.post(CHAT, body).json()["choices"][0]
    tokens = choice["logprobs"]["content"]
    assert "".join(one["token"] for one in tokens) == choice["message"]["content"]
    assert {"m", "M"} <= {one["token"] for one in tokens[0]["top_logprobs"]}
    assert all(-9999 <= one["logprob"] <= 0 for one in tokens[0]["top_logprobs"])
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
        "/v1/engines/gpt-4/chat/completions",
        "/v1/openai/deployments/gpt-4/chat/completions?api-version=2023",
        "/openai/v1/chat/completions?api-version=2024-06-01",
        "/openai/deployments/gpt-4/chat/completions?api-version=2024-06-01",
    ],
)
def test_old_routes_and_azures_have_the_model_in_the_path(server, path):
    body = review()
    del body["model"]
    reply = server.post(path, body, **{"api-key": "unused"})
    assert content(reply).split("\n")[0] == first_line()
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
def test_a_field_that_is_not_taken_is_named(server, path, field, value):
    reply = server.post(path, review(prompt=prompt()) | {field: value})
    assert (reply.status_code, error_of(reply)["param"]) == (400, field)


@pytest.mark.parametrize("form", [str, lambda text: [text]])
def test_a_plain_completion_takes_one_prompt(server, form):
    reply = server.post("/v1/completions", {"model": "judge", "prompt": form(prompt()), "max_tokens": 16})
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["text"].split("\n")[0] == first_line()
    assert reply.json()["id"].startswith("cmpl-")
    assert reply.headers["x-judgelm-dialect"] == "judgelm"


def test_every_name_is_taken_unless_names_were_given(server):
    assert [one["id"] for one in server.http.get("/v1/models").json()["data"]] == ["judge"]
    assert server.http.get("/v1/models/meta/llama-3").json()["id"] == "meta/llama-3"
    body = review()
    del body["model"]
    assert server.post(CHAT, body).json()["model"] == "judge"


def test_with_names_others_are_refused():
    with served(settings={"names": ("gpt-4", "gpt-4-1106-preview")}) as server:
        listed = server.http.get("/v1/models").json()["data"]
        assert [(one["id"], one["object"]) for one in listed] == [("gpt-4", "model"), ("gpt-4-1106-preview", "model")]
        assert server.post(CHAT, review(model="gpt-4")).status_code == 200
        refused = [
            server.post(CHAT, review(model="gpt-5")),
            server.http.get("/v1/models/gpt-5"),
            server.post("/v1/engines/gpt-5/chat/completions", review()),
        ]
        for reply in refused:
            assert reply.status_code == 404
            assert error_of(reply)["code"] == "model_not_found"
            assert "gpt-4-1106-preview" in error_of(reply)["message"]
    assert server.handler.worker.counts.submitted == 1


def test_an_unknown_prompt_is_refused_or_chatted_about():
    hello = {"messages": [{"role": "user", "content": "Hello, who are you?"}]}
    with served() as server:
        reply = server.post(CHAT, hello)
        assert (reply.status_code, error_of(reply)["code"]) == (400, "unrecognised_prompt")
    with served(KnownEngine(lambda prompt: {"I am a judge.": 1.0}), chat=True) as server:
        reply = server.post(CHAT, hello)
        assert content(reply) == "I am a judge.\n"
        assert reply.headers["x-judgelm-dialect"] == "none"
        assert "unrecognised prompt" in reply.headers["x-judgelm-note"]


def raise_lookup(prompt):
    raise LookupError("/home/judge/secret/script.json")


def test_an_engine_that_fails_on_a_request_tells_the_log_only():
    with served(KnownEngine(raise_lookup)) as server:
        reply = server.post(CHAT, review(first="private text"))
        assert (reply.status_code, error_of(reply)["code"]) == (502, "engine_failed")
        assert "private" not in reply.text
        assert server.http.get("/healthz").status_code == 200


def raise_engine(prompt):
    raise EngineError("CUDA error at /opt/secret/kernel.cu")


def test_an_engine_that_broke_is_not_healthy():
    with served(KnownEngine(raise_engine)) as server:
        for reply in (
            server.post(CHAT, review()),
            server.post(CHAT, review()),
            server.http.get("/healthz"),
            server.http.get("/livez"),
        ):
            assert (reply.status_code, error_of(reply)["code"]) == (503, "engine_unavailable")
            assert "secret" not in reply.text


def test_a_note_fits_into_a_header():
    assert header_text("a\r\nSet-Cookie: x\u2028ü\x7f") == "a Set-Cookie: x \\xfc?"
    assert len(header_text("x" * 10_000)) == 2000
    assert header_text("a\tb \0").isascii()
