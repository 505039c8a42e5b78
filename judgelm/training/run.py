"""The run of a recipe: its processes, its disk, and what ends it early.

SIGTERM is sent by `kill`, a container's end and a preemption; Slurm sends what `#SBATCH --signal` names. The signal
must reach a training process, not the launcher alone; where one process receives it, all stop at the same step.
`accelerate launch` with several processes passes SIGTERM on, and kills them TORCH_ELASTIC_SHUTDOWN_TIMEOUT seconds
later (30 if not set); it does not pass SIGUSR1 on, and with one process it passes on nothing.

torch compiles an extension into a folder of its cache and meanwhile holds the file `lock` open in it; a process that
finds a lock waits silently until it is gone. A killed build leaves the file behind. A process of this machine that
builds has the file open; a build on another machine that shares the cache writes into the folder. Where neither is seen
for some minutes, the lock is stale. Source: torch 2.x, `torch/utils/file_baton.py` and `_jit_compile` in
`torch/utils/cpp_extension.py`.
"""

import contextlib
import errno
import math
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from safetensors import SafetensorError
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import SaveStrategy

from judgelm.engines.transformers.memory import is_out_of_memory
from judgelm.errors import ConfigError, RunError
from judgelm.training.checkpoints import broadcast_from_rank0, checkpoints_in, flaw_of, last_step, resume_hint

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


SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
SAME_REQUEST_S = 2.0
"""Signals this close to the first are the same request: a launcher passes on what its processes received as well."""


class PreemptionCallback(TrainerCallback):
    """Saves and stops at the next step's end after SIGTERM or SIGUSR1; a second signal ends the process at once.

    Attributes:
        stopped_by: number of the signal that stopped the training, on every process; None until then.
    """

    def __init__(self) -> None:
        self.stopped_by: int | None = None
        self._received = 0
        self._received_at = 0.0

    @property
    def exit_code(self) -> int:
        """0, or 128 and the number of the signal that stopped the training."""
        return 0 if self.stopped_by is None else 128 + self.stopped_by

    @contextlib.contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Handle the signals within the context, and restore their handlers afterwards; for the main thread."""
        before = [signal.signal(signum, self._receive) for signum in SIGNALS]
        try:
            yield
        finally:
            for signum, handler in zip(SIGNALS, before, strict=True):
                signal.signal(signum, handler)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Make the trainer save and stop if any process received a signal.

        The checkpoint is resumable even with `save_only_model`. A due evaluation is skipped: it may take longer than
        the remaining time.
        """
        received = self._received
        if args.world_size > 1:
            highest = torch.tensor(received, device=args.device)
            torch.distributed.all_reduce(highest, torch.distributed.ReduceOp.MAX)
            received = int(highest.item())
        if received:
            self.stopped_by = received
            args.save_only_model = False
            control.should_save = control.should_training_stop = True
            control.should_evaluate = False

    def summary(self, trainer: Any) -> str:
        """One sentence after training: the judge's folder, or the step at which a signal stopped it."""
        folder, state = trainer.args.output_dir, trainer.state
        if self.stopped_by is None:
            return f"judge in {folder}"
        return (
            f"stopped by {signal.Signals(self.stopped_by).name} after step {state.global_step} of {state.max_steps}; "
            f"the same command resumes from {Path(folder) / f'checkpoint-{state.global_step}'}"
        )

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self._received:
            self._received, self._received_at = signum, now
        elif now - self._received_at > SAME_REQUEST_S:
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)


@contextlib.contextmanager
def out_of_memory_as_error(trainer: Any) -> Iterator[None]:
    """Turn torch's error into one that names the ways out. The same batch of fewer rows at once resumes the same run.

    Raises:
        RunError: memory ran out.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        args, state = trainer.args, trainer.state
        message = str(error).partition("\n")[0] or type(error).__name__
        raise RunError(
            f"{args.output_dir}: out of memory in step {state.global_step + 1} of {state.max_steps} ({message}); "
            f"{'; or '.join(_ways_out(args))}; the run then {resume_hint(Path(args.output_dir))}"
        ) from error


def _ways_out(args: Any) -> list[str]:
    """Settings that need less memory, the cheapest first."""
    rows, ways = args.per_device_train_batch_size, []
    if rows > 1:
        ways.append(
            f"per_device_train_batch_size {rows // 2} (now {rows}) with gradient_accumulation_steps raised "
            f"accordingly (now {args.gradient_accumulation_steps}) makes the same steps of fewer rows at once"
        )
    if not args.gradient_checkpointing:
        ways.append("gradient_checkpointing: true keeps fewer activations")
    return [*ways, "`judgelm doctor --train` shows what would fit"]


LOCK_TIMEOUT_S = 300.0
"""Seconds without a change in the build folder after which a lock that no local process holds is stale."""
_POLL_S = 1.0


def connect_processes(args: Any, log: Callable[[str], object]) -> None:
    """Make sure that all started processes train together; call it before the base model is loaded.

    On the CPU accelerate 1.x connects the processes without telling DeepSpeed 0.17, which asks for their number while
    it splits the base model. Before DeepSpeed builds or loads its extensions, stale locks are removed, on any device.

    Args:
        args: the trainer's arguments.
        log: receives a line for each lock that is waited for or removed.

    Raises:
        ConfigError: a launcher started several processes, and each would train a judge of its own, since the trainer
            was not told to run on the CPU.
    """
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started != args.world_size:
        raise ConfigError(
            f"{started} processes were started, but the trainer sees {args.world_size}; on the CPU set use_cpu: true "
            "in the training config too (or --use_cpu true), since accelerate's own use_cpu does not reach it"
        )
    if args.deepspeed_plugin is not None:
        remove_stale_locks(log)
    if args.device.type == "cpu" and started > 1 and args.deepspeed_plugin is not None:
        import deepspeed  # takes seconds to import

        deepspeed.init_distributed(dist_backend="gloo", verbose=False)


def end_processes(trainer: Any, code: int) -> None:
    """Close the connections of several processes; on the CPU exit at once, after everything is written.

    With open connections a process sometimes ends in abort() (torch 2.x), and so does one on the CPU during Python's
    shutdown, in threads of gloo and DeepSpeed 0.17; the launcher then reports a failed training.

    Args:
        trainer: trained.
        code: the exit code.
    """
    if trainer.accelerator.num_processes > 1:
        trainer.accelerator.end_training()
    if trainer.args.device.type == "cpu" and trainer.args.world_size > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def remove_stale_locks(log: Callable[[str], object], *, timeout_s: float = LOCK_TIMEOUT_S) -> None:
    """Remove the stale locks of this machine's extension cache; call it on every process once they are connected.

    The first process of each machine does the work, and the others wait for it. A lock that a local process holds
    stays: torch waits for that build, which ends.

    Args:
        log: receives a line for each lock that is waited for, and for each that is removed.
        timeout_s: see `LOCK_TIMEOUT_S`.
    """
    state = PartialState()
    with state.local_main_process_first():
        if state.is_local_main_process:
            for lock in build_root().glob("*/lock"):
                _remove_if_stale(lock, log, timeout_s)


def build_root() -> Path:
    """The folder in which torch builds extensions, each in a folder of its name."""
    from torch.utils.cpp_extension import _get_build_directory  # imports setuptools, slowly

    return Path(_get_build_directory("", verbose=False))


def _remove_if_stale(lock: Path, log: Callable[[str], object], timeout_s: float) -> None:
    waiting = False
    while (idle_s := _idle_s(lock)) is not None and not _is_open(lock):
        if idle_s >= timeout_s:
            lock.unlink(missing_ok=True)
            log(f"removed {lock}: an interrupted build left it {idle_s / 60:.0f} minutes ago, and no process holds it")
            return
        if not waiting:
            waiting = True
            log(
                f"{lock}: no process of this machine holds this lock, but another machine may; waiting "
                f"{timeout_s - idle_s:.0f} s for a change in its folder; if nothing builds there, remove it by hand"
            )
        time.sleep(_POLL_S)


def _idle_s(lock: Path) -> float | None:
    """Seconds since anything in the lock's folder changed; None where the lock is gone."""
    if not lock.exists():
        return None
    changed = lock.parent.stat().st_mtime
    for path in lock.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a compiler's temporary file
            changed = max(changed, path.stat().st_mtime)
    return time.time() - changed


def _is_open(lock: Path) -> bool:
    """True if a process of this machine has the file open; processes of other users cannot be seen."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if any(os.path.samefile(file.path, lock) for file in process.open_files()):
                return True
    return False
