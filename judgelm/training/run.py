"""The run of a recipe: its steps, its disk, its processes, and what ends it early.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
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
from trl import (  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see
    ModelConfig,
    TrlParser,
)

from judgelm.engines.gguf.checkpoint import gguf_checkpoint, gguf_note
from judgelm.engines.transformers.batch import is_out_of_memory
from judgelm.engines.weights import check_pickled
from judgelm.errors import ConfigError, RunError
from judgelm.judges.cards import named_judge
from judgelm.prompts.judge_card import Card, is_gguf
from judgelm.training.arguments import (
    base_name,
    check_arguments,
    optimizer_states,
    processes,
    row_options,
    rows_per_step,
)
from judgelm.training.base_model import (
    Attention,
    check_adapter,
    choose_attention,
    load_base_model,
    load_tokenizer,
    settle_precision,
    with_adapter,
)
from judgelm.training.checkpoints import (
    CheckpointCallback,
    broadcast_from_rank0,
    checkpoints_in,
    find_start,
    last_step,
    refuse_finished,
    resume_hint,
    skip_if_done,
)
from judgelm.training.rows.builder import RowBuilder
from judgelm.training.rows.dataset import EpochRows, build_rows
from judgelm.training.validation import load_validation

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DISK_FULL_MESSAGE = re.compile(r"os error (28|27|122)\b|No space left|PytorchStreamWriter|inline_container")
"""Messages of safetensors 0.x and torch 2.x, which raise no OSError when a file cannot grow."""


class TrainingRun:
    """One run of a recipe: its arguments, rows, start and notes; a recipe's `build_trainer` takes its steps in order.

    Args:
        judge: the recipe's own arguments.
        args: TRL's configuration.
        base: TRL's `ModelConfig`.
        callbacks: more of the trainer's.

    Attributes:
        tuned_from: the card of the judge that is trained further; None for a base model.

    Raises:
        RunError: the output folder holds a finished judge.
    """

    tokenizer: Any
    rows: EpochRows
    evaluation: EpochRows | None
    attention: Attention

    def __init__(self, judge: Any, args: Any, base: ModelConfig, *callbacks: TrainerCallback) -> None:
        refuse_finished(judge, args)
        self.judge, self.args, self.base = judge, args, base
        self.tuned_from: Card | None = None
        self._callbacks = callbacks

    def check(self) -> None:
        """Check that the arguments fit each other, before anything is loaded.

        Raises:
            ConfigError, CardError, MissingExtraError: they do not.
        """
        check_arguments(self.judge, self.args)
        check_adapter(self.judge, self.base)

    def build_rows(self, builder: type[RowBuilder], *, extra_files: Sequence[str] = (), **options: Any) -> EpochRows:
        """Build the rows of all epochs, and those of the evaluations.

        Args:
            builder: class that makes rows.
            extra_files: files that are read beside those of the training and of the evaluation.
            options: of the builder beside `RowOptions`.

        Raises:
            ConfigError, InputError, ModelError, RunError: the base or the files do not fit.
        """
        judge, args, base = self.judge, self.args, self.base
        self.tokenizer = load_tokenizer(base, trust_remote_code=args.trust_remote_code)
        check_pickled(base_name(base), base.model_revision)
        self.notes = settle_precision(judge, args, base)
        how = builder.options_type(**asdict(row_options(judge, args)), **options)
        self.rows, self.evaluation = build_rows(self.tokenizer, builder, how, judge, args, extra_files=extra_files)
        return self.rows

    def find_start(self) -> None:
        """Draw the validation pairs, and find the checkpoint that the run resumes from.

        Raises:
            ConfigError, InputError, RunError: see `load_validation` and `judgelm.training.checkpoints.find_start`.
        """
        self.validation = load_validation(self.judge, self.args, self.rows)
        self.start = find_start(self.judge, self.args, self.base, self.rows)
        self.args.resume_from_checkpoint = self.start.checkpoint

    def load_model(self, attention: Attention | None = None, *, rewards: bool = False) -> tuple[Any, Any]:
        """The model to train, and the LoRA configuration that the trainer gives it.

        Args:
            attention: implementation; None chooses the fastest.
            rewards: see `load_base_model`.
        """
        self.attention = attention or choose_attention(self.base, self.args)
        model = load_base_model(self.base, self.args, self.attention, rewards=rewards)
        return with_adapter(model, self.base, self.judge)

    def trainer_options(self) -> dict[str, Any]:
        """What every recipe's trainer takes beside the model."""
        self.checkpoints = CheckpointCallback(self.start.settings)
        return {
            "args": self.args,
            "rows": self.rows,
            "eval_dataset": self.evaluation.dataset if self.evaluation else None,
            "processing_class": self.tokenizer,
            "validation": self.validation,
            "patience": self.judge.early_stopping_patience,
            "callbacks": [self.checkpoints, *self._callbacks],
        }

    def summary(self, trainer: Any) -> str:
        """Check the disk before the first step, and describe the run: rows, steps, attention, evaluation and notes.

        Raises:
            ConfigError: the disk is too small.
        """
        skip_if_done(trainer, self.start)
        check_disk_space(trainer, self.checkpoints.limit)
        args, attention = self.args, self.attention
        replies = getattr(args, "num_generations", 1)
        drawn = f", {replies} replies to each row" if replies > 1 else ""
        padding = getattr(trainer, "padding", "padded rows")
        lines = [
            f"train: {self.rows.counts}",
            f"steps: {last_step(trainer)} of {rows_per_step(args)} rows (per device {args.per_device_train_batch_size} "
            f"x accumulation {args.gradient_accumulation_steps} x processes {processes(args)}{drawn})",
            f"attention: {attention.note}; {padding}",
            self.evaluation and f"eval: {self.evaluation.counts}",
            self.validation and f"eval: {self.validation.pairs}",
            gguf_note(trainer.model.config._name_or_path),
            *self.notes,
            *self.start.notes,
        ]
        return "\n".join(line for line in lines if line)


def check_disk_space(trainer: Any, limit: int | None) -> None:
    """Refuse, on all processes alike, to train where the output folder's disk is too small.

    Checkpoints that lie there already are counted; the rows of all epochs are on the disk, and are not.

    Args:
        trainer: with its model, not yet trained.
        limit: `save_total_limit`.

    Raises:
        ConfigError: names what is needed, what is free, and ways out.
    """
    folder, count = Path(str(trainer.args.output_dir)).absolute(), max_checkpoints(trainer, limit)
    weights, states = checkpoint_bytes(trainer)

    def check() -> None:
        present = sum(_bytes_in(path) for path in checkpoints_in(folder))
        free = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
        missing = count * (weights + states) + weights - present
        if missing > free:
            raise ConfigError(
                f"{trainer.args.output_dir}: training needs {_size(missing)} of disk ({count} checkpoints of "
                f"{_size(weights + states)} at once, and the judge), and {_size(free)} are free; set a smaller "
                f"save_total_limit, save_only_model: true ({_size(weights)} each, but no run can resume from it), or "
                "an output_dir on a larger disk"
            )

    broadcast_from_rank0(check)


def checkpoint_bytes(trainer: Any) -> tuple[int, int]:
    """Bytes of a checkpoint: its weights (whole, or the adapter) with small files, and what is for resuming alone."""
    args = trainer.args
    halved = args.deepspeed_plugin is not None and (args.bf16 or args.fp16)  # DeepSpeed casts the model itself
    # the trainer's own files too; its log grows by some 150 bytes an entry
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
        # two states and the weights in float32, and up to stage 2 the module's own weights once more
        return weights, 12 * elements + (trained if args.deepspeed_plugin.zero_stage < 3 else 0)
    numbers, width = optimizer_states(str(getattr(args.optim, "value", args.optim)))
    whole = PartialState().distributed_type == DistributedType.FSDP
    return weights, numbers * (width * elements if width else trained) + (weights if whole else 0)


def max_checkpoints(trainer: Any, limit: int | None) -> int:
    """Maximum number of checkpoints at once: those that stay, and a new one before the oldest is removed."""
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
            f"{folder}: no space left on the disk; free some, and the same command {resume_hint(Path(folder))}"
        ) from error


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
            f"{args.output_dir}: out of memory in step {state.global_step + 1} of {state.max_steps} ({message}); a "
            f"smaller per_device_train_batch_size (now {args.per_device_train_batch_size}) with "
            f"gradient_accumulation_steps raised accordingly (now {args.gradient_accumulation_steps}) makes the same "
            "steps of fewer rows at once; gradient_checkpointing: true keeps fewer activations; `judgelm doctor "
            f"--train` estimates both; the run then {resume_hint(Path(args.output_dir))}"
        ) from error


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


_CONFIG_HELP = "With --config FILE a YAML file sets the same options by name; those given here take precedence."


def parse_arguments(*types: Any) -> tuple[Any, ...]:
    """Parse a recipe's arguments from `--config FILE` and flags; one object for each dataclass.

    A base that is a GGUF file becomes its checkpoint in the cache, a judge's name its base and adapter. A hub token is
    passed to the libraries through the environment: the trainer writes its arguments beside each checkpoint.

    Raises:
        ConfigError: no such file or field, or a format that this machine lacks (bf16, tf32).
        ModelError: a GGUF file that cannot be converted.
        RunError: the cache cannot be written.
    """
    try:
        parsed = tuple(TrlParser(types, description=_CONFIG_HELP).parse_args_and_config())
    except (OSError, ValueError) as error:
        raise ConfigError(str(error)) from error
    for arguments in parsed:
        if token := getattr(arguments, "hub_token", None):
            os.environ["HF_TOKEN"], arguments.hub_token = token, None
    for base in parsed:
        name = getattr(base, "model_name_or_path", None) or ""
        if is_gguf(name):
            base.model_name_or_path = gguf_checkpoint(name, base.model_revision)
        elif name and (named := named_judge(name)) is not None:
            base.model_name_or_path = str(named.base)
            if named.adapter is not None and parsed[0].adapter is None:
                parsed[0].adapter = str(named.adapter)
    return parsed
