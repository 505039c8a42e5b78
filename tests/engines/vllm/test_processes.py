"""vLLM on two devices (here two processes on one CPU): equal scores, and killed processes."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.batch_runs import BATCH, alive, judged_rows, manifest, still_alive, wait_for_judgments, write_pairs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
COUNT = 400


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("pairs") / "pairs.jsonl", COUNT)


def command(pairs, out, judge, *more):
    return [str(part) for part in (BATCH, pairs, "-o", out, "--model", judge, "--both-orders", *more)]


def on_vllm(pairs, out, judge, *more, devices=2):
    arguments = ("--engine-arg", f"tensor_parallel_size={devices}", "--engine-arg", f"kv_cache_memory_bytes={1 << 28}")
    return command(pairs, out, judge, "--engine", "vllm", *arguments, *more)


def start(pairs, out, judge, log=subprocess.PIPE):
    """Start to judge one pair at a time, to leave time to kill it; returns after five."""
    arguments = on_vllm(pairs, out, judge, "--max-num-seqs", "1")
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=log, text=True)
    wait_for_judgments(out, process, lambda: process.communicate()[1], 5)
    return process


def finish(pairs, out, judge):
    """The messages of a run that finishes an interrupted one."""
    rerun = subprocess.run(on_vllm(pairs, out, judge), check=False, capture_output=True, text=True)
    assert rerun.returncode == 0, rerun.stderr
    return rerun.stderr


@pytest.fixture(scope="module")
def expected(pairs, tiny_judge, tmp_path_factory):
    """The transformers engine's verdicts."""
    out = tmp_path_factory.mktemp("expected") / "out.jsonl"
    subprocess.run(command(pairs, out, tiny_judge), check=True, capture_output=True)
    return verdicts(out)


def verdicts(out):
    return {
        name: (row["verdict"], row["scores"], [shown["text"] for shown in row["shown"]])
        for name, row in judged_rows(out).items()
    }


def test_run_resumes_after_a_killed_engine_core(pairs, tiny_judge, expected, tmp_path):
    out = tmp_path / "out.jsonl"
    process = start(pairs, out, tiny_judge)
    children = manifest(out)["sessions"][-1]["children"]
    assert len(children) >= 3, "an engine core and two workers"
    core = next(pid for pid in children if "EngineCore" in Path(f"/proc/{pid}/cmdline").read_text())
    os.kill(core, signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "engine core has died" in errors
    assert manifest(out)["sessions"][-1]["outcome"] == "EngineError"
    done = verdicts(out)
    assert 0 < len(done) < COUNT
    assert f"resuming: {len(done)} samples" in finish(pairs, out, tiny_judge)
    assert verdicts(out) == expected
    assert not still_alive([pid for session in manifest(out)["sessions"] for pid in session["children"]])


def test_rerun_ends_orphaned_processes(pairs, tiny_judge, expected, tmp_path):
    out = tmp_path / "out.jsonl"
    with (tmp_path / "log").open("w") as log:  # a pipe would stay open in the orphans
        process = start(pairs, out, tiny_judge, log)
    process.kill()
    process.wait(60)
    orphans = [pid for pid in manifest(out)["sessions"][-1]["children"] if alive(pid)]
    assert orphans, "no process was orphaned, so this test proves nothing"
    assert "left by a killed run" in finish(pairs, out, tiny_judge)
    assert not still_alive(orphans)
    assert verdicts(out) == expected


def test_sigterm_ends_every_process(pairs, tiny_judge, tmp_path):
    out = tmp_path / "out.jsonl"
    process = start(pairs, out, tiny_judge)
    children = manifest(out)["sessions"][-1]["children"]
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert manifest(out)["sessions"][-1]["outcome"] == "interrupted"
    assert not still_alive(children)


def test_two_pipeline_stages(pairs, tiny_judge, expected, tmp_path):
    out = tmp_path / "out.jsonl"
    arguments = ("--engine-arg", "pipeline_parallel_size=2")
    subprocess.run(on_vllm(pairs, out, tiny_judge, *arguments, devices=1), check=True, capture_output=True)
    assert verdicts(out) == expected
