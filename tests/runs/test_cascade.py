"""A small judge first, a larger one for what it is unsure of: who is shown what, killed and resumed, joined by id."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError, RunError
from judgelm.modes import Pairwise
from judgelm.prompts.truncation import prompt_key
from judgelm.runs.batch import BatchHooks, BatchJob, run_batch
from judgelm.runs.cascade import Cascade, join_runs
from judgelm.runs.run_files import read_judgments
from tests.support.batch_runs import wait_for_judgments
from tests.support.jsonl_files import rows_of, write_rows

SMALL = {"q0|a|b": "9 2\n", "q1|a|b": "2 9\n", "q2|a|b": "5 5\n", "q3|a|b": "dunno\n", "q4|a|b": "6 6\n"}
LARGE = {"q2|a|b": "8 3\n", "q3|a|b": "3 8\n", "q4|a|b": "7 7\n"}  # knows no other pair: being shown one is a failure


class TenthsEngine(ScriptedEngine):
    """Scripted, and puts the tenths that stand in the question on answer `a` being the better one."""

    def answer(self, request):
        question, first, _ = prompt_key(request.prompt).split("|")
        better = int(question) / 10 if first == "a" else 1 - int(question) / 10
        known = {"8 3": math.log(better), "3 8": math.log(1 - better)}
        logprobs = tuple(known.get(line, -math.inf) for line in request.candidates)
        return replace(super().answer(request), candidate_logprobs=logprobs or None)


class MuteEngine(ScriptedEngine):
    """Scripted, and gives no probabilities, like a server without logprobs."""

    def answer(self, request):
        return replace(super().answer(request), candidate_logprobs=None)


@pytest.fixture
def cascade_of(tmp_path):
    """The cascade over pairs that ask these questions."""

    def make(*questions):
        rows = ({"id": f"p{i}", "question": q, "answer_1": "a", "answer_2": "b"} for i, q in enumerate(questions))
        job = BatchJob(inputs=(str(write_rows(tmp_path / "pairs.jsonl", rows)),), out=str(tmp_path / "out.jsonl"))
        return Cascade(job=job, models=("small", "large"), band=(0.3, 0.7))

    return make


@pytest.fixture
def cascade(cascade_of):
    return cascade_of(*(f"q{i}" for i in range(5)))


def run(cascade, small, large, **options):
    """Both runs and the joined one."""
    run_batch(cascade.small_job, Pairwise(distribution=True, **options), small, hooks=BatchHooks())
    run_batch(cascade.large_job(cascade.unsure()), Pairwise(**options), large, hooks=BatchHooks())
    return join_runs(cascade)


def test_the_large_judge_sees_ties_and_failures_and_nothing_else(cascade, tmp_path):
    stats, counts = run(cascade, ScriptedEngine(SMALL), ScriptedEngine(LARGE))
    judgments = read_judgments(tmp_path / "out.jsonl")
    decided = {key: (judgment.decided_by, judgment.verdict.winner) for key, judgment in sorted(judgments.items())}
    by = ("small", "small", "large", "large", "large")
    assert decided == {f"p{i}": decision for i, decision in enumerate(zip(by, (1, 2, 1, 2, "tie"), strict=True))}
    assert (stats.judged, stats.failures, stats.winners) == (5, {}, {"1": 2, "2": 2, "tie": 1})
    # p2: a tie became a winner; p3: no verdict became one; p4: a tie stayed a tie
    assert (counts.pairs, counts.passed_on, counts.passed_on_failed) == (5, 3, 1)
    assert (counts.compared, counts.changed, counts.mended, counts.waiting) == (2, 1, 1, 0)


@pytest.mark.parametrize(("tenths", "passed"), [(2, False), (3, True), (5, True), (7, True), (8, False)])
def test_both_ends_of_the_band_are_unsure(cascade_of, tenths, passed):
    cascade = cascade_of(str(tenths))
    # in both orders: P(first better) is the mean of 0.3 and 1 - 0.7, which floats make a little less than 0.3
    _, counts = run(cascade, TenthsEngine({"*": "8 3\n"}), ScriptedEngine({"*": "8 3\n"}), both_orders=True)
    assert counts.passed_on == passed


def test_each_run_has_its_manifest_and_they_say_models_and_band(cascade, tmp_path):
    run(cascade, ScriptedEngine(SMALL), ScriptedEngine(LARGE))
    manifests = {
        name: json.loads((tmp_path / f"{name}.run.json").read_text()) for name in ("out.small", "out.large", "out")
    }
    models = [manifests[name]["fingerprint"]["model"] for name in ("out.small", "out.large")]
    assert models[0] != models[1]
    joined = manifests["out"]["fingerprint"]["cascade"]
    assert (joined["band"], joined["small"]["model"], joined["large"]["model"]) == ([0.3, 0.7], *models)
    assert manifests["out.large"]["fingerprint"]["cascade"]["small"]["model"] == models[0]
    assert manifests["out"]["cascade"]["counts"]["passed_on"] == 3
    [provenance] = manifests["out"]["provenance"]
    assert {row["provenance"] for row in rows_of(tmp_path / "out.jsonl")} == {provenance}


def test_joining_again_writes_nothing_and_a_judgment_that_has_changed_is_added(cascade, tmp_path):
    replies = dict(SMALL)

    def small(prompt):
        return replies[prompt_key(prompt)]

    run(cascade, ScriptedEngine(small), ScriptedEngine(LARGE))
    before = (tmp_path / "out.jsonl").read_bytes()
    join_runs(cascade)
    assert (tmp_path / "out.jsonl").read_bytes() == before
    replies["q3|a|b"] = "9 1"  # judged again, it is sure: what the large judge said of it no longer counts
    again = replace(cascade, job=replace(cascade.job, retry="failed"))
    _, counts = run(again, ScriptedEngine(small), ScriptedEngine(LARGE))
    assert (counts.passed_on, counts.mended) == (2, 0)
    added = (tmp_path / "out.jsonl").read_bytes().removeprefix(before)
    assert [json.loads(line)["id"] for line in added.splitlines()] == ["p3"]
    assert read_judgments(tmp_path / "out.jsonl")["p3"].decided_by == "small"


def test_other_texts_and_another_band_are_another_cascade(cascade, tmp_path):
    run(cascade, ScriptedEngine(SMALL), ScriptedEngine(LARGE))
    with pytest.raises(RunError, match=r"cascade\.band: was \[0\.3, 0\.7\], now \[0\.2, 0\.8\]"):
        run(replace(cascade, band=(0.2, 0.8)), ScriptedEngine(SMALL), ScriptedEngine(LARGE))
    rows = rows_of(tmp_path / "out.large.jsonl")
    rows[0]["hashes"]["question"] = "0" * 16
    write_rows(tmp_path / "out.large.jsonl", rows)
    with pytest.raises(RunError, match=f'id "{rows[0]["id"]}": the texts differ from'):
        join_runs(cascade)


def test_an_engine_without_probabilities_and_the_output_of_one_judge_are_refused(cascade):
    look = cascade.refuse_without_probabilities()
    hooks = BatchHooks(on_judgment=lambda stats, judgment: look(judgment))
    with pytest.raises(ConfigError, match=r"small: the engine returns no probabilities.*--engine transformers"):
        run_batch(cascade.small_job, Pairwise(distribution=True), MuteEngine({"*": "8 2\n"}), hooks=hooks)
    with pytest.raises(ConfigError, match="no probabilities"):  # and on a rerun, which judges nothing again
        cascade.unsure()
    run_batch(cascade.job, Pairwise(), ScriptedEngine({"*": "8 2\n"}), hooks=BatchHooks())
    with pytest.raises(RunError, match="not the output of a cascade"):  # a single judge's output is left alone
        cascade.check_out()
    replace(cascade, job=replace(cascade.job, overwrite=True)).check_out()


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"band": (0.7, 0.3)}, "expected LOW,HIGH"),
        ({"band": (0.6, 0.9)}, "expected LOW,HIGH"),
        ({"out": "-"}, "an output file with -o"),
        ({"inputs": ("-",)}, "reads its input twice"),
        ({"inputs": ("/dev/null",)}, "reads its input twice"),
        ({"inputs": ("out.large.jsonl",)}, "would overwrite the input"),
    ],
)
def test_what_cannot_be_a_cascade_is_refused_before_any_model_is_loaded(tmp_path, change, finding):
    [name] = change.get("inputs", ("a.jsonl",))
    (tmp_path / "out.large.jsonl").touch()
    inputs = (str(tmp_path / name) if name.endswith("jsonl") else name,)
    job = BatchJob(inputs=inputs, out=change.get("out", str(tmp_path / "out.jsonl")))
    with pytest.raises(ConfigError, match=finding):
        Cascade(job=job, models=("small", "large"), band=change.get("band", (0.3, 0.7)))


SLOW_RUN = """
import time
from judgelm.runs.batch import BatchHooks, BatchJob, run_batch
from judgelm.runs.cascade import Cascade, join_runs
from judgelm.engines.scripted import ScriptedEngine
from judgelm.modes import Pairwise

class Slow(ScriptedEngine):
    def collect(self, timeout_s):
        time.sleep(0.05)
        return super().collect(timeout_s)

job = BatchJob(inputs=({pairs!r},), out={out!r})
cascade = Cascade(job=job, models=("small", "large"), band=(0.3, 0.7))
run_batch(cascade.small_job, Pairwise(distribution=True), Slow({{"*": "5 5"}}, max_in_flight=1), hooks=BatchHooks())
run_batch(cascade.large_job(cascade.unsure()), Pairwise(), Slow({{"*": "8 2"}}, max_in_flight=1), hooks=BatchHooks())
join_runs(cascade)
"""


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill_at(command, path, count):
    """Start, and kill -9 as soon as so many lines are in a file."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"})
    wait_for_judgments(path, process, process.stderr.read, count)
    process.kill()
    process.communicate()


@pytest.mark.distributed
def test_killed_in_either_stage_it_goes_on_where_it_was(cascade_of, tmp_path):
    job, out = cascade_of(*(f"q{i}" for i in range(20))).job, tmp_path / "out.jsonl"
    command = [sys.executable, "-c", SLOW_RUN.format(pairs=job.inputs[0], out=str(out))]
    small, large = tmp_path / "out.small.jsonl", tmp_path / "out.large.jsonl"
    kill_at(command, small, 3)
    assert 3 <= lines(small) < 20
    assert not large.exists()
    with small.open("ab") as file:  # and its last line torn
        file.write(b'{"id": "p19", "mo')
    kill_at(command, large, 3)
    assert (lines(small), out.exists()) == (20, False)
    assert 3 <= lines(large) < 20
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert [len(rows_of(path)) for path in (small, large, out)] == [20, 20, 20]  # nothing was judged twice
    assert {row["verdict"]["winner"] for row in rows_of(out)} == {1}
    sessions = json.loads((tmp_path / "out.large.run.json").read_text())["sessions"]
    assert [session["judged"] for session in sessions][1] < 20
