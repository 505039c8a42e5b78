"""Where a training begins: at the last whole checkpoint of the same run, or anew; never over somebody's judge."""

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from accelerate import PartialState

from judgelm.errors import ConfigError, RunError
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import CARD_NAME
from judgelm.training.checkpoints import VERSIONS, checkpoints_in, flaw_of, read_state, step_of
from judgelm.training.config import processes
from judgelm.training.schedule import Passage, file_sha

_DECISIVE = (
    "learning_rate",
    "lr_scheduler_type",
    "lr_scheduler_kwargs",
    "warmup_steps",
    "optim",
    "optim_args",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "weight_decay",
    "max_grad_norm",
    "optim_target_modules",
    "model_init_kwargs",
    "loss_type",
    "loss_weights",
    "beta",
    "label_smoothing",
    "label_smoothing_factor",
    "ld_alpha",
    "f_divergence_type",
    "f_alpha_divergence_coef",
    "use_weighting",
    "discopop_tau",
    "disable_dropout",
    "sync_ref_model",
    "ref_model_mixup_alpha",
    "ref_model_sync_steps",
    "router_aux_loss_coef",
    "neftune_noise_alpha",
    "bf16",
    "fp16",
)
"""Of the trainer's arguments, those that change what is learned; batch, order and length stand beside them."""

_WITHOUT_EFFECT = (
    "train_data",
    "global_batch",
    "overwrite_output_dir",
    "early_stopping_patience",
    "save_dtype",
    "attn_implementation",
    "trust_remote_code",
)
"""Of a judge's and a model's arguments, beside all that begin with `eval`; data and batch stand beside them."""

_WEIGHTS = ("config.json", "model*.safetensors*", "adapter_config.json", "adapter_model.safetensors")
"""Files of a judge, by pattern: whole or an adapter."""

_ANEW = "overwrite_output_dir: true trains anew over it"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingPoint:
    """Where training begins.

    Attributes:
        checkpoint: what the trainer goes on from; None at the beginning.
        notes: sentences for the user: what it goes on from, which checkpoints were left out, and why.
    """

    checkpoint: str | None = None
    notes: tuple[str, ...] = ()


def run_settings(judge: Any, args: Any, model: Any, *, rows: str, passage: Passage) -> dict[str, Any]:
    """What decides what a run learns, by name, as JSON keeps it; two runs that agree in it are one.

    How many rows a process takes at once is not in it: with the same global batch, the steps are the same.

    Args:
        judge: the recipe's own arguments, a dataclass.
        args: TRL's `SFTConfig` or `DPOConfig`.
        model: TRL's `ModelConfig`.
        rows: the name of the rows (`EpochRows.name`), which stands for their bytes.
        passage: how they are passed through.
    """
    own = {
        name: value
        for name, value in asdict(judge).items()
        if name not in _WITHOUT_EFFECT and not name.startswith("eval")
    }
    base = {name: value for name, value in asdict(model).items() if name not in _WITHOUT_EFFECT}
    found = {
        **own,
        **base,
        **{name: getattr(args, name) for name in _DECISIVE if hasattr(args, name)},
        "train_data": [f"{Path(path).name} {file_sha(path)[:16]}" for path in judge.train_data],
        "template_sha": get_template(judge.template).sha,
        "num_train_epochs": passage.epochs if passage.steps is None else None,
        "max_steps": passage.steps,
        "global_batch": passage.batch,
        "processes": processes(args),
        "distribution": PartialState().distributed_type.value,
        "zero_stage": args.deepspeed_plugin.zero_stage if args.deepspeed_plugin else None,
        "seed": passage.seed,
        "group_by_length": passage.group_by_length,
        "rows": rows,
    }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def refuse_finished(folder: Path, *, overwrite: bool) -> None:
    """Refuse to train over a finished judge unless told to.

    Raises:
        RunError: the output folder holds one.
    """
    if not overwrite and (folder / CARD_NAME).exists():
        raise RunError(f"{folder}: holds a finished judge ({CARD_NAME}); choose another output_dir, or {_ANEW}")


def find_start(folder: Path, settings: Mapping[str, Any], *, given: str | None, overwrite: bool) -> StartingPoint:
    """Choose where to begin, and clear away what would be in the way: torn checkpoints, or all if told to overwrite.

    Args:
        folder: the output folder; may not exist yet.
        settings: what this run was told.
        given: `resume_from_checkpoint`; None goes on from the last whole checkpoint by itself.
        overwrite: whether to begin anew over what the folder holds.

    Raises:
        ConfigError: the given checkpoint is none.
        RunError: the folder holds another run's checkpoints.
    """
    if overwrite and given is not None:
        raise ConfigError(f"resume_from_checkpoint {given} and overwrite_output_dir exclude each other; give one")
    if overwrite:
        _clear(folder, str(settings["model_name_or_path"]))
        return StartingPoint()
    return _found(folder, settings) if given is None else _given(Path(given), settings)


def leave_nothing_to_train(trainer: Any, start: StartingPoint, *, batch: int) -> None:
    """Keep a run that goes on from its last step from training one step more.

    The trainer looks whether it is done only behind a step; it takes none where its data end with the last step, and
    where they go on (part of an epoch, or `max_steps`) it would.

    Args:
        trainer: not yet trained.
        start: where it will begin.
        batch: rows of one optimiser step.
    """
    if start.checkpoint is None:
        return
    last, rows = last_step(trainer, batch=batch), trainer.train_dataset
    if step_of(Path(start.checkpoint)) >= last:
        trainer.train_dataset = rows.select(range(min(len(rows), last * batch)))
        trainer.args.num_train_epochs = 1


def last_step(trainer: Any, *, batch: int) -> int:
    """Optimiser steps of the whole run, for rows that are passed through once in batches of so many."""
    args = trainer.args
    whole: int = math.ceil(args.num_train_epochs * math.ceil(len(trainer.train_dataset) / batch))
    return int(args.max_steps) if args.max_steps > 0 else whole


def _given(checkpoint: Path, settings: Mapping[str, Any]) -> StartingPoint:
    if not (checkpoint / "trainer_state.json").is_file():
        raise ConfigError(
            f"resume_from_checkpoint {checkpoint}: no checkpoint's folder; leave it out to go on from the last whole "
            f"one in output_dir, or {_ANEW}"
        )
    state = read_state(checkpoint)
    if state is None:
        return StartingPoint(
            checkpoint=str(checkpoint), notes=(f"{checkpoint}: not written by judgelm; whether it fits is not known",)
        )
    if flaw := flaw_of(checkpoint):
        raise RunError(f"{checkpoint}: is torn: {flaw}; leave resume_from_checkpoint out to go on from a whole one")
    if not state.resumable:
        raise RunError(f"{checkpoint}: holds weights alone (save_only_model), from which no run can go on")
    return _same_run(checkpoint, settings)


def _found(folder: Path, settings: Mapping[str, Any]) -> StartingPoint:
    flaws = {checkpoint: flaw_of(checkpoint) for checkpoint in checkpoints_in(folder)}
    whole = [checkpoint for checkpoint, flaw in flaws.items() if not flaw]
    start = StartingPoint()
    if whole:
        last = next((one for one in whole if (state := read_state(one)) and state.resumable), None)
        if last is None:
            raise RunError(
                f"{whole[0]}: holds weights alone (save_only_model), from which no run can go on; choose another "
                f"output_dir, or {_ANEW}"
            )
        start = _same_run(last, settings)
    torn = [(checkpoint, flaw) for checkpoint, flaw in flaws.items() if flaw]
    for checkpoint, _ in torn:
        shutil.rmtree(checkpoint)
    notes = tuple(f"{checkpoint}: is torn, and was removed: {flaw}" for checkpoint, flaw in torn)
    return StartingPoint(checkpoint=start.checkpoint, notes=notes + start.notes)


def _same_run(checkpoint: Path, settings: Mapping[str, Any]) -> StartingPoint:
    """The checkpoint as starting point.

    Raises:
        RunError: it is another run's; says in what.
    """
    state = read_state(checkpoint)
    assert state is not None
    names = sorted({*state.settings, *settings})
    other = [name for name in names if state.settings.get(name) != settings.get(name)]
    if other != ["rows"]:
        other = [name for name in other if name != "rows"]  # they differ because something else does
    if other:
        found = ", ".join(f"{name} was {state.settings.get(name)!r} and is {settings.get(name)!r}" for name in other)
        raise RunError(
            f"{checkpoint}: belongs to another run: {found}; put it back, choose another output_dir, or {_ANEW}"
        )
    old = ", ".join(
        f"{name} {version} (now {VERSIONS.get(name)})"
        for name, version in state.versions.items()
        if version != VERSIONS.get(name)
    )
    older = f"; it was written with {old}, so losses may differ" if old else ""
    return StartingPoint(checkpoint=str(checkpoint), notes=(f"goes on from {checkpoint}{older}",))


def _clear(folder: Path, base: str) -> None:
    """Remove what would make the folder look finished or half done, and the judge that is trained over.

    Of an adapter and a whole model in one folder, transformers loads the adapter, and vLLM the whole model.
    """
    if any(one.resolve() in (Path(base).resolve(), *Path(base).resolve().parents) for one in checkpoints_in(folder)):
        raise ConfigError(f"overwrite_output_dir would remove the base model {base}; choose another output_dir")
    if (folder / CARD_NAME).exists():
        (folder / CARD_NAME).unlink()
        old = [path for pattern in _WEIGHTS for path in folder.glob(pattern)]
        for path in old if folder.resolve() != Path(base).resolve() else ():
            path.unlink()
    for checkpoint in checkpoints_in(folder):
        shutil.rmtree(checkpoint)
