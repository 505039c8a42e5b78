"""The checkpoint that a GGUF file is dequantised to, once, in the cache.

It is stored in float16 unless the file's own weights are in another format: the blocks of all quantised formats hold a
float16 scale and a few bits a weight, of which rounding to float16's 11 bits moves each value by at most 1 part in
2,048, far less than the quantisation did, in half of float32's space. Weights beyond float16's range make it float32.
Engines and training then read the same numbers, in whatever format they compute.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError

from judgelm.engines.gguf.files import GgufFile, find_file, read_header
from judgelm.engines.model_cache import CACHE_VARIABLE, cache_root, gguf_folder
from judgelm.errors import ModelError, RunError

_RECORD_NAME = "gguf.json"
_ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
_OTHER_BYTES = 64 << 20
"""Tokenizer and configuration, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufRecord:
    """`gguf.json` of a checkpoint: the file that it was made from, and how.

    Attributes:
        file: name of the file.
        sha256: of the file, hex.
        architecture: by llama.cpp's name.
        quantised: whether the file's weights are blocks of a few bits each.
        dtype: of the checkpoint's weights.
        weight_bytes: size of the checkpoint's weights.
        repairs: differences between the file's statements and the conversion that were mended.
        versions: of the libraries that converted it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    file: str
    sha256: str
    architecture: str
    quantised: bool
    dtype: str
    weight_bytes: int
    repairs: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)


_RECORD = TypeAdapter(GgufRecord)


def gguf_checkpoint(model: str, revision: str | None = None) -> str:
    """The folder of the checkpoint of a GGUF file, dequantised now if the cache has it not.

    Args:
        model: the file's path, or `owner/name/file.gguf` on the hub.
        revision: of the hub's repository.

    Raises:
        ModelError: no such file, or one that cannot be converted.
        RunError: the cache cannot be written.
    """
    return str(checkpoint_of(find_file(model, revision)))


def checkpoint_of(file: Path) -> Path:
    """The folder of the checkpoint of a local GGUF file; processes that ask at the same time convert it once.

    Raises: see `gguf_checkpoint`.
    """
    try:
        sha256 = _sha256_of(file)
        folder = gguf_folder(sha256)
        if not _is_whole(folder):
            with _locked(folder):
                if not _is_whole(folder):  # nor did another process make it meanwhile
                    _write_checkpoint(file, sha256, folder)
    except OSError as error:
        raise RunError(
            f"{error.filename or cache_root()}: {error.strerror or error}; {file.name} is dequantised into the cache; "
            f"set {CACHE_VARIABLE} to a folder that has room and can be written"
        ) from error
    return folder


def gguf_record(folder: str | Path) -> GgufRecord | None:
    """The record of a checkpoint in the cache; None for any other model.

    Raises:
        ModelError: it is damaged.
    """
    path = Path(folder) / _RECORD_NAME
    if not path.is_file():
        return None
    try:
        return _RECORD.validate_json(path.read_bytes())
    except ValidationError as error:
        raise ModelError(f"{path}: damaged; remove the folder, and use the GGUF file as a model again") from error


def gguf_note(folder: str | Path) -> str:
    """A line for the user on a GGUF file's checkpoint; empty for any other model."""
    record = gguf_record(folder)
    if record is None:
        return ""
    repairs = "".join(f"; {repair}" for repair in record.repairs)
    size = f"{record.weight_bytes / 1e6:,.0f} MB in {record.dtype}"
    return f"GGUF: {record.file}, dequantised once into {folder} ({size}){repairs}"


def _sha256_of(file: Path) -> str:
    """The file's sha256; remembered in the cache as long as its size and time stay the same."""
    path, stat = file.resolve(), file.stat()
    state = [str(path), stat.st_size, stat.st_mtime_ns]
    known = cache_root() / "gguf" / "hashes" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"
    try:
        *before, sha256 = json.loads(known.read_bytes())
        if before == state:
            return str(sha256)
    except (OSError, ValueError, TypeError):
        pass  # not hashed before, or damaged
    with path.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    known.parent.mkdir(parents=True, exist_ok=True)
    known.write_text(json.dumps([*state, sha256]), encoding="utf-8")
    return sha256


def _is_whole(folder: Path) -> bool:
    """True if the cache has the checkpoint, with weights of the recorded size."""
    try:
        record = gguf_record(folder)
    except ModelError:
        return False
    return record is not None and _weight_bytes(folder) == record.weight_bytes


def _weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a checkpoint that is about to be made; waits for another process that holds it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write_checkpoint(file: Path, sha256: str, folder: Path) -> None:
    """Dequantise into a partial folder, which takes the checkpoint's name once it is whole."""
    header = read_header(file)
    dtype = header.dtype or "float16"
    _check_room(header, folder.parent, _ITEM_BYTES[dtype])
    partial, source = folder.with_suffix(".partial"), folder.with_suffix(".source")
    try:
        for scratch in (partial, source):
            shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed
            scratch.mkdir()
        # alone in its folder, so that nothing beside it is taken for its own
        (source / file.name).symlink_to(file.resolve())
        dtype, repairs = _convert(header, source, partial, dtype)
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
        (partial / _RECORD_NAME).write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)  # damaged
        partial.rename(folder)
    finally:
        for scratch in (partial, source):
            shutil.rmtree(scratch, ignore_errors=True)


def _convert(header: GgufFile, source: Path, target: Path, dtype: str) -> tuple[str, list[str]]:
    """Write model and tokenizer; the dtype of the weights, and the repairs."""
    from judgelm.engines.gguf.tokenizer import check_saved, convert_tokenizer
    from judgelm.engines.gguf.weights import load_weights

    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # saving loads deepspeed, which else warns that there is no GPU
    tokenizer, repairs = convert_tokenizer(header)
    model: Any = load_weights(header, source, dtype)
    tokenizer.save_pretrained(target)
    check_saved(tokenizer, target, header)
    model.save_pretrained(target)
    return str(model.dtype).removeprefix("torch."), repairs


def _check_room(header: GgufFile, folder: Path, item_bytes: int) -> None:
    needed, free = header.weights * item_bytes + _OTHER_BYTES, shutil.disk_usage(folder).free
    if needed > free:
        raise RunError(
            f"{folder}: {free / 1e9:.1f} GB free, and {header.path.name} takes {needed / 1e9:.1f} GB dequantised; free "
            f"some, or set {CACHE_VARIABLE} to a folder on another disk"
        )
