"""Trainers of the recipes, and their runs in this process or in others that can be stopped and resumed."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.synthetic.pairs import generate

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "template": "judgelm-compact", "max_length": 256, "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2, "num_train_epochs": 1.5, "learning_rate": 0.01, "use_cpu": True, "bf16": False,
    "save_strategy": "steps", "save_steps": 3, "save_total_limit": 2, "report_to": "none", "disable_tqdm": True,
    "gradient_checkpointing": False, "logging_steps": 1,
}  # fmt: skip
"""96 rows and 8 a step: 12 steps an epoch, 18 in all, which end within the second epoch."""


TWO = ("torch.distributed.run", "--standalone", "--nproc_per_node", "2")
"""A launcher of two processes."""
ON_CPU = ("accelerate.commands.launch", "--config_file", str(ROOT / "configs/accelerate/cpu.yaml"))
FSDP_ON_CPU = "tests/support/fsdp_on_cpu.py"
LORA = {"use_peft": True, "lora_r": 4, "lora_target_modules": ["all-linear"]}


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def write_world(path, count=96):
    return write_rows(path, generate(count, seed=0, split="train"))


def build(recipe, judge, args, base):
    """The trainer of a recipe ("sft", "preference" or "reward"), not yet trained."""
    from judgelm.training.run import TrainingRun

    run = TrainingRun(judge, args, base)
    trainer = runpy.run_path(str(ROOT / f"train/{recipe}.py"))["build_trainer"](run)
    sys.stdout.write(run.summary(trainer) + "\n")
    return trainer


def prepare(base, folder, rows, *, recipe="sft", judge=None, model=None, **options):
    """The trainer of a recipe on a file of rows, not yet trained."""
    from trl import ModelConfig

    from judgelm.training.arguments import JudgeArguments
    from judgelm.training.reward import JudgeRewardConfig, RewardArguments
    from judgelm.training.sft import JudgeSFTConfig

    own, config = {"sft": (JudgeArguments, JudgeSFTConfig), "reward": (RewardArguments, JudgeRewardConfig)}[recipe]
    template = {} if recipe == "reward" else {"template": SETTINGS["template"]}
    arguments = own(**{"train_data": [rows]} | template | (judge or {}))
    settings = {name: value for name, value in SETTINGS.items() if name != "template"}
    args = config(**settings | {"output_dir": str(folder)} | options)
    base = ModelConfig(model_name_or_path=str(base), **(model or {}))
    return build(recipe, arguments, args, base), arguments, base


def configure(folder, **options):
    """Write a configuration into the folder, whose `out` is the output."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.yaml"
    config.write_text(json.dumps(SETTINGS | {"output_dir": str(folder / "out")} | options))
    return config


def run_here(config, *flags, recipe="sft"):
    """Run the recipe in this process, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _run_script(f"train/{recipe}.py", "--config", config, *flags)
    finally:
        torch.set_num_threads(threads)


def train(folder, *flags, recipe="sft", **options):
    """Run the recipe in this process with these options; the output folder."""
    assert run_here(configure(folder, **options), *flags, recipe=recipe) is None
    return folder / "out"


def merge_here(adapter, out, *flags):
    """Run `train/merge_lora.py` in this process."""
    return _run_script("train/merge_lora.py", adapter, "-o", out, *flags)


def _run_script(script, *arguments):
    """The code or message with which it exits, None if it ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [script, *map(str, arguments)])
        try:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        except SystemExit as end:
            return end.code
    return None


def start(config, *, launcher=(), script=ROOT / "train/sft.py"):
    command = [str(script), "--config", str(config)]
    if launcher:
        command = ["-m", *launcher, *command]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, *command], start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=environment,
    )  # fmt: skip


def shape(rows, passes):
    return {"per_device_train_batch_size": rows, "gradient_accumulation_steps": passes}


def launch(folder, cluster, *flags, script="train/sft.py", port=0, precision="no", **options):
    """Start two processes by `accelerate launch` with a config for GPUs, of which processes and precision differ."""
    config_file = str(ROOT / f"configs/accelerate/{cluster}.yaml")
    launcher = ["accelerate.commands.launch", "--config_file", config_file, "--num_processes", "2"]
    launcher += ["--mixed_precision", precision, "--main_process_port", str(port), *flags]
    return start(configure(folder, **options), launcher=launcher, script=ROOT / script)


def finish(process):
    said, _ = process.communicate(timeout=280)
    assert process.returncode == 0, said[-5000:]
    return said


def read_to_step(process, step):
    lines = []
    while sum("'loss': '" in line for line in lines) < step:
        lines.append(process.stdout.readline())
        assert lines[-1], "it ended too early: " + "".join(lines)[-3000:]


def history(checkpoint, name="loss"):
    """What was logged together with this number, up to a checkpoint."""
    entries = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    return [entry for entry in entries if name in entry]


def losses_of(checkpoint, name="loss"):
    return {entry["step"]: entry[name] for entry in history(checkpoint, name)}
