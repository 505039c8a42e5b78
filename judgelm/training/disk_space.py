"""Estimate the disk space that a run needs, and handle errors when the disk is full."""

import contextlib
import errno
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import DistributedType
from safetensors import SafetensorError
from transformers.trainer_utils import SaveStrategy

from judgelm.errors import ConfigError, RunError
from judgelm.training.arguments import optimizer_states
from judgelm.training.checkpoints import checkpoints_in, resume_hint
from judgelm.training.process_group import broadcast_from_rank0
from judgelm.training.resume import last_step

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


_DISK_FULL_MESSAGE = re.compile(r"os error (28|27|122)\b|No space left|PytorchStreamWriter|inline_container")
"""Error messages of safetensors 0.x and torch 2.x, which do not raise OSError."""


def check_disk_space(trainer: Any, limit: int | None) -> None:
    """Raise ConfigError if there is too little disk space; `limit` is `save_total_limit`."""
    folder, count = Path(str(trainer.args.output_dir)).absolute(), max_checkpoints(trainer, limit)
    weights, states = checkpoint_bytes(trainer)

    def check() -> None:
        files = (path for checkpoint in checkpoints_in(folder) for path in checkpoint.rglob("*"))
        present = sum(path.stat().st_size for path in files if path.is_file())
        free = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
        missing = count * (weights + states) + weights - present
        if missing > free:
            raise ConfigError(
                f"{trainer.args.output_dir}: training needs {_size(missing)} of disk space ({count} checkpoints of "
                f"{_size(weights + states)} and the judge), but only {_size(free)} is free; use a larger disk, a "
                f"smaller save_total_limit, or save_only_model: true ({_size(weights)} per checkpoint, but not "
                "resumable)"
            )

    broadcast_from_rank0(check)


def checkpoint_bytes(trainer: Any) -> tuple[int, int]:
    """Return a checkpoint's size in bytes as two numbers: weights with small files, and optimizer states."""
    args = trainer.args
    halved = args.deepspeed_plugin is not None and (args.bf16 or args.fp16)  # DeepSpeed casts the model to 16 bits
    # includes the trainer's files; the log grows by about 150 bytes per entry
    weights = len(trainer.processing_class.backend_tokenizer.to_str(pretty=True).encode()) + 50_000
    elements = trained = 0
    for parameter in trainer.model.parameters():
        count = getattr(parameter, "ds_numel", parameter.numel())
        size = count * (min(parameter.element_size(), 2) if halved else parameter.element_size())
        if parameter.requires_grad:
            elements, trained = elements + count, trained + size
        if parameter.requires_grad or not hasattr(trainer.model, "peft_config"):
            weights += size
    if args.save_only_model:
        return weights, 0
    if args.deepspeed_plugin is not None:
        # two states and the weights in float32; up to ZeRO-2, also the weights of the module
        return weights, 12 * elements + (trained if args.deepspeed_plugin.zero_stage < 3 else 0)
    numbers, width = optimizer_states(str(getattr(args.optim, "value", args.optim)))
    whole = PartialState().distributed_type == DistributedType.FSDP
    return weights, numbers * (width * elements if width else trained) + (weights if whole else 0)


def max_checkpoints(trainer: Any, limit: int | None) -> int:
    """Return the maximum number of checkpoints on disk, including one that is about to be removed."""
    args, steps = trainer.args, last_step(trainer)
    if args.save_strategy == SaveStrategy.NO:
        return 0
    interval = args.eval_steps if args.save_strategy == SaveStrategy.BEST else args.save_steps
    saves: int = math.ceil(steps / (interval if interval >= 1 else max(1, math.ceil(steps * interval))))
    if not limit or limit < 0:
        return saves
    return min(saves, max(int(limit), 2 if args.metric_for_best_model else 1) + 1)


@contextlib.contextmanager
def disk_full_as_error(folder: str | Path) -> Iterator[None]:
    """Convert a library's disk-full error into an error that explains how to continue."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if getattr(error, "errno", None) not in _DISK_FULL and not _DISK_FULL_MESSAGE.search(str(error)):
            raise
        way_out = f"free some space; the same command then {resume_hint(Path(folder))}"
        raise RunError(f"{folder}: no space left on the disk; {way_out}") from error


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
