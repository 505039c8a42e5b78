"""Signals while a judge is trained; that nothing is lost by one is in `test_resume.py`."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import transformers

from benchmarks.synthetic.pairs import generate
from judgelm.training.checkpoints import checkpoints_in, flaw_of
from judgelm.training.safeguards import PreemptionCallback
from tests.support.recipe_runs import ROOT, configure, losses_of, read_to_step, start

TWO = ("torch.distributed.run", "--nproc_per_node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0")
WAITING = """
import time
from judgelm.training.safeguards import PreemptionCallback
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


def test_signals_are_given_back(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with PreemptionCallback().handle_signals():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


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
