"""Judgments on request: in order, once each, from many threads, and failures that are not remembered."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import EngineError
from judgelm.modes import Pairwise
from judgelm.records import Sample
from judgelm.rewards.scoring import JudgeQueue

MODE = Pairwise(template="judgelm-compact")


def pair(first, second="b", **fields):
    return Sample(id="any", question="q", answers=(first, second), **fields)


class CountingEngine(ScriptedEngine):
    """Counts the requests of each batch; its script may change."""

    def __init__(self, script):
        super().__init__(lambda prompt: self.script(prompt))
        self.script = script
        self.batches = []

    def collect(self, timeout_s):
        self.batches.append(len(self.waiting))
        return super().collect(timeout_s)


def length_of(prompt):
    """The longer answer is better."""
    first, second = (len(span.text) for span in prompt.spans if span.kind == "answer")
    return f"{min(first, 10)} {min(second, 10)}\n"


def test_judgments_come_in_the_order_asked_and_each_sample_is_judged_once():
    engine = CountingEngine(length_of)
    with JudgeQueue(MODE, engine) as queue:
        samples = [pair("a" * size) for size in (3, 1, 3, 2)]
        assert [judgment.scores for judgment in queue.judge(samples)] == [(3, 1), (1, 1), (3, 1), (2, 1)]
        assert [judgment.scores for judgment in queue.judge(samples[::-1])] == [(2, 1), (3, 1), (1, 1), (3, 1)]
        assert queue.judged == 3


def test_a_reference_makes_another_sample():
    with JudgeQueue(MODE, CountingEngine(length_of)) as queue:
        queue.judge([pair("a"), pair("a", reference="r"), pair("a", reference="s"), pair("", "ab"), pair("a", "b")])
        assert queue.judged == 4


def test_a_failure_is_a_judgment_that_is_not_remembered():
    engine = CountingEngine(lambda prompt: "nonsense")
    with JudgeQueue(MODE, engine) as queue:
        [judgment] = queue.judge([pair("a")])
        assert judgment.failure.code == "off_grammar"
        engine.script = length_of
        [judgment] = queue.judge([pair("a")])
        assert judgment.failure is None
        assert queue.judged == 2


def test_the_cache_forgets_the_least_recently_used():
    with JudgeQueue(MODE, CountingEngine(length_of), cache_size=2) as queue:
        for answer in ("a", "aa", "a", "aaa", "a", "aa"):
            queue.judge([pair(answer)])
        assert queue.judged == 4  # a, aa, aaa, and aa again


def test_many_threads_share_batches():
    together, engine = threading.Barrier(8), CountingEngine(length_of)
    release = threading.Event()

    def slow(prompt):
        release.wait(20)
        return length_of(prompt)

    engine.script = slow
    with JudgeQueue(MODE, engine) as queue, ThreadPoolExecutor(8) as pool:

        def ask(size):
            together.wait(20)
            future = queue.submit(pair("a" * size))
            release.set()
            return future.result(20).scores

        assert list(pool.map(ask, range(1, 9))) == [(size, 1) for size in range(1, 9)]
    assert sum(engine.batches) == 8


def test_a_broken_engine_is_told_to_all_who_wait_and_to_all_who_come_later():
    class Broken(ScriptedEngine):
        def collect(self, timeout_s):
            raise EngineError("out of order")

    queue = JudgeQueue(MODE, Broken({"*": "1 2\n"}))
    with pytest.raises(EngineError, match="out of order"):
        queue.judge([pair("a"), pair("aa")])
    with pytest.raises(EngineError, match="cannot be asked: out of order"):
        queue.submit(pair("aaa"))
    queue.close()


def test_a_closed_queue_finishes_what_was_asked_and_takes_no_more():
    queue = JudgeQueue(MODE, CountingEngine(length_of))
    futures = [queue.submit(pair("a" * size)) for size in range(1, 5)]
    queue.close()
    assert [future.result(0).scores[0] for future in futures] == [1, 2, 3, 4]
    with pytest.raises(EngineError, match="closed"):
        queue.submit(pair("b"))
