"""Steps of long measurements: states, resuming, the table; and all steps of the rehearsal that a CPU can run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.rehearsal.__main__ import exit_code, page
from benchmarks.rehearsal.plan import STEPS, Step
from benchmarks.step_runner import end_group, environment, is_done, record, results, run_step

ROOT = Path(__file__).parents[2]
TINY = {"device": "cpu", "tiny": True}


def run(tmp_path, code, **options):
    """The state and the entry of a step that is a line of Python."""
    file = tmp_path / "results.json"
    state = run_step("step", file, [sys.executable, "-c", code], os.environ, facts=TINY, **options)
    return state, results(file)["step"]


def test_a_step_that_ends_well_is_done_and_keeps_its_facts(tmp_path):
    state, entry = run(tmp_path, "print('well')")
    assert (state, entry["state"], entry["device"]) == ("done", "done", "cpu")
    assert "output" not in entry
    assert (tmp_path / "logs/step.log").read_text() == "well\n"


def test_a_failed_step_keeps_the_end_of_its_output(tmp_path):
    state, entry = run(tmp_path, "raise SystemExit('check failed: 2 of 3')")
    assert (state, entry["why"]) == ("failed", "exit code 1")
    assert entry["output"].endswith("check failed: 2 of 3\n")


def test_a_step_beyond_its_limit_is_timed_out(tmp_path):
    state, entry = run(tmp_path, "import time; time.sleep(600)", limit_s=0.01)
    assert (state, entry["why"]) == ("timed out", "stopped at its limit of 0.01 s")


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


def test_a_step_that_begins_loses_its_earlier_entries_and_then_adds(tmp_path):
    file = tmp_path / "results.json"
    record(file, "step", {"state": "failed", "output": "old"})
    record(file, "step", {"state": "begun"})
    record(file, "step", {"figures": {"n": 1}})
    assert results(file) == {"step": {"state": "begun", "figures": {"n": 1}}}


def test_a_state_that_the_step_records_itself_stays(tmp_path):
    record_it = (
        "from pathlib import Path; from benchmarks.step_runner import record; "
        f"record(Path({str(tmp_path / 'results.json')!r}), 'step', {{'state': 'needs 8 GPUs'}})"
    )
    state, entry = run(tmp_path, f"import sys; sys.path.insert(0, {str(ROOT)!r}); {record_it}")
    assert (state, entry["state"]) == ("needs 8 GPUs", "needs 8 GPUs")


def test_the_steps_are_offline_and_a_cpu_sees_no_gpu(tmp_path):
    variables = environment("cpu", tmp_path / "absent", tmp_path)
    assert (variables["HF_HUB_OFFLINE"], variables["CUDA_VISIBLE_DEVICES"]) == ("1", "")
    assert variables["PYTHONPATH"].split(os.pathsep)[:2] == [str(ROOT), str(tmp_path)]


def test_only_a_step_that_is_done_on_this_device_and_size_is_not_run_again():
    assert is_done({"state": "done", **TINY}, TINY)
    assert not is_done({"state": "done", **TINY}, {"device": "cuda", "tiny": False})
    assert not is_done({"state": "failed", **TINY}, TINY)
    assert not is_done({}, TINY)


@pytest.mark.parametrize(
    ("state", "code"),
    [("done", 0), ("skipped", 0), ("not installed: vllm", 0), ("needs 8 GPUs", 0), ("failed", 1), ("timed out", 1)],
)
def test_failed_and_timed_out_steps_alone_end_it_with_1(state, code):
    assert exit_code({"facts": {"state": "done"}, "judge-vllm": {"state": state}}) == code


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


def cli(*arguments):
    command = [sys.executable, "-m", "benchmarks.rehearsal", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sft-zero4", "--device", "cpu", "--tiny"], "no such step: sft-zero4; available: all, facts"),
        (["all", "--device", "cpu", "--tiny", "--skip", "nothing"], "no such step: nothing"),
        (["all", "--device", "cpu"], "--device cpu runs a model of 7B for days; add --tiny"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments, message):
    refused = cli(*arguments)
    assert refused.returncode == 2
    assert message in refused.stderr


def test_a_skipped_step_does_not_run_and_a_done_one_stays_done(tmp_path):
    record(tmp_path / "rehearsal.json", "facts", {"state": "done", **TINY})
    two = ["facts", "judge-vllm"]
    shown = cli(*two, "--skip", *two, "--device", "cpu", "--tiny", "--out", tmp_path)
    assert shown.returncode == 0, shown.stderr
    states = {name: entry["state"] for name, entry in results(tmp_path / "rehearsal.json").items()}
    assert states == {"facts": "done", "judge-vllm": "skipped"}


def test_what_a_step_lacks_is_its_state():
    from benchmarks.rehearsal.step import obstacle

    lacking = Step(does="", call="", packages=("json", "no_such_package", "nor_this"))
    assert obstacle(lacking, "cpu") == "not installed: no_such_package, nor_this"
    assert obstacle(Step(does="", call="", gpus=8, on_cpu=False), "cpu") == "needs 8 GPUs"
    assert obstacle(Step(does="", call="", on_cpu=False), "cpu") == "needs 1 GPU"
    assert obstacle(Step(does="", call="", gpus=8), "cpu") is None


def test_runs_are_alike_only_if_replies_and_probabilities_are():
    from benchmarks.rehearsal.judging import Batch, check_alike, differences

    def batch(*chances, text="8 6"):
        shown = [[{"text": text, "distribution": {"first_better": chance}}] for chance in chances]
        return Batch(rows={str(i): {"verdict": 1, "shown": each} for i, each in enumerate(shown)}, summary={})

    first = batch(0.4, 0.5, 0.6)
    check_alike(differences(first, batch(0.41, 0.5, 0.6)), "rounded")  # range 0.2; 0.01 at most, 0.0033 in the mean
    with pytest.raises(SystemExit, match="check failed: exchanged"):
        check_alike(differences(first, batch(0.6, 0.5, 0.4)), "exchanged")
    with pytest.raises(SystemExit, match="'replies differ': 3"):
        check_alike(differences(first, batch(0.4, 0.5, 0.6, text="6 8")), "other replies")


def test_the_checkpoints_of_a_full_fine_tuning_fit_a_small_disk():
    from benchmarks.dummy_model import SHAPES
    from benchmarks.rehearsal.step import SIZES

    def parameters(shape):
        per_layer = 4 * shape.hidden**2 + 3 * shape.hidden * shape.inner
        return shape.layers * per_layer + 2 * shape.vocabulary * shape.hidden

    # the whole run and the resumed one: 2 checkpoints each (float32 weights, two moments) and the judge's weights
    trained = 2 * (2 * 12 + 4) * parameters(SHAPES[SIZES["train"]])
    judge = 2 * parameters(SHAPES[SIZES["judge"]])  # bfloat16
    assert trained + judge < 40e9  # of 64 GB, which the system, torch and vLLM share


def test_the_two_model_runners_of_vllm_are_both_forced():
    from benchmarks.rehearsal.judging import RUNNERS

    envs = pytest.importorskip("vllm.envs", reason="vllm is not installed")
    for variables, forced in zip(RUNNERS, (True, False), strict=True):
        with pytest.MonkeyPatch.context() as patch:
            [patch.setenv(name, value) for name, value in variables.items()]
            assert envs.environment_variables["VLLM_USE_V2_MODEL_RUNNER"]() is forced


def test_the_fp8_of_the_rehearsal_quantises_while_loading():
    from benchmarks.rehearsal.judging import FP8

    pytest.importorskip("vllm", reason="vllm is not installed")
    from vllm.model_executor.layers.quantization import get_quantization_config

    assert "Online" in get_quantization_config(FP8).__name__


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_every_step_that_a_cpu_can_run_ends_well(tmp_path):
    shown = cli("all", "--device", "cpu", "--tiny", "--out", tmp_path, "--limit", 1500)
    assert shown.returncode == 0, shown.stdout[-6000:]
    entries = json.loads((tmp_path / "rehearsal.json").read_text())
    assert entries.keys() == STEPS.keys()
    for name, entry in entries.items():
        expected = ("done", "not installed") if STEPS[name].on_cpu else ("needs", "not installed")
        assert entry["state"].startswith(expected), name
    assert not list((tmp_path / "work").iterdir())
