"""Checkpoints of GGUF files in the cache: dequantised once, then loaded as any checkpoint is.

The checkpoint of quantised weights is stored in bfloat16, in which engines compute, so that they map it into memory
instead of converting it: rounding to its 8 bits moves a value by at most 1 part in 256, far less than the quantisation
did. Models below 256 million weights, which are converted in a moment, are stored in float16, whose 11 bits keep the
blocks' scales; weights beyond float16's range make it float32. Weights that are not quantised keep their format.
"""

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, field
from importlib.metadata import version
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from judgelm.engines.gguf.header import GgufFile, find_file, read_header
from judgelm.engines.gguf.tokenizer import check_saved, convert_tokenizer
from judgelm.engines.gguf.weights import Progress, write_weights
from judgelm.engines.model_cache import CACHE_VARIABLE, cache_root, gguf_folder
from judgelm.errors import ModelError, RunError

_RECORD_NAME = "gguf.json"
_ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
_OTHER_BYTES = 64 << 20
"""Tokenizer and configuration, at most."""
_FLOAT16_BELOW = 1 << 28
"""Weights of a model."""


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class GgufRecord:
    """`gguf.json` of a checkpoint: the file that it was made from, and how.

    Attributes:
        file: name of the file.
        sha256: of the file, hex.
        architecture: by llama.cpp's name.
        quantised: whether the file's weights are blocks of a few bits each.
        dtype: of the checkpoint's weights.
        weight_bytes: size of the checkpoint's weights.
        repairs: differences between the file's statements and the conversion that were corrected.
        versions: of the libraries that converted it.
    """

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


def checkpoint_of(file: Path, progress: Progress = lambda share: None) -> Path:
    """The folder of the checkpoint of a local GGUF file; processes that ask at the same time convert it once.

    Args:
        file: the GGUF file.
        progress: see `Progress`; not called where the cache has the checkpoint.

    Raises: see `gguf_checkpoint`.
    """
    try:
        sha256 = _sha256_of(file)
        folder = gguf_folder(sha256)
        if not _is_whole(folder):
            with _locked(folder):
                if not _is_whole(folder):  # nor did another process make it meanwhile
                    _write_checkpoint(file, sha256, folder, progress)
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
    """A line for the user on what was repaired in a GGUF file; empty where nothing was, and for any other model."""
    record = gguf_record(folder)
    return "" if record is None or not record.repairs else f"GGUF: {record.file}: {'; '.join(record.repairs)}"


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


def _write_checkpoint(file: Path, sha256: str, folder: Path, progress: Progress) -> None:
    """Dequantise into a partial folder, which takes the checkpoint's name once it is whole."""
    header = read_header(file)
    dtype = header.dtype or ("float16" if header.weights < _FLOAT16_BELOW else "bfloat16")
    _check_room(header, folder.parent, _ITEM_BYTES[dtype])
    partial = folder.with_suffix(".partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
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
        (partial / _RECORD_NAME).write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)  # damaged
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_room(header: GgufFile, folder: Path, item_bytes: int) -> None:
    needed, free = header.weights * item_bytes + _OTHER_BYTES, shutil.disk_usage(folder).free
    if needed > free:
        raise RunError(
            f"{folder}: {free / 1e9:.1f} GB free, and {header.path.name} takes {needed / 1e9:.1f} GB dequantised; free "
            f"some, or set {CACHE_VARIABLE} to a folder on another disk"
        )
