"""Writes what a fine-tuning made: model, tokenizer, card and README."""

import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from trl import ModelConfig  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see

from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, write_card
from judgelm.training.config import JudgeArguments, processes
from judgelm.training.model_card import write_model_card
from judgelm.training.save_dtype import save_dtype_of
from judgelm.training.schedule import file_sha
from judgelm.training.sft import ROWS, FineTuning
from judgelm.training.validation_judging import step_of_weights
from judgelm.version import VERSION


def save(done: FineTuning, judge: JudgeArguments, model: ModelConfig) -> None:
    """Write model, tokenizer, `judge.json` and `README.md` into the output folder.

    To be called on every process, since shards are gathered.
    """
    trainer: Any = done.trainer
    folder = str(trainer.args.output_dir)
    metrics = {"metrics": done.judging.card_facts(trainer)} if done.judging is not None else {}
    with trainer.saving_in(save_dtype_of(judge.save_dtype, trainer.args)):
        trainer.save_model(folder)
    if not trainer.is_world_process_zero():
        return
    template = get_template(judge.template)
    card = Card(
        template=template.id,
        template_sha=template.sha,
        scale=(judge.scale[0], judge.scale[1]),
        step=min(done.train.counts.step, done.began_from.step if done.began_from else 1),
        prompt_format="chat" if template.chat else "text",
        reference=_reference(done),
        window=done.window,
        training={**_facts(done, judge, model), **done.facts, **metrics},
    )
    write_card(folder, card)
    write_model_card(folder, card)
    shutil.rmtree(Path(folder) / ROWS, ignore_errors=True)


def _reference(done: FineTuning) -> str:
    """Which prompts it saw; what it saw as the judge that it was before counts too."""
    counts, before = done.train.counts, done.began_from
    having = "with" if counts.with_reference == counts.made - counts.kinds["single"] else "both"
    found = having if counts.with_reference else "without"
    return found if before is None or before.reference == found else "both"


def _facts(done: FineTuning, judge: JudgeArguments, model: ModelConfig) -> dict[str, Any]:
    """How the judge was trained, for its card."""
    args, state, counts = done.trainer.args, done.trainer.state, done.train.counts
    steps = step_of_weights(done.trainer)
    losses = [entry["loss"] for entry in state.log_history if "loss" in entry and entry["step"] <= steps]
    return {
        "base_model": model.model_name_or_path,
        "data": [{"file": Path(path).name, "sha": file_sha(path)} for path in judge.train_data],
        "rows": counts.made,
        "rows_by_kind": dict(counts.kinds),
        "rows_with_reference": counts.with_reference,
        "rows_with_reason": counts.with_reason,
        "rows_left_out": dict(counts.left_out),
        "rows_swapped": counts.swapped,
        "swap_prob": judge.swap_prob,
        "reference_drop_prob": judge.reference_drop_prob,
        "reason_prob": judge.reason_prob,
        "loss_on": judge.loss_on,
        "score_weight": judge.score_weight,
        "steps": steps,
        "epochs": done.epochs * steps / state.max_steps,  # fewer than configured where it ended early
        "global_batch": args.per_device_train_batch_size * args.gradient_accumulation_steps * processes(args),
        "learning_rate": args.learning_rate,
        "optimisation": _optimisation(args),
        "seed": args.seed,
        "last_loss": losses[-1] if losses else None,
        "dtype": _dtype(done.trainer, judge),
        "lora": {"r": model.lora_r, "alpha": model.lora_alpha} if model.use_peft else None,
        "quantization": "4bit" if model.load_in_4bit else "8bit" if model.load_in_8bit else None,
        "versions": {
            "judgelm": VERSION,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "trl": trl.__version__,
        },
    }


def _dtype(trainer: Any, judge: JudgeArguments) -> str | None:
    """What the weights are written in; None of an adapter, whose base has its own."""
    if hasattr(trainer.model, "peft_config"):
        return None
    return str(save_dtype_of(judge.save_dtype, trainer.args) or trainer.model.dtype).removeprefix("torch.")


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
