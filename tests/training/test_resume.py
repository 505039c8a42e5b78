"""A run that was killed, preempted or out of disk goes on with the losses of one that was never stopped."""

import json
import os
import random
import re
import resource
import signal
import time

import pytest
from safetensors.torch import load_file

from judgelm.training.checkpoints import STATE_NAME, checkpoints_in, flaw_of
from tests.support.recipe_runs import ROOT, configure, losses_of, read_to_step, run_here, start

LAUNCHER = ("accelerate.commands.launch", "--config_file", str(ROOT / "configs/accelerate/cpu.yaml"))


@pytest.fixture(scope="module")
def settings(tiny_model, train_file):
    """Dropout, so that the random state matters."""
    dropout = {"model_init_kwargs": {"attention_dropout": 0.1}}
    return {"model_name_or_path": str(tiny_model), "train_data": [train_file]} | dropout


@pytest.fixture(scope="module")
def uninterrupted(settings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert run_here(configure(folder, **settings)) is None
    return folder / "out"


def assert_same(out, reference):
    """The same loss at every step, with the same number of tokens so far, and the same weights."""
    tokens = [losses_of(folder / "checkpoint-18", "num_tokens") for folder in (out, reference)]
    assert tokens[0] == tokens[1]
    losses, expected = losses_of(out / "checkpoint-18"), losses_of(reference / "checkpoint-18")
    assert list(losses) == list(range(1, 19))
    assert losses == pytest.approx(expected, rel=1e-6)
    weights, others = load_file(out / "model.safetensors"), load_file(reference / "model.safetensors")
    for name, weight in weights.items():
        assert weight.numpy() == pytest.approx(others[name].numpy(), abs=1e-6), name


@pytest.mark.distributed
def test_a_run_killed_at_any_step_goes_on_from_its_last_whole_checkpoint(settings, uninterrupted, tmp_path, capfd):
    config = configure(tmp_path, **settings)
    step = random.randint(4, 12)
    killed = start(config, launcher=LAUNCHER)
    read_to_step(killed, step)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    whole = [checkpoint for checkpoint in checkpoints_in(tmp_path / "out") if not flaw_of(checkpoint)]
    assert whole, f"killed at step {step}"
    assert run_here(config) is None
    said = capfd.readouterr().out
    assert f"resuming from {whole[0]}" in said
    assert said.count("'loss': '") == 18 - int(whole[0].name.split("-")[1])
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
    said, _ = running.communicate(timeout=200)
    assert running.returncode == 1, said[-3000:]
    last = next(one for one in checkpoints_in(tmp_path / "out") if not flaw_of(one))
    error = said[said.index("error: ") :]
    assert re.search(
        r"out of memory in step \d+ of 18 \(.*(allocate|MemoryError).*\); .* \(now 4\) .* \(now 2\)", error
    )
    assert f"the run then resumes from {last}" in error

    less = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    assert run_here(configure(tmp_path, **settings, **less)) is None
    assert f"resuming from {last}" in capfd.readouterr().out
    losses, expected = losses_of(tmp_path / "out/checkpoint-18"), losses_of(uninterrupted / "checkpoint-18")
    assert losses == pytest.approx(expected, rel=1e-2)  # dropout falls otherwise on fewer rows at once


def test_a_preempted_run_that_then_finds_the_disk_full_loses_nothing(settings, uninterrupted, tmp_path, capfd):
    config = configure(tmp_path, **settings)
    preempted = start(config)
    read_to_step(preempted, 4)
    preempted.terminate()
    said, _ = preempted.communicate(timeout=200)
    assert preempted.returncode == 143, said[-3000:]
    last = checkpoints_in(tmp_path / "out")[0]
    step = int(last.name.split("-")[1])
    assert f"stopped by SIGTERM after step {step} of 18; the same command resumes from {last}" in said

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, hard))  # weights have 0.5 MB, optimiser states 1 MB
    try:
        error = run_here(config)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.startswith(f"error: {tmp_path / 'out'}: no space left on the disk; ")
    assert error.endswith(f"the same command then resumes from {last}")

    assert run_here(config) is None
    said = capfd.readouterr().out
    assert f"checkpoint-{-(-(step + 1) // 3) * 3}: removed because it is incomplete: {STATE_NAME}" in said
    assert_same(tmp_path / "out", uninterrupted)


def test_a_run_that_lacks_only_its_judge_trains_no_step_more(settings, uninterrupted, tmp_path, capfd):
    config = configure(tmp_path, **settings)
    (tmp_path / "out").symlink_to(uninterrupted)
    card = json.loads((uninterrupted / "judge.json").read_text())
    before = load_file(uninterrupted / "model.safetensors")
    (uninterrupted / "judge.json").unlink()
    assert run_here(config) is None
    assert "'loss': '" not in capfd.readouterr().out
    after = load_file(uninterrupted / "model.safetensors")
    assert all(after[name].equal(weight) for name, weight in before.items())
    found = json.loads((uninterrupted / "judge.json").read_text())
    assert found == card


def test_a_finished_judge_is_trained_over_only_when_told_and_then_anew(settings, uninterrupted, tmp_path):
    config = configure(tmp_path, **settings, max_steps=1, output_dir=str(uninterrupted))
    assert run_here(config).startswith(
        f"error: {uninterrupted}: contains a finished judge (judge.json); choose another"
    )
    assert [one.name for one in checkpoints_in(uninterrupted)] == ["checkpoint-18", "checkpoint-15"]
    config = configure(tmp_path, **settings, max_steps=3)
    assert run_here(config) is None
    first = losses_of(tmp_path / "out/checkpoint-3")
    assert run_here(config, "--overwrite_output_dir", "--learning_rate", "0.02") is None
    again = losses_of(tmp_path / "out/checkpoint-3")
    assert again[1] == first[1]  # the base, not what was trained
    assert again[3] != first[3]


def test_other_options_than_the_checkpoints_are_refused_by_name(settings, tmp_path):
    config = configure(tmp_path, **settings, max_steps=3)
    assert run_here(config) is None
    (tmp_path / "out/judge.json").unlink()
    said = run_here(config, "--gradient_accumulation_steps", "4", "--swap_prob", "0.25")
    assert "belongs to another run: global_batch was 8, is 16, swap_prob was 0.5, is 0.25; " in said
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
    end = run_here(configure(tmp_path, **settings), *flags)
    assert end.startswith("error: ")
    assert flags[1 if flags[0] == "--config" else 0].lstrip("-") in end
