"""Whole checkpoints, marked by a file that is written last, and the checkpoint that a training resumes from.

A process that is killed while it writes leaves truncated or missing files without any sign of it. Here a checkpoint
counts only if it holds `judgelm_state.json`, which is written once everything else is on the disk, and if every file
that it lists has the listed size. Older checkpoints are removed only then. Bytes that changed later are found by the
listed sha256 of each file, which is compared before a run resumes.
"""

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers
import trl
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, rotate_checkpoints

from judgelm.errors import ConfigError, JudgelmError, RunError
from judgelm.jsonl import parse_json
from judgelm.package import VERSION
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import CARD_NAME
from judgelm.training.arguments import processes, rows_per_step
from judgelm.training.rows.dataset import EpochRows, file_sha

T = TypeVar("T")
STATE_NAME = "judgelm_state.json"
VERSIONS = {
    "judgelm": VERSION,
    "torch": torch.__version__,
    "transformers": transformers.__version__,
    "trl": trl.__version__,
}

_NAME = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """Content of the marker.

    Attributes:
        settings: the run's settings, as `run_settings` returns them.
        versions: of the packages that wrote it.
        resumable: whether it holds optimiser states; `save_only_model` leaves them out.
        files: bytes by path within the checkpoint.
        sha256: hex by path.
    """

    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    resumable: bool
    files: Mapping[str, int]
    sha256: Mapping[str, str]


class CheckpointCallback(TrainerCallback):
    """Marks a checkpoint once all processes have written it, then removes those beyond `save_total_limit`.

    Where the trainer is built with it, it takes the limit over: transformers 5.x removes old checkpoints before the
    new one is safe.

    Args:
        settings: the run's settings, which the marker records.
        limit: checkpoints to keep, the best one counted; None keeps all.
    """

    def __init__(self, settings: Mapping[str, Any], limit: int | None = None) -> None:
        self.limit = limit
        self._settings = settings

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Take the limit over from the trainer."""
        self.limit, args.save_total_limit = args.save_total_limit, None

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Flush the files to the disk, write the marker, remove checkpoints beyond the limit."""
        folder = Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        processes = PartialState()
        processes.wait_for_everyone()
        for path in folder.rglob("*"):  # another process may have flushed some
            _fsync(path)
        processes.wait_for_everyone()
        if args.should_save:
            mark(folder, self._settings, resumable=not args.save_only_model)
            rotate_checkpoints(
                output_dir=str(args.output_dir),
                save_total_limit=self.limit,
                best_model_checkpoint=state.best_model_checkpoint,
                use_mtime=True,
            )
        processes.wait_for_everyone()  # a process that exited now would end the one that writes the marker


def mark(folder: Path, settings: Mapping[str, Any], *, resumable: bool) -> None:
    """Write the marker of a checkpoint whose other files are on the disk."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(STATE_NAME)]
    names = [str(path.relative_to(folder)) for path in paths]
    state = {
        "settings": settings,
        "versions": VERSIONS,
        "resumable": resumable,
        "files": {name: path.stat().st_size for name, path in zip(names, paths, strict=True)},
        "sha256": _sha256_of(folder, names),
    }
    partial = folder / f"{STATE_NAME}.partial"
    partial.write_text(json.dumps(state, indent=1), encoding="utf-8")
    _fsync(partial)
    partial.replace(folder / STATE_NAME)
    _fsync(folder)
    _fsync(folder.parent)


def read_state(checkpoint: Path) -> CheckpointState | None:
    """Read the marker; None where it is missing or torn."""
    try:
        return CheckpointState(**parse_json((checkpoint / STATE_NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def flaw_of(checkpoint: Path) -> str:
    """The reason why a checkpoint is not whole, by the sizes of its files; empty where it is."""
    state = read_state(checkpoint)
    if state is None:
        return f"{STATE_NAME}, which is written last, is missing"
    for name, size in state.files.items():
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} of {size} bytes"
    return ""


def damage_of(checkpoint: Path) -> str:
    """The first file of a whole checkpoint that changed after it was written; empty where none did. Reads all of it."""
    state = read_state(checkpoint)
    stated = state.sha256 if state else {}
    for name, sha256 in _sha256_of(checkpoint, stated).items():
        if sha256 != stated[name]:
            return f"{name} has sha256 {sha256[:12]}..., and {stated[name][:12]}... was written"
    return ""


def checkpoints_in(folder: Path) -> list[Path]:
    """The checkpoints of an output folder, whole or not, the newest (by its step) first."""
    paths = [path for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*") if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(paths, key=step_of, reverse=True)


def resume_hint(folder: Path) -> str:
    """Effect of the same command after a fault: `resumes from <last whole checkpoint>` or `starts over`."""
    whole = next((path for path in checkpoints_in(folder) if not flaw_of(path)), None)
    return f"resumes from {whole}" if whole else "starts over"


def step_of(checkpoint: Path) -> int:
    """Optimiser steps before a checkpoint, from its name."""
    match = _NAME.fullmatch(checkpoint.name)
    return int(match[1]) if match else 0


def _sha256_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The sha256 of each file, as many at once as there are cores: hashing releases Python's lock."""

    def hash_file(name: str) -> str:
        with (folder / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    names = list(names)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(names, pool.map(hash_file, names), strict=True))


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def broadcast_from_rank0(function: Callable[[], T]) -> T:
    """Call a function on the first process, and return its result or raise its error on every process.

    A single process that raised would leave the others waiting for it.

    Raises:
        JudgelmError: `function` raised it.
    """
    outcome: list[Any] = [None, None]
    if PartialState().is_main_process:
        try:
            outcome[0] = function()
        except JudgelmError as error:
            outcome[1] = error
    broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    result: T = outcome[0]
    return result


def require_shared_disk(checkpoint: Path) -> None:
    """Refuse to resume from a checkpoint that only the first machine sees; call it on every process.

    The other machines would silently begin at the first row.

    Raises:
        RunError: on every process, if one of them does not find the checkpoint.
    """
    if not all(gather_object([checkpoint.is_dir()])):
        raise RunError(
            f"{checkpoint}: not found on every machine, so they cannot resume from it together; put output_dir on a "
            "disk that all of them share"
        )


_DECISIVE = (
    "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim", "optim_args", "adam_beta1",
    "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm", "optim_target_modules", "model_init_kwargs",
    "bf16", "fp16", "neftune_noise_alpha", "label_smoothing_factor", "router_aux_loss_coef", "disable_dropout",
    # DPO's loss and reference
    "loss_type", "loss_weights", "beta", "label_smoothing", "ld_alpha", "f_divergence_type",
    "f_alpha_divergence_coef", "use_weighting", "discopop_tau", "sync_ref_model", "ref_model_mixup_alpha",
    "ref_model_sync_steps",
    # GRPO's generation and loss
    "num_generations", "max_completion_length", "steps_per_generation", "temperature", "top_p", "top_k", "min_p",
    "repetition_penalty", "use_vllm", "epsilon", "epsilon_high", "scale_rewards", "importance_sampling_level",
    "mask_truncated_completions", "entropy_coef",
)  # fmt: skip
"""Arguments of the trainer that change what is learned; batch, order and length are recorded beside them."""

_WITHOUT_EFFECT = (
    "train_data", "global_batch", "overwrite_output_dir", "early_stopping_patience", "save_dtype",
    "attn_implementation", "trust_remote_code",
)  # fmt: skip
"""Arguments of judge and model that do not decide it, like all that begin with `eval`; data and batch stand apart."""

_WEIGHTS = ("config.json", "model*.safetensors*", "adapter_config.json", "adapter_model.safetensors")
"""Files of a judge, by pattern: whole or an adapter."""

_OVERWRITE = "set overwrite_output_dir: true"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingPoint:
    """The starting point of training.

    Attributes:
        checkpoint: what the trainer resumes from; None at the beginning.
        notes: sentences for the user: the checkpoint, and which others were left out and why.
        settings: the run's settings, which its own checkpoints record.
    """

    checkpoint: str | None = None
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def find_start(judge: Any, args: Any, base: Any, rows: EpochRows) -> StartingPoint:
    """Decide on all processes alike where a run begins.

    Args:
        judge: the recipe's own arguments.
        args: TRL's `SFTConfig` or `DPOConfig`.
        base: TRL's `ModelConfig`.
        rows: those to train on.

    Raises:
        ConfigError: `resume_from_checkpoint` is no checkpoint.
        RunError: the output folder holds another run's checkpoints, or is not on a disk of all machines.
    """
    settings = broadcast_from_rank0(lambda: run_settings(judge, args, base, rows))
    folder, checkpoint = Path(str(args.output_dir)), args.resume_from_checkpoint
    overwrite = judge.overwrite_output_dir
    start = broadcast_from_rank0(lambda: choose_start(folder, settings, checkpoint, overwrite=overwrite))
    if start.checkpoint is not None:
        require_shared_disk(Path(start.checkpoint))
    return replace(start, settings=settings)


def run_settings(judge: Any, args: Any, base: Any, rows: EpochRows) -> dict[str, Any]:
    """Settings that decide what a run learns, by name, as JSON stores them; two runs with the same settings are one.

    The rows that a process takes at once do not count: with the same global batch, the steps are the same. Nor does
    the number of processes, unless the optimizer is sharded.

    Args: see `find_start`.
    """
    schedule, sharding = rows.schedule, sharding_of(args)
    stated = asdict(judge) | asdict(base)
    settings = {
        **{name: stated[name] for name in stated if name not in _WITHOUT_EFFECT and not name.startswith("eval")},
        **{name: getattr(args, name) for name in _DECISIVE if hasattr(args, name)},
        "train_data": [f"{Path(path).name} {file_sha(path)[:16]}" for path in judge.train_data],
        "adapter": judge.adapter and file_sha(str(Path(judge.adapter) / "adapter_model.safetensors"))[:16],
        "template_sha": get_template(judge.template).sha,
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
    """The kind of shards in which processes write the optimizer; None where every process has all of it (DDP)."""
    if args.deepspeed_plugin is not None:
        return f"zero{args.deepspeed_plugin.zero_stage}"
    fsdp = args.fsdp or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
    return "fsdp" if fsdp else None


def refuse_finished(judge: Any, args: Any) -> None:
    """Refuse to train over a finished judge without `overwrite_output_dir`.

    Raises:
        RunError: the output folder holds one.
    """
    folder = Path(str(args.output_dir))
    if not judge.overwrite_output_dir and (folder / CARD_NAME).exists():
        raise RunError(f"{folder}: holds a finished judge ({CARD_NAME}); choose another output_dir, or {_OVERWRITE}")


def choose_start(
    folder: Path, settings: Mapping[str, Any], checkpoint: str | None = None, *, overwrite: bool = False
) -> StartingPoint:
    """Choose the starting point; remove torn and damaged checkpoints, or all of them with `overwrite`.

    Args:
        folder: the output folder; may not exist yet.
        settings: those of this run.
        checkpoint: `resume_from_checkpoint`; None resumes from the last whole checkpoint.
        overwrite: whether to start over and replace what the folder holds.

    Raises:
        ConfigError: `checkpoint` is not one.
        RunError: the folder holds another run's checkpoints, or only damaged ones.
    """
    if overwrite and checkpoint is not None:
        raise ConfigError(f"resume_from_checkpoint {checkpoint} and overwrite_output_dir exclude each other; give one")
    if overwrite:
        _clear(folder, str(settings["model_name_or_path"]))
        return StartingPoint()
    return _last_checkpoint(folder, settings) if checkpoint is None else _check_given(Path(checkpoint), settings)


def skip_if_done(trainer: Any, start: StartingPoint) -> None:
    """Keep a run that resumes from its last step from training one more.

    transformers 5.x checks for the end only after a step. It takes no step where the data end with the last one, but
    would where they continue (part of an epoch, or `max_steps`).

    Args:
        trainer: not yet trained.
        start: where it begins.
    """
    if start.checkpoint is None:
        return
    last, rows = last_step(trainer), trainer.train_dataset
    if step_of(Path(start.checkpoint)) >= last:
        trainer.train_dataset = rows.select(range(min(len(rows), last * rows_per_step(trainer.args))))
        trainer.args.num_train_epochs = 1


def last_step(trainer: Any) -> int:
    """Optimiser steps of the whole run, which passes once through its rows."""
    args = trainer.args
    whole: int = math.ceil(args.num_train_epochs * math.ceil(len(trainer.train_dataset) / rows_per_step(args)))
    return int(args.max_steps) if args.max_steps > 0 else whole


def _check_given(checkpoint: Path, settings: Mapping[str, Any]) -> StartingPoint:
    if not (checkpoint / "trainer_state.json").is_file():
        raise ConfigError(
            f"resume_from_checkpoint {checkpoint}: not a checkpoint folder; leave it out to resume from the last whole "
            f"one in output_dir, or {_OVERWRITE}"
        )
    state = read_state(checkpoint)
    if state is None:
        return StartingPoint(
            checkpoint=str(checkpoint), notes=(f"{checkpoint}: not written by judgelm, so whether it fits is unknown",)
        )
    if flaw := flaw_of(checkpoint):
        raise RunError(f"{checkpoint}: is torn: {flaw}; leave resume_from_checkpoint out to resume from a whole one")
    if not state.resumable:
        raise RunError(f"{checkpoint}: holds only weights (save_only_model), from which no run can resume")
    start = _same_run(checkpoint, settings)
    if damage := damage_of(checkpoint):
        raise RunError(f"{checkpoint}: is damaged: {damage}; leave resume_from_checkpoint out to resume from another")
    return start


def _last_checkpoint(folder: Path, settings: Mapping[str, Any]) -> StartingPoint:
    flaws = {checkpoint: flaw_of(checkpoint) for checkpoint in checkpoints_in(folder)}
    whole = [checkpoint for checkpoint, flaw in flaws.items() if not flaw]
    resumable = [path for path in whole if (state := read_state(path)) and state.resumable]
    if whole and not resumable:
        raise RunError(
            f"{whole[0]}: holds only weights (save_only_model), from which no run can resume; choose another "
            f"output_dir, or {_OVERWRITE}"
        )
    findings = {path: f"is torn and was removed: {flaw}" for path, flaw in flaws.items() if flaw}
    start, damage = StartingPoint(), ""
    for checkpoint in resumable:
        start, damage = _same_run(checkpoint, settings), damage_of(checkpoint)
        if not damage:
            break
        findings[checkpoint] = f"is damaged and was removed: {damage}"
    if damage:
        raise RunError(
            f"{resumable[0]}: is damaged, and no earlier one is whole ({damage}); restore its files, or {_OVERWRITE} "
            "to begin anew"
        )
    for path in findings:
        shutil.rmtree(path)
    notes = tuple(f"{path}: {finding}" for path, finding in findings.items())
    return StartingPoint(checkpoint=start.checkpoint, notes=notes + start.notes)


def _same_run(checkpoint: Path, settings: Mapping[str, Any]) -> StartingPoint:
    """The checkpoint as starting point.

    Raises:
        RunError: it belongs to another run; names what differs.
    """
    state = read_state(checkpoint)
    assert state is not None
    names = sorted({*state.settings, *settings})
    changed = [name for name in names if state.settings.get(name) != settings.get(name)]
    if changed != ["rows"]:
        changed = [name for name in changed if name != "rows"]  # they differ because something else does
    if changed:
        changes = ", ".join(
            f"{name} was {state.settings.get(name)!r} and is {settings.get(name)!r}" for name in changed
        )
        reason = " (each process wrote its share of the optimizer)" if "processes" in changed else ""
        raise RunError(
            f"{checkpoint}: belongs to another run: {changes}{reason}; put it back, choose another output_dir, or "
            f"{_OVERWRITE}"
        )
    old = ", ".join(
        f"{name} {version} (now {VERSIONS.get(name)})"
        for name, version in state.versions.items()
        if version != VERSIONS.get(name)
    )
    older = f"; it was written with {old}, so losses may differ" if old else ""
    return StartingPoint(checkpoint=str(checkpoint), notes=(f"resumes from {checkpoint}{older}",))


def _clear(folder: Path, base: str) -> None:
    """Remove the checkpoints, the card, and the weights of the judge that is overwritten.

    From a folder with an adapter and a whole model, transformers 5.x loads the adapter, and vLLM the whole model.
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
