"""A whole run with repairs, on an engine that can hold a reply to a grammar, and the table at its end."""

import json
import re
import threading

import pytest
from rich.console import Console

from judgelm import Judge
from judgelm.cli.run import summary_table
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, InputError
from judgelm.modes import Pairwise
from judgelm.records import Completion, Sample
from judgelm.runs.batch import BatchHooks, BatchJob, prefetch, run_batch
from judgelm.runs.run_files import read_judgments
from judgelm.runs.stats import RunStats
from tests.support.jsonl_files import write_rows


class GrammaticalEngine(ScriptedEngine):
    """Scripted, and answers what is held to a grammar with `5 7`, if the grammar allows it."""

    supports_grammar = True

    def __init__(self, script):
        super().__init__(script)
        self._held = []

    def submit(self, requests):
        self._held += [request for request in requests if request.sampling.grammar is not None]
        super().submit([request for request in requests if request.sampling.grammar is None])

    def collect(self, timeout_s):
        held, self._held = self._held, []
        assert all(re.fullmatch(request.sampling.grammar, "5 7") for request in held)
        repaired = [Completion(key=request.key, texts=("5 7",), finish_reasons=("stop",)) for request in held]
        return super().collect(timeout_s) + repaired

    def stats(self):
        return {"retries": {"timeout": 1, "server error": 2}, "not_taken_by_server": ["seed"], "cost_usd": 0.0125}


def shown(table):
    console = Console(width=120)
    with console.capture() as printed:
        console.print(table)
    return " ".join(printed.get().split())


def test_a_repaired_reply_is_a_judgment_and_the_summary_shows_repairs_retries_and_cost(tmp_path):
    rows = ({"id": f"p{i}", "question": f"q{i}", "answer_1": "a", "answer_2": "b"} for i in range(2))
    job = BatchJob(inputs=(str(write_rows(tmp_path / "pairs.jsonl", rows)),), out=str(tmp_path / "out.jsonl"))
    mode = Pairwise(retry_unparseable=True)
    engine = GrammaticalEngine({"q0|a|b": "8 6\n", "q1|a|b": "dunno\n"})
    stats = run_batch(job, mode, engine, hooks=BatchHooks())
    judgments = read_judgments(tmp_path / "out.jsonl")
    assert [judgments[key].verdict.winner for key in ("p0", "p1")] == [1, 2]
    assert (judgments["p0"].repaired, judgments["p1"].repaired) == (False, True)
    assert judgments["p1"].shown[0].repaired.text == "dunno"
    assert (stats.judged, stats.repaired, stats.failures) == (2, 1, {})
    [session] = json.loads((tmp_path / "out.run.json").read_text())["sessions"]
    assert (session["repaired"], session["engine"]) == (1, engine.stats())
    text = shown(summary_table(stats, mode, engine.stats()))
    for row in (
        "only after a constrained retry │ 1",
        "engine: retries │ 3 (server error 2, timeout 1)",
        "engine: not taken by server │ seed",
        "cost │ 0.0125 USD",
    ):
        assert row in text


def test_the_python_door_refuses_repairs_where_no_grammar_is_to_be_had():
    with (
        Judge("dunno", engine="scripted") as judge,
        pytest.raises(ConfigError, match="requires grammars, which the scripted engine does not support"),
    ):
        judge.compare("q", "a", "b", retry_unparseable=True)


def test_the_summary_says_when_an_engine_gave_no_probabilities():
    text = shown(summary_table(RunStats(judged=2), Pairwise(distribution=True), {}))
    assert "with P(first better) │ 0 of 2" in text
    assert "without: the engine returned no probabilities │ 2" in text


def sample(i):
    return Sample(id=str(i), question="q", answers=("a", "b"))


def test_all_samples_come_in_order_and_the_end_is_seen():
    samples = [item for item in prefetch([sample(i) for i in range(500)], hold=8) if item is not None]
    assert [item.id for item in samples] == [str(i) for i in range(500)]


def test_none_is_given_while_the_source_is_silent():
    go_on = threading.Event()

    def slow():
        yield sample(0)
        go_on.wait(10)
        yield sample(1)

    source = prefetch(slow(), hold=8)
    first = next(item for item in source if item is not None)
    assert first.id == "0"
    assert next(source) is None
    go_on.set()
    assert [item.id for item in source if item is not None] == ["1"]


def test_an_error_of_the_source_is_raised_where_it_is_read():
    def broken():
        yield sample(0)
        raise InputError("pipe: torn")

    with pytest.raises(InputError, match="pipe: torn"):
        list(prefetch(broken(), hold=8))
