"""A machine that is taken back: on SIGTERM or SIGUSR1 a training saves at the next step's end and stops.

Who sends it: `kill`, a container's end and a preemption SIGTERM, Slurm what `#SBATCH --signal` says. It must reach a
training process, not the launcher alone; where one hears it, all stop at the same step. `accelerate launch`
with several processes passes SIGTERM on, and kills them TORCH_ELASTIC_SHUTDOWN_TIMEOUT seconds later (30 if not set);
SIGUSR1 it does not pass on, and with one process it passes on nothing.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
import transformers

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
ONE_REQUEST_S = 2.0
"""A launcher passes on what its processes were sent as well: signals this close to the first are the same request."""


class Preemption(transformers.TrainerCallback):
    """Listens for the signals while training runs; a second one ends the process at once.

    Attributes:
        stopped_by: the signal's number once training was stopped for it, on every process; None until then.
    """

    def __init__(self) -> None:
        self.stopped_by: int | None = None
        self._heard = 0
        self._heard_at = 0.0

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals over; what handled them before does so again afterwards. For the main thread."""
        before = [signal.signal(number, self._hear) for number in SIGNALS]
        try:
            yield
        finally:
            for number, handler in zip(SIGNALS, before, strict=True):
                signal.signal(number, handler)

    def on_step_end(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        **_: Any,
    ) -> None:
        """Have the trainer save and stop if any process heard a signal.

        The checkpoint can be gone on from whatever `save_only_model` says. An evaluation that is due is left out: it
        may take longer than the time that is left.
        """
        heard = self._heard
        if args.world_size > 1:
            loudest = torch.tensor(heard, device=args.device)
            torch.distributed.all_reduce(loudest, torch.distributed.ReduceOp.MAX)
            heard = int(loudest.item())
        if heard:
            self.stopped_by = heard
            args.save_only_model = False
            control.should_save = control.should_training_stop = True
            control.should_evaluate = False

    def _hear(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self._heard:
            self._heard, self._heard_at = number, now
        elif now - self._heard_at > ONE_REQUEST_S:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
