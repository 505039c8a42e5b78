"""Workers on a Ray of this machine, by themselves and behind a server: lost workers, fatal requests, disagreement."""

import json
import os
import signal
from contextlib import contextmanager

import pytest
import torch

from benchmarks.tiny_model import make_base
from judgelm import Judge
from judgelm.cluster.engine import total_stats
from judgelm.cluster.plan import RayCluster
from judgelm.errors import EngineError, ModelError
from judgelm.records import Sample
from judgelm.runs.runner import judge
from tests.support.fragile_engine import WORDS
from tests.support.served import CHAT, served, until

pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
TWO = RayCluster(workers=2, cores=1)

pytestmark = [pytest.mark.distributed, pytest.mark.usefixtures("ray_cluster")]


def samples(count, **odd):
    questions = {number: word for word, number in odd.items()}
    return [Sample(id=str(i), question=f"{questions.get(i, 'q')} {i}", answers=("a", "b")) for i in range(count)]


def kill(engine, worker):
    os.kill(engine._pool._slots[worker].location.pid, signal.SIGKILL)


def test_a_killed_worker_costs_nothing_and_another_takes_its_place():
    with Judge("any", engine="fragile", cluster=TWO) as fragile:
        judged = []
        for judgment in judge(samples(150), fragile.pairwise(), fragile.engine):
            judged.append((judgment.sample_id, judgment.scores))
            if len(judged) == 21:
                kill(fragile.engine, 0)
        stats = fragile.engine.stats()
    assert sorted(judged) == sorted((str(i), (8.0, 6.0)) for i in range(150))
    assert stats["lost_workers"] == 1
    assert stats["requests_sent_again"] > 0


def test_a_request_that_ends_workers_fails_alone():
    with Judge("any", engine="fragile", cluster=TWO) as fragile:
        finished = judge(samples(20, poison=3), fragile.pairwise(), fragile.engine)
        judgments = {judgment.sample_id: judgment for judgment in finished}
        assert fragile.engine.stats()["lost_workers"] <= 3
    assert [key for key, judgment in judgments.items() if judgment.failure] == ["3"]
    assert (len(judgments), judgments["3"].failure.code) == (20, "engine")
    assert "lost with this request in flight" in judgments["3"].failure.text


def test_an_engine_that_breaks_is_a_lost_worker_and_its_words_are_kept():
    with Judge("any", engine="fragile", cluster=RayCluster(workers=1, cores=1)) as fragile:
        [judgment] = judge(samples(1, breaks=0), fragile.pairwise(), fragile.engine)
    assert "a kernel failed" in judgment.failure.text


def test_workers_that_do_not_agree_are_refused():
    with pytest.raises(EngineError, match="the workers differ: versions is "):
        Judge("differs", engine="fragile", cluster=TWO)


def test_a_model_that_is_not_on_a_node_is_said_with_its_name():
    with pytest.raises(ModelError, match=f"on {os.uname().nodename}: absent: no such folder"):
        Judge("absent", engine="fragile", cluster=TWO)


def test_workers_without_a_place_are_not_waited_for_for_ever():
    with pytest.raises(EngineError, match="could not place 1 worker of 64 cores within 1 s"):
        Judge("any", engine="fragile", cluster=RayCluster(workers=1, cores=64, placing_timeout_s=1))


def test_the_format_is_chosen_by_one_worker_for_all(tmp_path):
    shape = {"hidden_size": 64, "layers": 1, "heads": 2, "vocab_size": 300, "max_positions": 512, "seed": 0}
    make_base(["a b a b"], tmp_path, **shape, dtype=torch.bfloat16)
    with Judge(str(tmp_path), engine="transformers", cluster=TWO) as judge:
        dtype = judge.engine.describe()["dtype"]
        assert judge.engine._pool._options.dtype == dtype  # what a worker in place of a lost one loads, too
        [note] = judge.engine.stats()["notes"]  # of the choice; both workers were told, and chose nothing
    assert note.startswith(f"dtype: {dtype}")


def test_counts_are_those_of_all_workers_together():
    first, second = {"retries": {"timeout": 1}, "cost_usd": 0.5, "names": ["b"]}, {"retries": {"timeout": 2, "cut": 1}}
    both = {"retries": {"timeout": 3, "cut": 1}, "cost_usd": 0.75, "names": ["a", "b"]}
    assert total_stats([first, second, {"cost_usd": 0.25, "names": ["a", "b"]}]) == both


HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True}


@contextmanager
def serving(engine, model="any", **options):
    """A server in front of workers with this engine; the server and the engine over them."""
    with Judge(model, engine=engine, cluster=TWO) as judge, served(judge.engine, **options) as server:
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


def busy_worker(engine):
    return next(worker for worker in engine._pool.ready if engine._scheduler.in_flight(worker))


PAIR = {"question": "q", "answer_1": "a", "answer_2": "b"}


def test_a_client_that_leaves_frees_the_worker_at_once():
    with serving("writing", unknown="answer") as (server, engine):
        with chat(server) as events:
            next(events)
        until(lambda: server.counts.dropped == 1)
        # the abort reaches the worker although nothing else is asked for
        until(lambda: engine.stats()["waiting"] == 0 and not engine._aborted, seconds=1.5)
        assert server.counts.answered == 0


def test_a_stream_goes_on_with_the_next_worker():
    with serving("writing", unknown="answer") as (server, engine), chat(server) as events:
        first = text_of(next(events))
        kill(engine, busy_worker(engine))
        *others, last = events
        assert (first + "".join(map(text_of, others)), last) == (WORDS, "[DONE]")
        assert engine.stats()["lost_workers"] == 1


def test_a_stream_whose_next_worker_writes_something_else_ends_with_an_error():
    with serving("writing", "differs", unknown="answer") as (server, engine), chat(server) as events:
        next(events)
        kill(engine, busy_worker(engine))
        *_, last = events
        assert json.loads(last)["error"]["code"] == "engine_unavailable"
    assert server.handler.worker.broken is None


def test_a_worker_that_is_lost_while_idle_is_replaced_before_the_next_request():
    with serving("fragile") as (server, engine):
        assert server.post("/v1/judge", PAIR).status_code == 200
        lost = engine._pool._slots[0].location
        kill(engine, 0)
        until(lambda: len(engine._pool.ready) == 2 and engine._pool._slots[0].location != lost, seconds=30)
        assert engine._pool.lost == 1
        assert server.post("/v1/judge", PAIR | {"question": "q1"}).json()["scores"] == [8.0, 6.0]
