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

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from transformers import TrainerCallback
from trl import (  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see
    ModelConfig,
    TrlParser,
)

from judgelm.engines.gguf.checkpoint import gguf_checkpoint, gguf_note
from judgelm.engines.weights import check_pickled
from judgelm.errors import ConfigError
from judgelm.judges.cards import named_judge
from judgelm.prompts.judge_card import Card, is_gguf
from judgelm.training.arguments import (
    base_name,
    check_arguments,
    processes,
    row_options,
    rows_per_step,
)
from judgelm.training.attention import Attention, choose_attention
from judgelm.training.base_model import check_adapter, load_base_model, load_tokenizer, with_adapter
from judgelm.training.checkpoints import CheckpointCallback
from judgelm.training.disk_space import check_disk_space
from judgelm.training.precision import settle_precision
from judgelm.training.resume import find_start, last_step, refuse_finished, skip_if_done
from judgelm.training.rows.builder import RowBuilder
from judgelm.training.rows.dataset import EpochRows, build_rows
from judgelm.training.validation import load_validation


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
            ConfigError, InputError, RunError: see `load_validation` and `judgelm.training.resume.find_start`.
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
