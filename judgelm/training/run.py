"""The steps of a training run, which recipes call one by one."""

import os
from dataclasses import fields
from typing import Any

from transformers import TrainerCallback
from trl import ModelConfig, TrlParser  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see

from judgelm.engines.gguf.checkpoint import gguf_checkpoint, gguf_note
from judgelm.engines.weights import check_pickled
from judgelm.errors import ConfigError
from judgelm.judges.cards import named_judge
from judgelm.prompts.judge_card import Card, is_gguf
from judgelm.training.arguments import base_name, check_arguments, processes, row_options, rows_per_step
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
    """The state of a training run. A recipe's `build_trainer` calls its methods in order."""

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
        """Check the arguments before loading anything."""
        check_arguments(self.judge, self.args)
        check_adapter(self.judge, self.base)

    def build_rows(self, builder: type[RowBuilder], **options: Any) -> EpochRows:
        """Build the rows."""
        judge, args, base = self.judge, self.args, self.base
        self.tokenizer = load_tokenizer(base, trust_remote_code=args.trust_remote_code)
        check_pickled(base_name(base), base.model_revision)
        self.notes = settle_precision(judge, args, base)
        shared = row_options(judge, args)
        settings = builder.options_type(**{each.name: getattr(shared, each.name) for each in fields(shared)}, **options)
        self.rows, self.evaluation = build_rows(self.tokenizer, builder, settings, judge, args)
        return self.rows

    def find_start(self) -> None:
        """Sample the validation pairs, and find the checkpoint to resume from."""
        self.validation = load_validation(self.judge, self.args, self.rows)
        self.start = find_start(self.judge, self.args, self.base, self.rows)
        self.args.resume_from_checkpoint = self.start.checkpoint

    def load_model(self, attention: Attention | None = None, *, rewards: bool = False) -> tuple[Any, Any]:
        """Load the base model and its adapter, as described in `with_adapter`."""
        self.attention = attention or choose_attention(self.base, self.args)
        model = load_base_model(self.base, self.args, self.attention, rewards=rewards)
        return with_adapter(model, self.base, self.judge)

    def trainer_options(self) -> dict[str, Any]:
        """Return the arguments shared by all trainers."""
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
        """Check the disk space and describe the run."""
        skip_if_done(trainer, self.start)
        check_disk_space(trainer, self.checkpoints.limit)
        args, attention = self.args, self.attention
        replies = getattr(args, "num_generations", 1)
        drawn = f", {replies} replies per row" if replies > 1 else ""
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


_CONFIG_HELP = "--config FILE reads the same options from a YAML file. Options on the command line take precedence."


def parse_arguments(*types: Any) -> tuple[Any, ...]:
    """Parse `--config FILE` and command-line options into one object per dataclass.

    GGUF bases and judge names are resolved. A hub token is moved to the environment, because checkpoints contain the
    arguments.
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
