"""Convert GGUF files to cached checkpoints.

Quantised weights are converted to bfloat16. Models with fewer than 256 million weights use float16, or float32 if a
weight is out of float16's range. Unquantised weights keep their dtype.
"""

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ValidationError

from judgelm.engines.gguf.header import GgufFile, find_file, read_header
from judgelm.engines.gguf.tokenizer import check_saved, convert_tokenizer
from judgelm.engines.gguf.weights import Progress, write_weights
from judgelm.engines.model_cache import CACHE_VARIABLE, cache_root, gguf_folder
from judgelm.errors import ModelError, RunError

_RECORD_NAME = "gguf.json"
_SET_CACHE = f"set {CACHE_VARIABLE} to a different folder"
_ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
_OTHER_BYTES = 64 << 20
"""Upper bound for the size of the tokenizer and config."""
_FLOAT16_BELOW = 1 << 28


class GgufRecord(BaseModel, frozen=True, extra="forbid"):
    """The contents of `gguf.json`.

    Attributes:
        sha256: hex digest of the GGUF file.
        repairs: conversion errors that were corrected.
    """

    file: str
    sha256: str
    architecture: str
    quantised: bool
    dtype: str
    weight_bytes: int
    repairs: tuple[str, ...] = ()
    versions: dict[str, str] = {}


def gguf_checkpoint(model: str, revision: str | None = None) -> str:
    """Return the checkpoint folder, converting the file if needed."""
    return str(checkpoint_of(find_file(model, revision)))


def checkpoint_of(file: Path, progress: Progress = lambda share: None) -> Path:
    """Return the checkpoint folder. Concurrent processes share one conversion."""
    try:
        sha256 = _sha256_of(file)
        folder = gguf_folder(sha256)
        if not _is_whole(folder):
            with _locked(folder):
                if not _is_whole(folder):  # another process may have finished it
                    _write_checkpoint(file, sha256, folder, progress)
    except OSError as error:
        place = f"{error.filename or cache_root()}: {error.strerror or error}"
        raise RunError(f"{place}; {file.name} requires a writable cache with free space; {_SET_CACHE}") from error
    return folder


def gguf_record(folder: str | Path) -> GgufRecord | None:
    """Load `gguf.json`. Return None for models that were not converted from GGUF."""
    path = Path(folder) / _RECORD_NAME
    if not path.is_file():
        return None
    try:
        return GgufRecord.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ModelError(f"{path}: damaged; remove the folder and load the GGUF file again") from error


def gguf_note(folder: str | Path) -> str:
    """Describe the repairs to a GGUF file, if any."""
    record = gguf_record(folder)
    return "" if record is None or not record.repairs else f"GGUF: {record.file}: {'; '.join(record.repairs)}"


def _sha256_of(file: Path) -> str:
    path, stat = file.resolve(), file.stat()
    state = [str(path), stat.st_size, stat.st_mtime_ns]
    known = cache_root() / "gguf" / "hashes" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"
    try:
        *before, sha256 = json.loads(known.read_bytes())
        if before == state:
            return str(sha256)
    except (OSError, ValueError, TypeError):
        pass  # not cached, or the cached hash is damaged
    with path.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    known.parent.mkdir(parents=True, exist_ok=True)
    known.write_text(json.dumps([*state, sha256]), encoding="utf-8")
    return sha256


def _is_whole(folder: Path) -> bool:
    try:
        record = gguf_record(folder)
    except ModelError:
        return False
    return record is not None and _weight_bytes(folder) == record.weight_bytes


def _weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write_checkpoint(file: Path, sha256: str, folder: Path, progress: Progress) -> None:
    header = read_header(file)
    dtype = header.dtype or ("float16" if header.weights < _FLOAT16_BELOW else "bfloat16")
    _check_room(header, folder.parent, _ITEM_BYTES[dtype])
    partial = folder.with_suffix(".partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
        partial.mkdir()
        tokenizer, repairs = convert_tokenizer(header)
        tokenizer.save_pretrained(partial)
        check_saved(tokenizer, partial, header)
        dtype = write_weights(header, partial, dtype, progress)
        record = GgufRecord(
            file=file.name,
            sha256=sha256,
            architecture=header.architecture,
            quantised=header.dtype is None,
            dtype=dtype,
            weight_bytes=_weight_bytes(partial),
            repairs=tuple(repairs),
            versions={name: version(name) for name in ("transformers", "gguf")},
        )
        (partial / _RECORD_NAME).write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)  # damaged
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_room(header: GgufFile, folder: Path, item_bytes: int) -> None:
    needed, free = header.weights * item_bytes + _OTHER_BYTES, shutil.disk_usage(folder).free
    if needed > free:
        need = f"{header.path.name} needs {needed / 1e9:.1f} GB when dequantised"
        raise RunError(f"{folder}: {need}, but {free / 1e9:.1f} GB are free; free some space, or {_SET_CACHE}")
