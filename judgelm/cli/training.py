"""The command line of the recipes in `train/`: parse, build the trainer, train, save."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from trl import ModelConfig  # type: ignore[attr-defined]  # trl loads its names lazily, unseen by mypy

from judgelm.cli.console import echo, printable
from judgelm.errors import JudgelmError
from judgelm.training.arguments import JudgeArguments
from judgelm.training.hub import save_judge
from judgelm.training.run import (
    PreemptionCallback,
    TrainingRun,
    connect_processes,
    disk_full_as_error,
    end_processes,
    out_of_memory_as_error,
    parse_arguments,
)


def run_training(
    build_trainer: Callable[[TrainingRun], Any],
    arguments: type[JudgeArguments],
    config: type[Any],
    *,
    facts: Callable[[TrainingRun], Mapping[str, Any]] | None = None,
) -> None:
    """Run a recipe by its command line, and exit: with 0, 1 and a sentence, or 128 and the signal that stopped it.

    Args:
        build_trainer: the recipe.
        arguments: its own arguments.
        config: TRL's configuration.
        facts: facts of the training beside the common ones, for the judge's card.
    """
    try:
        code = _train(build_trainer, (arguments, config, ModelConfig), facts)
    except JudgelmError as error:
        sys.exit(printable(f"error: {error}"))
    if code:
        sys.exit(code)


def _train(
    build_trainer: Callable[[TrainingRun], Any],
    types: tuple[type[Any], ...],
    facts: Callable[[TrainingRun], Mapping[str, Any]] | None,
) -> int:
    judge, args, base = parse_arguments(*types)
    connect_processes(args, log=echo)
    preemption = PreemptionCallback()
    run = TrainingRun(judge, args, base, preemption)
    trainer = build_trainer(run)
    summary = run.summary(trainer)
    if trainer.is_world_process_zero():
        echo(summary)
    with preemption.handle_signals(), disk_full_as_error(args.output_dir), out_of_memory_as_error(trainer):
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        if preemption.stopped_by is None:
            save_judge(trainer, judge, base, facts=facts and facts(run), tuned_from=run.tuned_from)
    if trainer.is_world_process_zero():
        echo(preemption.summary(trainer))
    end_processes(trainer, preemption.exit_code)
    return preemption.exit_code
