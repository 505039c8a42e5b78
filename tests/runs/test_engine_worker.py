"""One engine shared by many clients: no request is lost or judged twice, and nobody waits forever."""

import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import EngineError, InputError, ShutdownError
from judgelm.modes import Pairwise
from judgelm.records import Judgment, Sample
from judgelm.runs.engine_worker import EngineWorker, Finished, stream_flow
from tests.support.served import until
from tests.support.writing_engine import WritingEngine


def sample(number):
    return Sample(id=str(number), question=f"q{number}", answers=("a", "b"))


class Gated(ScriptedEngine):
    """Answers nothing before the gate is opened, and counts what it was asked."""

    def __init__(self, script, gate):
        super().__init__(script)
        self.gate = gate
        self.asked = 0
        self.aborted = []

    def submit(self, requests):
        self.asked += len(requests)
        super().submit(requests)

    def collect(self, timeout_s):
        return super().collect(timeout_s) if self.gate.wait(timeout_s) else []

    def abort(self, keys):
        keys = list(keys)
        self.aborted += keys
        super().abort(keys)


@pytest.fixture
def gate():
    return threading.Event()


@pytest.fixture
def worker(gate):
    worker = EngineWorker(Gated({"*": "8 6\n"}, gate), max_queue=20)
    yield worker
    gate.set()
    worker.close()


def ask(worker, number, key=None):
    return worker.submit(lambda: Pairwise()(sample(number)), key=key)


def test_each_client_gets_its_own_judgment(worker, gate):
    futures = [ask(worker, number) for number in range(20)]
    gate.set()
    assert [future.result(5).sample_id for future in futures] == [str(number) for number in range(20)]
    assert (worker.counts.answered, worker.in_flight) == (20, 0)


def test_the_same_question_in_flight_is_judged_once(worker, gate):
    futures = [ask(worker, 1, key="same") for _ in range(5)]
    gate.set()
    assert {future.result(5).scores for future in futures} == {(8.0, 6.0)}
    assert worker.engine.asked == 1
    assert (worker.counts.submitted, worker.counts.joined, worker.counts.answered) == (5, 4, 1)
    assert ask(worker, 1, key="same").result(5).scores == (8.0, 6.0)
    assert worker.engine.asked == 2  # answered before, so it is judged anew


def test_a_cancelled_flow_is_dropped_unless_another_client_waits(worker, gate):
    alone, first, second = ask(worker, 1), ask(worker, 2, key="two"), ask(worker, 2, key="two")
    until(lambda: worker.engine.asked == 2)
    alone.cancel()
    first.cancel()
    until(lambda: worker.engine.aborted)
    gate.set()
    assert second.result(5).sample_id == "2"
    assert (worker.counts.dropped, worker.engine.aborted) == (1, ["0:0"])
    with pytest.raises(CancelledError):
        alone.result(0)


def test_a_flow_that_fails_does_not_affect_others(worker, gate):
    gate.set()
    lacking = Sample(id="x", question="q", answers=("only one",))

    def begin():
        raise InputError("no such thing")
        yield

    with pytest.raises(InputError, match="no such thing"):
        worker.submit(begin).result(5)
    with pytest.raises(IndexError):
        worker.submit(lambda: Pairwise()(lacking)).result(5)
    assert ask(worker, 1).result(5).scores == (8.0, 6.0)
    assert worker.counts.failed == 2


def test_closing_finishes_what_is_in_flight(gate):
    worker = EngineWorker(Gated({"*": "8 6\n"}, gate))
    futures = [ask(worker, number) for number in range(3)]
    threading.Timer(0.2, gate.set).start()
    assert worker.close(finish_s=5) == 0
    assert all(future.result(0).scores == (8.0, 6.0) for future in futures)
    with pytest.raises(ShutdownError, match="shutting down"):
        ask(worker, 4)


class Broken(ScriptedEngine):
    def collect(self, timeout_s):
        raise EngineError("the device fell off the bus")


def test_a_broken_engine_leaves_nobody_waiting():
    worker = EngineWorker(Broken({"*": "8 6\n"}))
    with pytest.raises(EngineError, match="fell off the bus"):
        ask(worker, 1).result(5)
    assert "fell off the bus" in worker.broken
    with pytest.raises(EngineError, match="fell off the bus"):
        ask(worker, 2)
    worker.close()


REASON = "The first answer is shorter and says all that was asked for, so it is the better one."


def test_a_reason_is_streamed():
    worker = EngineWorker(WritingEngine(lambda prompt: REASON if prompt.prefill else "8 6"))

    async def steps():
        return [step async for step in stream_flow(worker, lambda: Pairwise(reasons="all")(sample(1)))]

    *replies, last = asyncio.run(steps())
    worker.close()
    reasons = [reply for step in replies for reply in step if reply.reason]
    assert len({reply.text for reply in reasons}) > 1
    assert all(REASON.startswith(reply.text) for reply in reasons)
    assert {reply.line for reply in reasons} == {"8 6"}
    assert (type(last), type(last.result), last.result.reason) == (Finished, Judgment, REASON)
