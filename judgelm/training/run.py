"""From a trainer that is ready to a judge on the disk: what `train/sft.py` and `train/dpo.py` both do."""

import os
from collections.abc import Callable
from typing import Any

from trl import (  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see
    ModelConfig,
    TrlParser,
)

from judgelm.errors import ConfigError
from judgelm.training.config import JudgeArguments, processes
from judgelm.training.out_of_memory import out_of_memory_in_words
from judgelm.training.resume import last_step
from judgelm.training.save import save
from judgelm.training.sft import FineTuning

_CONFIG = "With --config FILE a YAML file says these options by the same names; those given here go before it."


def read_arguments(*kinds: Any) -> tuple[Any, ...]:
    """The recipe's arguments, from `--config FILE` and flags; one object for each dataclass.

    A token for the hub goes on to the libraries through the environment: the trainer writes its arguments beside each
    checkpoint.

    Raises:
        ConfigError: no such file or field, or one that this machine cannot serve (bf16, tf32).
    """
    try:
        found = tuple(TrlParser(kinds, description=_CONFIG).parse_args_and_config())
    except (OSError, ValueError) as error:
        raise ConfigError(str(error)) from error
    for one in found:
        if token := getattr(one, "hub_token", None):
            os.environ["HF_TOKEN"], one.hub_token = token, None
    return found


def train_and_save(tuning: FineTuning, judge: JudgeArguments, model: ModelConfig, say: Callable[[str], Any]) -> int:
    """Train and write the judge, unless a signal stops the training first.

    Args:
        tuning: a trainer that is ready to run.
        judge: data and target, for the card.
        model: the base, for the card.
        say: gets what the user should know, a line at a time, on the first process alone.

    Returns:
        the exit code: 0, or 128 and the signal's number.

    Raises:
        TrainingError: the loss or the weights are no longer finite.
        RunError: the disk is full, or memory ran out.
    """
    trainer: Any = tuning.trainer
    first = trainer.is_world_process_zero()
    padding = "no padding" if getattr(trainer.args, "padding_free", False) else "padded rows"
    told = [f"train: {tuning.train.counts}", _steps(trainer), f"attention: {tuning.attention}; {padding}"]
    told += [f"eval: {found}" for found in (tuning.eval_counts, tuning.judging and tuning.judging.pairs) if found]
    for line in [*told, *tuning.notes, *tuning.guards.start.notes] if first else ():
        say(line)
    with tuning.guards.watching(), out_of_memory_in_words(trainer):
        trainer.train(resume_from_checkpoint=tuning.guards.start.checkpoint)
        stopped_by = tuning.guards.preemption.stopped_by
        if stopped_by is None:
            save(tuning, judge, model)
    if first:
        say(f"judge in {trainer.args.output_dir}" if stopped_by is None else tuning.guards.stopped(trainer))
    if trainer.accelerator.num_processes > 1:
        trainer.accelerator.end_training()  # with connections left open, a process now and then ends in abort()
    return 0 if stopped_by is None else 128 + stopped_by


def _steps(trainer: Any) -> str:
    """How many steps there are, and what the rows of one come from."""
    rows, passes = trainer.args.per_device_train_batch_size, trainer.args.gradient_accumulation_steps
    devices = processes(trainer.args)
    batch = rows * passes * devices
    steps = last_step(trainer, batch=batch)
    return f"steps: {steps} of {batch} rows (per device {rows} x accumulation {passes} x processes {devices})"
