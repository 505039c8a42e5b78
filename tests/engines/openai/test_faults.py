"""Servers that limit, stall, break and lie: nothing is lost, nothing doubled, and what cannot be mended is named."""

import time

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.openai import endpoint as openai_calls
from judgelm.engines.openai.endpoint import retry_after_s
from judgelm.engines.openai.options import AdaptiveLimiter
from judgelm.errors import EngineError
from judgelm.modes.pairwise import Pairwise
from judgelm.records import Request, Sample, Sampling
from judgelm.runs.runner import judge
from tests.support.driving import prompt_of
from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.server import endpoint, first

SAMPLES = [Sample(id=f"s{i}", question=f"what {i}", answers=("a", "b")) for i in range(100)]
MODE = Pairwise(template="judgelm-compact")


def load(server, **arguments):
    arguments = {"base_url": server.base_url, "backoff_s": 0.01} | arguments
    return load_engine("openai", EngineOptions(model="tiny", engine_args=arguments))


def ask(engine, *answers):
    engine.submit([Request(key=a, prompt=prompt_of(a), sampling=Sampling(max_tokens=6, stop=("\n",))) for a in answers])
    done = {}
    for _ in range(600):
        done |= {completion.key: completion for completion in engine.collect(0.1)}
        if len(done) == len(answers):
            return done
    raise AssertionError("a request never came back")


def assert_all_judged(judgments):
    assert sorted(one.sample_id for one in judgments) == sorted(one.id for one in SAMPLES)
    assert {one.scores for one in judgments} == {(8.0, 6.0)}


MENDABLE = {
    "429": "rate_limited",
    "503-later": "rate_limited",
    "500": "server_error",
    "drop": "connection",
    "cut": "connection",
    "html": "bad_format",
    "torn": "bad_format",
    "types": "bad_format",
    "no_choices": "bad_format",
    "empty_choices": "bad_format",
    "null_text": "bad_format",
    "error_200": "server_error",
    "nan_logprobs": "bad_format",
    "bad_logprobs": "bad_format",
}


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("fault", MENDABLE)
def test_what_a_later_try_mends_is_tried_again(fault, api):
    with endpoint(retry_after="0.01") as server:
        engine = load(server, api=api)
        server.misbehave(first(2, fault))
        done = ask(engine, "x", "y")
        assert {one.texts for one in done.values()} == {("8 6",)}
        assert engine.stats()["retries"] == {MENDABLE[fault]: 2}
        engine.close()


def test_a_server_that_stalls_is_asked_again():
    with endpoint(stall_s=1.0) as server:
        engine = load(server, timeout_s=0.3)
        server.misbehave(first(2, "stall"))
        assert ask(engine, "x")["x"].texts == ("8 6",)
        assert engine.stats()["retries"] == {"timeout": 2}
        engine.close()


def test_a_storm_of_rate_limits_slows_down_and_loses_nothing():
    with endpoint(most_at_once=3, delay_s=0.005, retry_after="0.02") as server:
        engine = load(server, retries=0)  # rate limits do not count as failures
        assert_all_judged(list(judge(SAMPLES, MODE, engine)))
        stats = engine.stats()
        assert stats["retries"]["rate_limited"] == server.counts["limited"] > 0
        assert stats["concurrency"] < 10
        answered = sum("[Q] what" in body["prompt"] for body in server.bodies) - server.counts["limited"]
        assert answered == 100, "each sample was answered once"
        engine.close()


def test_all_wait_as_long_as_the_server_asks():
    with endpoint(retry_after="0.6") as server:
        engine = load(server)
        server.misbehave(first(1, "429"))
        engine.submit([Request(key="1", prompt=prompt_of("x"), sampling=Sampling(max_tokens=6))])
        assert engine.collect(0.3) == []
        started, asked = time.monotonic(), len(server.bodies)
        engine.submit([Request(key="2", prompt=prompt_of("y"), sampling=Sampling(max_tokens=6))])
        assert engine.collect(0.15) == []
        assert len(server.bodies) == asked
        assert len([one for _ in range(2) for one in engine.collect(2)]) == 2
        assert time.monotonic() - started > 0.2
        engine.close()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2),
        ({"retry-after-ms": "250"}, 0.25),
        ({"x-ratelimit-reset-requests": "1m2.5s"}, 62.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_how_servers_say_when_to_come_back(headers, seconds):
    assert retry_after_s(headers) == seconds


def test_the_gate_halves_once_for_one_burst_and_grows_with_success():
    limiter = AdaptiveLimiter(32)
    for _ in range(5):
        limiter.overloaded(0.0, None)  # all five were sent before the first refusal
    assert limiter.limit == 16
    for _ in range(16):
        limiter.succeeded()
    assert limiter.limit == 17
    for _ in range(10):
        limiter.overloaded(time.monotonic(), None)
    assert limiter.limit == 1


def test_a_server_that_stays_away_ends_the_run_with_what_was_judged():
    with endpoint(delay_s=0.01) as server:
        engine = load(server, concurrency=4, retries=2)
        judged = []

        def judge_until_it_ends():
            for judgment in judge(SAMPLES, MODE, engine):
                judged.append(judgment.sample_id)
                if len(judged) == 20:
                    server.kill()

        with pytest.raises(EngineError, match=r"does not answer: .*, 3 tries in \d+ s; run the same command again"):
            judge_until_it_ends()
        assert 20 <= len(judged) == len(set(judged)) < 100
        engine.close()


def test_a_request_that_always_fails_fails_alone():
    with endpoint(delay_s=0.02) as server:
        engine = load(server, retries=2, concurrency=2, backoff_s=0.05)
        server.misbehave(lambda _, body: "500" if "poison" in body["prompt"] else None)
        done = ask(engine, "poison", *(str(i) for i in range(20)))
        assert done["poison"].finish_reasons == ("error",)
        assert "HTTP 500: HTTP 500 on purpose, 3 tries in" in done["poison"].error
        assert sum(one.texts == ("8 6",) for one in done.values()) == 20
        engine.close()


def test_rate_limits_for_ever_while_nothing_gets_through_end_the_run(monkeypatch):
    monkeypatch.setattr(openai_calls, "RATE_LIMIT_PATIENCE_S", 0.3)
    with endpoint() as server:
        engine = load(server)
        server.misbehave(lambda *_: "429")
        with pytest.raises(EngineError, match="does not answer: HTTP 429"):
            ask(engine, "x")
        engine.close()


@pytest.mark.parametrize(
    ("fault", "finding"), [("429-quota", "does not serve 'tiny': HTTP 429"), ("404", "does not serve 'tiny'.*404")]
)
def test_what_every_other_request_would_meet_ends_the_run_at_once(fault, finding):
    with endpoint() as server:
        engine = load(server)
        server.misbehave(lambda *_: fault)
        with pytest.raises(EngineError, match=finding):
            ask(engine, "x")
        with pytest.raises(EngineError, match=finding):
            engine.collect(0.1)
        assert engine.stats()["retries"] == {}
        engine.close()


@pytest.mark.parametrize(
    ("fault", "finding"),
    [("filter", "finish_reason 'content_filter'"), ("refusal", "I will not judge"), ("400", "HTTP 400 on purpose")],
)
def test_what_the_server_will_not_answer_is_an_error_of_that_request_alone(fault, finding):
    with endpoint() as server:
        engine = load(server, api="chat")
        server.misbehave(lambda _, body: fault if "odd" in body["messages"][0]["content"] else None)
        done = ask(engine, "odd", "even")
        assert done["odd"].finish_reasons == ("error",)
        assert finding in done["odd"].error
        assert done["even"].texts == ("8 6",)
        engine.close()


def test_a_reply_cut_by_reasoning_that_used_up_all_tokens_is_too_short_not_broken():
    with endpoint(ScriptedBackend({"": {"": 1.0}})) as server:
        engine = load(server, api="chat")
        [done] = ask(engine, "x").values()
        assert (done.texts, done.finish_reasons) == (("",), ("length",))
        engine.close()


def test_a_key_that_the_server_repeats_is_not_passed_on(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "on purpose")  # the words with which the endpoint fails
    with endpoint() as server:
        engine = load(server, api_key_env="JUDGE_KEY")
        server.misbehave(lambda *_: "400")
        [done] = ask(engine, "x").values()
        assert done.error == "HTTP 400: HTTP 400 ..."
        engine.close()
