"""Signals and running out of memory."""

import multiprocessing
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers

from judgelm.errors import RunError
from judgelm.training.checkpoints import checkpoints_in, flaw_of
from judgelm.training.interruption import PreemptionCallback, out_of_memory_as_error
from tests.support.recipe_runs import TWO, configure, finish, losses_of, read_to_step, start


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
