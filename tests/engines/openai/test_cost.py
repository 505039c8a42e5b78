"""Billed tokens and the cost limit."""

import re
import time

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.openai.cost import BilledTokens, max_usage
from judgelm.errors import ConfigError
from tests.support.driving import run
from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.client import client, load, request_of
from tests.support.endpoint.server import endpoint, first

PRICES = {"price_in": 1.0, "price_out": 1_000_000.0}
"""A token of a reply costs a dollar, one of a prompt almost nothing."""
PARTS = [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "abc"}]


def requests_of(count, **sampling):
    return [request_of(str(i), **sampling) for i in range(count)]


class Counting(ScriptedBackend):
    """Counts its tokens."""

    dollars = prompt_tokens = 0

    def generate(self, prompt, options, number):
        reply = super().generate(prompt, options, number)
        self.dollars += len(reply.steps)
        self.prompt_tokens += reply.prompt_tokens if number == 0 else 0
        return reply


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        # 3 token ids; 4 replies of 8 tokens
        ({"prompt": [5, 6, 7], "max_tokens": 8, "n": 4}, (3, 32)),
        # "aé" is 3 bytes; at most 64 tokens of a template
        ({"prompt": "aé", "max_tokens": 8}, (67, 8)),
        # and 16 per message
        ({"messages": [{"role": "user", "content": "aé"}] * 2, "max_completion_tokens": 5}, (6 + 32 + 64, 5)),
        # 50,000 for an image, 3 bytes of text, 16 per message, 64 of the template
        ({"messages": [{"role": "user", "content": PARTS}], "max_tokens": 5}, (50_083, 5)),
    ],
)
def test_max_usage(body, usage):
    assert max_usage(body) == BilledTokens(prompt_tokens=usage[0], completion_tokens=usage[1])


@pytest.mark.parametrize("fault", [None, "429", "500", "types", "null_text", "no_choices"])
def test_billed_tokens_equal_the_servers(fault):
    with endpoint(Counting(), retry_after="0.01") as server, client(server, **PRICES) as engine:
        server.misbehave(first(3, fault))
        run(engine, requests_of(5))
        stats = engine.stats()
        dollars, prompt_tokens = server.backend.dollars, server.backend.prompt_tokens
        assert (stats["completion_tokens"], stats["prompt_tokens"]) == (dollars, prompt_tokens)
        assert stats["cost_usd"] == stats["cost_usd_at_most"] == pytest.approx(dollars + prompt_tokens / 1e6)
        assert stats["replies_of_unknown_cost"] == 0


@pytest.mark.parametrize("fault", ["cut", "torn", "stall", "drop"])
def test_lost_replies_count_as_their_maximum_cost(fault):
    with endpoint(Counting(), stall_s=0.8) as server, client(server, **PRICES, timeout_s=0.5) as engine:
        before = engine.stats()
        server.misbehave(first(2, fault))
        run(engine, requests_of(1))
        stats = engine.stats()
        # the received reply has 3 tokens, each of the two lost ones at most 6
        assert stats["cost_usd"] - before["cost_usd"] == pytest.approx(3, abs=0.01)
        assert stats["cost_usd_at_most"] - before["cost_usd"] == pytest.approx(3 + 12, abs=0.01)
        assert stats["replies_of_unknown_cost"] == 2


def test_unsent_requests_cost_nothing():
    with endpoint() as server, client(server, **PRICES, concurrency=4, backoff_s=0.2) as engine:
        server.kill()
        engine.submit(requests_of(4))
        assert engine.collect(0.1) == []
        server.start()
        done = [completion for _ in range(40) for completion in engine.collect(0.1)]
        assert {completion.texts for completion in done} == {("8 6",)}
        assert engine.stats()["retries"]["connection"] >= 4
        assert engine.stats()["replies_of_unknown_cost"] == 0


@pytest.mark.parametrize("concurrency", [1, 4, 32])
def test_cost_limit_is_used_but_never_exceeded(concurrency):
    options = PRICES | {"max_cost_usd": 40.0, "concurrency": concurrency}
    with endpoint(Counting(), delay_s=0.01) as server, client(server, **options) as engine:
        done = run(engine, requests_of(60)).values()
        failed = [completion for completion in done if completion.finish_reasons == ("error",)]
        assert sum(completion.texts == ("8 6",) for completion in done) + len(failed) == 60
        # a request is sent with at least 6 dollars left and costs 3, so 3 to 6 dollars are left
        assert 34 < server.backend.dollars <= 37
        assert engine.stats()["cost_usd_at_most"] < 40
        assert server.counts["at_once"] <= max(1, 40 // 6), "requests in flight reserve their maximum cost"
        assert {completion.error[:10] for completion in failed} == {"not sent: "}


def test_message_of_the_cost_limit():
    with endpoint() as server, client(server, **PRICES, max_cost_usd=20) as engine:
        done = run(engine, requests_of(1, max_tokens=30))
        # discovery costs two tokens: one for the API and one for the grammar
        assert re.match(r"not sent: .* 2\.0000.* up to 30\.000.*max_cost_usd=20; raise ", done["0"].error)
        assert run(engine, requests_of(1))["0"].texts == ("8 6",), "a cheaper one is sent"


@pytest.mark.parametrize("fault", ["cut", "stall", "torn", "types"])
def test_cost_limit_holds_with_lost_replies(fault):
    options = PRICES | {"max_cost_usd": 60, "timeout_s": 0.5, "retries": 20}
    with endpoint(Counting(), stall_s=0.8) as server, client(server, **options) as engine:
        server.misbehave(lambda number, _: fault if number % 3 else None)
        done = run(engine, requests_of(20))
        assert engine.stats()["cost_usd_at_most"] <= 60
        assert server.backend.dollars <= 60
        assert any(completion.finish_reasons == ("error",) for completion in done.values())


def test_aborted_request_counts_as_its_maximum_cost():
    with endpoint() as server, client(server, **PRICES) as engine:
        before = engine.stats()["cost_usd_at_most"]
        server.misbehave(lambda *_: "stall")
        engine.submit(requests_of(2))
        while server.at_once < 2:
            time.sleep(0.01)
        engine.abort(["0", "1"])
        while engine.stats()["replies_of_unknown_cost"] < 2:
            time.sleep(0.01)
        assert engine.stats()["cost_usd_at_most"] - before == pytest.approx(12, abs=0.01)


def test_invalid_prices_and_cost_limits():
    def refused(match, **arguments):
        with pytest.raises(ConfigError, match=match):
            load_engine("openai", EngineOptions(model="x", engine_args={"base_url": "http://h/v1"} | arguments))

    refused("max_cost_usd requires --engine-arg price_in", max_cost_usd=1)
    refused("price_in and price_out must be set together", price_in=1)
    refused("greater than 0", max_cost_usd=0, **PRICES)
    with endpoint() as server, pytest.raises(ConfigError, match="max_cost_usd is too low"):
        load(server, max_cost_usd=0.5, **PRICES)
