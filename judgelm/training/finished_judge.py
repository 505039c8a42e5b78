"""Save a finished judge: the model, tokenizer, card, and README."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers
from trl import ModelConfig  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see

from judgelm.data.training_questions import QUESTIONS_NAME, hashes_of_files, read_hashes, write_hashes
from judgelm.engines.gguf.checkpoint import GgufRecord, gguf_record
from judgelm.prompts.judge_card import Card, GgufBase, find_card, write_card, write_model_card
from judgelm.training.arguments import JudgeArguments, rows_per_step, save_dtype_of
from judgelm.training.checkpoints import VERSIONS
from judgelm.training.rows.builder import RowCounts
from judgelm.training.rows.dataset import ROWS_FOLDER, file_sha
from judgelm.training.validation import step_of_weights

_RECORDED = ("swap_prob", "reference_drop_prob", "reason_prob", "loss_on", "score_weight", "loss_average")


def save_judge(
    trainer: Any,
    judge: JudgeArguments,
    base: ModelConfig,
    *,
    facts: Mapping[str, Any] | None = None,
    tuned_from: Card | None = None,
) -> None:
    """Write the judge to output_dir. Call this on every process.

    `tuned_from` is the card of the judge that training started from, if any.
    """
    folder, rows = str(trainer.args.output_dir), trainer.rows
    metrics = {"metrics": trainer.validation.card_facts(trainer)} if trainer.validation is not None else {}
    trainer.save_dtype = save_dtype_of(judge.save_dtype, trainer.args)
    trainer.save_model(folder)
    if not trainer.is_world_process_zero():
        return
    template, prompt = judge.chosen, judge.prompt_source
    gguf = gguf_record(base.model_name_or_path or "")
    adapts = gguf is not None and hasattr(trainer.model, "peft_config")
    if judge.adapter is not None:
        tuned_from = find_card(judge.adapter)
        began_from = {"judge": Path(judge.adapter).name, **(tuned_from.training if tuned_from else {})}
        facts = {**(facts or {}), "began_from": began_from}
    earlier = read_hashes(judge.adapter or base.model_name_or_path or "") if tuned_from is not None else None
    questions = hashes_of_files(judge.train_data) | (earlier or set())
    asked = {"file": QUESTIONS_NAME, "count": len(questions)}
    card = Card(
        base=_name_gguf_base(Path(folder), gguf) if gguf and adapts else None,
        template=template.id,
        template_sha=template.sha,
        reading=template.reading,
        scale=(judge.scale[0], judge.scale[1]) if prompt is None else prompt.load().reply.scale,
        step=min(rows.counts.step, tuned_from.step if tuned_from else 1),
        prompt=prompt,
        prompt_format="chat" if template.chat else "text",
        reference=_reference(rows.counts, tuned_from),
        window=rows.window,
        training=_facts(trainer, judge, base) | {"questions": asked} | dict(facts or {}) | metrics,
    )
    write_card(folder, card)
    write_model_card(folder, card)
    write_hashes(folder, questions)
    shutil.rmtree(Path(folder) / ROWS_FOLDER, ignore_errors=True)


def _name_gguf_base(folder: Path, record: GgufRecord) -> GgufBase:
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"base_model_name_or_path": record.file}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return GgufBase(gguf_sha256=record.sha256, file=record.file)


def _reference(counts: RowCounts, tuned_from: Card | None) -> str:
    always = counts.with_reference == counts.made - counts.kinds["single"]
    seen = ("with" if always else "both") if counts.with_reference else "without"
    return seen if tuned_from is None or tuned_from.reference == seen else "both"


def _facts(trainer: Any, judge: JudgeArguments, base: ModelConfig) -> dict[str, Any]:
    args, state, rows = trainer.args, trainer.state, trainer.rows
    counts, steps = rows.counts, step_of_weights(trainer)
    gguf = gguf_record(base.model_name_or_path or "")
    adapter = trainer.model.peft_config["default"] if hasattr(trainer.model, "peft_config") else None
    dtype = save_dtype_of(judge.save_dtype, args) or trainer.model.dtype
    losses = [entry["loss"] for entry in state.log_history if "loss" in entry and entry["step"] <= steps]
    return {
        "base_model": gguf.file if gguf else base.model_name_or_path,
        **({"base_gguf": {"sha256": gguf.sha256, "dtype": gguf.dtype, "repairs": list(gguf.repairs)}} if gguf else {}),
        "data": [{"file": Path(path).name, "sha": file_sha(path)} for path in judge.train_data],
        "rows": counts.made,
        "rows_by_kind": dict(counts.kinds),
        "rows_with_reference": counts.with_reference,
        "rows_with_reason": counts.with_reason,
        "rows_left_out": dict(counts.left_out),
        "rows_swapped": counts.swapped,
        **{name: getattr(judge, name) for name in _RECORDED},
        "steps": steps,
        # lower than configured if training stopped early
        "epochs": rows.schedule.epochs_of(rows.per_epoch) * steps / state.max_steps,
        "global_batch": rows_per_step(args),
        "learning_rate": args.learning_rate,
        "optimisation": _optimisation(args),
        "seed": args.seed,
        "last_loss": losses[-1] if losses else None,
        "dtype": None if adapter else str(dtype).removeprefix("torch."),  # the base keeps its dtype
        "lora": {"r": adapter.r, "alpha": adapter.lora_alpha} if adapter else None,
        "quantization": "4bit" if base.load_in_4bit else "8bit" if base.load_in_8bit else None,
        "versions": VERSIONS,
    }


def _optimisation(args: transformers.TrainingArguments) -> dict[str, Any]:
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
