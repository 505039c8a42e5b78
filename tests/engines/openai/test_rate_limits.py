"""Pauses that servers request."""

import time
from email.utils import formatdate

import pytest

from judgelm.engines.openai.rate_limits import shown_duration, stated_pause_s
from judgelm.errors import EngineError
from tests.support.endpoint.client import ask, ask_all, client
from tests.support.endpoint.server import endpoint


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2),
        ({"retry-after-ms": "250"}, 0.25),
        ({"Retry-After": "1m 30s"}, 90),
        ({"x-ratelimit-reset-requests": "1m2.5s"}, 62.5),
        ({"x-ratelimit-reset-requests": "6h0m0s", "x-ratelimit-reset-tokens": "6ms"}, 21600),
        ({"x-ratelimit-reset-requests-day": "33011.5"}, 33011.5),
        ({"x-ratelimit-reset-requests": "6h", "x-ratelimit-remaining-requests": "12"}, None),
        ({"anthropic-ratelimit-tokens-reset": "2001-01-01T00:00:00Z"}, 0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 99 Oct 99999 07:28:00 GMT"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "-1"}, None),
        ({}, None),
    ],
)
def test_pause_in_headers(headers, seconds):
    assert stated_pause_s(headers) == seconds


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ("Limit 500 / min. Please try again in 1m26.4s. Contact us.", 86.4),
        ("Please try again in 24h0m0s.", 86400),
        ("Please retry after 26 seconds.", 26),
        ('{"retryDelay": "34.5s"}', 34.5),
        ('{"retry_after": 7}', 7),
        ("Too busy, wait another 2 hours and 5 minutes", 7500),
        ("wait and retry; the limit is 60 requests per 60 s", None),
        ("We answer 24 hours a day; the limit is 5 min", None),
        ("retry 3 times, or after 2 months", None),
    ],
)
def test_pause_in_the_message(body, seconds):
    assert stated_pause_s({}, body) == seconds


def test_message_has_priority_over_the_reset_header():
    assert stated_pause_s({"x-ratelimit-reset-requests": "8h"}, "Please try again in 9s.") == 9


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
        server.misbehave(lambda number, _: limited_by("Slow down, please try again in 300ms.") if number <= 4 else None)
        ask_all(engine, "a", "b", "c", "d")
    [line] = caplog.messages
    assert line.startswith(f"{server.base_url}: HTTP 429: Slow down")
    assert line.endswith("waiting 1 s (requested by the server)")


def test_rate_limit_without_a_stated_pause_is_logged(caplog):
    with endpoint() as server, client(server) as engine:
        server.misbehave(lambda number, _: "429" if number == 1 else None)
        ask(engine)
    assert "did not specify a pause" in caplog.text


def test_pause_longer_than_patience_ends_the_run():
    with endpoint() as server, client(server, concurrency=1) as engine:
        before = len(server.bodies)
        server.misbehave(lambda *_: limited_by("No more today, try again in 5h."))
        with pytest.raises(EngineError, match=r"No more today.*a pause of 5 h, .*again after \d{4}-\d\d-\d\d "):
            ask(engine)
        assert len(server.bodies) == before + 1


def test_rate_limits_longer_than_patience_end_the_run():
    with endpoint() as server, client(server, patience_s=0.3) as engine:
        server.misbehave(lambda *_: "429")
        with pytest.raises(EngineError, match=r"HTTP 429.*has not responded for"):
            ask(engine)


def test_run_ends_if_both_servers_are_limited():
    with endpoint() as limited, endpoint() as other, client(limited, other, backoff_s=60) as engine:
        limited.misbehave(lambda *_: limited_by("try again in 2h"))
        assert ask_all(engine, "x", "y", "z")["x"].texts == ("8 6",)
        other.misbehave(lambda *_: limited_by("try again in 3h"))
        with pytest.raises(EngineError, match=r"none of the 2 servers responded; .*pause of"):
            ask(engine)


def test_pause_of_a_rate_limit_with_status_200():
    with endpoint() as server, client(server) as engine:
        error = {"message": "free requests are used up", "code": 429, "metadata": {"retry_after_seconds": 9000}}
        server.misbehave(lambda *_: (200, {"error": error}))
        with pytest.raises(EngineError, match=r"used up .*pause of 3 h"):
            ask(engine)
