"""Checkpoints that are known to be whole: a marker written last says what each must hold.

A process that is killed while it writes leaves files that lack their end, or are not there, and nothing in the folder
says so. Here a checkpoint counts only if `judgelm_state.json` lies in it, which is written when everything else is on
the disk, and if every file that it names has the size that it names. Older checkpoints go only then.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from accelerate import PartialState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, rotate_checkpoints

from judgelm.jsonl import parse_json
from judgelm.version import VERSION

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
    """What the marker says.

    Attributes:
        settings: what the run was told, as `run_settings` gives it.
        versions: of the packages that wrote it.
        resumable: whether optimiser states are there; `save_only_model` leaves them out.
        files: bytes by path within the checkpoint.
    """

    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    resumable: bool
    files: Mapping[str, int]


class Checkpoints(transformers.TrainerCallback):
    """Marks a checkpoint once all processes have written it, then removes those beyond the limit.

    The trainer's own removal comes before the new one is safe; it must be switched off (`save_total_limit = None`).

    Args:
        settings: what the run was told.
        limit: checkpoints to keep, the best one counted; None keeps all.
    """

    def __init__(self, settings: Mapping[str, Any], limit: int | None) -> None:
        self._settings = settings
        self._limit = limit

    def on_save(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        **_: Any,
    ) -> None:
        """Bring the files to the disk, write the marker, remove what is beyond the limit."""
        folder = Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        processes = PartialState()
        processes.wait_for_everyone()
        _flush(folder)
        processes.wait_for_everyone()
        if args.should_save:
            mark(folder, self._settings, resumable=not args.save_only_model)
            rotate_checkpoints(
                output_dir=str(args.output_dir),
                save_total_limit=self._limit,
                best_model_checkpoint=state.best_model_checkpoint,
                use_mtime=True,
            )
        processes.wait_for_everyone()  # a process that ended now would take the marker's writer with it


def mark(folder: Path, settings: Mapping[str, Any], *, resumable: bool) -> None:
    """Write the marker of a checkpoint whose other files are on the disk."""
    files = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(_files(folder))}
    found = {"settings": settings, "versions": VERSIONS, "resumable": resumable, "files": files}
    partial = folder / f"{STATE_NAME}.partial"
    partial.write_text(json.dumps(found, indent=1), encoding="utf-8")
    _fsync(partial)
    partial.replace(folder / STATE_NAME)
    _fsync(folder)
    _fsync(folder.parent)


def read_state(checkpoint: Path) -> CheckpointState | None:
    """What the marker says; None where it is missing or torn."""
    try:
        found = parse_json((checkpoint / STATE_NAME).read_text(encoding="utf-8"))
        return CheckpointState(**found)
    except (OSError, ValueError, TypeError):
        return None


def flaw_of(checkpoint: Path) -> str:
    """Why a checkpoint is not whole, in words; empty where it is."""
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


def checkpoints_in(folder: Path) -> list[Path]:
    """The checkpoints of an output folder, whole or not, the newest (by its step) first."""
    found = [path for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*") if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=step_of, reverse=True)


def going_on(folder: Path) -> str:
    """What the same command will do after a fault: `goes on from <the last whole checkpoint>` or `begins anew`."""
    whole = next((one for one in checkpoints_in(folder) if not flaw_of(one)), None)
    return f"goes on from {whole}" if whole else "begins anew"


def step_of(checkpoint: Path) -> int:
    """The optimiser steps behind a checkpoint, from its name."""
    match = _NAME.fullmatch(checkpoint.name)
    return int(match[1]) if match else 0


def _files(folder: Path) -> list[Path]:
    ours = (STATE_NAME, f"{STATE_NAME}.partial")
    return [path for path in folder.rglob("*") if path.is_file() and path.name not in ours]


def _flush(folder: Path) -> None:
    """Bring all files to the disk, and the folders that name them; another process may have done some."""
    for path in folder.rglob("*"):
        _fsync(path)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
