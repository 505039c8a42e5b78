"""Prompts that no dialect recognises and the model answers: sampling, failures, streams, and thinking."""

import asyncio
import json
import shutil
from contextlib import contextmanager

import httpx
import openai
import pytest

from judgelm.dialects.contract import ChatRequest, Message
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, EngineError, InputError
from judgelm.judge import Judge
from judgelm.records import Completion
from judgelm.runs.engine_worker import EngineWorker
from judgelm.serving.chat import check_chat, model_request, stable_text
from judgelm.serving.chat_response import UnjudgedError
from judgelm.serving.handler import HandlerOptions, JudgeHandler
from tests.support import thinking_model
from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.server import endpoint
from tests.support.known_judge import handler_of
from tests.support.served import CHAT, error_of, review, served, until
from tests.support.thinking_model import THOUGHT, going_on
from tests.support.writing_engine import WritingEngine

PLAIN = "/v1/completions"
WORDS = "one two three four five six seven eight nine ten eleven twelve"
STREAM = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True}


def talk(*turns, **more):
    return ChatRequest(messages=tuple(Message(role=role, text=text) for role, text in turns), **more)


GREETING = talk(("system", "Be brief."), ("user", "Hello, who are you?"))


def respond(handler, chat):
    return asyncio.run(handler.respond(chat))


@contextmanager
def reading(server, path, body):
    """The reply and its events while the model writes them."""
    with server.http.stream("POST", path, json=body) as reply:
        assert reply.status_code == 200, reply.read()
        assert reply.headers["content-type"].startswith("text/event-stream")
        yield reply, (line.removeprefix("data: ") for line in reply.iter_lines() if line)


def events_of(server, body):
    with reading(server, CHAT, body) as (_, events):
        return list(events)


def complete(server, body):
    *rows, last = events_of(server, body)
    assert last == "[DONE]"
    return [json.loads(row) for row in rows]


def text_of(rows, place=0):
    """The text of one choice in the events of a stream."""
    choices = [row["choices"][0] for row in rows if row["choices"]]
    pieces = [
        choice.get("text", choice.get("delta", {}).get("content", "")) for choice in choices if choice["index"] == place
    ]
    return "".join(pieces)


def thoughts(rows):
    deltas = [row["choices"][0]["delta"] for row in rows]
    return [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta]


def test_the_model_answers_and_no_dialect_is_named():
    with handler_of(ScriptedEngine({"Be brief.|Hello, who are you?": "A judge."}), unknown="answer") as handler:
        response = respond(handler, GREETING)
        assert (response.reply.texts, response.dialect, response.finish_reasons) == (("A judge.",), None, ("stop",))
        assert (response.prompt_tokens, response.completion_tokens) == (6, 2)


def test_length_stops_and_number_of_replies_follow_the_request():
    with handler_of(ScriptedEngine({"*": "one two three four"}), unknown="answer") as handler:
        cut = respond(handler, talk(("user", "count"), max_tokens=2))
        assert (cut.reply.texts, cut.finish_reasons) == (("one two",), ("length",))
        stopped = respond(handler, talk(("user", "count"), stop=("three",), n=3))
        assert (stopped.reply.texts, stopped.finish_reasons) == (("one two ",) * 3, ("stop",) * 3)


def test_default_and_given_sampling():
    default, again, other = (model_request(chat).sampling for chat in (GREETING, GREETING, talk(("user", "other"))))
    assert (default.max_tokens, default.temperature, default.n) == (4096, 1.0, 1)
    assert default.seed == again.seed != other.seed
    given = model_request(talk(("user", "x"), temperature=0.3, seed=-1, max_tokens=7)).sampling
    assert (given.temperature, given.seed, given.max_tokens) == (0.3, 2**32 - 1, 7)


@pytest.mark.parametrize(
    ("fields", "sampling"), [({}, (0.7, 0.8, 20)), ({"temperature": 0}, (0, 0.8, 20)), ({"top_p": 0.5}, (0.7, 0.5, 20))]
)
def test_the_models_own_sampling_is_the_default(fields, sampling):
    defaults = {"temperature": 0.7, "top_p": 0.8, "top_k": 20}
    chosen = model_request(talk(("user", "x"), **fields), defaults=defaults).sampling
    assert (chosen.temperature, chosen.top_p, chosen.top_k) == sampling


@pytest.mark.parametrize(("stated", "replies"), [({"top_k": 1}, 1), ({"temperature": 0.0}, 1), ({}, 4)])
def test_replies_are_sampled_as_the_generation_config_states(tiny_model, tmp_path, stated, replies):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{% for each in messages %}{{ each.content }}\n{% endfor %}")
    (folder / "generation_config.json").write_text(json.dumps(stated))
    chats = [talk(("user", "a big fox"), seed=seed, max_tokens=8) for seed in range(4)]
    with handler_of(load_engine("transformers", EngineOptions(model=str(folder))), unknown="answer") as handler:
        assert len({respond(handler, chat).reply.texts for chat in chats}) == replies


class Refusing(ScriptedEngine):
    """Ends every request in the way that it is told."""

    reason = "error"

    def answer(self, request):
        return Completion(key=request.key, texts=(), finish_reasons=(self.reason,), error="no room")


@pytest.mark.parametrize(("reason", "code"), [("error", "engine"), ("too_long", "too_long")])
def test_a_failed_chat_has_a_reason(reason, code):
    engine = Refusing({})
    engine.reason = reason
    with handler_of(engine, unknown="answer") as handler, pytest.raises(UnjudgedError, match="no room") as failed:
        respond(handler, GREETING)
    assert failed.value.failure.code == code


@pytest.mark.parametrize(
    ("text", "stop", "sent"),
    [
        ("one two", (), "one two"),
        ("one \ufffd\ufffd", (), "one "),  # bytes of a character to come
        ("one ##", ("###",), "one "),
        ("one ## two", ("###",), "one ## two"),
        ("see a", ("ab", "e a!"), "se"),  # the longer beginning
        ("\ufffd", ("x",), ""),
    ],
)
def test_text_that_may_still_change_is_not_sent(text, stop, sent):
    assert stable_text(text, stop) == sent


def test_an_engine_that_cannot_chat_is_refused_at_the_start():
    with endpoint(ScriptedBackend(marker="x")) as upstream:
        arguments = {"base_url": upstream.base_url, "api": "completions"}
        with (
            Judge("tiny", engine="openai", template="judgelm-compact", engine_args=arguments) as judge,
            pytest.raises(ConfigError, match=r"--unknown answer: chat prompts on /completions .*tokenizer="),
        ):
            check_chat(judge.engine)
    engine = ScriptedEngine({"*": "x"})
    check_chat(engine)
    assert engine.collect(0) == []  # the check leaves nothing in flight
    engine = Refusing({})
    with pytest.raises(ConfigError, match="no room"):
        check_chat(engine)


def test_messages_that_the_chat_template_refuses_fail_alone(tiny_model):
    with Judge(str(tiny_model), engine="transformers", template="judgelm-compact", device="cpu") as judge:
        worker = EngineWorker(judge.engine)
        handler = JudgeHandler(judge, worker, HandlerOptions(unknown="answer"))
        with pytest.raises(InputError, match='"messages": the chat template'):
            respond(handler, GREETING)
        plain = respond(handler, talk(("prompt", "the big fox"), plain=True, max_tokens=3))
        assert (plain.completion_tokens, plain.finish_reasons, worker.broken) == (3, ("length",), None)
        worker.close()


@pytest.fixture
def writing():
    with served(WritingEngine({"*": WORDS}), unknown="answer") as server:
        yield server


def test_words_of_a_model_are_streamed_while_it_writes(tiny_model):
    engine = load_engine("transformers", EngineOptions(model=str(tiny_model), device="cpu"))
    with served(engine, unknown="answer", settings={"request_timeout_s": 60}) as server:
        body = {"model": "m", "prompt": "the big fox", "max_tokens": 400, "temperature": 0}
        expected = server.post(PLAIN, body).json()
        with reading(server, PLAIN, body | {"stream": True, "stream_options": {"include_usage": True}}) as (_, events):
            rows = [json.loads(next(events))]
            assert server.handler.worker.in_flight == 1  # there are words, and the model continues
            rows += [json.loads(row) for row in events if row != "[DONE]"]
        [choice] = expected["choices"]
        assert (text_of(rows), rows[-2]["choices"][0]["finish_reason"]) == (choice["text"], choice["finish_reason"])
        assert rows[-1]["usage"] == expected["usage"]
        assert len(rows) > 4  # pieces, not the text
    engine.close()


def test_a_disconnect_in_the_middle_stops_the_model():
    with served(WritingEngine({"*": WORDS * 40}), unknown="answer") as server:
        with reading(server, CHAT, STREAM) as (_, events):
            next(events)
        until(lambda: server.counts.dropped == 1)
        assert (server.handler.worker.in_flight, server.counts.answered) == (0, 0)
        until(lambda: server.server._traffic.in_flight == 0)


def test_a_chat_grows_word_by_word(writing):
    with reading(writing, CHAT, STREAM) as (reply, events):
        headers = reply.headers
        assert (headers["x-judgelm-dialect"], "answered by the model" in headers["x-judgelm-note"]) == ("none", True)
        opening, first = json.loads(next(events)), json.loads(next(events))
        assert opening["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
        assert WORDS.startswith(text_of([first]))
        assert (text_of([first]) == WORDS, writing.handler.worker.in_flight) == (False, 1)
        *rows, last = events
    rows = [opening, first, *map(json.loads, rows)]
    assert (text_of(rows), last) == (WORDS, "[DONE]")
    assert {row["object"] for row in rows} == {"chat.completion.chunk"}
    assert [row["choices"][0]["finish_reason"] for row in rows] == [None] * (len(rows) - 1) + ["stop"]
    counted = 'judgelm_requests_total{dialect="none",judge="judge",route="/v1/chat/completions",status="200"} 1.0'
    until(lambda: counted in writing.http.get("/metrics").text)
    assert 'judgelm_completion_tokens_total{judge="judge"} 12.0' in writing.http.get("/metrics").text


def test_the_beginning_of_a_stop_is_never_sent(writing):
    assert text_of(complete(writing, STREAM | {"stop": "seven nine"})) == WORDS
    assert text_of(complete(writing, STREAM | {"stop": " six s"})) == "one two three four five"


def test_the_second_reply_is_streamed_whole_at_the_end(writing):
    rows = complete(writing, STREAM | {"n": 2, "stream_options": {"include_usage": True}})
    assert text_of(rows) == text_of(rows, place=1) == WORDS
    assert rows[-1]["usage"]["completion_tokens"] == 24
    places = [row["choices"][0]["index"] for row in rows if row["choices"]]
    assert places == sorted(places)


def test_a_reply_that_is_complete_immediately_is_streamed():
    with served(unknown="answer") as server:
        assert text_of(complete(server, STREAM | {"messages": [{"role": "user", "content": "x"}]})) != ""


class Breaking(WritingEngine):
    """Breaks when it has written some words."""

    def collect(self, timeout_s):
        done = super().collect(timeout_s)
        if max(self._words.values(), default=0) > 4:
            raise EngineError("out of order: /secret/file")
        return done


def test_an_error_in_the_middle_ends_the_stream_with_an_error():
    with served(Breaking({"*": WORDS}), unknown="answer") as server:
        *rows, last = events_of(server, STREAM)
        error = json.loads(last)["error"]
        assert (bool(rows), error["code"], error["type"]) == (True, "engine_unavailable", "server_error")
        assert "secret" not in last
        assert 'judgelm_errors_total{code="engine_unavailable"} 1.0' in server.http.get("/metrics").text
    with (
        served(Breaking({"*": WORDS}), unknown="answer") as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.APIError, match="not available"),
    ):
        list(client.chat.completions.create(**STREAM))


def test_a_reply_that_takes_too_long_is_stopped_in_the_middle():
    engine = WritingEngine({"*": WORDS * 20})
    with served(engine, unknown="answer", settings={"request_timeout_s": 0.6}) as server:
        *rows, last = events_of(server, STREAM)
        assert text_of(map(json.loads, rows)) in WORDS * 20
        assert json.loads(last)["error"]["code"] == "timeout"
        until(lambda: server.counts.dropped == 1)


def test_an_error_before_the_first_word_has_its_own_status():
    engine = WritingEngine({"*": WORDS})
    engine.pause = True
    with served(engine, unknown="answer", settings={"request_timeout_s": 0.3}) as server:
        reply = httpx.post(server.url + CHAT, json=STREAM)
        assert (reply.status_code, error_of(reply)["code"]) == (504, "timeout")


def test_the_thinking_of_a_verdict_is_next_to_the_content():
    with served(thinking_model.engine(going_on("8 6\nBecause."))) as server:
        message = server.post(CHAT, review()).json()["choices"][0]["message"]
        assert message["reasoning_content"] == THOUGHT
        assert message["content"].startswith("8 6")
        assert "Wait" not in message["content"]
        rows = complete(server, review(stream=True))
        assert (thoughts(rows), text_of(rows)) == ([THOUGHT], message["content"])


CUT_OFF = {"asked": "absent", "thinks": False}


@pytest.mark.parametrize(
    ("write", "options", "content", "thought", "finish_reason"),
    [
        *((going_on("Good day."), {"asked": asked}, "Good day.", THOUGHT, "stop") for asked in ("on", "absent")),
        (lambda prompt: "<think>\nWell", CUT_OFF, "", "Well", "length"),
    ],
    ids=["on", "absent", "cut off"],
)
def test_the_thinking_of_a_chat_is_next_to_the_content(write, options, content, thought, finish_reason):
    with served(thinking_model.engine(write, **options), unknown="answer") as server:
        [choice] = server.post(CHAT, STREAM | {"stream": False}).json()["choices"]
        assert (choice["message"]["content"], choice["message"]["reasoning_content"]) == (content, thought)
        assert choice["finish_reason"] == finish_reason


def test_thinking_is_not_streamed_as_content():
    engine = WritingEngine({"*": "<think>\nWell, let me see.\n</think>\n\nGood day to you, dear friend."})
    with served(engine, unknown="answer") as server:
        rows = complete(server, STREAM)
        assert (text_of(rows), thoughts(rows)) == ("Good day to you, dear friend.", ["Well, let me see."])
        assert sum(bool(row["choices"][0]["delta"].get("content")) for row in rows) > 1  # streamed while it was written
