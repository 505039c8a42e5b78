"""The disk of a run, signals, lack of memory, and stale locks."""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import transformers
from safetensors import SafetensorError
from trl import ModelConfig, SFTConfig

from benchmarks.synthetic.pairs import generate
from judgelm.errors import ConfigError, RunError
from judgelm.training.arguments import JudgeArguments
from judgelm.training.checkpoints import STATE_NAME, checkpoints_in, flaw_of
from judgelm.training.run import (
    PreemptionCallback,
    check_disk_space,
    checkpoint_bytes,
    disk_full_as_error,
    max_checkpoints,
    remove_stale_locks,
)
from judgelm.training.save import save_judge
from tests.support.recipe_runs import ROOT, SETTINGS, build, configure, losses_of, read_to_step, run_here, start


@pytest.fixture(scope="module")
def train_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in generate(96, seed=0, split="train")))
    return path


def prepared(tiny_model, train_file, tmp_path, *, model=None, **options):
    own = {name: value for name, value in SETTINGS.items() if name != "template"}
    judge = JudgeArguments(train_data=[str(train_file)], template="judgelm-compact")
    model = ModelConfig(model_name_or_path=str(tiny_model), **(model or {}))
    args = SFTConfig(**(own | {"output_dir": str(tmp_path / "out")} | options))
    return build("sft", judge, args, model), judge, model


def bytes_of(folder):
    """Of the files in a folder, checkpoints within it left out."""
    return sum(path.stat().st_size for path in folder.rglob("*") if "checkpoint-" not in str(path.relative_to(folder)))


LORA = {"use_peft": True, "lora_r": 64, "lora_target_modules": ["all-linear"]}


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ({}, {}),
        (LORA, {}),
        ({}, {"save_only_model": True}),
        ({}, {"optim": "adafactor"}),
        ({}, {"optim": "rmsprop"}),
    ],
    ids=["full", "lora", "weights alone", "adafactor", "rmsprop"],
)
def test_the_estimate_is_within_a_tenth_of_what_is_written(tiny_model, train_file, tmp_path, model, options):
    trainer, judge, model = prepared(tiny_model, train_file, tmp_path, model=model, max_steps=3, **options)
    weights, states = checkpoint_bytes(trainer)
    assert max_checkpoints(trainer, 2) == 1
    trainer.train()
    save_judge(trainer, judge, model)
    [checkpoint] = checkpoints_in(tmp_path / "out")
    assert weights + states == pytest.approx(bytes_of(checkpoint), rel=0.1)
    assert weights == pytest.approx(bytes_of(tmp_path / "out"), rel=0.1)


@pytest.mark.parametrize(
    ("limit", "options", "at_once"),
    [
        (None, {"save_steps": 4}, 5),  # after 4, 8, 12, 16 and at the end, 18
        (2, {"save_steps": 4}, 3),
        (1, {"save_steps": 4}, 2),
        (8, {"save_steps": 4}, 5),
        (None, {"save_steps": 0.5}, 2),  # a share of all steps: 9
        (2, {"save_strategy": "no"}, 0),
    ],
)
def test_as_many_checkpoints_are_reckoned_as_lie_there_at_once(
    tiny_model, train_file, tmp_path, limit, options, at_once
):
    trainer, *_ = prepared(tiny_model, train_file, tmp_path, **options)
    assert max_checkpoints(trainer, limit) == at_once
    trainer.args.metric_for_best_model = "eval_loss"  # the best one stays beside the last
    best = at_once + (limit == 1)
    assert max_checkpoints(trainer, limit) == best


def test_a_disk_too_small_is_refused_before_training_with_what_would_do(tiny_model, train_file, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3_000_000))
    # a checkpoint has 0.5 MB of weights and 1 MB of states: 3 of them and a judge, 2 and a judge, 4 x weights
    sentence = (
        r"needs 5\.\d MB of disk \(3 checkpoints of 1\.\d MB at once, and the judge\), and 3\.0 MB are free; "
        r"save_total_limit: 1 needs 3\.\d MB; save_only_model: true needs 2\.\d MB, .*; choose an output_dir"
    )
    with pytest.raises(ConfigError, match=sentence):
        prepared(tiny_model, train_file, tmp_path)


def test_checkpoints_that_are_there_need_no_more_room(tiny_model, train_file, tmp_path, monkeypatch):
    trainer, *_ = prepared(tiny_model, train_file, tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    with pytest.raises(ConfigError):
        check_disk_space(trainer, 2)
    (tmp_path / "out/checkpoint-3").mkdir()
    with (tmp_path / "out/checkpoint-3/model.safetensors").open("wb") as file:
        file.truncate(10**8)  # takes no room itself
    check_disk_space(trainer, 2)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
    ],
)
def test_a_full_disk_is_one_sentence(tmp_path, error):
    sentence = r"no space left on the disk; free .* and the same command starts over"
    with pytest.raises(RunError, match=sentence), disk_full_as_error(tmp_path):
        raise error


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MB, where a run's two checkpoints of 1.5 MB, its rows and its judge have just room."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill_behind(checkpoint, filler):
    """Take all room that is left once a checkpoint is whole, as another program would."""
    while not (checkpoint / STATE_NAME).exists():
        time.sleep(0.005)
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_disk_that_fills_up_while_saving_leaves_the_last_good_checkpoint(
    tiny_model, train_file, small_disk, tmp_path
):
    out, filler = small_disk / "out", small_disk / "filler"
    config = configure(
        tmp_path, model_name_or_path=str(tiny_model), train_data=[str(train_file)], output_dir=str(out),
        save_total_limit=1, max_steps=12, save_steps=6,
    )  # fmt: skip
    thread = threading.Thread(target=fill_behind, args=(out / "checkpoint-6", filler))
    thread.start()
    said = run_here(config)
    thread.join()
    assert said.startswith(f"error: {out}: no space left on the disk; free 1.5 MB or more")
    assert said.endswith(f"resumes from {out / 'checkpoint-6'}")
    assert flaw_of(out / "checkpoint-6") == ""
    filler.unlink()
    assert run_here(config) is None
    assert [path.name for path in checkpoints_in(out)] == ["checkpoint-12"]


TWO = ("torch.distributed.run", "--nproc_per_node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0")
WAITING = """
import time
from judgelm.training.run import PreemptionCallback
with PreemptionCallback().handle_signals():
    print("listening", flush=True)
    time.sleep(60)
"""


def step_end(preemption, tmp_path, **options):
    """What the trainer is told to do behind a step at which it would evaluate."""
    args = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, **options)
    control = transformers.TrainerControl(should_evaluate=True)
    preemption.on_step_end(args, transformers.TrainerState(), control)
    return args, control


def test_without_a_signal_training_goes_on(tmp_path):
    preemption = PreemptionCallback()
    with preemption.handle_signals():
        _, control = step_end(preemption, tmp_path)
    assert (control.should_save, control.should_training_stop, control.should_evaluate) == (False, False, True)
    assert preemption.stopped_by is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_whole_checkpoint_and_stops(tmp_path, number):
    preemption = PreemptionCallback()
    with preemption.handle_signals():
        os.kill(os.getpid(), number)
        args, control = step_end(preemption, tmp_path, save_only_model=True)
    assert (control.should_save, control.should_training_stop, control.should_evaluate) == (True, True, False)
    assert preemption.stopped_by == number
    assert not args.save_only_model  # weights alone could not be gone on from


def test_a_second_request_ends_the_process_at_once_and_an_echo_of_the_first_does_not():
    process = subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "listening\n"
    process.terminate()
    time.sleep(0.3)
    process.terminate()  # as when a launcher passes on what the whole group was sent
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=2)
    process.terminate()
    assert process.wait(timeout=20) == -signal.SIGTERM


@pytest.fixture(scope="module")
def settings(tiny_model, tmp_path_factory):
    """Two processes with two rows each and two passes: the global batch of 8 again."""
    path = tmp_path_factory.mktemp("world") / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in generate(96, seed=0, split="train")))
    return {
        "model_name_or_path": str(tiny_model), "train_data": [str(path)], "per_device_train_batch_size": 2,
        "model_init_kwargs": {"attention_dropout": 0.1},
    }  # fmt: skip


def workers(launcher):
    """The launcher's children."""
    return [int(pid) for pid in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()]


@pytest.mark.slow
def test_one_of_two_processes_hears_a_signal_and_both_stop_at_the_same_step(settings, tmp_path):
    whole = configure(tmp_path / "whole", **settings)
    said, _ = start(whole, launcher=TWO).communicate(timeout=280)
    config = configure(tmp_path / "stopped", **settings)
    launcher = start(config, launcher=TWO)
    read_to_step(launcher, 4)
    os.kill(workers(launcher)[1], signal.SIGUSR1)  # not the one that writes
    said, _ = launcher.communicate(timeout=280)
    assert launcher.returncode == 1
    assert "stopped by SIGUSR1 after step" in said
    assert flaw_of(checkpoints_in(tmp_path / "stopped/out")[0]) == ""
    again = start(config, launcher=TWO)
    said, _ = again.communicate(timeout=280)
    assert again.returncode == 0, said[-3000:]
    last = "out/checkpoint-18"
    assert losses_of(tmp_path / "stopped" / last) == pytest.approx(losses_of(tmp_path / "whole" / last), rel=1e-6)


@pytest.mark.slow
def test_a_launcher_of_two_processes_passes_sigterm_on(settings, tmp_path):
    launcher = start(configure(tmp_path, **settings), launcher=TWO)
    read_to_step(launcher, 4)
    launcher.terminate()
    said, _ = launcher.communicate(timeout=280)
    assert "stopped by SIGTERM after step" in said
    assert flaw_of(checkpoints_in(tmp_path / "out")[0]) == ""


TRAINING = """
import signal
signal.signal(signal.SIGUSR1, lambda *_: exit(print("saved") or 138))
print("training", flush=True)
while True:
    signal.pause()
"""


def test_the_slurm_script_passes_usr1_on_to_the_training_processes(tmp_path):
    # scontrol, srun and accelerate are stood in for; the last one starts a training process as torch's launcher does,
    # and ends with 1 if that one ends with another code than 0
    for name, body in {
        "scontrol": "echo node7",
        "srun": 'shift; export SLURM_NODEID=0; echo "$$"; exec "$@"',
        "accelerate": f"{sys.executable} -c '{TRAINING}' || exit 1",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "node7", "SLURM_JOB_ID": "1",
    }  # fmt: skip
    script = ["bash", str(ROOT / "configs/slurm/judgelm_33b.sh")]
    job = subprocess.Popen(script, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    task = int(job.stdout.readline())
    assert job.stdout.readline() == "training\n"
    os.kill(task, signal.SIGUSR1)
    try:
        said, _ = job.communicate(timeout=20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    assert said == "saved\n"
    assert job.returncode == 1


HOUR_S = 3600


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """A lock, the newest file of its folder, an hour old."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    path = tmp_path / "cpu_adam" / "lock"
    path.parent.mkdir()
    path.touch()
    make_older(path, HOUR_S)
    return path


def make_older(path, seconds):
    then = time.time() - seconds
    for one in (*path.parent.iterdir(), path.parent):
        os.utime(one, (then, then))


def test_a_stale_lock_is_removed_and_named(lock):
    said = []
    remove_stale_locks(said.append)
    assert not lock.exists()
    assert said == [f"removed {lock}: an interrupted build left it 60 minutes ago, and no process holds it"]


def test_a_lock_that_a_process_holds_is_left_however_old(lock):
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys; file = open(sys.argv[1]); print(flush=True); sys.stdin.read()", str(lock)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    holder.stdout.readline()
    remove_stale_locks(pytest.fail)
    assert lock.exists()
    holder.communicate()


def test_a_folder_that_changes_keeps_its_lock_until_it_is_quiet(lock):
    # the lock is an hour old, but an object file came 2 s ago, as from a build on another machine: 1 s to wait
    (lock.parent / "cpu_adam.o").touch()
    make_older(lock, 2)
    said, began = [], time.monotonic()
    remove_stale_locks(said.append, timeout_s=3)
    assert 0.5 < time.monotonic() - began < 30
    assert "no process of this machine holds this lock, but another machine may; waiting 1 s" in said[0]
    assert said[1].startswith(f"removed {lock}: ")


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(RuntimeError, match="CUDA"), disk_full_as_error(tmp_path):
        raise RuntimeError("CUDA out of memory")
