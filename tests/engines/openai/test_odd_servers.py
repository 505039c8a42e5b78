"""Servers that answer, but not quite as OpenAI's API says: what is meant is taken, nothing is waited for in vain."""

import time
from dataclasses import replace

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import EngineError
from judgelm.records import Prompt, Request, Sampling
from tests.support.driving import prompt_of, run
from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.server import endpoint, first

TREE = {"": {"8": 0.5, "7": 0.4, "9": 0.1}, "8": {" 6": 1.0}, "7": {" 6": 1.0}, "9": {" 6": 1.0}}


def load(server, **arguments):
    arguments = {"base_url": server.base_url, "backoff_s": 0.01} | arguments
    return load_engine("openai", EngineOptions(model="tiny", engine_args=arguments))


def request_of(key="x", prompt=None, candidates=(), **sampling):
    settings = {"max_tokens": 6, "stop": ("\n",)} | sampling
    return Request(key=key, prompt=prompt or prompt_of(key), sampling=Sampling(**settings), candidates=candidates)


def ask(engine, **wishes):
    [done] = run(engine, [request_of(**wishes)]).values()
    return done


@pytest.mark.parametrize("date", ["Wed, 99 Oct 99999 07:28:00 GMT", "1 Jan 99999999999999999999 0:0:0", "-1", "é"])
def test_a_date_that_is_none_is_no_reason_to_break(date):
    with endpoint(retry_after=date) as server:
        engine = load(server)
        server.misbehave(first(1, "429"))
        assert ask(engine).texts == ("8 6",)
        engine.close()


def test_a_request_that_no_rate_limit_lets_through_fails_alone():
    too_large = {"error": {"message": "Request too large for gpt-4o on tokens per min (TPM): Limit 100, Requested 200"}}
    with endpoint() as server:
        engine = load(server)
        server.misbehave(lambda _, body: (429, too_large) if "huge" in body["prompt"] else None)
        done = run(engine, [request_of("huge"), request_of("small")])
        assert done["huge"].finish_reasons == ("error",)
        assert "Request too large" in done["huge"].error
        assert done["small"].texts == ("8 6",)
        assert engine.stats()["retries"] == {}
        engine.close()


def test_refusals_are_answers_as_well():
    def fault(_, body):
        return "500" if "poison" in body["prompt"] else "400"

    with endpoint(delay_s=0.01) as server:
        engine = load(server, retries=2, concurrency=2, backoff_s=0.05)
        server.misbehave(fault)
        done = run(engine, [request_of("poison"), *(request_of(str(i)) for i in range(20))])
        assert {one.finish_reasons for one in done.values()} == {("error",)}
        assert "HTTP 500" in done["poison"].error
        engine.close()


def test_a_server_that_queues_gets_fewer_at_once():
    # one at a time, 0.15 s each: of 24 at once, 20 would wait longer than 0.6 s, again and again
    with endpoint(places=1, delay_s=0.15) as server:
        engine = load(server, timeout_s=0.6, concurrency=24, retries=4)
        done = run(engine, [request_of(str(i)) for i in range(24)])
        assert {one.texts for one in done.values()} == {("8 6",)}
        assert engine.stats()["concurrency"] <= 8
        engine.close()


def test_a_reply_nested_without_end_is_no_reason_to_break():
    with endpoint() as server:
        engine = load(server)
        server.misbehave(first(1, (200, "[" * 100_000)))
        assert ask(engine).texts == ("8 6",)
        assert engine.stats()["retries"] == {"bad_format": 1}
        engine.close()


def test_a_refusal_without_words_is_none():
    with endpoint() as server:
        engine = load(server, api="chat")
        server.misbehave(lambda *_: lambda data: data["choices"][0]["message"].update(refusal=""))
        assert ask(engine).texts == ("8 6",)
        engine.close()


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_where_only_the_chosen_tokens_probability_is_told(api):
    def untold(data):
        logprobs = data["choices"][0]["logprobs"]
        if api == "completions":
            logprobs["top_logprobs"] = None
        else:
            for token in logprobs["content"]:
                token["top_logprobs"] = None

    with endpoint(ScriptedBackend({"": {"A": 0.7, "B": 0.3}})) as server:
        engine = load(server, api=api)
        server.misbehave(lambda *_: untold)
        done = ask(engine, candidates=("A", "B"), max_tokens=1)
        # A is what was said, with its 0.7; B may have the rest, of which nothing is told
        assert done.candidate_logprobs == (pytest.approx(-0.356675), -float("inf"))
        words = "up to 0.30 of the probability may be missing: the server lists only the chosen token"
        assert done.approximation == words
        assert engine.stats()["retries"] == {}
        engine.close()


def test_a_forced_beginning_that_is_silently_begun_anew_is_not_repeated():
    script = {"": {"8 6\n": 1.0}, "8 6\n": {"Both": 1.0}}
    with endpoint(ScriptedBackend(script), ignores_continuation=True) as server:
        engine = load(server, api="chat")
        prompt = Prompt(spans=prompt_of("x").spans, prefill="8 6\n")
        assert ask(engine, prompt=prompt, stop=()).texts == ("Both",)
        assert engine.stats()["not_taken_by_server"] == []
        engine.close()


def test_all_are_checked_before_any_is_sent():
    with endpoint() as server:
        engine = load(server)
        before = len(server.bodies)
        with pytest.raises(EngineError, match="adapters"):
            engine.submit([request_of("1"), replace(request_of("2"), adapter="one")])
        assert engine.collect(0.2) == []
        assert len(server.bodies) == before
        engine.close()
        started = time.monotonic()
        with pytest.raises(EngineError, match="closed"):
            engine.submit([request_of("1")])
        assert engine.collect(2.0) == []
        assert time.monotonic() - started < 1, "nothing is in hand"


def test_a_failed_look_at_one_beginning_ends_the_looks_at_the_others():
    def fault(_, body):
        return {"7": "stall", "9": "400"}.get(body["prompt"][-1])

    with endpoint(ScriptedBackend(TREE), stall_s=1.5) as server:
        engine = load(server, timeout_s=0.5, retries=3)
        server.misbehave(fault)
        done = ask(engine, candidates=("8 6", "7 6", "9 6"))
        assert done.finish_reasons == ("error",)
        sent = len(server.bodies)
        time.sleep(0.8)
        assert len(server.bodies) == sent, "a look that nobody waits for is not repeated"
        engine.close()
