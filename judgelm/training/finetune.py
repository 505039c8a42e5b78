"""Builds the trainer of a judge and writes what it made: model, tokenizer and card."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
import trl
from transformers import AutoTokenizer
from trl import (  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see
    ModelConfig,
    SFTConfig,
    SFTTrainer,
    get_peft_config,
    get_quantization_config,
)

from judgelm.card import Card, write_card
from judgelm.errors import ConfigError, ModelError
from judgelm.prompts.catalog import get_template
from judgelm.training.config import JudgeArguments, check_global_batch
from judgelm.training.model_card import write_model_card
from judgelm.training.rows import RowBuilder, RowCounts, RowOptions, TokenRow
from judgelm.version import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """A trainer ready to run, and what its data came to."""

    trainer: SFTTrainer
    window: int
    train_counts: RowCounts
    eval_counts: RowCounts | None


def prepare(judge: JudgeArguments, sft: SFTConfig, model: ModelConfig) -> FineTuning:
    """Load the base model, make the rows, build TRL's trainer.

    Rows come with their own labels and are within the window, so TRL is told to cut nothing; it adds no
    end-of-sequence token to rows that are already tokens.

    Raises:
        ConfigError: an option that does not exist, no window, or another batch than `global_batch` states.
        InputError: a data file that cannot be used.
        ModelError: the base model cannot be loaded.
    """
    window = _checked_window(judge, sft)
    tokenizer = _load_tokenizer(model, trust_remote_code=sft.trust_remote_code)
    options = row_options(judge, window=window, seed=sft.seed)
    train = RowBuilder(tokenizer, options)
    train_set = token_dataset(train.read(judge.train_data))
    evaluate = RowBuilder(tokenizer, options) if judge.eval_data else None
    eval_set = token_dataset(evaluate.read(judge.eval_data)) if evaluate else None
    sft.max_length = None
    sft.completion_only_loss = False
    init = sft.model_init_kwargs if isinstance(sft.model_init_kwargs, dict) else {}
    sft.model_init_kwargs = {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        "use_safetensors": True,
        **init,
    }
    try:
        trainer = SFTTrainer(
            model=_base(model),
            args=sft,
            train_dataset=train_set,
            eval_dataset=eval_set,
            processing_class=tokenizer,
            quantization_config=get_quantization_config(model),
            peft_config=get_peft_config(model),
        )
    except OSError as error:
        raise ModelError(f"{_base(model)}: cannot load the base model: {str(error).splitlines()[0]}") from error
    return FineTuning(
        trainer=trainer,
        window=options.window,
        train_counts=train.counts,
        eval_counts=evaluate.counts if evaluate else None,
    )


def _checked_window(judge: JudgeArguments, sft: SFTConfig) -> int:
    """The judge's window, in tokens, once the arguments are found to fit each other."""
    if judge.loss_on not in ("completion", "all"):
        raise ConfigError(f"loss_on {judge.loss_on!r} does not exist; there are: completion, all")
    if sft.max_length is None:
        raise ConfigError("max_length is missing; it is the judge's window in tokens (JudgeLM: 2048)")
    check_global_batch(
        judge.global_batch,
        per_device=sft.per_device_train_batch_size,
        accumulation=sft.gradient_accumulation_steps,
        processes=_processes(sft),
    )
    return int(sft.max_length)


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
        reference_drop_prob=judge.reference_drop_prob,
        reason_prob=judge.reason_prob,
        loss_on_prompt=judge.loss_on == "all",
        seed=seed,
    )


def token_dataset(rows: Sequence[TokenRow] | Any) -> datasets.Dataset:
    """Token rows as a `datasets.Dataset` with the columns `input_ids` and `labels`."""
    columns: dict[str, list[Any]] = {"input_ids": [], "labels": []}
    for row in rows:
        columns["input_ids"].append(row.input_ids)
        columns["labels"].append(row.labels)
    return datasets.Dataset.from_dict(columns)


def save(done: FineTuning, judge: JudgeArguments, model: ModelConfig) -> None:
    """Write model, tokenizer, `judge.json` and `README.md` into the output folder.

    To be called on every process, since shards are gathered.
    """
    trainer = done.trainer
    folder = str(trainer.args.output_dir)
    trainer.save_model(folder)
    if not trainer.is_world_process_zero():
        return
    template = get_template(judge.template)
    card = Card(
        template=template.id,
        template_sha=template.sha,
        scale=(judge.scale[0], judge.scale[1]),
        step=done.train_counts.step,
        prompt_format="chat" if template.chat else "text",
        reference=_reference(done.train_counts),
        window=done.window,
        training=_facts(done, judge, model),
    )
    write_card(folder, card)
    write_model_card(folder, card)


def _processes(args: transformers.TrainingArguments) -> int:
    """Devices that take rows of their own; one process drives several where torch's DataParallel is left to do it."""
    return int(args.world_size) * max(1, int(args.n_gpu))


def _reference(counts: RowCounts) -> str:
    if counts.with_reference == 0:
        return "without"
    return "with" if counts.with_reference == counts.made - counts.kinds["single"] else "both"


def _facts(done: FineTuning, judge: JudgeArguments, model: ModelConfig) -> dict[str, Any]:
    """How the judge was trained, for its card."""
    args, state, counts = done.trainer.args, done.trainer.state, done.train_counts
    losses = [entry["loss"] for entry in state.log_history if "loss" in entry]
    return {
        "base_model": model.model_name_or_path,
        "data": [{"file": Path(path).name, "sha": _file_sha(path)} for path in judge.train_data],
        "rows": counts.made,
        "rows_by_kind": dict(counts.kinds),
        "rows_with_reference": counts.with_reference,
        "rows_with_reason": counts.with_reason,
        "rows_left_out": dict(counts.left_out),
        "reference_drop_prob": judge.reference_drop_prob,
        "reason_prob": judge.reason_prob,
        "loss_on": judge.loss_on,
        "steps": state.global_step,
        "epochs": args.num_train_epochs,
        "global_batch": args.per_device_train_batch_size * args.gradient_accumulation_steps * _processes(args),
        "learning_rate": args.learning_rate,
        "optimisation": _optimisation(args),
        "seed": args.seed,
        "last_loss": losses[-1] if losses else None,
        "lora": {"r": model.lora_r, "alpha": model.lora_alpha} if model.use_peft else None,
        "quantization": "4bit" if model.load_in_4bit else "8bit" if model.load_in_8bit else None,
        "versions": {
            "judgelm": VERSION,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "trl": trl.__version__,
        },
    }


def _optimisation(args: transformers.TrainingArguments) -> dict[str, Any]:
    """The hyper-parameters that Table 7 of the paper names, beside those the card has of its own."""
    return {
        "optimizer": getattr(args.optim, "value", args.optim),
        "betas": [args.adam_beta1, args.adam_beta2],
        "epsilon": args.adam_epsilon,
        "weight_decay": args.weight_decay,
        "max_grad_norm": args.max_grad_norm,
        "schedule": getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type),
        "warmup_steps": args.warmup_steps,
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "float32",
        "gradient_checkpointing": args.gradient_checkpointing,
    }


def _file_sha(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _load_tokenizer(model: ModelConfig, *, trust_remote_code: bool) -> Any:
    source = _base(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source, revision=model.model_revision, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"{source}: cannot load the tokenizer: {str(error).splitlines()[0]}") from error
    if not tokenizer.is_fast or tokenizer.eos_token_id is None:
        raise ModelError(f"{source}: needs a fast tokenizer with an end-of-sequence token")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
    return tokenizer


def _base(model: ModelConfig) -> str:
    if not model.model_name_or_path:
        raise ConfigError("model_name_or_path is missing; give the base model's folder or hub id")
    return str(model.model_name_or_path)
