"""A run that was killed, preempted, or out of disk or memory resumes as if uninterrupted; stale locks of builds."""

import json
import multiprocessing
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from safetensors.torch import load_file

from judgelm.errors import RunError
from judgelm.training.checkpoints import STATE_NAME, checkpoints_in, flaw_of
from judgelm.training.interruption import PreemptionCallback, out_of_memory_as_error
from judgelm.training.process_group import connect_processes, remove_stale_locks
from tests.support.recipe_runs import ON_CPU, TWO, configure, finish, losses_of, read_to_step, run_here, start, train


@pytest.fixture(scope="module")
def settings(tiny_model, train_file):
    """Dropout, so that the random state matters."""
    dropout = {"model_init_kwargs": {"attention_dropout": 0.1}}
    return {"model_name_or_path": str(tiny_model), "train_data": [train_file]} | dropout


@pytest.fixture(scope="module")
def uninterrupted(settings, tmp_path_factory):
    return train(tmp_path_factory.mktemp("uninterrupted"), **settings)


def assert_same(out, reference):
    """The same loss at every step, with the same number of tokens so far, and the same weights."""
    last = out / "checkpoint-18", reference / "checkpoint-18"
    assert losses_of(last[0], "num_tokens") == losses_of(last[1], "num_tokens")
    losses, expected = map(losses_of, last)
    assert list(losses) == list(range(1, 19))
    assert losses == pytest.approx(expected, rel=1e-6)
    weights, others = load_file(out / "model.safetensors"), load_file(reference / "model.safetensors")
    torch.testing.assert_close(weights, others, atol=1e-6, rtol=0)


@pytest.mark.distributed
def test_a_run_killed_at_any_step_goes_on_from_its_last_whole_checkpoint(settings, uninterrupted, tmp_path, capfd):
    config = configure(tmp_path, **settings)
    step = random.randint(4, 12)
    killed = start(config, launcher=ON_CPU)
    read_to_step(killed, step)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    whole = [checkpoint for checkpoint in checkpoints_in(tmp_path / "out") if not flaw_of(checkpoint)]
    assert whole, f"killed at step {step}"
    assert run_here(config) is None
    output = capfd.readouterr().out
    assert f"resuming from {whole[0]}" in output
    assert output.count("'loss': '") == 18 - int(whole[0].name.split("-")[1])
    assert_same(tmp_path / "out", uninterrupted)


@pytest.mark.distributed
def test_a_run_out_of_memory_says_what_needs_less_and_goes_on(settings, uninterrupted, tmp_path, monkeypatch, capfd):
    """A real one: the address space is closed while it trains. Memory that was given back would be had again."""
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")  # so larger pieces are asked of the system each time
    running = start(configure(tmp_path, **settings))
    read_to_step(running, 4)
    with open(f"/proc/{running.pid}/statm") as file:
        closed = int(file.read().split()[0]) * resource.getpagesize() - (64 << 20)
    resource.prlimit(running.pid, resource.RLIMIT_AS, (closed, closed))
    output, _ = running.communicate(timeout=200)
    assert running.returncode == 1, output[-3000:]
    last = next(path for path in checkpoints_in(tmp_path / "out") if not flaw_of(path))
    error = output[output.index("error: ") :]
    assert re.search(
        r"out of memory in step \d+ of 18 \(.*(allocate|MemoryError).*\); .* \(now 4\) .* \(now 2\)", error
    )
    assert f"the run then resumes from {last}" in error

    train(tmp_path, **settings, **HALF, gradient_accumulation_steps=4)
    assert f"resuming from {last}" in capfd.readouterr().out
    losses, expected = losses_of(tmp_path / "out/checkpoint-18"), losses_of(uninterrupted / "checkpoint-18")
    assert losses == pytest.approx(expected, rel=1e-2)  # dropout falls otherwise on fewer rows at once


def test_a_preempted_run_that_then_finds_the_disk_full_loses_nothing(settings, uninterrupted, tmp_path, capfd):
    config = configure(tmp_path, **settings)
    preempted = start(config)
    read_to_step(preempted, 4)
    preempted.terminate()
    output, _ = preempted.communicate(timeout=200)
    assert preempted.returncode == 143, output[-3000:]
    last = checkpoints_in(tmp_path / "out")[0]
    step = int(last.name.split("-")[1])
    assert re.search(rf"SIGTERM after step {step} of 18; .* resumes from {re.escape(str(last))}", output)

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, hard))  # weights have 0.5 MB, optimiser states 1 MB
    try:
        error = run_here(config)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.startswith(f"error: {tmp_path / 'out'}: no space left on the disk; ")
    assert error.endswith(f"the same command then resumes from {last}")

    assert run_here(config) is None
    removed = f"checkpoint-{-(-(step + 1) // 3) * 3}: removed because it is incomplete: {STATE_NAME}"
    assert removed in capfd.readouterr().out
    assert_same(tmp_path / "out", uninterrupted)


def test_a_run_that_lacks_only_its_judge_trains_no_further_step(settings, uninterrupted, tmp_path, capfd):
    config = configure(tmp_path, **settings)
    (tmp_path / "out").symlink_to(uninterrupted)
    card = json.loads((uninterrupted / "judge.json").read_text())
    before = load_file(uninterrupted / "model.safetensors")
    (uninterrupted / "judge.json").unlink()
    assert run_here(config) is None
    assert "'loss': '" not in capfd.readouterr().out
    after = load_file(uninterrupted / "model.safetensors")
    assert all(after[name].equal(weight) for name, weight in before.items())
    assert json.loads((uninterrupted / "judge.json").read_text()) == card


def test_a_finished_judge_is_trained_over_only_when_told_and_then_anew(settings, uninterrupted, tmp_path):
    config = configure(tmp_path, **settings, max_steps=1, output_dir=str(uninterrupted))
    assert run_here(config).startswith(f"error: {uninterrupted}: contains a finished judge (judge.json)")
    assert [path.name for path in checkpoints_in(uninterrupted)] == ["checkpoint-18", "checkpoint-15"]
    first = losses_of(train(tmp_path, **settings, max_steps=3) / "checkpoint-3")
    flags = ("--overwrite_output_dir", "--learning_rate", "0.02")
    again = losses_of(train(tmp_path, *flags, **settings, max_steps=3) / "checkpoint-3")
    assert again[1] == first[1]  # the base, not what was trained
    assert again[3] != first[3]


def test_other_options_than_the_checkpoints_are_refused_by_name(settings, tmp_path):
    config = configure(tmp_path, **settings, max_steps=3)
    assert run_here(config) is None
    (tmp_path / "out/judge.json").unlink()
    error = run_here(config, "--gradient_accumulation_steps", "4", "--swap_prob", "0.25")
    assert "global_batch was 8, is 16, swap_prob was 0.5, is 0.25; " in error
    # a micro-batch of another size makes the same steps
    assert run_here(config, "--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "1") is None


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(3))
def test_a_whole_checkpoint_is_there_at_every_moment_after_the_first(settings, tmp_path, attempt):
    # it saves at every step and keeps one, so most moments are within a save or a removal
    config = configure(tmp_path, **settings, save_steps=1, save_total_limit=1, num_train_epochs=4)
    killed = start(config)
    read_to_step(killed, 3)
    time.sleep(random.uniform(0, 0.5))
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    flaws = {checkpoint.name: flaw_of(checkpoint) for checkpoint in checkpoints_in(tmp_path / "out")}
    assert "" in flaws.values(), flaws


@pytest.mark.parametrize(
    "flags", [("--learning_rote", "1"), ("--tf32", "true"), ("--config", "nowhere.yaml")], ids=lambda flags: flags[0]
)
def test_settings_that_cannot_be_read_or_served_here_end_with_a_sentence(settings, tmp_path, flags):
    error = run_here(configure(tmp_path, **settings), *flags)
    assert error.startswith("error: ")
    assert flags[1 if flags[0] == "--config" else 0].lstrip("-") in error


def test_lack_of_memory_is_one_sentence_with_the_ways_out(tmp_path):
    args = SimpleNamespace(output_dir=tmp_path, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    trainer = SimpleNamespace(args=args, state=SimpleNamespace(global_step=3, max_steps=18))
    sentence = r"out of memory in step 4 of 18 \(CUDA\); .* \(now 4\) .* \(now 2\) .* starts over"
    with pytest.raises(RunError, match=sentence), out_of_memory_as_error(trainer):
        raise torch.OutOfMemoryError("CUDA\nlong details")


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_a_whole_checkpoint_and_stops(tmp_path, number):
    preemption, stops = PreemptionCallback(), number is not None
    args = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, save_only_model=True)
    control = transformers.TrainerControl(should_evaluate=True)
    with preemption.handle_signals():
        if stops:
            os.kill(os.getpid(), number)
        preemption.on_step_end(args, transformers.TrainerState(), control)
    assert (control.should_save, control.should_training_stop, control.should_evaluate) == (stops, stops, not stops)
    assert preemption.stopped_by == number
    assert args.save_only_model is not stops  # a run cannot resume from weights alone


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


HALF = {"per_device_train_batch_size": 2}
"""Two processes with two rows each and two passes: the global batch of 8 again."""


@pytest.mark.slow
def test_one_of_two_processes_hears_a_signal_and_both_stop_at_the_same_step(settings, tmp_path):
    finish(start(configure(tmp_path / "whole", **settings | HALF), launcher=TWO))
    config = configure(tmp_path / "stopped", **settings | HALF)
    launcher = start(config, launcher=TWO)
    read_to_step(launcher, 4)
    workers = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    os.kill(int(workers[1]), signal.SIGUSR1)  # not the one that writes
    output, _ = launcher.communicate(timeout=280)
    assert launcher.returncode == 1
    assert "stopped by SIGUSR1 after step" in output
    assert flaw_of(checkpoints_in(tmp_path / "stopped/out")[0]) == ""
    finish(start(config, launcher=TWO))
    last = "out/checkpoint-18"
    assert losses_of(tmp_path / "stopped" / last) == pytest.approx(losses_of(tmp_path / "whole" / last), rel=1e-6)


@pytest.mark.slow
def test_a_launcher_of_two_processes_passes_sigterm_on(settings, tmp_path):
    launcher = start(configure(tmp_path, **settings | HALF), launcher=TWO)
    read_to_step(launcher, 4)
    launcher.terminate()
    output, _ = launcher.communicate(timeout=280)
    assert "stopped by SIGTERM after step" in output
    assert flaw_of(checkpoints_in(tmp_path / "out")[0]) == ""


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """A lock, the newest file of its folder, an hour old."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    path = tmp_path / "cpu_adam" / "lock"
    path.parent.mkdir()
    path.touch()
    make_older(path, 3600)
    return path


def make_older(path, seconds):
    then = time.time() - seconds
    for each in (*path.parent.iterdir(), path.parent):
        os.utime(each, (then, then))


def test_a_stale_lock_is_removed_and_named_before_deepspeed_builds(lock):
    notes, alone = [], SimpleNamespace(world_size=1, deepspeed_plugin=object(), device=torch.device("cpu"))
    connect_processes(alone, notes.append)
    assert not lock.exists()
    assert [note.partition(" ago ")[0] for note in notes] == [f"removed {lock}: it was left 60 minutes"]


def test_a_lock_that_a_process_holds_is_left_however_old(lock):
    code = "import sys; file = open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(lock)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    holder.stdout.readline()
    remove_stale_locks(pytest.fail)
    assert lock.exists()
    holder.communicate()


def test_a_folder_that_changes_keeps_its_lock_until_it_is_quiet(lock):
    # the lock is an hour old, but an object file came 2 s ago, as from a build on another machine: 1 s to wait
    (lock.parent / "cpu_adam.o").touch()
    make_older(lock, 2)
    notes, began = [], time.monotonic()
    remove_stale_locks(notes.append, timeout_s=3)
    assert 0.5 < time.monotonic() - began < 30
    assert "another machine might; waiting 1 s" in notes[0]
    assert notes[1].startswith(f"removed {lock}: ")
