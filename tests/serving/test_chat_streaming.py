"""An ordinary chat comes while the model writes it."""

import json
from contextlib import contextmanager

import httpx
import openai
import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import EngineError
from tests.support.served import CHAT, error_of, served, until
from tests.support.writing_engine import WritingEngine

PLAIN = "/v1/completions"
WORDS = "one two three four five six seven eight nine ten eleven twelve"
HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True}


@contextmanager
def reading(server, path, body):
    """The events of a stream as they come, each with whether the model still writes."""
    with server.http.stream("POST", path, json=body) as reply:
        assert reply.status_code == 200, reply.read()
        assert reply.headers["content-type"].startswith("text/event-stream")
        yield reply, _events(reply)


def _events(reply):
    for line in reply.iter_lines():
        if line:
            yield line.removeprefix("data: ")


def said(events, place=0):
    """The text of one choice in the events of a stream."""
    choices = [one["choices"][0] for one in events if one["choices"]]
    pieces = [one.get("text", one.get("delta", {}).get("content", "")) for one in choices if one["index"] == place]
    return "".join(pieces)


def whole(server, body, path=CHAT):
    *rows, last = reading_all(server, body, path)
    assert last == "[DONE]"
    return [json.loads(row) for row in rows]


def reading_all(server, body, path=CHAT):
    with reading(server, path, body) as (_, events):
        return list(events)


@pytest.fixture
def writing():
    engine = WritingEngine({"*": WORDS})
    with served(engine, chat=True) as one:
        yield one


def test_a_models_own_words_come_before_its_last(tiny_model):
    engine = load_engine("transformers", EngineOptions(model=str(tiny_model), device="cpu"))
    with served(engine, chat=True, settings={"request_timeout_s": 60}) as server:
        body = {"model": "m", "prompt": "the big fox", "max_tokens": 400, "temperature": 0}
        expected = server.post(PLAIN, body).json()
        with reading(server, PLAIN, body | {"stream": True, "stream_options": {"include_usage": True}}) as (_, events):
            rows = [json.loads(next(events))]
            assert server.handler.worker.in_flight == 1  # it has words, and the model goes on
            rows += [json.loads(row) for row in events if row != "[DONE]"]
        assert said(rows) == expected["choices"][0]["text"]
        assert rows[-1]["usage"] == expected["usage"]
        assert len(rows) > 4  # pieces, not the text
        assert rows[-2]["choices"][0]["finish_reason"] == expected["choices"][0]["finish_reason"]
    engine.close()


def test_who_hangs_up_in_the_middle_stops_the_model():
    with served(WritingEngine({"*": WORDS * 40}), chat=True) as server:
        with reading(server, CHAT, HELLO) as (_, events):
            next(events)
        until(lambda: server.counts.dropped == 1)
        assert (server.handler.worker.in_flight, server.counts.answered) == (0, 0)
        until(lambda: server.server._traffic.in_flight == 0)


def test_a_chat_grows_word_by_word(writing):
    with reading(writing, CHAT, HELLO) as (reply, events):
        assert reply.headers["x-judgelm-dialect"] == "none"
        assert "ordinary chat" in reply.headers["x-judgelm-note"]
        opening, first = json.loads(next(events)), json.loads(next(events))
        assert opening["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
        assert WORDS.startswith(said([first]))
        assert said([first]) != WORDS
        assert writing.handler.worker.in_flight == 1
        *rows, last = events
    rows = [opening, first, *map(json.loads, rows)]
    assert (said(rows), last) == (WORDS, "[DONE]")
    assert {one["object"] for one in rows} == {"chat.completion.chunk"}
    assert [one["choices"][0]["finish_reason"] for one in rows] == [None] * (len(rows) - 1) + ["stop"]
    counted = 'judgelm_requests_total{dialect="none",judge="judge",route="/v1/chat/completions",status="200"} 1.0'
    until(lambda: counted in writing.http.get("/metrics").text)
    assert 'judgelm_completion_tokens_total{judge="judge"} 12.0' in writing.http.get("/metrics").text


def test_the_beginning_of_a_stop_is_never_sent(writing):
    assert said(whole(writing, HELLO | {"stop": "seven nine"})) == WORDS
    assert said(whole(writing, HELLO | {"stop": " six s"})) == "one two three four five"


def test_the_second_reply_comes_whole_at_the_end(writing):
    rows = whole(writing, HELLO | {"n": 2, "stream_options": {"include_usage": True}})
    assert said(rows) == said(rows, place=1) == WORDS
    assert rows[-1]["usage"]["completion_tokens"] == 24
    places = [one["choices"][0]["index"] for one in rows if one["choices"]]
    assert places == sorted(places)


def test_a_reply_that_is_there_at_once_is_a_stream_too():
    with served(chat=True) as server:
        assert said(whole(server, HELLO | {"messages": [{"role": "user", "content": "x"}]})) != ""


class Breaking(WritingEngine):
    """Breaks when it has written some words."""

    def collect(self, timeout_s):
        done = super().collect(timeout_s)
        if max(self._words.values(), default=0) > 4:
            raise EngineError("out of order: /secret/file")
        return done


def test_an_error_in_the_middle_ends_the_stream_and_says_so():
    with served(Breaking({"*": WORDS}), chat=True) as server:
        *rows, last = reading_all(server, HELLO)
        assert rows
        error = json.loads(last)["error"]
        assert (error["code"], error["type"]) == ("engine_unavailable", "server_error")
        assert "secret" not in last
        assert 'judgelm_errors_total{code="engine_unavailable"} 1.0' in server.http.get("/metrics").text


def test_openais_client_raises_what_ends_a_stream():
    with served(Breaking({"*": WORDS}), chat=True) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        stream = client.chat.completions.create(**HELLO)
        with pytest.raises(openai.APIError, match="not available"):
            list(stream)


def test_a_reply_that_takes_too_long_is_given_up_in_the_middle():
    engine = WritingEngine({"*": WORDS * 20})
    with served(engine, chat=True, settings={"request_timeout_s": 0.6}) as server:
        *rows, last = reading_all(server, HELLO)
        assert said(map(json.loads, rows)) in WORDS * 20
        assert json.loads(last)["error"]["code"] == "timeout"
        until(lambda: server.counts.dropped == 1)


def test_an_error_before_the_first_word_has_its_own_status():
    engine = WritingEngine({"*": WORDS})
    engine.pause = True
    with served(engine, chat=True, settings={"request_timeout_s": 0.3}) as server:
        reply = httpx.post(server.url + CHAT, json=HELLO)
        assert (reply.status_code, error_of(reply)["code"]) == (504, "timeout")
