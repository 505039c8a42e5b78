"""Decide whether a run starts from scratch or resumes from a checkpoint."""

import json
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from judgelm.errors import ConfigError, RunError
from judgelm.prompts.judge_card import CARD_NAME
from judgelm.training.arguments import processes, rows_per_step
from judgelm.training.checkpoints import VERSIONS, checkpoints_in, damage_of, flaw_of, read_state, step_of
from judgelm.training.process_group import broadcast_from_rank0, require_shared_disk
from judgelm.training.rows.dataset import EpochRows, file_sha

_DECISIVE = (
    "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim", "optim_args", "adam_beta1",
    "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm", "optim_target_modules", "model_init_kwargs",
    "bf16", "fp16", "neftune_noise_alpha", "label_smoothing_factor", "router_aux_loss_coef", "disable_dropout",
    "loss_type",
    # generation, loss, and reference model of GRPO
    "beta", "sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps",
    "num_generations", "max_completion_length", "steps_per_generation", "temperature", "top_p", "top_k", "min_p",
    "repetition_penalty", "use_vllm", "epsilon", "epsilon_high", "scale_rewards", "importance_sampling_level",
    "mask_truncated_completions", "entropy_coef",
)  # fmt: skip
"""Trainer arguments that affect the result. Batch size, row order, and length are recorded separately."""


_WITHOUT_EFFECT = (
    "train_data", "prompt", "global_batch", "overwrite_output_dir", "early_stopping_patience", "save_dtype",
    "attn_implementation", "trust_remote_code",
)  # fmt: skip


_WEIGHTS = ("config.json", "model*.safetensors*", "adapter_config.json", "adapter_model.safetensors")


_ANOTHER_FOLDER = "choose another output_dir, or set overwrite_output_dir: true"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingPoint:
    """The checkpoint to resume from (None: start from scratch), notes for the user, and the run's settings."""

    checkpoint: str | None = None
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def find_start(judge: Any, args: Any, base: Any, rows: EpochRows) -> StartingPoint:
    """Choose the same starting point on all processes."""
    settings = broadcast_from_rank0(lambda: run_settings(judge, args, base, rows))
    folder, overwrite = Path(str(args.output_dir)), judge.overwrite_output_dir
    start = broadcast_from_rank0(lambda: choose_start(folder, settings, overwrite=overwrite))
    if start.checkpoint is not None:
        require_shared_disk(Path(start.checkpoint))
    return replace(start, settings=settings)


def run_settings(judge: Any, args: Any, base: Any, rows: EpochRows) -> dict[str, Any]:
    """Return the settings that affect the result, as JSON values."""
    schedule, sharding = rows.schedule, sharding_of(args)
    stated = asdict(judge) | asdict(base)
    settings = {
        **{name: stated[name] for name in stated if name not in _WITHOUT_EFFECT and not name.startswith("eval")},
        **{name: getattr(args, name) for name in _DECISIVE if hasattr(args, name)},
        "train_data": [f"{Path(path).name} {file_sha(path)[:16]}" for path in judge.train_data],
        "adapter": judge.adapter and file_sha(str(Path(judge.adapter) / "adapter_model.safetensors"))[:16],
        "template_sha": judge.chosen.sha,
        "num_train_epochs": schedule.epochs if schedule.steps is None else None,
        "max_steps": schedule.steps,
        "global_batch": schedule.batch,
        "sharding": sharding,
        "processes": processes(args) if sharding else None,
        "seed": schedule.seed,
        "group_by_length": schedule.group_by_length,
        "rows": rows.name,
    }
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    return plain


def sharding_of(args: Any) -> str | None:
    """Return how the optimizer is sharded, or None if it is not sharded."""
    if args.deepspeed_plugin is not None:
        return f"zero{args.deepspeed_plugin.zero_stage}"
    fsdp = args.fsdp or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
    return "fsdp" if fsdp else None


def refuse_finished(judge: Any, args: Any) -> None:
    """Raise RunError if a finished judge exists, unless `overwrite_output_dir` is set."""
    folder = Path(str(args.output_dir))
    if not judge.overwrite_output_dir and (folder / CARD_NAME).exists():
        raise RunError(f"{folder}: contains a finished judge ({CARD_NAME}); {_ANOTHER_FOLDER}")


def skip_if_done(trainer: Any, start: StartingPoint) -> None:
    """Skip training if the checkpoint is from the last step; transformers 5.x would train one more step."""
    if start.checkpoint is None:
        return
    last, rows = last_step(trainer), trainer.train_dataset
    if step_of(Path(start.checkpoint)) >= last:
        trainer.train_dataset = rows.select(range(min(len(rows), last * rows_per_step(trainer.args))))
        trainer.args.num_train_epochs = 1


def last_step(trainer: Any) -> int:
    """Return the last optimizer step of the run."""
    args = trainer.args
    whole: int = math.ceil(args.num_train_epochs * math.ceil(len(trainer.train_dataset) / rows_per_step(args)))
    return int(args.max_steps) if args.max_steps > 0 else whole


def choose_start(folder: Path, settings: Mapping[str, Any], *, overwrite: bool = False) -> StartingPoint:
    """Choose the starting point. Remove incomplete and damaged checkpoints, or, with `overwrite`, all checkpoints."""
    if overwrite:
        _clear(folder, str(settings["model_name_or_path"]))
        return StartingPoint()
    flaws = {checkpoint: flaw_of(checkpoint) for checkpoint in checkpoints_in(folder)}
    whole = [checkpoint for checkpoint, flaw in flaws.items() if not flaw]
    resumable = [path for path in whole if (state := read_state(path)) and state.resumable]
    if whole and not resumable:
        raise RunError(f"{whole[0]}: contains only weights (save_only_model); {_ANOTHER_FOLDER}")
    findings = {path: f"removed because it is incomplete: {flaw}" for path, flaw in flaws.items() if flaw}
    start, damage = StartingPoint(), ""
    for checkpoint in resumable:
        start, damage = _same_run(checkpoint, settings), damage_of(checkpoint)
        if not damage:
            break
        findings[checkpoint] = f"removed because it is damaged: {damage}"
    if damage:
        raise RunError(f"{resumable[0]} and all other checkpoints are damaged ({damage}); {_ANOTHER_FOLDER}")
    for path in findings:
        shutil.rmtree(path)
    notes = tuple(f"{path}: {finding}" for path, finding in findings.items())
    return StartingPoint(checkpoint=start.checkpoint, notes=notes + start.notes)


def _same_run(checkpoint: Path, settings: Mapping[str, Any]) -> StartingPoint:
    state = read_state(checkpoint)
    assert state is not None
    names = sorted({*state.settings, *settings})
    changed = [name for name in names if state.settings.get(name) != settings.get(name)]
    if changed != ["rows"]:
        changed = [name for name in changed if name != "rows"]  # only the result of other changes
    if changed:
        changes = ", ".join(f"{name} was {state.settings.get(name)!r}, is {settings.get(name)!r}" for name in changed)
        reason = " (each process saved its own shard of the optimizer)" if "processes" in changed else ""
        raise RunError(f"{checkpoint}: is from another run: {changes}{reason}; undo the change, or {_ANOTHER_FOLDER}")
    others = {name: version for name, version in state.versions.items() if version != VERSIONS.get(name)}
    old = ", ".join(f"{name} {version} (now {VERSIONS.get(name)})" for name, version in others.items())
    older = f"; written with {old}, so losses may differ" if old else ""
    return StartingPoint(checkpoint=str(checkpoint), notes=(f"resuming from {checkpoint}{older}",))


def _clear(folder: Path, base: str) -> None:
    """Remove the files of the overwritten judge.

    Given both an adapter and a full model, transformers 5.x loads the adapter, but vLLM loads the full model.
    """
    of_base = (Path(base).resolve(), *Path(base).resolve().parents)
    if any(path.resolve() in of_base for path in checkpoints_in(folder)):
        raise ConfigError(f"overwrite_output_dir would remove the base model {base}; choose another output_dir")
    if (folder / CARD_NAME).exists():
        (folder / CARD_NAME).unlink()
        old = [path for pattern in _WEIGHTS for path in folder.glob(pattern)]
        for path in old if folder.resolve() != Path(base).resolve() else ():
            path.unlink()
    for checkpoint in checkpoints_in(folder):
        shutil.rmtree(checkpoint)
