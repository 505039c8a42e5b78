"""Checks pickled weights (`pytorch_model*.bin`, `adapter_model.bin`), which may hold only tensors.

A pickle can run any function while it is read. torch's `weights_only` unpickler builds tensors and plain containers and
calls nothing else. transformers, PEFT and vLLM use it too, but their errors do not name the file.
"""

import os
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from huggingface_hub import try_to_load_from_cache

from judgelm.errors import ModelError

_KINDS = (("model*.safetensors", "pytorch_model*.bin"), ("adapter_model.safetensors", "adapter_model.bin"))
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
    """Refuse pickled weights that hold more than tensors, before a library reads them.

    Reads the structure of each file and no tensor data, except for files of torch 1.5 and older, which are read whole.
    Of a hub id the cached files are checked; transformers is kept from asking the hub to convert them.

    Args:
        source: folder or hub id of a model or an adapter.
        revision: of the hub id.

    Raises:
        ModelError: torch does not read a file with `weights_only`; nothing in it was executed.
    """
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    for path in pickled_files(_folder(source, revision)):
        try:
            torch.load(path, map_location="meta", weights_only=True)
        except pickle.UnpicklingError as error:
            raise ModelError(f"{path}: {_finding(path, error)}") from error
        except (OSError, EOFError, RuntimeError, ValueError) as error:
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
