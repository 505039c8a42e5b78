"""Replies in forms that other servers and gateways have: errors with status 200, lists of parts, odd finish reasons."""

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.openai.endpoint import BadReplyError, read_choices, reported_error
from judgelm.errors import EngineError
from judgelm.modes.pairwise import Pairwise
from judgelm.records import Prompt, Request, Sample, Sampling, Span
from judgelm.runs.runner import judge
from tests.support.driving import prompt_of, run
from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.server import endpoint, first

PAIR = Sample(id="1", question="q", answers=("a", "b"))


def load(server, thinking=None, **arguments):
    arguments = {"base_url": server.base_url, "backoff_s": 0.01, "api": "chat", "retries": 1} | arguments
    return load_engine("openai", EngineOptions(model="tiny", thinking=thinking, engine_args=arguments))


def ask(engine, prompt=None, **sampling):
    settings = {"max_tokens": 6, "stop": ("\n",)} | sampling
    [done] = run(engine, [Request(key="x", prompt=prompt or prompt_of("x"), sampling=Sampling(**settings))]).values()
    return done


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
        (
            {"error": {"message": "busy", "code": 429, "metadata": {"raw": "slow down"}}, "choices": None},
            429,
            "busy: slow down",
        ),
        ({"error": {"message": "no credit", "code": "insufficient_quota"}}, 402, "no credit"),
        ({"error": {"message": "who are you?", "type": "authentication_error"}}, 401, "who are you?"),
        ({"error": {"message": "bad gateway", "code": "502"}}, 502, "bad gateway"),
        ({"error": "err.down", "detail": "try later"}, 500, '{"error": "err.down", "detail": "try later"}'),
        ({"object": "error", "message": "no such thing", "code": 40001}, 500, "no such thing"),
        ({"code": 1302, "msg": "too many", "data": None}, 500, "too many"),
        ({"choices": [{"error": {"code": 503, "message": "upstream"}, "finish_reason": "error"}]}, 503, "upstream"),
    ],
)
def test_an_error_with_status_200_is_the_status_that_it_means(body, status, message):
    found = reported_error(body)
    assert (found.status, found.message) == (status, f"{message} (sent with status 200)")


def test_a_rate_limit_with_status_200_is_waited_for():
    with endpoint() as server:
        engine = load(server)
        server.misbehave(first(3, (200, {"error": {"message": "busy", "code": 429}})))
        assert ask(engine).texts == ("8 6",)
        assert engine.stats()["retries"] == {"rate_limited": 3}  # more often than other errors are tried again
        engine.close()


@pytest.mark.parametrize(("code", "finding"), [(402, "HTTP 402: Top up"), (401, "needs a key")])
def test_an_error_with_status_200_that_no_retry_helps_ends_the_run(code, finding):
    with endpoint() as server:
        engine = load(server)
        server.misbehave(lambda *_: (200, {"error": {"message": "Top up", "code": code}}))
        with pytest.raises(EngineError, match=finding):
            ask(engine)
        assert engine.stats()["retries"] == {}
        engine.close()


def test_an_error_without_a_known_code_is_tried_again_and_keeps_its_words():
    with endpoint() as server:
        engine = load(server)
        server.misbehave(first(1, (200, {"status": "FAILED", "error": "err.supplier"})))
        assert ask(engine).texts == ("8 6",)
        server.misbehave(lambda *_: (200, {"status": "FAILED", "error": "err.supplier"}))
        with pytest.raises(EngineError, match=r"err\.supplier"):
            ask(engine)
        engine.close()


def test_parts_are_text_and_thinking():
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "9 1?"}]},
        {"type": "text", "text": "8 "},
        {"type": "output_text", "text": "6\nSo."},
    ]
    with endpoint() as server:
        engine = load(server)
        server.misbehave(changing(message={"content": parts}))
        [judgment] = judge([PAIR], Pairwise(), engine)
        assert (judgment.scores, judgment.shown[0].thinking) == ((8, 6), "9 1?")
        engine.close()


def choices_of(content, **fields):
    return read_choices({"choices": [{"finish_reason": "stop", "message": {"content": content} | fields}]})


@pytest.mark.parametrize(
    ("content", "text", "thinking"),
    [
        (["8 6"], "8 6", ""),
        ([{"type": "reasoning", "summary": [{"text": "Hm."}]}, {"type": "text", "text": "8 6"}], "8 6", "Hm."),
        ([{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "8 6"}], "8 6", ""),
        ([{"type": "thinking", "thinking": "Hm."}], None, "Hm."),
    ],
)
def test_forms_of_parts(content, text, thinking):
    [choice] = choices_of(content)
    assert (choice.text, choice.thinking) == (text, thinking)


def test_a_refusal_may_be_a_part():
    [choice] = choices_of([{"type": "refusal", "refusal": "No."}])
    assert choice.refusal == "No."


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        ([{"type": "image_url", "image_url": {}}], "a part of type 'image_url', not a text"),
        ([86], "a part of type 'int'"),
        ([{"type": "text"}], "a part without a text"),
        (86, "content"),
    ],
)
def test_a_part_that_is_no_text_is_named(content, finding):
    with pytest.raises(BadReplyError, match=finding):
        choices_of(content)


@pytest.mark.parametrize("stated", [None, "eos_token", "EOS", "end_turn", "done"])
def test_a_finish_reason_that_is_missing_or_other_words_for_stop(stated):
    with endpoint() as server:
        engine = load(server)
        server.misbehave(changing(finish_reason=stated))
        done = ask(engine)
        assert (done.texts, done.finish_reasons) == (("8 6",), ("stop",))
        engine.close()


@pytest.mark.parametrize(("stated", "usage"), [(None, True), ("done", True), (None, False), ("max_tokens", True)])
def test_a_reply_with_all_tokens_that_it_may_have_is_cut_off(stated, usage):
    with endpoint(states_usage=usage) as server:
        engine = load(server)
        server.misbehave(changing(finish_reason=stated))
        done = ask(engine, max_tokens=2, stop=())
        assert (done.texts, done.finish_reasons) == (("8 6",), ("length",))
        engine.close()


def test_a_finish_reason_without_a_reply_is_named():
    with endpoint() as server:
        engine = load(server)
        server.misbehave(changing(finish_reason="insufficient_system_resource"))
        done = ask(engine)
        assert done.finish_reasons == ("error",)
        assert "finish_reason 'insufficient_system_resource'" in done.error
        engine.close()


def test_a_reply_in_the_field_for_reasoning_is_read_where_thinking_is_off():
    with endpoint() as server:
        server.misbehave(changing(finish_reason="stop", message={"content": None, "reasoning_content": "8 6\nSo."}))
        engine = load(server, thinking="off")
        [judgment] = judge([PAIR], Pairwise(), engine)
        assert (judgment.scores, judgment.shown[0].thinking) == ((8, 6), None)
        engine.close()
        engine = load(server)
        [judgment] = judge([PAIR], Pairwise(), engine)
        assert (judgment.verdict, judgment.failure.code) == (None, "truncated")
        assert "its reasoning parser (vLLM: --reasoning-parser) does not fit" in judgment.failure.why
        engine.close()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "System role not supported"),
        (400, "Conversation roles must alternate user/assistant/user/assistant/..."),
        (400, "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
        (500, "Only user and assistant roles are supported!"),
        (400, "Developer instruction is not enabled for models/x"),
    ],
)
def test_a_system_message_that_is_refused_goes_before_the_users_text(status, words):
    def fault(_, body):
        refused = any(message["role"] == "system" for message in body["messages"])
        return (status, {"error": {"message": words, "code": status}}) if refused else None

    prompt = Prompt(spans=(Span("Be fair.", role="system"), Span("a fox[S]", "question", "user")), chat=True)
    with endpoint() as server:
        engine = load(server)
        assert "notes" not in engine.stats()
        server.misbehave(fault)
        assert ask(engine, prompt).texts == ("8 6",)
        assert server.bodies[-1]["messages"] == [{"role": "user", "content": "Be fair.\n\na fox[S]"}]
        sent = len(server.bodies)
        ask(engine, prompt)
        assert len(server.bodies) == sent + 1  # learned
        assert engine.stats()["not_taken_by_server"] == ["system_message"]
        assert engine.stats()["notes"] == [
            "the model's chat template takes no system message: its text precedes the first user message"
        ]
        engine.close()


def test_a_server_that_stops_at_an_empty_first_line_is_asked_without_the_stop_string():
    script = {"": {"\n": 1.0}, "\n": {"8": 1.0}, "\n8": {" 6": 1.0}, "\n8 6": {"\n": 1.0}, "\n8 6\n": {"So": 1.0}}
    with endpoint(ScriptedBackend(script)) as server:
        engine = load(server, api="completions")
        done = ask(engine)
        assert (done.texts, done.finish_reasons) == (("\n8 6",), ("stop",))
        sent = len(server.bodies)
        assert ask(engine).texts == ("\n8 6",)
        assert len(server.bodies) == sent + 1
        assert "stop" not in server.bodies[-1]
        assert ask(engine, stop=("\n", "6")).texts == ("\n8 ",)
        assert server.bodies[-1]["stop"] == ["6"]
        engine.close()
