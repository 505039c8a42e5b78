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
