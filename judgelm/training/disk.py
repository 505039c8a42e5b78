"""Room for what a training writes: reckoned before it begins, and one sentence if it runs out all the same."""

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
from judgelm.training.checkpoints import checkpoints_in, flaw_of, going_on

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_IN_WORDS = re.compile(r"os error (28|27|122)\b|No space left|PytorchStreamWriter|inline_container")
"""How safetensors and torch say it: neither raises an OSError when a file cannot grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskNeed:
    """Bytes that a training will write and keep at once.

    Attributes:
        weights: of a checkpoint, or of the judge: the model in the dtype it is trained in, or the adapter.
        states: of a checkpoint: the optimiser's, and the master weights of a sharded one.
        others: of a checkpoint, or of the judge: tokenizer and small files.
        checkpoints: most that lie on the disk at once.
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


def disk_need(trainer: Any, *, limit: int | None, steps: int) -> DiskNeed:
    """What checkpoints and judge will take, from the loaded model and the arguments.

    The rows of all epochs are not in it: they lie on the disk already.

    Args:
        trainer: with its model, not yet trained.
        limit: `save_total_limit`.
        steps: optimiser steps of the run.
    """
    args = trainer.args
    every, trained = _elements(trainer)
    saved = trained if hasattr(trainer.model, "peft_config") else every
    weights = sum(count * size for size, count in saved.items())
    return DiskNeed(
        weights=weights,
        states=0 if args.save_only_model else _states(args, weights, trained),
        others=_others(trainer),
        checkpoints=_at_once(args, limit, steps),
    )


def check_disk(folder: Path, need: DiskNeed) -> None:
    """Refuse to train where the output folder's disk has no room; checkpoints that lie there already are counted.

    Raises:
        ConfigError: names what is needed, what is free, and ways out.
    """
    there = sum(path.stat().st_size for one in checkpoints_in(folder) for path in one.rglob("*") if path.is_file())
    free = shutil.disk_usage(_existing(folder)).free
    if need.total - there <= free:
        return
    ways = []
    if need.checkpoints > 2:
        ways.append(f"save_total_limit: 1 needs {_size(replace(need, checkpoints=2).total)}")
    if need.checkpoints and need.states:
        ways.append(
            f"save_only_model: true needs {_size(replace(need, states=0).total)}, but no run can go on from its "
            "checkpoints"
        )
    ways.append("choose an output_dir on a larger disk")
    raise ConfigError(
        f"{folder}: training needs {_size(need.total - there)} of disk ({need.checkpoints} checkpoints of "
        f"{_size(need.checkpoint)} at once, and the judge), and {_size(free)} are free; {'; '.join(ways)}"
    )


@contextlib.contextmanager
def full_disk_in_words(folder: Path) -> Iterator[None]:
    """Turn what libraries raise when a file cannot grow into one sentence with the way out.

    Raises:
        RunError: the disk is full.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if getattr(error, "errno", None) not in _FULL and not _FULL_IN_WORDS.search(str(error)):
            raise
        raise RunError(
            f"{folder}: no room left on the disk; free {_size(_largest(folder))} or more, and the same command "
            f"{going_on(folder)}"
        ) from error


def _elements(trainer: Any) -> tuple[Counter[int], Counter[int]]:
    """Numbers of all and of the trained elements, by bytes of one; shared ones once, sharded ones whole."""
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
    """Bytes of what a checkpoint holds to go on from, beside the weights in their usual files."""
    number, width = _states_of(getattr(args.optim, "value", args.optim))
    states = sum(count * number * (width or size) for size, count in trained.items())
    if args.deepspeed_plugin is not None:
        # two states and the weights in float32, and up to stage 2 the module's own weights once more
        own = sum(count * size for size, count in trained.items()) if args.deepspeed_plugin.zero_stage < 3 else 0
        return 12 * trained.total() + own
    return states + (weights if PartialState().distributed_type == DistributedType.FSDP else 0)


def _states_of(optim: str) -> tuple[int, int]:
    """An optimiser's states for one element, and the bytes of each; 0 bytes where they have the weight's dtype.

    Where a name is not known it is taken for Adam's kin, which most are.
    """
    if "adafactor" in optim or "lomo" in optim or optim == "sgd":
        number = 0
    elif any(name in optim for name in ("lion", "rmsprop", "adagrad")):
        number = 1
    else:
        number = 3 if "ademamix" in optim else 2
    return number, 1 if "8bit" in optim else 4 if "paged" in optim or "32bit" in optim else 0


def _others(trainer: Any) -> int:
    """Tokenizer, random states and the trainer's own files; the log grows by some 150 bytes an entry."""
    return len(trainer.processing_class.backend_tokenizer.to_str(pretty=True).encode()) + 50_000


def _at_once(args: Any, limit: int | None, steps: int) -> int:
    """Most checkpoints at once: those that are kept, and a new one before the oldest goes."""
    if args.save_strategy == SaveStrategy.NO:
        return 0
    interval = args.eval_steps if args.save_strategy == SaveStrategy.BEST else args.save_steps
    saves: int = math.ceil(steps / (interval if interval >= 1 else max(1, math.ceil(steps * interval))))
    if not limit or limit < 0:
        return saves
    return min(saves, max(int(limit), 2 if args.metric_for_best_model else 1) + 1)


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())


def _largest(folder: Path) -> int:
    """Bytes of the largest whole checkpoint, or of what the folder holds where there is none."""
    whole = [one for one in checkpoints_in(folder) if not flaw_of(one)] or [folder]
    return max(sum(path.stat().st_size for path in one.rglob("*") if path.is_file()) for one in whole)


def _size(count: int) -> str:
    """Bytes in words."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
