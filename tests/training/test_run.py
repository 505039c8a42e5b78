"""The disk of a run, signals, and stale locks."""

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from safetensors import SafetensorError

from judgelm.errors import ConfigError, RunError
from judgelm.training.checkpoints import checkpoints_in, flaw_of
from judgelm.training.disk_space import check_disk_space, checkpoint_bytes, disk_full_as_error, max_checkpoints
from judgelm.training.finished_judge import save_judge
from judgelm.training.interruption import PreemptionCallback, out_of_memory_as_error
from judgelm.training.process_group import connect_processes, remove_stale_locks
from tests.support.recipe_runs import (
    LORA,
    TWO,
    configure,
    finish,
    losses_of,
    prepare,
    read_to_step,
    start,
)


def bytes_of(folder):
    """Of the files in a folder, checkpoints within it left out."""
    return sum(path.stat().st_size for path in folder.rglob("*") if "checkpoint-" not in str(path.relative_to(folder)))


@pytest.mark.parametrize(
    "options",
    [{}, {"model": LORA | {"lora_r": 64}}, {"save_only_model": True}, {"optim": "adafactor"}, {"optim": "rmsprop"}],
    ids=["full", "lora", "weights alone", "adafactor", "rmsprop"],
)
def test_the_estimate_is_within_a_tenth_of_what_is_written(tiny_model, train_file, tmp_path, options):
    trainer, *arguments = prepare(
        tiny_model, tmp_path / "out", train_file, **{"max_steps": 1, "save_steps": 1} | options
    )
    weights, states = checkpoint_bytes(trainer)
    trainer.train()
    save_judge(trainer, *arguments)
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
def test_as_many_checkpoints_are_reckoned_as_lie_there_at_once(tmp_path, limit, options, at_once):
    shape = {"per_device_train_batch_size": 8, "num_train_epochs": 1, "use_cpu": True}
    args = transformers.TrainingArguments(output_dir=str(tmp_path), **shape, **options)
    trainer = SimpleNamespace(args=args, train_dataset=range(18 * 8))
    assert max_checkpoints(trainer, limit) == at_once
    args.metric_for_best_model = "eval_loss"  # the best one stays beside the last
    assert max_checkpoints(trainer, limit) == at_once + (limit == 1)


def test_a_disk_too_small_is_refused_before_training_with_what_would_do(tiny_model, train_file, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3_000_000))
    # a checkpoint has 0.5 MB of weights and 1 MB of states: 3 of them and a judge
    sentence = r"needs 5\.\d MB of disk \(3 checkpoints of 1\.\d MB at once, and the judge\), and 3\.0 MB are free; "
    with pytest.raises(ConfigError, match=sentence):
        prepare(tiny_model, tmp_path / "out", train_file)


def test_checkpoints_that_are_there_need_no_more_room(tiny_model, train_file, tmp_path, monkeypatch):
    trainer, *_ = prepare(tiny_model, tmp_path / "out", train_file)
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
    sentence = "no space left on the disk; free some, and the same command starts over"
    with pytest.raises(RunError, match=sentence), disk_full_as_error(tmp_path):
        raise error


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(RuntimeError, match="shapes"), disk_full_as_error(tmp_path):
        raise RuntimeError("shapes do not fit")


def test_lack_of_memory_is_one_sentence_with_the_ways_out(tmp_path):
    args = SimpleNamespace(output_dir=tmp_path, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    trainer = SimpleNamespace(args=args, state=SimpleNamespace(global_step=3, max_steps=18))
    sentence = r"out of memory in step 4 of 18 \(CUDA\); .* \(now 4\) .* \(now 2\) .*; the run then starts over"
    with pytest.raises(RunError, match=sentence), out_of_memory_as_error(trainer):
        raise torch.OutOfMemoryError("CUDA\nlong details")


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


def listen(listening):
    with PreemptionCallback().handle_signals():
        listening.set()
        time.sleep(60)


def test_a_second_request_ends_the_process_at_once_and_an_echo_of_the_first_does_not():
    fork = multiprocessing.get_context("fork")
    listening = fork.Event()
    process = fork.Process(target=listen, args=(listening,))
    process.start()
    assert listening.wait(20)
    process.terminate()
    time.sleep(0.3)
    process.terminate()  # as when a launcher passes on what the whole group was sent
    process.join(2)
    assert process.is_alive()
    process.terminate()
    process.join(20)
    assert process.exitcode == -signal.SIGTERM


@pytest.fixture
def settings(tiny_model, train_file):
    """Two processes with two rows each and two passes: the global batch of 8 again."""
    return {
        "model_name_or_path": str(tiny_model), "train_data": [train_file], "per_device_train_batch_size": 2,
        "model_init_kwargs": {"attention_dropout": 0.1},
    }  # fmt: skip


def workers(launcher):
    """The launcher's children."""
    return [int(pid) for pid in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()]


@pytest.mark.slow
def test_one_of_two_processes_hears_a_signal_and_both_stop_at_the_same_step(settings, tmp_path):
    finish(start(configure(tmp_path / "whole", **settings), launcher=TWO))
    config = configure(tmp_path / "stopped", **settings)
    launcher = start(config, launcher=TWO)
    read_to_step(launcher, 4)
    os.kill(workers(launcher)[1], signal.SIGUSR1)  # not the one that writes
    said, _ = launcher.communicate(timeout=280)
    assert launcher.returncode == 1
    assert "stopped by SIGUSR1 after step" in said
    assert flaw_of(checkpoints_in(tmp_path / "stopped/out")[0]) == ""
    finish(start(config, launcher=TWO))
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


def test_a_stale_lock_is_removed_and_named_before_deepspeed_builds(lock):
    said = []
    alone = SimpleNamespace(world_size=1, deepspeed_plugin=object(), device=torch.device("cpu"))
    connect_processes(alone, said.append)
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
