"""What keeps a long training from being lost, in every recipe: its start, its stop, its room."""

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgelm.training.broadcast import decided_by_first, refuse_unshared
from judgelm.training.checkpoints import Checkpoints
from judgelm.training.disk import check_disk, disk_need, full_disk_in_words
from judgelm.training.preemption import Preemption
from judgelm.training.resume import StartingPoint, find_start, last_step, leave_nothing_to_train, run_settings
from judgelm.training.schedule import Passage


@dataclass(frozen=True, slots=True, kw_only=True)
class Safeguards:
    """Of one run.

    Attributes:
        start: where it begins; `start.checkpoint` is for the trainer's `resume_from_checkpoint`.
        folder: the output folder.
        preemption: `preemption.stopped_by` says, after training, whether it was stopped before its end.
        checkpoints: marks them, and removes old ones.
        limit: most checkpoints that are kept; None keeps all.
        batch: rows of one optimiser step.
    """

    start: StartingPoint
    folder: Path
    preemption: Preemption
    checkpoints: Checkpoints
    limit: int | None
    batch: int

    def attach(self, trainer: Any) -> None:
        """Give the trainer the callbacks, once its model is loaded.

        Raises:
            ConfigError: the disk has no room for its checkpoints.
        """
        trainer.add_callback(self.checkpoints)
        trainer.add_callback(self.preemption)
        leave_nothing_to_train(trainer, self.start, batch=self.batch)
        need = disk_need(trainer, limit=self.limit, steps=last_step(trainer, batch=self.batch))
        decided_by_first(lambda: check_disk(self.folder, need))

    def stopped(self, trainer: Any) -> str:
        """One sentence for a run that a signal stopped: where it is, and how to go on."""
        assert self.preemption.stopped_by is not None
        name, step = signal.Signals(self.preemption.stopped_by).name, trainer.state.global_step
        return (
            f"stopped by {name} after step {step} of {trainer.state.max_steps}; the same command goes on from "
            f"{self.folder / f'checkpoint-{step}'}"
        )

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """To train and save in: signals stop it with a checkpoint, and a full disk ends it with a sentence.

        Raises:
            RunError: the disk is full.
        """
        with self.preemption.listening(), full_disk_in_words(self.folder):
            yield


def safeguards(judge: Any, args: Any, model: Any, *, rows: str, passage: Passage) -> Safeguards:
    """Decide where a run begins, on all processes alike; the limit of checkpoints is taken over from the trainer.

    Args:
        judge: the recipe's own arguments.
        args: TRL's `SFTConfig` or `DPOConfig`.
        model: TRL's `ModelConfig`.
        rows: the name of the rows (`EpochRows.name`).
        passage: how they are passed through.

    Raises:
        ConfigError: `resume_from_checkpoint` is no checkpoint.
        RunError: the output folder holds another run's checkpoints, or is not on a disk of all machines.
    """
    settings = decided_by_first(lambda: run_settings(judge, args, model, rows=rows, passage=passage))
    folder, given = Path(str(args.output_dir)), args.resume_from_checkpoint
    start = decided_by_first(lambda: find_start(folder, settings, given=given, overwrite=judge.overwrite_output_dir))
    if start.checkpoint is not None:
        refuse_unshared(Path(start.checkpoint))
    limit, args.save_total_limit = args.save_total_limit, None
    return Safeguards(
        start=start,
        folder=folder,
        preemption=Preemption(),
        checkpoints=Checkpoints(settings, limit),
        limit=limit,
        batch=passage.batch,
    )
