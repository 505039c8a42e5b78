"""Several servers of one model: they share the load, and one that dies loses nothing."""

import threading
import time

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.openai import servers as openai_pool
from judgelm.errors import EngineError, ModelError
from judgelm.modes.pairwise import Pairwise
from judgelm.records import Request, Sample, Sampling
from judgelm.runs.runner import judge
from tests.support.driving import prompt_of
from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.server import endpoint, first

SAMPLES = [Sample(id=f"s{i}", question=f"what {i}", answers=("a", "b")) for i in range(200)]
MODE = Pairwise(template="judgelm-compact")


def load(*servers, **arguments):
    address = ",".join(one if isinstance(one, str) else one.base_url for one in servers)
    arguments = {"base_url": address, "backoff_s": 0.01} | arguments
    return load_engine("openai", EngineOptions(model="tiny", engine_args=arguments))


def ask(engine, *names):
    engine.submit([Request(key=a, prompt=prompt_of(a), sampling=Sampling(max_tokens=6, stop=("\n",))) for a in names])
    done = {}
    for _ in range(300):
        done |= {completion.key: completion for completion in engine.collect(0.1)}
        if len(done) == len(names):
            return done
    raise AssertionError("a request never came back")


def assert_all_judged(judgments):
    assert sorted(one.sample_id for one in judgments) == sorted(one.id for one in SAMPLES)
    assert {one.scores for one in judgments} == {(8.0, 6.0)}


def judged_by(server):
    return sum("[Q] what" in str(body.get("prompt")) for body in server.bodies)


def test_the_load_is_shared_by_how_much_each_has_in_hand():
    with endpoint(delay_s=0.01) as one, endpoint(delay_s=0.01) as other:
        engine = load(one, other, concurrency=4)
        assert engine.max_in_flight == 4 * (4 + 4)
        assert engine.describe()["endpoint"] == f"{one.base_url},{other.base_url}"
        assert_all_judged(list(judge(SAMPLES, MODE, engine)))
        engine.close()
        assert judged_by(one) + judged_by(other) == 200
        assert 70 <= judged_by(one) <= 130
        assert max(one.counts["at_once"], other.counts["at_once"]) <= 4


def test_a_server_that_is_killed_half_way_loses_nothing():
    with endpoint(delay_s=0.005) as stays, endpoint(delay_s=0.005) as dies:
        engine = load(stays, dies, concurrency=4)
        killed = threading.Event()

        def kill():
            while judged_by(dies) < 40:
                time.sleep(0.001)
            dies.kill()
            killed.set()

        threading.Thread(target=kill).start()
        assert_all_judged(list(judge(SAMPLES, MODE, engine)))
        assert killed.is_set()
        assert engine.stats()["moved_to_another_server"] > 0
        engine.close()
        assert 40 <= judged_by(dies) < 60
        assert judged_by(stays) >= 140


def test_a_server_that_is_back_is_found_out_by_one_request(monkeypatch):
    monkeypatch.setattr(openai_pool, "_DOWN_S", 0.3)
    with endpoint(delay_s=0.01) as stays, endpoint(delay_s=0.01) as returns:
        engine = load(stays, returns)
        returns.kill()
        ask(engine, *(f"a{place}" for place in range(20)))
        before = len(returns.bodies)
        ask(engine, *(f"b{place}" for place in range(20)))
        assert len(returns.bodies) == before  # left out
        returns.start()
        time.sleep(0.35)
        returns.counts["at_once"] = 0
        ask(engine, *(f"c{place}" for place in range(20)))
        assert returns.counts["at_once"] == 1
        ask(engine, *(f"d{place}" for place in range(20)))
        assert returns.counts["at_once"] > 1
        engine.close()


def test_a_fault_of_one_request_is_tried_at_the_other_server():
    with endpoint() as one, endpoint() as other:
        engine = load(one, other, retries=0)
        one.misbehave(first(1, "500"))
        assert ask(engine, "x")["x"].texts == ("8 6",)
        engine.close()


def test_a_server_without_the_key_or_the_model_is_left_out_while_another_answers():
    with endpoint() as good, endpoint() as bad:
        engine = load(good, bad)
        bad.key = "secret"
        done = ask(engine, *(f"a{place}" for place in range(10)))
        assert {one.texts for one in done.values()} == {("8 6",)}
        engine.close()


def test_what_is_the_requests_own_fault_goes_to_no_other_server():
    with endpoint() as one, endpoint() as other:
        engine = load(one, other)
        for server in (one, other):
            server.misbehave(lambda number, body: "400")
        before = len(one.bodies) + len(other.bodies)
        assert "400" in ask(engine, "x")["x"].error
        assert len(one.bodies) + len(other.bodies) == before + 1
        engine.close()


@pytest.mark.parametrize("count", [1, 2])
def test_where_none_answers_requests_fail_or_the_run_stops(count):
    with endpoint() as one, endpoint() as other:
        servers = (one, other)[:count]
        for when_down in ("fail", "stop"):
            engine = load(*servers, retries=1, when_down=when_down)
            for server in servers:
                server.kill()
            if when_down == "stop":
                with pytest.raises(EngineError, match="none of 2 servers answers" if count == 2 else "does not answer"):
                    ask(engine, "x", "y")
            else:
                done = ask(engine, "x", "y")
                assert {one.finish_reasons for one in done.values()} == {("error",)}
                assert all(one.error for one in done.values())
            for server in servers:
                server.start()
            if when_down == "fail":
                assert ask(engine, "z")["z"].texts == ("8 6",)  # up again, without a new engine
            engine.close()


def test_all_may_be_down_for_a_moment():
    with endpoint() as one, endpoint() as other:
        engine = load(one, other, retries=6, backoff_s=0.1)
        one.kill()
        other.kill()
        threading.Timer(0.5, other.start).start()
        assert ask(engine, "x")["x"].texts == ("8 6",)
        engine.close()


def test_at_the_start_one_must_be_there_and_none_may_be_wrong():
    with endpoint() as good, endpoint() as gone, endpoint(models=("another",)) as wrong:
        wrong.misbehave(lambda number, body: (404, {"error": {"message": "no model tiny"}}))
        with pytest.raises(ModelError, match="has no model 'tiny'; available: another"):
            load(good, wrong)
        gone.kill()
        engine = load(good, gone)
        assert ask(engine, "x")["x"].texts == ("8 6",)
        engine.close()
        with pytest.raises(EngineError, match="cannot be reached"):
            load(gone, "http://127.0.0.1:9/v1")


def test_of_servers_that_differ_only_what_all_have_is_used():
    with endpoint() as both, endpoint(has_completions=False) as chat_alone:
        engine = load(both, chat_alone)
        assert engine.describe()["api"] == "chat"
        assert ask(engine, "x")["x"].texts == ("8 6",)
        engine.close()


def test_no_password_of_several_is_shown():
    with endpoint() as one, endpoint(ScriptedBackend()) as other:
        addresses = [server.base_url.replace("//", "//user:pass word@".replace(" ", "%20")) for server in (one, other)]
        engine = load(*addresses)
        assert "pass" not in str(engine.describe())
        one.kill()
        other.kill()
        with pytest.raises(EngineError) as failed:
            ask(engine, "x")
        assert "pass" not in str(failed.value)
        engine.close()
