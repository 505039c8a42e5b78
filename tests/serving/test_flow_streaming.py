"""A flow that somebody watches."""

import asyncio

import pytest

from judgelm.modes import Pairwise
from judgelm.records import Judgment, Sample
from judgelm.serving.engine_worker import EngineWorker, Finished, stream_flow
from tests.support.writing_engine import WritingEngine

SAMPLE = Sample(id="1", question="q", answers=("a", "b"))
REASON = "The first answer is shorter and says all that was asked for, so it is the better one."


def script(prompt):
    return REASON if prompt.prefill else "8 6"


@pytest.fixture
def engine():
    return WritingEngine(script)


@pytest.fixture
def worker(engine):
    worker = EngineWorker(engine)
    yield worker
    worker.close()


def test_a_reason_is_seen_growing(worker):
    async def steps():
        return [step async for step in stream_flow(worker, lambda: Pairwise(reasons="all")(SAMPLE))]

    *replies, last = asyncio.run(steps())
    reasons = [one.text for step in replies for one in step if one.reason]
    assert len(set(reasons)) > 1
    assert all(REASON.startswith(text) for text in reasons)
    assert {one.line for step in replies for one in step if one.reason} == {"8 6"}
    assert isinstance(last, Finished)
    assert isinstance(last.result, Judgment)
    assert last.result.reason == REASON


def test_who_stops_listening_drops_the_flow(worker, engine):
    engine.pause = True

    async def leave():
        steps = stream_flow(worker, lambda: Pairwise(reasons="all")(SAMPLE))
        task = asyncio.ensure_future(anext(steps))
        await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await steps.aclose()
        until = asyncio.get_running_loop().time() + 5
        while worker.in_flight and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)

    asyncio.run(leave())
    assert (worker.in_flight, worker.counts.dropped, worker.counts.answered) == (0, 1, 0)
