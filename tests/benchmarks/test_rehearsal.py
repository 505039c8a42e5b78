"""Steps of long measurements: states, resuming, the table; and all steps of the rehearsal that a CPU can run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.rehearsal.__main__ import page
from benchmarks.rehearsal.judging import Batch, check_alike, differences
from benchmarks.rehearsal.plan import STEPS
from benchmarks.step_runner import end_group, record, results, run_step
from tests.support.processes import run_command

TINY = {"device": "cpu", "tiny": True}


def test_a_step_that_ends_well_is_done_and_keeps_its_facts(tmp_path):
    file = tmp_path / "results.json"
    state = run_step("step", file, [sys.executable, "-c", "print('well')"], os.environ, facts=TINY)
    entry = results(file)["step"]
    assert (state, entry["state"], entry["device"]) == ("done", "done", "cpu")
    assert "output" not in entry
    assert (tmp_path / "logs/step.log").read_text() == "well\n"


def test_what_a_step_started_in_another_session_ends_with_it():
    code = (
        "import subprocess, time; process = subprocess.Popen(['sleep', '600'], start_new_session=True); "
        "print(process.pid, flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    child = int(process.stdout.readline())
    end_group(process)
    process.stdout.close()
    stat = Path(f"/proc/{child}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_the_table_has_figures_or_the_reason_and_the_last_lines_of_a_failure():
    steps = {
        "judge-vllm": {"state": "failed", "why": "exit code 1", "wall_s": 3.5, "output": "lines\ncheck failed: x\n"},
        "judge-transformers": {"state": "done", "figures": {"pairs": 12, "pairs/s": 30.126}, "machine": ["A100"] * 2},
        "sft-zero3": {"state": "not installed: deepspeed"},
    }
    shown = page(steps)
    # in the order of the plan
    assert (
        "| judge-transformers | done |  | pairs 12; pairs/s 30.13 | A100 |\n| judge-vllm | failed | 3.5 | exit" in shown
    )
    assert "| sft-zero3 | not installed: deepspeed |" in shown
    assert "## judge-vllm: failed\n\n```\nlines\ncheck failed: x\n```" in shown


def run_rehearsal(*arguments):
    words = (sys.executable, "-m", "benchmarks.rehearsal", *arguments)
    return run_command(*words, cwd=Path(__file__).parents[2])


def test_a_skipped_step_does_not_run_and_a_done_one_stays_done(tmp_path):
    record(tmp_path / "rehearsal.json", "facts", {"state": "done", **TINY})
    two = ["facts", "judge-vllm"]
    run_rehearsal(*two, "--skip", *two, "--device", "cpu", "--tiny", "--out", tmp_path)
    states = {name: entry["state"] for name, entry in results(tmp_path / "rehearsal.json").items()}
    assert states == {"facts": "done", "judge-vllm": "skipped"}


def test_runs_are_alike_only_if_replies_and_probabilities_are():
    def batch(*chances, text="8 6"):
        shown = [[{"text": text, "distribution": {"first_better": chance}}] for chance in chances]
        return Batch(rows={str(i): {"verdict": 1, "shown": each} for i, each in enumerate(shown)}, summary={})

    first = batch(0.4, 0.5, 0.6)
    check_alike(differences(first, batch(0.41, 0.5, 0.6)), "rounded")  # range 0.2; 0.01 at most, 0.0033 in the mean
    with pytest.raises(SystemExit, match="check failed: exchanged"):
        check_alike(differences(first, batch(0.6, 0.5, 0.4)), "exchanged")
    with pytest.raises(SystemExit, match="'replies differ': 3"):
        check_alike(differences(first, batch(0.4, 0.5, 0.6, text="6 8")), "other replies")


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_every_step_that_a_cpu_can_run_ends_well(tmp_path):
    run_rehearsal("all", "--device", "cpu", "--tiny", "--out", tmp_path, "--limit", 1500)
    entries = json.loads((tmp_path / "rehearsal.json").read_text())
    assert entries.keys() == STEPS.keys()
    for name, entry in entries.items():
        expected = ("done", "not installed") if STEPS[name].on_cpu else ("needs", "not installed")
        assert entry["state"].startswith(expected), name
    assert not list((tmp_path / "work").iterdir())
