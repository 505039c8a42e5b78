"""The runner's loop, reading ahead, a whole run with repairs, and what a session counts."""

import json
import math
import re
import threading

import pytest
from rich.console import Console

from judgelm import Judge
from judgelm.cli.run import summary_table
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, EngineError, InputError
from judgelm.modes import Pairwise
from judgelm.parsing.scores import pair_distribution, score_lines
from judgelm.records import Completion, Judgment, PairVerdict, Sample, Shown, Unparsed
from judgelm.runs.batch import BatchHooks, BatchJob, prefetch, run_batch
from judgelm.runs.run_files import read_judgments
from judgelm.runs.runner import judge
from judgelm.runs.stats import RunStats
from tests.support.jsonl_files import write_rows


def samples(count):
    return [Sample(id=str(i), question=f"q{i}", answers=("a", "b")) for i in range(count)]


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


def test_completions_may_come_in_any_order_and_closing_early_aborts_what_is_in_hand():
    engine = Recording({"*": "8 6\n"})
    assert len(list(judge(samples(20), Pairwise(both_orders=True), engine))) == 20
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


# Reading ahead


def test_all_samples_come_in_order_and_the_end_is_seen():
    assert [sample for sample in prefetch(samples(500), hold=8) if sample is not None] == samples(500)


def test_none_is_given_while_the_source_is_silent():
    go_on = threading.Event()

    def slow():
        yield "first"
        go_on.wait(10)
        yield "second"

    source = prefetch(slow(), hold=8)
    assert next(item for item in source if item is not None) == "first"
    assert next(source) is None
    go_on.set()
    assert [item for item in source if item is not None] == ["second"]


def test_an_error_of_the_source_is_raised_where_it_is_read():
    def broken():
        yield from samples(1)
        raise InputError("pipe: torn")

    with pytest.raises(InputError, match="pipe: torn"):
        list(prefetch(broken(), hold=8))


# A whole run with repairs


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
        assert all(re.fullmatch(request.sampling.grammar.text, "5 7") for request in held)
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
    assert "only after a constrained retry │ 1" in text
    assert "engine: retries │ 3 (server error 2, timeout 1)" in text
    assert "engine: not taken by server │ seed" in text
    assert "cost │ 0.0125 USD" in text


def test_python_callers_cannot_ask_for_repairs_without_grammars():
    with Judge("dunno", engine="scripted") as judge:
        judge.engine.supports_grammar = False
        with pytest.raises(ConfigError, match="requires grammars"):
            judge.compare("q", "a", "b", retry_unparseable=True)


def test_the_summary_says_when_an_engine_gave_no_probabilities():
    text = shown(summary_table(RunStats(judged=2), Pairwise(distribution=True), {}))
    assert "with P(first better) │ 0 of 2" in text
    assert "without: the engine returned no probabilities │ 2" in text


# What a session counts of distributions, reasons and repairs

GIVEN = {"order": (0, 1), "text": "8 6", "scores": (8, 6)}


def judged(*shown, probability=None):
    return Judgment(
        sample_id="1", mode="pair", verdict=PairVerdict(winner=1), shown=shown, scores=(8, 6), probability=probability
    )


def some(mass):
    return pair_distribution(score_lines((1, 2), 1), [-math.inf, -math.inf, math.log(mass), -math.inf], "")


def stats_of(*judgments):
    stats = RunStats()
    for judgment in judgments:
        stats.add(judgment)
    return stats


def test_the_manifest_keeps_its_keys():
    keys = """abstained approximations both_orders coerced completion_tokens consistent cut distributions
        earlier_failures empty_slots failures first_failure grade_distributions grade_sum grades judge_s judged labels
        little_mass load_s mean_unassigned neutralised parts_failed probabilities prompt_tokens
        prompt_tokens_per_s rankings reason_cut reasons reasons_failed reasons_incomplete rejected repaired
        repeated samples_per_s shown skipped split_contexts thinking thinking_characters unanimous votes winners"""
    assert sorted(RunStats().row()) == keys.split()


def test_repairs_and_reasons_are_counted_apart():
    stats = stats_of(
        judged(Shown(**GIVEN, repaired=Unparsed("off_grammar", "x")), Shown(**GIVEN, reason="why")),
        judged(Shown(**GIVEN, reason="why", reason_failure=Unparsed("truncated", ""))),
        judged(Shown(**GIVEN, reason_failure=Unparsed("engine", "gone"))),
    )
    assert (stats.judged, stats.repaired) == (3, 1)
    assert (stats.reasons, stats.reasons_incomplete, stats.reasons_failed) == (2, 1, 1)


def test_unassigned_mass_is_a_mean_over_orders_and_mostly_unassigned_is_counted():
    stats = stats_of(
        judged(Shown(**GIVEN, distribution=some(1.0)), Shown(**GIVEN, distribution=some(0.8)), probability=1.0),
        judged(Shown(**GIVEN, distribution=some(0.4))),
        judged(Shown(**GIVEN)),
    )
    # 0, 0.2 and 0.6 over three orders
    assert math.isclose(stats.mean_unassigned, 0.8 / 3)
    assert (stats.probabilities, stats.mostly_unassigned, stats.distributions) == (1, 1, 3)
    assert math.isclose(stats.row()["mean_unassigned"], 0.8 / 3)
    assert RunStats().row()["mean_unassigned"] is None
