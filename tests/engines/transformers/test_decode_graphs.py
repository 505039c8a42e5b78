"""Passes over running replies that are recorded and repeated: the same replies, whatever joins and leaves."""

from dataclasses import replace

import pytest
import torch

from judgelm.engines.base import EngineOptions
from judgelm.engines.transformers.decode_graphs import DecodeGraphs
from judgelm.engines.transformers.engine import TransformersEngine
from judgelm.engines.transformers.loading import load
from judgelm.records import Request, Sampling
from tests.support.driving import prompt_of, run


def requests(count=40, **sampling):
    return [
        Request(
            key=str(i),
            prompt=prompt_of("a big fox jumps " * (i % 7 + 1), f"what {i}"),
            sampling=Sampling(max_tokens=3 + 5 * (i % 6), **sampling),
        )
        for i in range(count)
    ]


class Graphs:
    """A recorder that repeats plainly and counts; a failing one stands for a model that cannot be recorded."""

    def __init__(self, error=None):
        self.recorded = self.repeated = 0
        self.error = error

    def __call__(self, run):
        if self.error is not None:
            raise self.error
        self.recorded += 1

        def repeat():
            self.repeated += 1
            return run()

        return repeat


def engine_with(model, recorder, **options):
    engine = TransformersEngine(load(EngineOptions(model=str(model))), decode_graphs=True, **options)
    engine._graphs = DecodeGraphs(engine._decode, recorder)
    return engine


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "n": 2}], ids=["greedy", "sampled"])
def test_recorded_passes_give_the_same_replies(tiny_model, sampling):
    recorder = Graphs()
    plain = TransformersEngine(load(EngineOptions(model=str(tiny_model))), max_num_seqs=12)
    expected = run(plain, requests(**sampling))
    actual = run(engine_with(tiny_model, recorder, max_num_seqs=12), requests(**sampling))
    assert {key: done.texts for key, done in actual.items()} == {key: done.texts for key, done in expected.items()}
    assert recorder.repeated > recorder.recorded > 0


def test_a_model_that_cannot_be_recorded_runs_on_and_says_so(tiny_model):
    recorder = Graphs(RuntimeError("operation not permitted when stream is capturing"))
    engine = engine_with(tiny_model, recorder)
    expected = run(TransformersEngine(load(EngineOptions(model=str(tiny_model)))), requests())
    assert {key: done.texts for key, done in run(engine, requests()).items()} == {
        key: done.texts for key, done in expected.items()
    }
    [note] = engine.stats()["notes"]
    assert "without CUDA graphs" in note
    assert "stream is capturing" in note


def test_too_little_memory_to_record_is_no_failure_of_the_model(tiny_model):
    engine = engine_with(tiny_model, Graphs(torch.OutOfMemoryError("CUDA out of memory")))
    run(engine, requests(8))
    assert not engine.stats()["notes"]


def test_rows_hold_the_whole_reply_so_that_passes_repeat(tiny_model):
    recorder = Graphs()
    long = [replace(one, sampling=Sampling(max_tokens=100)) for one in requests(4)]
    run(engine_with(tiny_model, recorder), long)
    # replies of 100 tokens fit no row of a first 128 tokens less their prompt and spare; still nothing is moved
    assert recorder.recorded == 1
