"""Unusual replies and errors of servers and gateways."""

from dataclasses import replace
from functools import partial

import pytest

from judgelm.engines.openai.prompts import RenderedPrompt
from judgelm.engines.openai.requests import RefusedError, request_body, unsupported_param, without_unsupported
from judgelm.engines.openai.responses import BadReplyError, read_choices, read_json, reported_error
from judgelm.engines.openai.sampler import without_end_tokens
from judgelm.errors import EngineError
from judgelm.modes.pairwise import Pairwise
from judgelm.records import Prompt, Sampling, Span
from judgelm.runs.runner import judge
from tests.support.driving import run
from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.client import ask, client, request_of
from tests.support.endpoint.server import endpoint, first
from tests.support.flows import SAMPLE

chat = partial(client, api="chat", retries=1)


def changing(**fields):
    """A fault that changes the first choice; `message` is merged into its message."""

    def change(data):
        choice = data["choices"][0]
        choice |= {name: value for name, value in fields.items() if name != "message"}
        choice["message"] |= fields.get("message", {})

    return lambda number, body: change


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"error": {"message": "busy", "code": 429, "metadata": {"raw": "slow"}}, "choices": None}, 429, "busy: slow"),
        ({"error": {"message": "bad gateway", "code": "502"}}, 502, "bad gateway"),
        ({"error": "err.down", "detail": "try later"}, 500, '{"error": "err.down", "detail": "try later"}'),
        ({"object": "error", "message": "no such thing", "code": 40001}, 500, "no such thing"),
        ({"code": 1302, "msg": "too many", "data": None}, 500, "too many"),
        ({"choices": [{"error": {"code": 503, "message": "upstream"}, "finish_reason": "error"}]}, 503, "upstream"),
    ],
)
def test_error_with_status_200(body, status, message):
    error = reported_error(body)
    assert (error.status, error.message) == (status, f"{message} (sent with status 200)")


def test_rate_limit_with_status_200_is_retried():
    with endpoint() as server, chat(server) as engine:
        server.misbehave(first(3, (200, {"error": {"message": "busy", "code": 429}})))
        assert ask(engine).texts == ("8 6",)
        assert engine.stats()["retries"] == {"rate_limited": 3}  # more than the retries of other errors


@pytest.mark.parametrize(
    ("sent", "token"),
    [
        ("8 6<|im_end|>", "<|im_end|>"),
        ("8 6</s></s>\n", "</s>"),
        ("8 6 [/INST]", "[/INST]"),
        ("<|im_start|>assistant\n8 6", "<|im_start|>assistant"),
        ("<start_of_turn>model\n8 6<end_of_turn>", "<end_of_turn>"),
    ],
)
def test_end_tokens_and_role_heads_are_removed_and_counted(sent, token):
    with endpoint() as server, chat(server) as engine:
        server.misbehave(changing(message={"content": sent}))
        assert ask(engine).texts == ("8 6",)
        assert any(f"{token!r} from 1 " in note for note in engine.stats()["notes"])


@pytest.mark.parametrize("sent", ["8 6\nHe wrote <|im_end|> twice.", "8 6\n<s>wrong</s>", "8 6\n", "8 6 "])
def test_other_replies_are_unchanged(sent):
    assert without_end_tokens(sent) == (sent, ())


def choices_of(content, **fields):
    return read_choices({"choices": [{"finish_reason": "stop", "message": {"content": content} | fields}]})


def test_content_parts_and_empty_refusals():
    thinking, text = {"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "8 6"}
    [choice] = choices_of([thinking | {"thinking": [{"text": "Hm."}]}, text])
    assert (choice.text, choice.thinking) == ("8 6", "Hm.")
    [choice] = choices_of([thinking], refusal="")
    assert (choice.text, choice.thinking, choice.refusal) == (None, "Hm.", None)


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        ([{"type": "image_url", "image_url": {}}], "type 'image_url' is not supported"),
        ([86], "type 'int'"),
        ([{"type": "text"}], "no text"),
        (86, "content"),
    ],
)
def test_invalid_content_parts_are_rejected(content, finding):
    with pytest.raises(BadReplyError, match=finding):
        choices_of(content)


def test_deeply_nested_body_is_rejected():
    with pytest.raises(BadReplyError):
        read_json("[" * 100_000)


@pytest.mark.parametrize("stated", [None, "eos_token", "EOS", "end_turn", "done", "max_tokens"])
@pytest.mark.parametrize(("room", "usage", "reason"), [(6, True, "stop"), (2, True, "length"), (2, False, "length")])
def test_unusual_or_missing_finish_reason(stated, room, usage, reason):
    with endpoint(states_usage=usage) as server, chat(server) as engine:
        server.misbehave(changing(finish_reason=stated))
        done = ask(engine, max_tokens=room)
        # at the token limit, a reply without a known finish reason was cut off
        known = {"eos_token": "stop", "EOS": "stop", "end_turn": "stop", "max_tokens": "length"}
        assert (done.texts, done.finish_reasons) == (("8 6",), (known.get(stated, reason),))


def test_reply_in_the_reasoning_field():
    with endpoint() as server:
        server.misbehave(changing(finish_reason="stop", message={"content": None, "reasoning_content": "8 6\nSo."}))
        with chat(server, options={"thinking": "off"}) as engine:
            [judgment] = judge([SAMPLE], Pairwise(), engine)
        assert (judgment.scores, judgment.shown[0].thinking) == ((8, 6), None)
        with chat(server) as engine:
            [judgment] = judge([SAMPLE], Pairwise(), engine)
        assert (judgment.verdict, judgment.failure.code) == (None, "truncated")
        assert "--reasoning-parser" in judgment.failure.why


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_servers_reasoning_field_is_the_thinking(field):
    # as with vLLM's reasoning parser
    with endpoint() as server, chat(server, options={"thinking": "on", "thinking_tokens": 100}) as engine:
        server.misbehave(changing(message={"content": "8 6\nBecause.", field: "Hm.\n9 1?\n"}))
        [judgment] = judge([SAMPLE], Pairwise(), engine)
        assert (judgment.scores, judgment.shown[0].text, judgment.shown[0].thinking) == ((8, 6), "8 6", "Hm.\n9 1?")
        body = server.bodies[-1]
        # the server would stop in the thinking; 24 tokens for the line and 100 for thinking
        assert ("stop" in body, body["max_tokens"]) == (False, 124)
        assert body["chat_template_kwargs"] == {"enable_thinking": True, "thinking": True}


def test_thinking_in_the_reply_is_separated():
    with endpoint(refuses=("chat_template_kwargs",)) as server:
        server.misbehave(changing(message={"content": "Hm.\n9 1?\n</think>\n\n8 6\nBecause."}))
        with chat(server, options={"thinking": "off"}) as engine:
            prompt = Prompt(spans=(Span("rate a fox", "question", "user"),), chat=True)
            done = ask(engine, prompt=prompt, max_tokens=50, stop=())
            assert done.texts[0].startswith("Hm.")  # the runner separates the thinking
            assert engine.stats()["not_taken_by_server"] == ["chat_template_kwargs"]
        with chat(server, options={"thinking": "on"}) as engine:
            [judgment] = judge([SAMPLE], Pairwise(), engine)
            assert (judgment.scores, judgment.shown[0].thinking) == ((8, 6), "Hm.\n9 1?")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "System role not supported"),
        (400, "Conversation roles must alternate user/assistant/user/assistant/..."),
        (400, "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
        (500, "Only user and assistant roles are supported!"),
        (400, "Developer instruction is not enabled for models/x"),
    ],
)
def test_rejected_system_message_moves_into_the_users(status, message):
    def fault(_, body):
        refused = any(message["role"] == "system" for message in body["messages"])
        return (status, {"error": {"message": message, "code": status}}) if refused else None

    prompt = Prompt(spans=(Span("Be fair.", role="system"), Span("a fox[S]", "question", "user")), chat=True)
    with endpoint() as server, chat(server) as engine:
        assert "notes" not in engine.stats()
        server.misbehave(fault)
        assert ask(engine, prompt=prompt).texts == ("8 6",)
        assert server.bodies[-1]["messages"] == [{"role": "user", "content": "Be fair.\n\na fox[S]"}]
        sent = len(server.bodies)
        ask(engine, prompt=prompt)
        assert len(server.bodies) == sent + 1  # learned
        stats = engine.stats()
        assert (stats["not_taken_by_server"], len(stats["notes"])) == (["system_message"], 1)


def test_blank_stop_string_is_dropped_after_an_empty_reply():
    script = {"": {"\n": 1.0}, "\n": {"8": 1.0}, "\n8": {" 6": 1.0}, "\n8 6": {"\n": 1.0}, "\n8 6\n": {"So": 1.0}}
    with endpoint(ScriptedBackend(script)) as server, chat(server, api="completions") as engine:
        done = ask(engine)
        assert (done.texts, done.finish_reasons) == (("\n8 6",), ("stop",))
        sent = len(server.bodies)
        assert ask(engine).texts == ("\n8 6",)
        assert len(server.bodies) == sent + 1
        assert "stop" not in server.bodies[-1]
        assert ask(engine, stop=("\n", "6")).texts == ("\n8 ",)
        assert server.bodies[-1]["stop"] == ["6"]


def test_request_above_the_rate_limit_fails():
    too_large = {"error": {"message": "Request too large for gpt-4o on tokens per min (TPM): Limit 100, Requested 200"}}
    with endpoint() as server, client(server) as engine:
        server.misbehave(lambda _, body: (429, too_large) if "huge" in body["prompt"] else None)
        done = run(engine, [request_of("huge"), request_of("small")])
        assert (done["huge"].finish_reasons, done["small"].texts) == (("error",), ("8 6",))
        assert "Request too large" in done["huge"].error
        assert engine.stats()["retries"] == {}


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_logprobs_of_only_the_chosen_token(api):
    def without_top_logprobs(data):
        logprobs = data["choices"][0]["logprobs"]
        for part in [logprobs] if api == "completions" else logprobs["content"]:
            part["top_logprobs"] = None

    with endpoint(ScriptedBackend({"": {"A": 0.7, "B": 0.3}})) as server, client(server, api=api) as engine:
        server.misbehave(lambda *_: without_top_logprobs)
        done = ask(engine, candidates=("A", "B"), max_tokens=1)
        # the reply is A with 0.7; B may have the remaining 0.3
        assert done.candidate_logprobs == (pytest.approx(-0.356675), -float("inf"))
        assert done.approximation.startswith("up to 0.30 ")


def test_all_requests_are_checked_before_sending():
    with endpoint() as server, client(server) as engine:
        before = len(server.bodies)
        with pytest.raises(EngineError, match="adapters"):
            engine.submit([request_of("1"), replace(request_of("2"), adapter="one")])
        assert engine.collect(0.2) == []
        assert len(server.bodies) == before


BODY = {
    "model": "m", "messages": [], "max_tokens": 8, "temperature": 0.0, "stop": ["\n"], "n": 3, "logprobs": True,
    "top_logprobs": 20, "add_generation_prompt": False, "continue_final_message": True,
}  # fmt: skip


@pytest.mark.parametrize(("top_p", "sent"), [(1.0, {}), (0.5, {"top_p": 0.5}), (0.0, {"top_p": 0.0})])
def test_top_p_is_sent_if_it_limits_the_tokens(top_p, sent):
    prompt = RenderedPrompt(api="chat", content=[])
    body = request_body("m", prompt, Sampling(max_tokens=1, temperature=1.0, top_p=top_p), logprobs=False)
    assert {name: value for name, value in body.items() if name == "top_p"} == sent


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 512 tokens. However, you requested 600 (8 in max_tokens)",
        "The decoder prompt (length 600) is longer than the maximum model length of 512.",
        "the request exceeds the available context size (512 tokens), try increasing it",
        "The input (600 tokens) is longer than the model's context length (512 tokens).",
        "`inputs` tokens + `max_new_tokens` must be <= 512. Given: 600 `inputs` tokens and 8",
        "prompt is too long: 600 tokens > 512 maximum",
    ],
)
def test_messages_for_a_prompt_that_is_too_long(message):
    refused = RefusedError(400, message)
    assert refused.too_long
    assert unsupported_param(refused, BODY) is None


@pytest.mark.parametrize(
    ("status", "message", "param", "unsupported"),
    [
        (400, "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "", "max_tokens"),
        (400, "max_tokens must be at least 16", "max_tokens", None),
        (400, "Unsupported value: 'temperature' does not support 0 with this model.", "temperature", "temperature"),
        (400, "Unsupported parameter", "stop", "stop"),
        (400, "Unrecognized request argument supplied: add_generation_prompt", "", "continuation"),
        (422, "continue_final_message: extra fields not permitted", "", "continuation"),
        (400, "Only one completion choice is allowed", "", "n"),
        (400, "Unsupported value: 'n' does not support 3", "", "n"),
        (400, "n e w s", "", None),
        (403, "You are not allowed to request logprobs from this model", "", "many_logprobs"),
        (400, "Requested sample logprobs of 20, which is greater than max allowed: 5", "", "many_logprobs"),
        (404, "temperature", "temperature", None),
        (400, "'temperature': decimal above maximum value. Expected a value <= 2", "temperature", None),
        (400, "'stop': array too long. Expected an array with maximum length 4", "stop", None),
        (400, "something else", "", None),
    ],
)
def test_unsupported_param(status, message, param, unsupported):
    assert unsupported_param(RefusedError(status, message, param=param), BODY) == unsupported


def test_fewer_logprobs_are_tried_before_none():
    fewer = without_unsupported(BODY, {"many_logprobs"})
    assert fewer["top_logprobs"] == 5
    assert unsupported_param(RefusedError(400, "logprobs are not supported"), fewer) == "logprobs"
    assert without_unsupported(BODY, {"many_logprobs", "logprobs"}).keys().isdisjoint({"logprobs", "top_logprobs"})
    supported = without_unsupported(BODY, {"max_tokens", "stop", "continuation", "n", "temperature", "logprobs"})
    assert supported == {"model": "m", "messages": [], "max_completion_tokens": 8}
