"""Disk space of a training: estimated before it begins, and a clear error if the disk fills up all the same."""

import contextlib
import errno
import math
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import DistributedType
from safetensors import SafetensorError
from transformers.trainer_utils import SaveStrategy

from judgelm.errors import ConfigError, RunError
from judgelm.training.checkpoints import checkpoints_in, flaw_of, resume_hint
from judgelm.training.distributed import broadcast_from_rank0
from judgelm.training.resume import last_step

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DISK_FULL_MESSAGE = re.compile(r"os error (28|27|122)\b|No space left|PytorchStreamWriter|inline_container")
"""Messages of safetensors 0.x and torch 2.x, which raise no OSError when a file cannot grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskNeed:
    """Bytes that a training writes and keeps at once.

    Attributes:
        weights: of a checkpoint, or of the judge: the model in the dtype it is trained in, or the adapter.
        states: of a checkpoint: the optimiser's, and the master weights of a sharded one.
        others: of a checkpoint, or of the judge: tokenizer and small files.
        checkpoints: maximum number on the disk at once.
    """

    weights: int
    states: int
    others: int
    checkpoints: int

    @property
    def checkpoint(self) -> int:
        """Bytes of one checkpoint."""
        return self.weights + self.states + self.others

    @property
    def total(self) -> int:
        """Bytes of all checkpoints and the judge."""
        return self.checkpoints * self.checkpoint + self.weights + self.others


def disk_need(trainer: Any, limit: int | None) -> DiskNeed:
    """Estimate the size of checkpoints and judge from the loaded model and the arguments.

    The rows of all epochs are on the disk already and not counted.

    Args:
        trainer: with its model, not yet trained.
        limit: `save_total_limit`.
    """
    args = trainer.args
    every, trained = _elements(trainer)
    saved = trained if hasattr(trainer.model, "peft_config") else every
    weights = sum(count * size for size, count in saved.items())
    return DiskNeed(
        weights=weights,
        states=0 if args.save_only_model else _states(args, weights, trained),
        # the trainer's own files too; its log grows by some 150 bytes an entry
        others=len(trainer.processing_class.backend_tokenizer.to_str(pretty=True).encode()) + 50_000,
        checkpoints=_max_checkpoints(args, limit, last_step(trainer)),
    )


def check_disk_space(trainer: Any, limit: int | None) -> None:
    """Refuse, on all processes alike, to train where the output folder's disk is too small.

    Args:
        trainer: with its model, not yet trained.
        limit: `save_total_limit`.

    Raises:
        ConfigError: names what is needed, what is free, and ways out.
    """
    need = disk_need(trainer, limit)
    broadcast_from_rank0(lambda: check_disk(Path(str(trainer.args.output_dir)), need))


def check_disk(folder: Path, need: DiskNeed) -> None:
    """Refuse a folder whose disk has less room than needed; checkpoints that lie there already are counted.

    Raises:
        ConfigError: names what is needed, what is free, and ways out.
    """
    present = sum(_bytes_in(path) for path in checkpoints_in(folder))
    parents = (folder.absolute(), *folder.absolute().parents)
    free = shutil.disk_usage(next(path for path in parents if path.exists())).free
    if need.total - present <= free:
        return
    ways = []
    if need.checkpoints > 2:
        ways.append(f"save_total_limit: 1 needs {_size(replace(need, checkpoints=2).total)}")
    if need.checkpoints and need.states:
        ways.append(
            f"save_only_model: true needs {_size(replace(need, states=0).total)}, but no run can resume from its "
            "checkpoints"
        )
    ways.append("choose an output_dir on a larger disk")
    raise ConfigError(
        f"{folder}: training needs {_size(need.total - present)} of disk ({need.checkpoints} checkpoints of "
        f"{_size(need.checkpoint)} at once, and the judge), and {_size(free)} are free; {'; '.join(ways)}"
    )


@contextlib.contextmanager
def disk_full_as_error(folder: str | Path) -> Iterator[None]:
    """Turn what libraries raise when a file cannot grow into one error with the way out.

    Raises:
        RunError: the disk is full.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if getattr(error, "errno", None) not in _DISK_FULL and not _DISK_FULL_MESSAGE.search(str(error)):
            raise
        raise RunError(
            f"{folder}: no space left on the disk; free {_size(_largest(Path(folder)))} or more, and the same command "
            f"{resume_hint(Path(folder))}"
        ) from error


def _elements(trainer: Any) -> tuple[Counter[int], Counter[int]]:
    """Number of all and of the trained elements, by bytes of each; shared ones once, sharded ones whole."""
    args = trainer.args
    halved = args.deepspeed_plugin is not None and (args.bf16 or args.fp16)  # DeepSpeed casts the model itself
    every: Counter[int] = Counter()
    trained: Counter[int] = Counter()
    for parameter in trainer.model.parameters():
        count = getattr(parameter, "ds_numel", parameter.numel())
        size = min(parameter.element_size(), 2) if halved else parameter.element_size()
        every[size] += count
        if parameter.requires_grad:
            trained[size] += count
    return every, trained


def _states(args: Any, weights: int, trained: Counter[int]) -> int:
    """Bytes of what a checkpoint holds for resuming, beside the weights in their usual files."""
    per_element, width = _states_of(getattr(args.optim, "value", args.optim))
    states = sum(count * per_element * (width or size) for size, count in trained.items())
    if args.deepspeed_plugin is not None:
        # two states and the weights in float32, and up to stage 2 the module's own weights once more
        own = sum(count * size for size, count in trained.items()) if args.deepspeed_plugin.zero_stage < 3 else 0
        return 12 * trained.total() + own
    return states + (weights if PartialState().distributed_type == DistributedType.FSDP else 0)


def _states_of(optim: str) -> tuple[int, int]:
    """An optimiser's states for one element, and the bytes of each; 0 bytes where they have the weight's dtype.

    An unknown name counts as a variant of Adam, as most are.
    """
    if "adafactor" in optim or "lomo" in optim or optim == "sgd":
        states = 0
    elif any(name in optim for name in ("lion", "rmsprop", "adagrad")):
        states = 1
    else:
        states = 3 if "ademamix" in optim else 2
    return states, 1 if "8bit" in optim else 4 if "paged" in optim or "32bit" in optim else 0


def _max_checkpoints(args: Any, limit: int | None, steps: int) -> int:
    """Maximum number of checkpoints at once: those that stay, and a new one before the oldest is removed."""
    if args.save_strategy == SaveStrategy.NO:
        return 0
    interval = args.eval_steps if args.save_strategy == SaveStrategy.BEST else args.save_steps
    saves: int = math.ceil(steps / (interval if interval >= 1 else max(1, math.ceil(steps * interval))))
    if not limit or limit < 0:
        return saves
    return min(saves, max(int(limit), 2 if args.metric_for_best_model else 1) + 1)


def _largest(folder: Path) -> int:
    """Bytes of the largest whole checkpoint, or of the folder where there is none."""
    return max(_bytes_in(path) for path in [path for path in checkpoints_in(folder) if not flaw_of(path)] or [folder])


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _size(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
