"""Builds the trainer of a judge: base model, rows of every epoch, TRL's trainer around them."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import transformers
from accelerate import PartialState
from transformers.trainer_utils import IntervalStrategy, SaveStrategy
from trl import (  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see
    ModelConfig,
    SFTConfig,
    get_peft_config,
    get_quantization_config,
)

from judgelm.engines.model_files import first_line
from judgelm.engines.pickled_weights import check_pickled, safe_unpickling
from judgelm.errors import ConfigError, ModelError
from judgelm.prompts.judge_card import Card
from judgelm.training.attention import Attention, choose_attention, look_at_machine, takes_flash_attention
from judgelm.training.base_model import base_name, drop_sampling, init_kwargs, load_tokenizer
from judgelm.training.config import JudgeArguments, accumulation_steps, processes
from judgelm.training.precision import JudgeSFTConfig, settle_precision
from judgelm.training.resume import refuse_finished
from judgelm.training.rows.builder import RowBuilder, RowMaker
from judgelm.training.rows.progress import row_progress
from judgelm.training.rows.records import RowCounts, RowOptions
from judgelm.training.safeguards import Safeguards, safeguards
from judgelm.training.save_dtype import save_dtype_of
from judgelm.training.schedule import EpochRows, Passage, lay_out
from judgelm.training.trainer import JudgeTrainer, check_trainable, score_labels_alone, without_padding
from judgelm.training.validation_judging import ValidationJudging, validation_judging

ARGUMENTS = (JudgeArguments, JudgeSFTConfig, ModelConfig)
"""What `train/sft.py` is told: data and judge, training, base."""
ROWS = "rows"
"""The folder beside the checkpoints that holds the rows of all epochs until training is done."""
_OWN_TOKENIZER = "rows are made with the base's own tokenizer, in whose files it can be set"
_UNFIT = {
    "eos_token": _OWN_TOKENIZER,
    "chat_template_path": _OWN_TOKENIZER,
    "shuffle_dataset": "rows are shuffled anew in every epoch already, by the seed",
    "assistant_only_loss": "loss_on says what the loss counts",
    "eval_packing": "rows of the evaluation are never packed",
    "ignore_data_skip": "a run that goes on from a checkpoint would train its first rows again",
    "auto_find_batch_size": "the rows of a step would change while training",
}
"""Of TRL's and the trainer's arguments, those that would undo how rows are made and ordered, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """A trainer ready to run, and what its data came to.

    Attributes:
        guards: where it begins, what stops it, its room on the disk; already attached to the trainer.
        window: most tokens of a row, and the judge's window.
        train: the rows of all epochs.
        epochs: how often each row is seen, as configured or as `max_steps` makes it.
        eval_counts: what became of the evaluation's rows; None where there are none.
        attention: which one was taken, and why, in one sentence.
        judging: what evaluations judge; None where they take the loss alone.
        facts: more of the training, for the card.
        began_from: the card of the judge that this one was before; None where it was none.
        notes: lines for the user on the numeric formats.
    """

    trainer: transformers.Trainer
    guards: Safeguards
    window: int
    train: EpochRows
    epochs: float
    eval_counts: RowCounts | None
    attention: str
    judging: ValidationJudging | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    began_from: Card | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What a way of training has of its own.

    Attributes:
        options: how rows are made.
        make_rows: their builder, for a tokenizer and these options.
        make_trainer: TRL's trainer, for its own keyword arguments.
        beside: files that are read beside those of the training and of the evaluation.
    """

    options: RowOptions
    make_rows: Callable[[Any, Any], RowMaker]
    make_trainer: Callable[..., Any]
    beside: Sequence[str] = ()


def prepare(judge: JudgeArguments, sft: SFTConfig, model: ModelConfig) -> FineTuning:
    """Load the base model, make the rows, build the trainer.

    Rows come with their own labels and are within the window, so TRL is told to cut nothing; it adds no
    end-of-sequence token to rows that are already tokens. Each epoch's rows lie behind those of the one before, so the
    trainer passes through them once, in sequence.

    Raises:
        ConfigError: an option that does not exist, no window, or another batch than `global_batch` states.
        InputError: a data file that cannot be used.
        ModelError: the base model cannot be loaded.
        RunError: the output folder holds a finished judge, or another run's checkpoints.
    """
    refuse_finished(Path(str(sft.output_dir)), overwrite=judge.overwrite_output_dir)
    window = checked_window(judge, sft)
    check_trainable(judge, sft)

    def make_trainer(**given: Any) -> JudgeTrainer:
        sft.completion_only_loss = False
        sft.padding_free = without_padding(sft)
        return JudgeTrainer(**given, score_weight=judge.score_weight)

    options = row_options(judge, window=window, seed=sft.seed)
    return assemble(judge, sft, model, Method(options=options, make_rows=RowBuilder, make_trainer=make_trainer))


def assemble(judge: JudgeArguments, args: Any, model: ModelConfig, method: Method) -> FineTuning:
    """What every way of training shares: rows, safeguards, evaluations, trainer, once the arguments are checked.

    Args:
        judge: data and target.
        args: TRL's `SFTConfig` or `DPOConfig`.
        model: the base.
        method: what differs.

    Raises:
        ConfigError, InputError, ModelError, RunError: as `prepare`.
    """
    tokenizer = load_tokenizer(model, trust_remote_code=args.trust_remote_code)
    check_pickled(base_name(model), model.model_revision)  # before the rows are made, which takes long
    notes = settle_precision(judge, args, model)
    passage, window = passage_of(args), method.options.window
    train, evaluate = _lay_out(tokenizer, method, judge, passage, args)
    guards = safeguards(judge, args, model, rows=train.name, passage=passage)
    epochs = pass_once(args, train, passage)
    judging = validation_judging(judge, args, train.counts, window=window)
    args.max_length, args.model_init_kwargs = None, init_kwargs(model, args.model_init_kwargs)
    try:
        attention = _attention(model, args)
        args.model_init_kwargs["attn_implementation"] = attention.implementation
        score_labels_alone()
        with safe_unpickling(base_name(model), model.model_revision):
            trainer = method.make_trainer(
                model=base_name(model),
                args=args,
                train_dataset=train.dataset,
                eval_dataset=evaluate.dataset if evaluate else None,
                processing_class=tokenizer,
                quantization_config=get_quantization_config(model),
                peft_config=get_peft_config(model),
            )
    except OSError as error:
        raise ModelError(f"{base_name(model)}: cannot load the base model: {first_line(error)}") from error
    drop_sampling(trainer.model)
    trainer.epochs_in_data = train.epochs
    trainer.judge_when_evaluating(judging, patience=judge.early_stopping_patience)
    guards.attach(trainer)
    return FineTuning(
        trainer=trainer,
        guards=guards,
        window=window,
        train=train,
        epochs=epochs,
        eval_counts=evaluate.counts if evaluate else None,
        attention=attention.note,
        judging=judging,
        notes=notes,
    )


def _attention(model: ModelConfig, args: Any) -> Attention:
    """The attention that the base is loaded with."""
    installed = look_at_machine(args)
    supported = bool(installed.versions) and takes_flash_attention(base_name(model), revision=model.model_revision)
    half = args.bf16 or args.fp16 or str(model.dtype).removeprefix("torch.") in ("bfloat16", "float16")
    asked = args.model_init_kwargs["attn_implementation"]
    return choose_attention(asked, installed, supported=supported, half=half)


def _lay_out(
    tokenizer: Any, method: Method, judge: JudgeArguments, passage: Passage, args: Any
) -> tuple[EpochRows, EpochRows | None]:
    """The rows to train on, and those to evaluate on if there are any."""
    once = Passage(epochs=1, steps=None, batch=passage.batch, group_by_length=False, seed=passage.seed)
    state = PartialState()

    def rows(paths: Sequence[str], passage: Passage) -> EpochRows:
        with row_progress(paths, sys.stderr, joined=bool(method.beside)) as progress:
            return lay_out(
                tokenizer,
                method.options,
                [*paths, *method.beside],
                passage,
                Path(str(args.output_dir)) / ROWS,
                method.make_rows,
                workers=args.dataset_num_proc,
                progress=progress,
            )

    with state.main_process_first(), state.local_main_process_first():
        train = rows(judge.train_data, passage)
        evaluate = rows(judge.eval_data, once) if judge.eval_data else None
    return train, evaluate


def checked_window(judge: JudgeArguments, args: Any) -> int:
    """The judge's window, in tokens, once the arguments are found to fit each other.

    Args:
        judge: data and target.
        args: TRL's `SFTConfig` or `DPOConfig`; gets the accumulation that makes `global_batch`.

    Raises:
        ConfigError: they do not.
    """
    if judge.loss_on not in ("completion", "all"):
        raise ConfigError(f"loss_on {judge.loss_on!r} does not exist; there are: completion, all")
    for name, why in _UNFIT.items():
        if getattr(args, name, None):
            raise ConfigError(f"{name} is {getattr(args, name)!r}, but {why}; leave {name} out")
    if args.max_length is None:
        raise ConfigError("max_length is missing; it is the judge's window in tokens (JudgeLM: 2048)")
    save_dtype_of(judge.save_dtype, args)
    args.gradient_accumulation_steps = accumulation_steps(
        judge.global_batch,
        per_device=args.per_device_train_batch_size,
        accumulation=args.gradient_accumulation_steps,
        processes=processes(args),
    )
    return int(args.max_length)


def row_options(judge: JudgeArguments, *, window: int, seed: int) -> RowOptions:
    """The rows' options from the arguments.

    Raises:
        ConfigError: the scale is not two numbers, lowest first.
    """
    if len(judge.scale) != 2 or judge.scale[0] >= judge.scale[1]:
        raise ConfigError(f"scale is {judge.scale}; it is the lowest and the highest score, such as [1, 10]")
    return RowOptions(
        template=judge.template,
        window=window,
        scale=(judge.scale[0], judge.scale[1]),
        swap_prob=judge.swap_prob,
        reference_drop_prob=judge.reference_drop_prob,
        reason_prob=judge.reason_prob,
        loss_on_prompt=judge.loss_on == "all",
        seed=seed,
    )


def passage_of(args: transformers.TrainingArguments) -> Passage:
    """How often and in which order the rows are passed through, from the trainer's arguments.

    Raises:
        ConfigError: an order that the rows cannot have.
    """
    strategy = args.train_sampling_strategy
    if strategy not in ("random", "group_by_length"):
        raise ConfigError(
            f"train_sampling_strategy {strategy!r} is not possible, as rows differ from epoch to epoch; "
            "there are: random, group_by_length"
        )
    if getattr(args, "packing", False):
        raise ConfigError(
            "packing would put an unknown number of rows into a step; padding_free: true spends as little on padding "
            "and keeps the batch"
        )
    return Passage(
        epochs=args.num_train_epochs,
        steps=args.max_steps if args.max_steps > 0 else None,
        batch=args.per_device_train_batch_size * args.gradient_accumulation_steps * processes(args),
        group_by_length=strategy == "group_by_length",
        seed=args.seed,
    )


def pass_once(args: transformers.TrainingArguments, rows: EpochRows, passage: Passage) -> float:
    """Have the trainer pass once through all epochs, and save and evaluate where an epoch ends.

    Returns:
        the epochs, as configured or as the steps make them.
    """
    args.train_sampling_strategy = "sequential"
    args.num_train_epochs = passage.epochs / rows.epochs
    steps = -(-rows.per_epoch // passage.batch)
    if args.save_strategy == SaveStrategy.EPOCH:
        args.save_strategy, args.save_steps = SaveStrategy.STEPS, steps
    if args.eval_strategy == IntervalStrategy.EPOCH:
        args.eval_strategy, args.eval_steps = IntervalStrategy.STEPS, steps
        args.eval_delay *= steps
    if args.logging_strategy == IntervalStrategy.EPOCH:
        args.logging_strategy, args.logging_steps = IntervalStrategy.STEPS, steps
    return passage.epochs if passage.steps is None else passage.steps * passage.batch / rows.per_epoch
