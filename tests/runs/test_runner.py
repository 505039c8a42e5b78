"""The runner's loop, with the scripted engine."""

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import EngineError
from judgelm.modes import Pairwise
from judgelm.records import Completion, PairVerdict, Sample
from judgelm.runs.runner import judge


def samples(n):
    return [Sample(id=str(i), question=f"q{i}", answers=("a", "b")) for i in range(n)]


def test_every_sample_is_judged_once_whatever_the_window():
    for window in (1, 2, 7, 1000):
        engine = ScriptedEngine({"*": "8 6\n"}, max_in_flight=window)
        judged = [judgment.sample_id for judgment in judge(samples(50), Pairwise(both_orders=True), engine)]
        assert sorted(judged, key=int) == [str(i) for i in range(50)]


def test_samples_are_read_only_as_there_is_room():
    read = []

    def source():
        for sample in samples(1000):
            read.append(sample.id)
            yield sample

    running = judge(source(), Pairwise(), ScriptedEngine({"*": "8 6\n"}, max_in_flight=10))
    next(running)
    assert len(read) <= 11


class Recording(ScriptedEngine):
    """Notes what is aborted, and answers one request at a time, the last first."""

    def __init__(self, script):
        super().__init__(script, max_in_flight=8)
        self.aborted = []

    def collect(self, timeout_s):
        if not self.waiting:
            return []
        return [self.answer(self.waiting.pop())]

    def abort(self, keys):
        self.aborted += keys


def test_completions_may_come_in_any_order():
    engine = Recording({"*": "8 6\n"})
    assert len(list(judge(samples(20), Pairwise(both_orders=True), engine))) == 20


def test_closing_early_aborts_what_is_in_hand():
    engine = Recording({"*": "8 6\n"})
    running = judge(samples(20), Pairwise(), engine)
    next(running)
    running.close()
    assert len(engine.aborted) == 7  # eight in hand, one judged


class Broken(ScriptedEngine):
    """Breaks on its second turn."""

    def __init__(self):
        super().__init__({"*": "8 6\n"}, max_in_flight=4)
        self.turns = 0

    def collect(self, timeout_s) -> list[Completion]:
        self.turns += 1
        if self.turns == 2:
            raise EngineError("the device is gone")
        return super().collect(timeout_s)


def test_an_engine_that_breaks_stops_the_run_and_what_was_given_stands():
    running = judge(samples(20), Pairwise(), Broken())
    assert [next(running).verdict for _ in range(4)] == [PairVerdict(winner=1)] * 4
    with pytest.raises(EngineError, match="the device is gone"):
        next(running)
