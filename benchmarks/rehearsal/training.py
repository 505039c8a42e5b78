"""Steps that train by the users' recipes: a whole run, one that resumes from a checkpoint, a judgment."""

import json
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.rehearsal.judging import batch
from benchmarks.rehearsal.step import TEMPLATE, Setting, check
from benchmarks.step_runner import ROOT, step_command

_TOLERANCE = {"bfloat16": 0.02, "float32": 1e-3}
"""Relative difference of a resumed run's losses; in bfloat16 sums on a GPU come in any order."""
_FSDP_ON_CPU = ROOT / "tests/support/fsdp_on_cpu.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Output folder of a run, losses by step, and its seconds from start to end of the process."""

    folder: Path
    losses: Mapping[int, float]
    seconds: float


def steps_of(setting: Setting) -> int:
    """Optimiser steps of a run; the checkpoint is in their middle."""
    return 4 if setting.tiny else 10


def train(
    setting: Setting, recipe: str, name: str, *, script: str = "sft", kind: str = "one", processes: int = 1,
    start: Path | None = None, base: Path | None = None, as_it_is: bool = False, **options: Any,
) -> Training:  # fmt: skip
    """Run `accelerate launch train/SCRIPT.py` with a recipe of `configs/train` and a config of `configs/accelerate`.

    Args:
        setting: where.
        recipe: name of the recipe.
        name: of the output folder.
        script: in `train/`.
        kind: `one`, or the config of `configs/accelerate`.
        processes: their number.
        start: checkpoint to resume from.
        base: the model; random weights where none is named.
        as_it_is: keep the number of processes and the precision of the config of accelerate.
        options: that differ from the recipe's.
    """
    out, config = setting.folder / name, setting.folder / f"{name}.yaml"
    steps, cpu = steps_of(setting), setting.device == "cpu"
    values = yaml.safe_load((ROOT / f"configs/train/{recipe}.yaml").read_text(encoding="utf-8"))
    values |= {
        "model_name_or_path": str(base or setting.base("train")), "train_data": [str(setting.pairs(64 * processes))],
        "output_dir": str(out), "template": TEMPLATE, "max_length": 512 if setting.tiny else 2048, "max_steps": steps,
        "save_strategy": "steps", "save_steps": steps // 2, "save_total_limit": 2, "logging_steps": 1,
        "per_device_train_batch_size": 2, "global_batch": 4 * processes, "use_cpu": cpu, "bf16": not cpu,
        "tf32": None if cpu else True, "dataloader_pin_memory": not cpu, "disable_tqdm": True,
    }  # fmt: skip
    values |= {"dtype": "float32"} if cpu else {}
    values = {key: value for key, value in (values | options).items() if value is not None}
    config.write_text(json.dumps(values), encoding="utf-8")
    if start is not None:
        shutil.copytree(start, out / start.name)
    cluster = {"one": "cpu" if cpu else "gpu"}.get(kind, kind)
    launcher = [*step_command("accelerate.commands.launch"), "--config_file", f"configs/accelerate/{cluster}.yaml"]
    if kind != "one" and not as_it_is:
        launcher += ["--num_processes", processes, "--mixed_precision", "no" if cpu else "bf16"]
        launcher += ["--main_process_port", 0]
    file = _FSDP_ON_CPU if cpu and kind == "fsdp2" else ROOT / f"train/{script}.py"
    began = time.monotonic()
    setting.run(*launcher, file, "--config", config)
    return Training(folder=out, losses=losses_of(out), seconds=time.monotonic() - began)


def losses_of(folder: Path) -> dict[int, float]:
    """Loss of each step by the last checkpoint of a run."""
    last = max(folder.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]))
    history = json.loads((last / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    return {entry["step"]: entry["loss"] for entry in history if "loss" in entry}


def sft(
    setting: Setting, *, kind: str, recipe: str = "judgelm_7b", everywhere: bool = False, large: bool = False,
    attention: str | None = None,
) -> None:  # fmt: skip
    """Train, resume from the middle, compare the losses, judge with the result."""
    processes = setting.gpus if everywhere or (setting.device == "cpu" and kind == "fsdp2") else 1
    options: dict[str, Any] = {"kind": kind, "processes": processes, "as_it_is": large}
    options |= {"base": setting.base("judge")} if large else {}
    if kind == "one" and recipe == "judgelm_7b":
        options |= {"padding_free": True}
    options |= {"attn_implementation": attention} if attention else {}
    whole = train(setting, recipe, "whole", **options)
    figures = {"processes": processes, "first loss": whole.losses[1], "last loss": whole.losses[steps_of(setting)],
               "seconds": round(whole.seconds, 1)}  # fmt: skip
    setting.save({"figures": figures})
    resumed = train(setting, recipe, "resumed", start=whole.folder / f"checkpoint-{steps_of(setting) // 2}", **options)
    figures |= {"resumed: loss apart": apart(whole, resumed), "tolerance": _TOLERANCE[setting.dtype]}
    setting.save({"figures": figures})
    check(figures["resumed: loss apart"] <= figures["tolerance"], f"the resumed run is another: {figures}")
    judge = merged(setting, resumed.folder) if (resumed.folder / "adapter_config.json").is_file() else resumed.folder
    setting.save({"figures": figures | judged(setting, judge)})


def apart(whole: Training, resumed: Training) -> float:
    """Largest relative difference of a loss of the steps behind the checkpoint."""
    check(whole.losses.keys() == resumed.losses.keys(), f"steps {list(whole.losses)} and {list(resumed.losses)}")
    later = [step for step in whole.losses if step > len(whole.losses) // 2]
    return max(abs(resumed.losses[step] / whole.losses[step] - 1) for step in later)


def merged(setting: Setting, adapter: Path) -> Path:
    """The adapter merged into its base by `train/merge_lora.py`."""
    out = setting.folder / "merged"
    setting.run(sys.executable, ROOT / "train/merge_lora.py", adapter, "-o", out)
    return out


def judged(setting: Setting, judge: Path) -> dict[str, Any]:
    """Pairs that the trained judge judges, and those whose reply cannot be read."""
    run = batch(setting, setting.pairs(8), judge, "transformers", trained=True, unread=1.0)
    return {"judged": len(run.rows), "unreadable": sum(run.summary["failures"].values())}


def grpo(setting: Setting, *, vllm: bool = False) -> None:
    """Reinforce the base, which writes no verdicts, so that rewards are those of its form; then judge."""
    options: dict[str, Any] = {
        "template": "reasoned-compact", "max_completion_length": 16, "num_generations": 4, "least_letters": 0,
        "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "global_batch": None,
    }  # fmt: skip
    if not vllm:
        options |= dict.fromkeys(("use_vllm", "vllm_mode", "vllm_gpu_memory_utilization", "vllm_enable_sleep_mode"))
    run = train(setting, "grpo_7b", "reinforced", script="grpo", **options)
    check(list(run.losses) == list(range(1, steps_of(setting) + 1)), f"losses of steps {list(run.losses)}")
    setting.save(
        {"figures": {"steps": len(run.losses), "seconds": round(run.seconds, 1)} | judged(setting, run.folder)}
    )
