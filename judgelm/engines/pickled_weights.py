"""Checks weight files before a library reads them: pickles hold only tensors, and an index names files of its folder.

A pickle can run any function while it is read. torch's `weights_only` unpickler builds tensors and plain containers and
calls nothing else. transformers, PEFT and vLLM use it too, but their errors do not name the file. They also open any
path that an index of shards names, in the folder or not.
"""

import os
import pickle
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache

from judgelm.errors import ModelError
from judgelm.jsonl import parse_json

_KINDS = (("model*.safetensors", "pytorch_model*.bin"), ("adapter_model.safetensors", "adapter_model.bin"))
_IN_ORDER = (
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
)  # fmt: skip
"""The files of which transformers reads the first; an index that it does not read may name files that are not there."""
_BLOCKED = re.compile(r"GLOBAL (\S+)|function (<.+?>)")
_POINTER = b"version https://git-lfs"


def pickled_files(folder: Path) -> list[Path]:
    """The pickled weights in the folder of a model or adapter; none where there are safetensors."""
    return [
        path
        for safe, pickled in _KINDS
        if not any(folder.glob(safe))
        for path in sorted(folder.glob(pickled))
        if path.is_file()
    ]


def check_pickled(source: str, revision: str | None = None) -> None:
    """Refuse pickled weights that hold more than tensors, and an index of other files, before a library reads them.

    Reads the structure of each file and no tensor data, except for files of torch 1.5 and older, which are read whole.
    Of a hub id the cached files are checked; transformers is kept from asking the hub to convert them.

    Args:
        source: folder or hub id of a model or an adapter.
        revision: of the hub id.

    Raises:
        ModelError: torch does not read a file with `weights_only`; nothing in it was executed. Or an index is damaged,
            or names a file outside of its folder or one that a local folder lacks; none was opened.
    """
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    folder = _folder(source, revision)
    weights = next((folder / name for name in _IN_ORDER if (folder / name).is_file()), None)
    if weights is not None and weights.suffix == ".json":
        _check_index(weights, local=folder == Path(source))
    for path in pickled_files(folder):
        try:
            torch.load(path, map_location="meta", weights_only=True)
        except pickle.UnpicklingError as error:
            raise ModelError(f"{path}: {_finding(path, error)}") from error
        except (
            OSError, EOFError, RuntimeError, ValueError, LookupError, TypeError, AttributeError, struct.error,
        ) as error:  # fmt: skip
            raise ModelError(f"{path}: damaged or incomplete; download it again") from error


@contextmanager
def safe_unpickling(source: str, revision: str | None = None) -> Iterator[None]:
    """Context in which a library loads weights; an error names the file that torch refuses.

    Raises:
        ModelError: as `check_pickled`, also for files that are only downloaded in this context.
    """
    check_pickled(source, revision)
    try:
        yield
    except pickle.UnpicklingError as error:
        check_pickled(source, revision)
        raise ModelError(
            f"{source}: its pickled weights hold more than tensors and are refused; use a copy of the model in "
            "safetensors"
        ) from error


def _folder(source: str, revision: str | None) -> Path:
    """The folder with the files; of a hub id the one in the cache."""
    if Path(source).is_dir():
        return Path(source)
    for name in ("config.json", "adapter_config.json"):
        try:
            cached = try_to_load_from_cache(source, name, revision=revision)
        except ValueError:  # neither a folder nor a hub id; loading it says so
            break
        if isinstance(cached, str):
            return Path(cached).parent
    return Path(source)


def _check_index(index: Path, *, local: bool) -> None:
    for name in sorted(set(_shards(index))):
        path = PureWindowsPath(name)  # takes both kinds of slashes apart
        if path.drive or path.root or ".." in path.parts or not path.name or "\0" in name:
            raise ModelError(
                f"{index}: names the file {name!r}, which is not in this folder; nothing was opened; use another copy "
                "of the model"
            )
        if local and not (index.parent / name).is_file():
            raise ModelError(
                f"{index}: names {name}, which is missing in this folder; copy or download the model again"
            )


def _shards(index: Path) -> list[str]:
    """The files that an index names."""
    try:
        files: list[Any] = list(parse_json(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{index}: no index of weights (weight_map); copy or download the model again") from error
    if not files or not all(isinstance(file, str) for file in files):
        raise ModelError(f"{index}: weight_map names no files; copy or download the model again")
    return files


def is_lfs_pointer(path: Path) -> bool:
    """True if a file was cloned without its content."""
    with path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER


def _finding(path: Path, error: pickle.UnpicklingError) -> str:
    if blocked := _BLOCKED.search(str(error)):
        return (
            f"refused, and nothing in it was executed: reading this pickle would call {blocked[1] or blocked[2]}, and "
            "weights hold tensors alone; use a copy of the model in safetensors, or report it where you got it"
        )
    if is_lfs_pointer(path):
        return "a Git LFS pointer instead of the weights; run: git lfs pull"
    return "not a checkpoint that torch can read safely (weights_only); download it again, or use a copy in safetensors"
