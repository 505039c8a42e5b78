"""Handle interrupted runs: signals and out-of-memory errors.

Send signals to a training process, because `accelerate launch` forwards only SIGTERM, and only in multi-process runs.
It then kills the processes after TORCH_ELASTIC_SHUTDOWN_TIMEOUT seconds (default 30).
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from judgelm.engines.transformers.batch import is_out_of_memory
from judgelm.errors import RunError
from judgelm.training.checkpoints import resume_hint

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


SAME_REQUEST_S = 2.0
"""Signals within this time count as one, because launchers forward signals that processes also receive."""


class PreemptionCallback(TrainerCallback):
    """Saves and stops at the end of the step after SIGTERM or SIGUSR1. A second signal kills the process."""

    def __init__(self) -> None:
        self.stopped_by: int | None = None
        self._received = 0
        self._received_at = 0.0

    @property
    def exit_code(self) -> int:
        """Exit code of the process: 0, or 128 plus the signal number."""
        return 0 if self.stopped_by is None else 128 + self.stopped_by

    @contextlib.contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Handle signals within this context. Call this in the main thread."""
        before = [signal.signal(signum, self._receive) for signum in SIGNALS]
        try:
            yield
        finally:
            for signum, handler in zip(SIGNALS, before, strict=True):
                signal.signal(signum, handler)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Save a resumable checkpoint and stop if any process has received a signal."""
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
        """Return where the judge was saved, or the step at which training was stopped."""
        folder, state = trainer.args.output_dir, trainer.state
        if self.stopped_by is None:
            return f"judge saved in {folder}"
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
    """Convert an out-of-memory error into an error that suggests fixes."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        args, state = trainer.args, trainer.state
        message = str(error).partition("\n")[0] or type(error).__name__
        raise RunError(
            f"{args.output_dir}: out of memory in step {state.global_step + 1} of {state.max_steps} ({message}); "
            f"lower per_device_train_batch_size (now {args.per_device_train_batch_size}) and raise "
            f"gradient_accumulation_steps (now {args.gradient_accumulation_steps}) to keep the same batch size, or "
            "set gradient_checkpointing: true; `judgelm doctor --train` estimates the memory for both; the run then "
            f"{resume_hint(Path(args.output_dir))}"
        ) from error
