"""Order of the rows: how often, in what order and in what batches a training passes through them.

A trainer prepares its data once, while swaps and dropped references are drawn again in every epoch. So the rows of all
epochs are written one behind another, and the trainer passes through them once, in sequence. The order depends on the
seed alone: not on the number of processes, nor on whether a run was resumed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Trainer, TrainingArguments
from transformers.trainer_pt_utils import get_length_grouped_indices
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from judgelm.training.config import rows_per_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Passes of a training through its rows.

    Attributes:
        epochs: how often each row is seen; a part of an epoch counts.
        steps: optimiser steps; they take precedence over `epochs`.
        batch: rows of one optimiser step.
        group_by_length: whether rows of similar length stand together (less padding), else each epoch is shuffled.
        seed: of the order.
    """

    epochs: float
    steps: int | None
    batch: int
    group_by_length: bool
    seed: int

    def epochs_of(self, rows_per_epoch: int) -> float:
        """Epochs, as configured or as the steps make them."""
        return self.epochs if self.steps is None else self.steps * self.batch / rows_per_epoch

    def whole_epochs(self, rows_per_epoch: int | None) -> int:
        """Whole epochs to build; one where steps decide and the rows of an epoch are not known yet."""
        if self.steps is not None and rows_per_epoch is None:
            return 1
        return int(np.ceil(self.epochs_of(rows_per_epoch or 0)))


def schedule_of(args: Any) -> Schedule:
    """The schedule that a trainer's arguments ask for."""
    return Schedule(
        epochs=args.num_train_epochs,
        steps=args.max_steps if args.max_steps > 0 else None,
        batch=rows_per_step(args),
        group_by_length=args.train_sampling_strategy == "group_by_length",
        seed=args.seed,
    )


def training_order(lengths: NDArray[np.int64], sizes: Sequence[int], schedule: Schedule) -> NDArray[np.int64]:
    """Indices of all epochs' rows in the order of training; each epoch stays whole.

    Args:
        lengths: shape (rows,), in tokens.
        sizes: rows of each epoch; they sum to the rows.
        schedule: seed and grouping.

    Returns:
        shape (rows,), a permutation.
    """
    order = []
    begin = 0
    for epoch, size in enumerate(sizes):
        generator = torch.Generator().manual_seed(schedule.seed * 1_000_003 + epoch)
        if schedule.group_by_length:
            indices = get_length_grouped_indices(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
                lengths[begin : begin + size].tolist(), schedule.batch, generator=generator
            )
        else:
            indices = torch.randperm(size, generator=generator).tolist()
        order.append(np.asarray(indices, dtype=np.int64) + begin)
        begin += size
    return np.concatenate(order)


def use_single_pass(args: TrainingArguments, schedule: Schedule, *, epochs: int, rows_per_epoch: int) -> None:
    """Make the trainer pass once, in sequence, through rows of several epochs, and save and evaluate at epochs' ends.

    Args:
        args: the trainer's; changed in place.
        schedule: the configured one.
        epochs: whole epochs in the data.
        rows_per_epoch: of the first.
    """
    args.train_sampling_strategy = "sequential"
    args.num_train_epochs = schedule.epochs / epochs
    steps = -(-rows_per_epoch // schedule.batch)
    if args.save_strategy == SaveStrategy.EPOCH:
        args.save_strategy, args.save_steps = SaveStrategy.STEPS, steps
    if args.eval_strategy == IntervalStrategy.EPOCH:
        args.eval_strategy, args.eval_steps = IntervalStrategy.STEPS, steps
        args.eval_delay *= steps
    if args.logging_strategy == IntervalStrategy.EPOCH:
        args.logging_strategy, args.logging_steps = IntervalStrategy.STEPS, steps


class SinglePassMixin(Trainer):
    """Placed before a trainer's class: trains once, in sequence, on rows of several epochs, one behind another.

    Args:
        rows: `EpochRows`, the training rows.
        options: as the trainer takes them.
    """

    def __init__(self, *, args: Any, rows: Any, **options: Any) -> None:
        use_single_pass(args, rows.schedule, epochs=rows.epochs, rows_per_epoch=rows.per_epoch)
        args.max_length = None  # the rows are within the window; TRL 1.16 would cut them again
        args.model_init_kwargs = None  # `load_base_model` has used them; TRL 1.16 warns if it is given both
        super().__init__(args=args, train_dataset=rows.dataset, **options)
        self.rows = rows

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, with `epoch` in passes through the user's files rather than through the data."""
        passed = self.state.epoch
        if passed is not None:
            self.state.epoch = passed * self.rows.epochs
        super().log(logs, start_time)
        self.state.epoch = passed
