"""Complete checkpoints, marked by `judgelm_state.json`, which is written last.

The marker lists the size and hash of every file.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from accelerate import PartialState
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, rotate_checkpoints

from judgelm.data.dataset_files import file_sha256
from judgelm.jsonl import parse_json
from judgelm.package import VERSION

STATE_NAME = "judgelm_state.json"


VERSIONS = {"judgelm": VERSION} | {library.__name__: library.__version__ for library in (torch, transformers, trl)}


_NAME = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """Content of the marker. `files` maps paths to sizes in bytes."""

    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    resumable: bool
    files: Mapping[str, int]
    sha256: Mapping[str, str]


class CheckpointCallback(TrainerCallback):
    """Marks a checkpoint once all processes have written it, then enforces `save_total_limit`.

    transformers 5.x would remove old checkpoints before the new one is complete.
    """

    def __init__(self, settings: Mapping[str, Any], limit: int | None = None) -> None:
        self.limit = limit
        self._settings = settings

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Enforce `save_total_limit` instead of the trainer."""
        self.limit, args.save_total_limit = args.save_total_limit, None

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Mark the checkpoint, and remove checkpoints beyond the limit."""
        folder = Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        processes = PartialState()
        processes.wait_for_everyone()
        for path in folder.rglob("*"):  # another process may have written some of the files
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
        processes.wait_for_everyone()  # if a process exited now, the launcher would kill the process writing the marker


def mark(folder: Path, settings: Mapping[str, Any], *, resumable: bool) -> None:
    """Write the marker, after all other files."""
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
    """Return the content of the marker, or None if it is missing or incomplete."""
    try:
        return CheckpointState(**parse_json((checkpoint / STATE_NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def flaw_of(checkpoint: Path) -> str:
    """Return the reason a checkpoint is incomplete, according to the file sizes, or an empty string."""
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
    """Describe the first file whose hash has changed, or return an empty string."""
    state = read_state(checkpoint)
    stated = state.sha256 if state else {}
    for name, sha256 in _sha256_of(checkpoint, stated).items():
        if sha256 != stated[name]:
            return f"{name} has SHA-256 {sha256[:12]}..., expected {stated[name][:12]}..."
    return ""


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the checkpoints in an output folder, newest first."""
    paths = [path for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*") if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(paths, key=step_of, reverse=True)


def resume_hint(folder: Path) -> str:
    """Describe how the same command continues after a failure."""
    whole = next((path for path in checkpoints_in(folder) if not flaw_of(path)), None)
    return f"resumes from {whole}" if whole else "starts over"


def step_of(checkpoint: Path) -> int:
    """Return the optimizer step of a checkpoint."""
    match = _NAME.fullmatch(checkpoint.name)
    return int(match[1]) if match else 0


def _sha256_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    names = list(names)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(names, pool.map(file_sha256, map(folder.joinpath, names)), strict=True))


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
