"""Faulty and rate-limited servers, and several servers."""

import asyncio
import threading
import time
from email.utils import formatdate

import pytest

from judgelm.engines.openai.rate_limits import AdaptiveLimiter, shown_duration, stated_pause_s
from judgelm.errors import EngineError, ModelError
from judgelm.modes.pairwise import Pairwise
from judgelm.records import Sample
from judgelm.runs.runner import judge
from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.client import ask, ask_all, client, load
from tests.support.endpoint.server import endpoint, first

SAMPLES = [Sample(id=f"s{i}", question=f"what {i}", answers=("a", "b")) for i in range(200)]
MODE = Pairwise(template="judgelm-compact")


def judge_all(engine):
    judgments = list(judge(SAMPLES, MODE, engine))
    assert sorted(judgment.sample_id for judgment in judgments) == sorted(sample.id for sample in SAMPLES)
    assert {judgment.scores for judgment in judgments} == {(8.0, 6.0)}


def judged_by(server):
    return sum("[Q] what" in str(body.get("prompt")) for body in server.bodies)


BAD_FORMAT = ("html", "torn", "types", "no_choices", "empty_choices", "null_text", "nan_logprobs", "bad_logprobs")


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("429", "rate_limited"), ("503-later", "rate_limited"), ("500", "server_error"), ("error_200", "server_error"),
        ("drop", "connection"), ("cut", "connection"), *((fault, "bad_format") for fault in BAD_FORMAT),
    ],
)  # fmt: skip
def test_transient_errors_are_retried(fault, kind, api):
    with endpoint(retry_after="0.01") as server, client(server, api=api) as engine:
        server.misbehave(first(2, fault))
        done = ask_all(engine, "x", "y")
        assert {completion.texts for completion in done.values()} == {("8 6",)}
        assert engine.stats()["retries"] == {kind: 2}


def test_rate_limits_lose_nothing():
    slow = endpoint(most_at_once=3, delay_s=0.005, retry_after="0.02")
    with slow as server, client(server, retries=0) as engine:  # rate limits do not count as failures
        judge_all(engine)
        assert engine.stats()["retries"]["rate_limited"] == server.counts["limited"] > 0
        assert judged_by(server) - server.counts["limited"] == 200, "each sample was answered once"


def test_limiter_halves_once_per_burst_and_grows_with_success():
    limiter = AdaptiveLimiter(32)
    for _ in range(5):
        limiter.overloaded(0.0, None)  # all five were sent before the first rejection
    assert limiter.limit == 16
    for _ in range(16):
        limiter.succeeded()
    assert limiter.limit == 17
    for _ in range(10):
        limiter.overloaded(time.monotonic(), None)
    assert limiter.limit == 1


def test_all_requests_wait_for_the_requested_pause():
    async def enter():
        limiter = AdaptiveLimiter(32)
        limiter.overloaded(0.0, 60.0)
        await asyncio.wait_for(limiter.__aenter__(), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(enter())


def test_dead_server_ends_the_run_and_keeps_its_judgments():
    with endpoint(delay_s=0.01) as server, client(server, concurrency=4, retries=2) as engine:
        judged = []
        with pytest.raises(EngineError, match=r"is not responding: .* \(3 tries in"):  # noqa: PT012
            for judgment in judge(SAMPLES, MODE, engine):
                judged.append(judgment.sample_id)
                if len(judged) == 20:
                    server.kill()
        assert 20 <= len(judged) == len(set(judged)) < 200


@pytest.mark.parametrize("others", [None, "400"])  # rejections are replies too
def test_only_the_request_that_always_fails_fails(others):
    with endpoint(delay_s=0.02) as server, client(server, retries=2, concurrency=2, backoff_s=0.05) as engine:
        server.misbehave(lambda _, body: "500" if "poison" in body["prompt"] else others)
        done = ask_all(engine, "poison", *(str(i) for i in range(20)))
        assert done["poison"].finish_reasons == ("error",)
        assert "HTTP 500: HTTP 500 on purpose (3 tries in" in done["poison"].error
        assert sum(completion.texts == ("8 6",) for completion in done.values()) == (0 if others else 20)


@pytest.mark.parametrize(
    ("fault", "finding"), [("429-quota", "does not serve 'tiny': HTTP 429"), ("404", "does not serve 'tiny'.*404")]
)
def test_fatal_errors_end_the_run(fault, finding):
    with endpoint() as server, client(server) as engine:
        server.misbehave(lambda *_: fault)
        with pytest.raises(EngineError, match=finding):
            ask_all(engine, "x")
        with pytest.raises(EngineError, match=finding):
            engine.collect(0.1)
        assert engine.stats()["retries"] == {}


@pytest.mark.parametrize(
    ("fault", "finding"),
    [("filter", "finish_reason 'content_filter'"), ("refusal", "I will not judge"), ("400", "HTTP 400 on purpose")],
)
def test_only_the_refused_request_fails(fault, finding):
    with endpoint() as server, client(server, api="chat") as engine:
        server.misbehave(lambda _, body: fault if "odd" in body["messages"][0]["content"] else None)
        done = ask_all(engine, "odd", "even")
        assert done["odd"].finish_reasons == ("error",)
        assert finding in done["odd"].error
        assert done["even"].texts == ("8 6",)


def test_killed_server_loses_nothing():
    delayed = endpoint(delay_s=0.005), endpoint(delay_s=0.005)
    with delayed[0] as stays, delayed[1] as dies, client(stays, dies, concurrency=4) as engine:
        killed = threading.Event()

        def kill():
            while judged_by(dies) < 40:
                time.sleep(0.001)
            dies.kill()
            killed.set()

        threading.Thread(target=kill).start()
        judge_all(engine)
        assert killed.is_set()
        assert engine.stats()["moved_to_another_server"] > 0
        assert 40 <= judged_by(dies) < 60
        assert judged_by(stays) >= 140


def test_failed_request_is_sent_to_the_other_server():
    with endpoint() as faulty, endpoint() as other, client(faulty, other, retries=0) as engine:
        faulty.misbehave(first(1, "500"))
        assert ask_all(engine, "x")["x"].texts == ("8 6",)


def test_server_that_rejects_the_key_is_skipped():
    with endpoint() as good, endpoint() as bad, client(good, bad) as engine:
        bad.key = "secret"
        done = ask_all(engine, *(f"a{place}" for place in range(10)))
        assert {completion.texts for completion in done.values()} == {("8 6",)}


def test_rejected_request_is_not_sent_to_the_other_server():
    with endpoint() as primary, endpoint() as secondary, client(primary, secondary) as engine:
        for server in (primary, secondary):
            server.misbehave(lambda number, body: "400")
        before = len(primary.bodies) + len(secondary.bodies)
        assert "400" in ask_all(engine, "x")["x"].error
        assert len(primary.bodies) + len(secondary.bodies) == before + 1


@pytest.mark.parametrize(("count", "words"), [(1, "is not responding"), (2, "none of the 2 servers responded")])
def test_requests_fail_or_the_run_stops_if_no_server_answers(count, words):
    with endpoint() as primary, endpoint() as secondary:
        servers = (primary, secondary)[:count]
        with client(*servers, retries=1, when_down="fail") as engine:
            for server in servers:
                server.kill()
            done = ask_all(engine, "x", "y").values()
            assert all(completion.finish_reasons == ("error",) and completion.error for completion in done)
            for server in servers:
                server.start()
            assert ask_all(engine, "z")["z"].texts == ("8 6",)  # without a new engine
        with client(*servers, retries=1, when_down="stop") as engine:
            for server in servers:
                server.kill()
            with pytest.raises(EngineError, match=words):
                ask_all(engine, "x", "y")


def test_start_needs_one_reachable_and_no_wrong_server():
    with endpoint() as good, endpoint() as gone, endpoint(models=("another",)) as wrong:
        wrong.misbehave(lambda number, body: (404, {"error": {"message": "no model tiny"}}))
        with pytest.raises(ModelError, match="has no model 'tiny'; available: another"):
            load(good, wrong)
        gone.kill()
        with client(good, gone) as engine:
            assert ask_all(engine, "x")["x"].texts == ("8 6",)
        with pytest.raises(EngineError, match="is unreachable"):
            load(gone, "http://127.0.0.1:9/v1")


def test_common_features_of_different_servers_are_used():
    with endpoint() as both, endpoint(has_completions=False) as chat_alone, client(both, chat_alone) as engine:
        assert engine.describe()["api"] == "chat"
        assert ask_all(engine, "x")["x"].texts == ("8 6",)


def test_passwords_of_several_servers_are_not_shown():
    with endpoint() as primary, endpoint(ScriptedBackend()) as secondary:
        addresses = [server.base_url.replace("//", "//user:pass%20word@") for server in (primary, secondary)]
        with client(*addresses) as engine:
            primary.kill()
            secondary.kill()
            with pytest.raises(EngineError) as failed:
                ask_all(engine, "x")
            assert "pass" not in str(engine.describe()) + str(failed.value)


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "2"}, "", 2),
        ({"retry-after-ms": "250"}, "", 0.25),
        ({"Retry-After": "1m 30s"}, "", 90),
        ({"x-ratelimit-reset-requests": "1m2.5s"}, "", 62.5),
        ({"x-ratelimit-reset-requests": "6h0m0s", "x-ratelimit-reset-tokens": "6ms"}, "", 21600),
        ({"x-ratelimit-reset-requests-day": "33011.5"}, "", 33011.5),
        ({"x-ratelimit-reset-requests": "6h", "x-ratelimit-remaining-requests": "12"}, "", None),
        ({"anthropic-ratelimit-tokens-reset": "2001-01-01T00:00:00Z"}, "", 0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, "", 0),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "Wed, 99 Oct 99999 07:28:00 GMT"}, "", None),
        ({"retry-after": "9" * 400}, "", None),
        ({"retry-after": "-1"}, "", None),
        ({}, "", None),
        ({}, "Limit 500 / min. Please try again in 1m26.4s. Contact us.", 86.4),
        ({}, "Please try again in 24h0m0s.", 86400),
        ({}, "Please retry after 26 seconds.", 26),
        ({}, '{"retryDelay": "34.5s"}', 34.5),
        ({}, '{"retry_after": 7}', 7),
        ({}, "Too busy, wait another 2 hours and 5 minutes", 7500),
        ({}, "wait and retry; the limit is 60 requests per 60 s", None),
        ({}, "We answer 24 hours a day; the limit is 5 min", None),
        ({}, "retry 3 times, or after 2 months", None),
        ({"x-ratelimit-reset-requests": "8h"}, "Please try again in 9s.", 9),  # the message has priority
    ],
)
def test_stated_pause(headers, body, seconds):
    assert stated_pause_s(headers, body) == seconds


def test_pause_until_a_point_in_time():
    tomorrow = time.time() + 86400
    for headers, body in (
        ({"retry-after": formatdate(tomorrow, usegmt=True)}, ""),
        ({"x-ratelimit-reset": str(int(tomorrow))}, ""),
        ({}, f'{{"headers": {{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "{int(tomorrow * 1000)}"}}}}'),
    ):
        assert stated_pause_s(headers, body) == pytest.approx(86400, abs=60)


@pytest.mark.parametrize(("seconds", "shown"), [(0.2, "1 s"), (119, "119 s"), (120, "2 min"), (86400, "24 h")])
def test_durations_are_rounded_up(seconds, shown):
    assert shown_duration(seconds) == shown


def limited_by(message):
    """A rate limit error."""
    return 429, {"error": {"message": message, "code": "rate_limit_exceeded"}}


def test_pause_is_logged_once(caplog):
    with endpoint(retry_after="0.3") as server, client(server) as engine:
        server.misbehave(first(4, limited_by("Slow down, please try again in 300ms.")))
        ask_all(engine, "a", "b", "c", "d")
    [line] = caplog.messages
    assert line.startswith(f"{server.base_url}: HTTP 429: Slow down")
    assert line.endswith("waiting 1 s (requested by the server)")


def test_rate_limit_without_a_stated_pause_is_logged(caplog):
    with endpoint() as server, client(server) as engine:
        server.misbehave(first(1, "429"))
        ask(engine)
    assert "did not specify a pause" in caplog.text


LONG_PAUSE = limited_by("No more today, try again in 5h.")
USED_UP = {"message": "free requests are used up", "code": 429, "metadata": {"retry_after_seconds": 9000}}


@pytest.mark.parametrize(
    ("fault", "patience", "finding"),
    [
        (LONG_PAUSE, {}, r"No more today.*a pause of 5 h, .*again after \d{4}-\d\d-\d\d "),
        ((200, {"error": USED_UP}), {}, r"used up .*pause of 3 h"),
        ("429", {"patience_s": 0.3}, r"HTTP 429.*has not responded for"),
    ],
)
def test_rate_limit_longer_than_patience_ends_the_run(fault, patience, finding):
    with endpoint() as server, client(server, concurrency=1, **patience) as engine:
        before = len(server.bodies)
        server.misbehave(lambda *_: fault)
        with pytest.raises(EngineError, match=finding):
            ask(engine)
        assert patience or len(server.bodies) == before + 1


def test_run_ends_if_both_servers_are_limited():
    with endpoint() as limited, endpoint() as other, client(limited, other, backoff_s=60) as engine:
        limited.misbehave(lambda *_: limited_by("try again in 2h"))
        assert ask_all(engine, "x", "y", "z")["x"].texts == ("8 6",)
        other.misbehave(lambda *_: limited_by("try again in 3h"))
        with pytest.raises(EngineError, match=r"none of the 2 servers responded; .*pause of"):
            ask(engine)
