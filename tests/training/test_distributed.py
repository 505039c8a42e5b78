"""Two processes on the CPU, started as users start them, train the judge that one process trains.

All in float32 and at the same global batch. Rows with a reason have ten times the target of those without, so a loss
that were averaged over processes or passes, instead of over tokens, would show.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.synthetic.pairs import generate
from judgelm.judge import Judge
from judgelm.training.run import build_root
from tests.support import recipe_runs
from tests.support.vicuna_folders import pickle_weights

CLUSTERS = recipe_runs.ROOT / "configs/accelerate"
PREFERENCES = {"reason_prob": 0.0, "max_steps": 9}  # fewer than 96 rows are pairs
STEPS = 9  # 96 rows x 1.5 epochs / 16
SHAPES = {  # rows of a process in a pass, passes of a step: 16 rows a step over two processes
    "ddp": (4, 2),
    "zero2": (4, 2),
    "zero3": (8, 1),
}


@pytest.fixture(scope="module")
def settings(tiny_model, tmp_path_factory):
    """Everything but the batch's shape."""
    path = tmp_path_factory.mktemp("world") / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in generate(96, seed=0, split="train")))
    return {
        "model_name_or_path": str(tiny_model), "train_data": [str(path)], "reason_prob": 0.5, "global_batch": 16,
        "max_length": 384, "dtype": "float32", "save_steps": STEPS,
    }  # fmt: skip


def shape(rows, passes):
    return {"per_device_train_batch_size": rows, "gradient_accumulation_steps": passes}


def launch(config, cluster, *flags, processes=2, port=0, precision="no", **how):
    """Start it by `accelerate launch` with a config for GPUs, of which only processes and precision are others."""
    told = ["--num_processes", str(processes), "--mixed_precision", precision, "--main_process_port", str(port)]
    config_file = str(CLUSTERS / f"{cluster}.yaml")
    launcher = ["accelerate.commands.launch", "--config_file", config_file, *told, *flags]
    return recipe_runs.start(config, launcher=launcher, **how)


def finish(process):
    """Wait for it; what it said."""
    said, _ = process.communicate(timeout=280)
    assert process.returncode == 0, said[-5000:]
    return said


@pytest.fixture(scope="module")
def started(settings, tmp_path_factory):
    """All three at once, since starting is what takes the time: output folder and process by name.

    They begin from pickled weights, the single process from the same in safetensors.
    """
    pickled = pickle_weights(Path(settings["model_name_or_path"]), tmp_path_factory.mktemp("pickled") / "base")
    runs = {}
    for name, (rows, passes) in SHAPES.items():
        folder = tmp_path_factory.mktemp(name)
        base = {"model_name_or_path": str(pickled)}
        config = recipe_runs.configure(folder, **(settings | shape(rows, passes) | base))
        runs[name] = folder / "out", launch(config, name)
    return runs


@pytest.fixture(scope="module")
def alone(started, settings, tmp_path_factory):
    """The output of a single process, trained here while the others start."""
    folder = tmp_path_factory.mktemp("alone")
    assert recipe_runs.run_here(recipe_runs.configure(folder, **(settings | shape(16, 1)))) is None
    return folder / "out"


def dtypes_of(folder):
    return {weight.dtype for weight in load_file(folder / "model.safetensors").values()}


def assert_same_training(folder, alone, *, processes=2, within=1e-3):
    """Every step's loss, and the weights that they end in."""
    checkpoint = folder / f"checkpoint-{STEPS}"
    assert len(list(checkpoint.glob("rng_state_*.pth"))) == processes
    losses, expected = recipe_runs.losses_of(checkpoint), recipe_runs.losses_of(alone / f"checkpoint-{STEPS}")
    assert list(expected) == list(range(1, STEPS + 1))
    assert losses == pytest.approx(expected, abs=1e-4, rel=0)
    weights, single = load_file(folder / "model.safetensors"), load_file(alone / "model.safetensors")
    assert weights.keys() - {"lm_head.weight"} == single.keys()  # DeepSpeed writes tied embeddings twice
    furthest = {name: float((weights[name] - single[name]).abs().max()) for name in single}
    # Adam divides by a gradient's size, so where that is near zero its rounding moves a weight, a little
    assert max(furthest.values()) < within, furthest


@pytest.mark.distributed
@pytest.mark.parametrize("name", SHAPES)
def test_two_processes_train_the_judge_of_one(started, alone, name):
    folder, process = started[name]
    finish(process)
    assert_same_training(folder, alone)
    optimizers = list((folder / f"checkpoint-{STEPS}").glob("global_step*/zero_pp_rank_*_optim_states.pt"))
    weights = list((folder / f"checkpoint-{STEPS}").glob("global_step*/zero_pp_rank_*_model_states.pt"))
    assert (len(optimizers), len(weights)) == {"ddp": (0, 0), "zero2": (2, 0), "zero3": (2, 2)}[name]  # what is split
    with Judge(str(folder)) as judge, Judge(str(alone)) as single:
        asked = ("What is 2 + 2?", "4", "5")
        assert judge.format.template == "judgelm-compact"
        assert judge.compare(*asked).shown == single.compare(*asked).shown


@pytest.fixture(scope="module")
def bf16_settings(settings):
    """As the recipes for GPUs: products in bf16, gradient checkpointing, pairs judged at every evaluation."""
    return settings | shape(4, 2) | {
        "bf16": True, "gradient_checkpointing": True, "eval_data": settings["train_data"], "eval_strategy": "steps",
        "eval_steps": 6, "eval_pairs": 4, "save_steps": 3, "save_total_limit": 3,
    }  # fmt: skip


@pytest.fixture(scope="module")
def bf16_zero3(bf16_settings, tmp_path_factory):
    """Output folder and words of a run that finds the lock of an interrupted build in the cache of extensions."""
    folder = tmp_path_factory.mktemp("bf16")
    lock = folder / "extensions/deepspeed_shm_comm/lock"
    if (built := build_root() / lock.parent.name).is_dir():  # or the run builds it, which takes a minute
        shutil.copytree(built, lock.parent, ignore=shutil.ignore_patterns("lock"))
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    then = time.time() - 600  # not so long ago that the sources are younger, which would be compiled again
    for path in (*lock.parent.iterdir(), lock.parent):
        os.utime(path, (then, then))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(folder / "extensions"))
        process = launch(recipe_runs.configure(folder, **bf16_settings), "zero3", precision="bf16")
    return folder / "out", finish(process)


def log_of(folder):
    return json.loads((folder / f"checkpoint-{STEPS}/trainer_state.json").read_text())["log_history"]


@pytest.mark.distributed
def test_zero3_in_bf16_with_checkpointing_learns_and_judges(bf16_zero3, alone):
    folder, _ = bf16_zero3
    losses = recipe_runs.losses_of(folder / f"checkpoint-{STEPS}")
    assert losses == pytest.approx(recipe_runs.losses_of(alone / f"checkpoint-{STEPS}"), rel=0.02)  # bf16 has 3 digits
    evaluated = {entry["step"]: entry for entry in log_of(folder) if "eval_loss" in entry}
    assert list(evaluated) == [6, STEPS]
    assert evaluated[STEPS]["eval_loss"] < evaluated[6]["eval_loss"] < losses[1]
    assert {"eval_agreement", "eval_failed"} <= evaluated[STEPS].keys()
    assert dtypes_of(folder) == {torch.bfloat16}


@pytest.mark.distributed
def test_a_lock_of_an_interrupted_build_is_survived_and_named(bf16_zero3):
    folder, said = bf16_zero3
    lock = folder.parent / "extensions/deepspeed_shm_comm/lock"
    assert not lock.exists()
    assert said.count(f"removed {lock}: an interrupted build left it") == 1


@pytest.mark.distributed
def test_zero3_in_bf16_goes_on_with_the_losses_of_a_run_that_was_never_stopped(bf16_zero3, bf16_settings, tmp_path):
    whole, _ = bf16_zero3
    shutil.copytree(whole / "checkpoint-3", tmp_path / "out/checkpoint-3")
    said = finish(launch(recipe_runs.configure(tmp_path, **bf16_settings), "zero3", precision="bf16"))
    assert "checkpoint-3" in said
    losses = recipe_runs.losses_of(tmp_path / f"out/checkpoint-{STEPS}")
    assert losses == pytest.approx(recipe_runs.losses_of(whole / f"checkpoint-{STEPS}"), abs=1e-4, rel=0)


@pytest.mark.distributed
def test_fsdp2_trains_the_judge_of_one(settings, alone, tmp_path):
    config = recipe_runs.configure(tmp_path, **(settings | shape(4, 2) | {"save_dtype": "bfloat16"}))
    finish(launch(config, "fsdp2", script=recipe_runs.ROOT / "tests/support/fsdp_on_cpu.py"))
    checkpoint = tmp_path / f"out/checkpoint-{STEPS}/pytorch_model_fsdp.bin"
    assert checkpoint.is_file()  # FSDP's, not plain data parallelism's
    assert {weight.dtype for weight in torch.load(checkpoint, weights_only=True).values()} == {torch.float32}
    assert dtypes_of(tmp_path / "out") == {torch.bfloat16}
    # weights of norms lie about 1, where bf16 rounds by 0.004
    assert_same_training(tmp_path / "out", alone, within=5e-3)


@pytest.mark.distributed
def test_lora_under_zero3_trains_the_adapter_of_one(settings, tmp_path):
    lora = {"use_peft": True, "lora_r": 4, "lora_dropout": 0.0, "lora_target_modules": ["all-linear"]}
    process = launch(recipe_runs.configure(tmp_path / "two", **(settings | lora | shape(4, 2))), "zero3")
    assert recipe_runs.run_here(recipe_runs.configure(tmp_path / "one", **(settings | lora | shape(16, 1)))) is None
    finish(process)
    two, one = (load_file(tmp_path / name / "out/adapter_model.safetensors") for name in ("two", "one"))
    assert {name: weight.shape for name, weight in two.items()} == {name: weight.shape for name, weight in one.items()}
    losses, expected = (recipe_runs.losses_of(tmp_path / name / f"out/checkpoint-{STEPS}") for name in ("two", "one"))
    assert losses == pytest.approx(expected, abs=1e-4, rel=0)
    with Judge(str(tmp_path / "two/out")) as judge:
        assert judge.compare("What is 2 + 2?", "4", "5").shown


@pytest.fixture(scope="module")
def preferences_alone(settings, tmp_path_factory):
    """The output of a single process that trains P(first better)."""
    folder = tmp_path_factory.mktemp("preferences")
    config = recipe_runs.configure(folder, **(settings | PREFERENCES | shape(16, 1)))
    assert recipe_runs.run_here(config, recipe="preference") is None
    return folder / "out"


@pytest.mark.distributed
@pytest.mark.parametrize("cluster", ["zero3", "fsdp2"])
def test_preferences_are_trained_as_by_one_process(settings, preferences_alone, tmp_path, monkeypatch, cluster):
    monkeypatch.setenv("RECIPE", "train/preference.py")
    script = "tests/support/fsdp_on_cpu.py" if cluster == "fsdp2" else "train/preference.py"
    config = recipe_runs.configure(tmp_path, **(settings | PREFERENCES | shape(4, 2)))
    finish(launch(config, cluster, script=recipe_runs.ROOT / script))
    assert_same_training(tmp_path / "out", preferences_alone)


@pytest.mark.distributed
def test_an_adapter_on_preferences_under_zero3_is_that_of_one_process(settings, tmp_path):
    lora = PREFERENCES | {"use_peft": True, "lora_r": 4, "lora_dropout": 0.0, "lora_target_modules": ["all-linear"]}
    two = recipe_runs.configure(tmp_path / "two", **(settings | lora | shape(4, 2)))
    process = launch(two, "zero3", script=recipe_runs.ROOT / "train/preference.py")
    one = recipe_runs.configure(tmp_path / "one", **(settings | lora | shape(16, 1)))
    assert recipe_runs.run_here(one, recipe="preference") is None
    finish(process)
    losses, expected = (recipe_runs.losses_of(tmp_path / name / f"out/checkpoint-{STEPS}") for name in ("two", "one"))
    assert losses == pytest.approx(expected, abs=1e-4, rel=0)


def test_processes_that_would_each_train_alone_are_stopped(settings, tmp_path, monkeypatch):
    # as accelerate leaves it where the training config does not say use_cpu: started as two, connected as one
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = recipe_runs.run_here(recipe_runs.configure(tmp_path, **(settings | shape(8, 1) | {"use_cpu": False})))
    assert "2 processes were started, but the trainer sees 1; on the CPU set use_cpu: true" in str(said)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_torchrun_with_deepspeeds_own_config_trains_the_same(settings, alone, tmp_path):
    zero3 = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}
    sizes = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    own = {"zero_optimization": zero3, "zero_allow_untested_optimizer": True} | dict.fromkeys(sizes, "auto")
    path = tmp_path / "zero3.json"
    path.write_text(json.dumps(own))
    config = recipe_runs.configure(tmp_path, **(settings | shape(4, 2) | {"deepspeed": str(path)}))
    launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    finish(recipe_runs.start(config, launcher=launcher))
    assert_same_training(tmp_path / "out", alone)


@pytest.mark.slow
def test_two_machines_train_the_judge_of_one(settings, alone, tmp_path):
    # two launchers that find each other over the network; both "machines" are this one, with a process each
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = recipe_runs.configure(tmp_path, **(settings | shape(4, 2)))
    machines = [
        launch(config, "zero3_2nodes", "--machine_rank", str(rank), "--main_process_ip", "127.0.0.1", port=port)
        for rank in range(2)
    ]
    for process in machines:
        finish(process)
    assert_same_training(tmp_path / "out", alone)


@pytest.mark.slow
def test_weights_and_optimizer_in_main_memory_train_the_same(settings, alone, tmp_path):
    config = recipe_runs.configure(tmp_path, **(settings | shape(4, 2)))
    finish(launch(config, "zero3_offload"))
    assert_same_training(tmp_path / "out", alone)


ELSEWHERE = """
import os
from pathlib import Path
from accelerate import PartialState
from judgelm.errors import RunError
from judgelm.training.checkpoints import require_shared_disk
state = PartialState(cpu=True)
require_shared_disk(Path())  # each has its own
try:
    require_shared_disk(Path("first") if state.is_main_process else Path("second"))
except RunError as error:
    print(f"{state.process_index}: {error}", flush=True)
state.wait_for_everyone()
state.destroy_process_group()
"""


def test_machines_that_share_no_disk_do_not_go_on_each_from_another_row(tmp_path):
    (tmp_path / "first").mkdir()
    script = tmp_path / "elsewhere.py"
    script.write_text(ELSEWHERE)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)],
        capture_output=True, text=True, check=True, timeout=280, cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert "0: first: not found on every machine" in done.stdout
    assert "1: second: not found on every machine" in done.stdout
