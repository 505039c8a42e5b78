"""A server whose judge is on workers: replies as they are written, clients that leave, and workers that are lost."""

import json
import os
import signal
from contextlib import contextmanager

import pytest

from judgelm import Judge
from judgelm.cluster.plan import RayCluster
from tests.support.fragile_engine import WORDS
from tests.support.served import CHAT, served, until

pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
pytestmark = [pytest.mark.distributed, pytest.mark.usefixtures("ray_cluster")]
TWO = RayCluster(workers=2, cores=1)
HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True}


@contextmanager
def serving(engine, model="any", cluster=TWO, **options):
    """A server before workers with this engine; the server and the engine over them."""
    with Judge(model, engine=engine, cluster=cluster) as judge, served(judge.engine, **options) as server:
        yield server, judge.engine


@contextmanager
def chat(server):
    """The events of a streamed chat as they come, the opening one excepted."""
    with server.http.stream("POST", CHAT, json=HELLO) as reply:
        assert reply.status_code == 200, reply.read()
        lines = (line.removeprefix("data: ") for line in reply.iter_lines() if line)
        next(lines)
        yield lines


def text_of(event):
    return "".join(choice["delta"].get("content", "") for choice in json.loads(event)["choices"])


def kill(engine, worker):
    os.kill(engine._pool._slots[worker].location.pid, signal.SIGKILL)


def busy_worker(engine):
    return next(worker for worker in engine._pool.ready if engine._scheduler.in_flight(worker))


def pair(number):
    return {"question": f"q{number}", "answer_1": "a", "answer_2": "b"}


def test_a_client_that_leaves_frees_the_worker_at_once():
    with serving("writing", chat=True) as (server, engine):
        with chat(server) as events:
            next(events)
        until(lambda: server.counts.dropped == 1)
        # the abort reaches the worker although nothing else is asked for
        until(lambda: engine.stats()["waiting"] == 0 and not engine._aborted, seconds=1.5)
        assert server.counts.answered == 0


def test_a_stream_goes_on_with_the_next_worker():
    with serving("writing", chat=True) as (server, engine), chat(server) as events:
        first = text_of(next(events))
        kill(engine, busy_worker(engine))
        *others, last = events
        assert first + "".join(map(text_of, others)) == WORDS
        assert last == "[DONE]"
        assert engine.stats()["lost_workers"] == 1


def test_a_stream_whose_next_worker_writes_something_else_ends_with_an_error():
    with serving("writing", "differs", chat=True) as (server, engine), chat(server) as events:
        next(events)
        kill(engine, busy_worker(engine))
        *_, last = events
        assert json.loads(last)["error"]["code"] == "engine_unavailable"
    assert server.handler.worker.broken is None


def test_a_worker_that_is_lost_while_idle_is_replaced_before_the_next_request():
    with serving("fragile") as (server, engine):
        assert server.post("/v1/judge", pair(0)).status_code == 200
        lost = engine._pool._slots[0].location
        kill(engine, 0)
        until(lambda: len(engine._pool.ready) == 2 and engine._pool._slots[0].location != lost, seconds=30)
        assert engine._pool.lost == 1
        assert server.post("/v1/judge", pair(1)).json()["scores"] == [8.0, 6.0]
