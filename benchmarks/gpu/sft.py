"""Step `sft-SHAPE`: tokens per second and MFU of the trainer that `train/sft.py` runs.

1B with all weights (as `configs/train/judgelm_7b.yaml`, one GPU) and 7B with LoRA (as `judgelm_7b_lora.yaml`), random
weights, rows that fill the window of 2,048 tokens, so that padding plays no part; with gradient checkpointing and
without, and with FlashAttention too where flash-attn is installed. Each variant has a process of its own.
"""

import importlib.util
import json
import runpy
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import AutoConfig, TrainerCallback
from trl import ModelConfig, TrlParser

from benchmarks.dummy_model import SHAPES, made_up_pairs, make_dummy_model, prefill_parameters
from benchmarks.gpu.peak_flops import layer_flops, square_flops, synchronize
from benchmarks.gpu.step import Save, Setting
from judgelm.errors import RunError
from judgelm.training.arguments import JudgeArguments
from judgelm.training.interruption import out_of_memory_as_error
from judgelm.training.run import TrainingRun
from judgelm.training.sft import JudgeSFTConfig

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs/train"
RECIPES = {"1B": "judgelm_7b.yaml", "7B": "judgelm_7b_lora.yaml"}
_WARM_UP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The differences between the runs of a shape."""

    attention: str
    checkpointing: bool
    rows: int

    def __str__(self) -> str:
        checkpointing = "checkpointing" if self.checkpointing else "no checkpointing"
        return f"{self.attention}, {checkpointing}, {self.rows} rows a step"


def variants(shape: str, *, tiny: bool) -> list[Variant]:
    """Those that are to be measured here."""
    kinds = ["sdpa"] + (["flash_attention_2"] if importlib.util.find_spec("flash_attn") else [])
    sizes = [(True, 2), (False, 2)] if tiny else [(True, 8), (False, 8)] if shape == "1B" else [(True, 8), (False, 4)]
    return [Variant(attention=kind, checkpointing=on, rows=rows) for kind in kinds for on, rows in sizes]


def measure(setting: Setting, save: Save) -> None:
    """Write model and rows, then train a few steps of each variant."""
    shape = SHAPES["tiny" if setting.tiny else setting.shape]
    window, steps = (512, 5) if setting.tiny else (2048, 15)
    folder, data = setting.scratch / "base", setting.scratch / "train.jsonl"
    dtype = setting.dtype
    peaks = {
        "square_product_flops": square_flops(setting.device, dtype, 0.05 if setting.tiny else 2),
        "layer_products_flops": layer_flops(
            shape, window, setting.device, dtype, 0.01 if setting.tiny else 0.5
        ),
    }  # fmt: skip
    make_dummy_model(list(made_up_pairs(200)), folder, shape, dtype, setting.device)
    if setting.device == "cuda":
        torch.cuda.empty_cache()
    config = AutoConfig.from_pretrained(folder)
    parameters = prefill_parameters(config) + config.vocab_size * config.hidden_size
    write_rows(data, steps * max(variant.rows for variant in variants(setting.shape, tiny=setting.tiny)), window)
    save({"parameters_without_embedding": parameters, "recipe": RECIPES[setting.shape], **peaks})
    results: dict[str, Any] = {}
    for variant in variants(setting.shape, tiny=setting.tiny):
        options = recipe(setting, variant, folder, data, window, steps)
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            result = pool.submit(train, options).result()
        if "seconds_per_step" in result:
            passes = 4 if options.get("use_peft") else 6
            flops = passes * parameters * result["tokens_per_step"] / result["seconds_per_step"]
            result |= {"mfu_flops": flops, "passes": passes}
            result |= {f"share_of_{name}": flops / peak for name, peak in peaks.items()}
        results[str(variant)] = asdict(variant) | result
        save({"variants": results})


def write_rows(file: Path, count: int, window: int) -> None:
    """Rows of made-up words whose answers must be cut to fit the window, with scores and a reason of some 35 tokens."""
    with file.open("w", encoding="utf-8") as out:
        for pair in made_up_pairs(count):
            answers = [islice(cycle(answer.split()), window) for answer in pair.answers]
            row = {
                "question_id": pair.id, "question_body": pair.question, "score": [7, 8],
                "text": f"7 8\n{pair.question}",
                "answer1_body": " ".join(answers[0]), "answer2_body": " ".join(answers[1]),
            }  # fmt: skip
            out.write(json.dumps(row) + "\n")


def recipe(setting: Setting, variant: Variant, folder: Path, data: Path, window: int, steps: int) -> dict[str, Any]:
    """The users' recipe with this model, these rows, and what the variant says."""
    on_gpu = setting.device == "cuda"
    return yaml.safe_load((CONFIGS / RECIPES[setting.shape]).read_text(encoding="utf-8")) | {
        "model_name_or_path": str(folder), "train_data": [str(data)], "output_dir": str(setting.scratch / "out"),
        "overwrite_output_dir": True, "max_length": window, "max_steps": steps, "global_batch": variant.rows,
        "per_device_train_batch_size": variant.rows, "gradient_accumulation_steps": 1, "save_strategy": "no",
        "attn_implementation": variant.attention, "gradient_checkpointing": variant.checkpointing,
        "use_cpu": not on_gpu, "bf16": on_gpu, "tf32": on_gpu or None, "logging_steps": 1, "disable_tqdm": True,
        "dataloader_pin_memory": on_gpu,
    }  # fmt: skip


class StepClock(TrainerCallback):
    """Seconds of each optimiser step, data and all, with the device's work done."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._last: float | None = None
        self.seconds: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Note the time since the step before."""
        synchronize(self._device)
        now = time.perf_counter()
        if self._last is not None:
            self.seconds.append(now - self._last)
        self._last = now


def train(options: dict[str, Any]) -> dict[str, Any]:
    """Train by the options, in this process; what was measured, or why not."""
    device = "cpu" if options["use_cpu"] else "cuda"
    arguments = TrlParser((JudgeArguments, JudgeSFTConfig, ModelConfig)).parse_dict(options)
    recipe = runpy.run_path(str(ROOT / "train/sft.py"))
    clock = StepClock(device)
    try:
        run = TrainingRun(*arguments, clock)
        trainer = recipe["build_trainer"](run)
        print(run.summary(trainer))
        lengths = [len(row) for row in trainer.rows.dataset["input_ids"]]
        with out_of_memory_as_error(trainer):
            trainer.train()
    except (torch.OutOfMemoryError, RunError) as error:
        return {"error": str(error)[:500]}
    seconds = statistics.median(clock.seconds[_WARM_UP - 1 :])
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    tokens = trainer.args.per_device_train_batch_size * statistics.mean(lengths)
    return {
        "tokens_per_row": statistics.mean(lengths), "tokens_per_step": tokens, "seconds_per_step": seconds,
        "steps_measured": len(clock.seconds) - _WARM_UP + 1, "tokens_per_s": tokens / seconds,
        "first_loss": losses[0], "last_loss": losses[-1],
        "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else None,
    }  # fmt: skip
