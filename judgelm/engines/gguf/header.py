"""Find GGUF files and parse their headers.

This parser skips the vocabulary; the gguf package takes 20 seconds to parse 303,000 strings.
"""

import mmap
import re
import struct
from dataclasses import dataclass
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from packaging.version import Version

from judgelm.engines.weights import is_lfs_pointer
from judgelm.errors import ConfigError, ModelError, first_line

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MIN_TRANSFORMERS = "5.18"
_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 20
_MAX_DIMENSIONS = 4
_MAX_TEXT_BYTES = 1 << 24
_MAX_ITEMS = 1 << 24
"""Limit for lists. Vocabularies have at most a few million merges."""
_NUMBERS = {
    GGUFValueType.UINT8: "B", GGUFValueType.INT8: "b", GGUFValueType.UINT16: "H", GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I", GGUFValueType.INT32: "i", GGUFValueType.UINT64: "Q", GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT32: "f", GGUFValueType.FLOAT64: "d", GGUFValueType.BOOL: "?",
}  # fmt: skip
_TYPES: dict[str, type] = {
    **dict.fromkeys(("general.architecture", "general.type", "tokenizer.chat_template"), str),
    **dict.fromkeys(("tokenizer.ggml.model", "tokenizer.ggml.pre"), str),
    **dict.fromkeys(("tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_space_prefix"), bool),
    **dict.fromkeys(("tokenizer.ggml.bos_token_id", "tokenizer.ggml.merges", "tokenizer.ggml.tokens"), int),
    **dict.fromkeys(("general.alignment", "split.count"), int),
}
"""Types of the keys that judgelm uses."""
_MODEL_TYPES = {"block_count": int, "embedding_length": int, "rope.scaling.type": str, "vocab_size": int}
"""Types of the keys prefixed with the architecture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """A tensor: its name in llama.cpp, shape (rows first), block format, offset, and size in bytes."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    start: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """The header of a GGUF file. In `metadata`, lists of strings are replaced by their lengths."""

    path: Path
    metadata: dict[str, Any]
    tensors: tuple[GgufTensor, ...]

    @property
    def architecture(self) -> str:
        """The name of the architecture in llama.cpp."""
        return str(self.metadata["general.architecture"])

    @property
    def weights(self) -> int:
        """Number of weights."""
        return sum(prod(tensor.shape) for tensor in self.tensors)

    @property
    def dtype(self) -> str | None:
        """The dtype of the weights, ignoring float32 norms, or None if they are quantised."""
        kinds = {tensor.kind for tensor in self.tensors} - {GGMLQuantizationType.F32}
        names = {GGMLQuantizationType.BF16: "bfloat16", GGMLQuantizationType.F16: "float16"}
        return "float32" if not kinds else names.get(kinds.pop()) if len(kinds) == 1 else None


def find_file(model: str, revision: str | None = None) -> Path:
    """Find a local file, or download `owner/name/file.gguf` from the hub."""
    path = Path(model)
    if path.is_file():
        return path
    if path.exists() or model.startswith((".", "/", "~")) or model.count("/") < 2:
        raise ModelError(f"{model}: no such file; pass a local GGUF file, or owner/name/file.gguf on the hub")
    owner, name, file = model.split("/", 2)
    try:
        return Path(hf_hub_download(f"{owner}/{name}", file, revision=revision))
    except LocalEntryNotFoundError as error:
        raise ModelError(f"{model}: no such file, and the hub is unreachable; check the path and network") from error
    except (EntryNotFoundError, HfHubHTTPError, HFValidationError) as error:
        raise ModelError(
            f"{model}: no such file, and the download from the hub failed: {first_line(error)}; check the name"
        ) from error


def read_header(path: Path) -> GgufFile:
    """Parse the header, and check that the file contains all tensors."""
    if Version(installed := version("transformers")) < Version(_MIN_TRANSFORMERS):
        way_out = f"run: pip install 'transformers>={_MIN_TRANSFORMERS}'"
        raise ConfigError(f"transformers {installed} is too old for GGUF files; {way_out}")
    _check_kind(path)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            header = _read(path, content)
    except (ValueError, IndexError, KeyError, struct.error, OverflowError, MemoryError) as error:
        finding = f"truncated or damaged ({first_line(error)}); {path.stat().st_size:,} bytes"
        raise ModelError(f"{path}: {finding}; download it again") from error
    if header.metadata.get("split.count", 1) > 1:
        raise ModelError(f"{path}: this is 1 of {header.metadata['split.count']} parts of a model; {_merge_hint(path)}")
    if header.metadata.get("general.type", "model") != "model":
        raise ModelError(f"{path}: general.type is {header.metadata['general.type']}, not model; use the model file")
    return header


def _check_kind(path: Path) -> None:
    if (part := _PART.search(path.name)) and int(part[2]) > 1:
        raise ModelError(f"{path}: this is part {int(part[1])} of {int(part[2])} of a model; {_merge_hint(path)}")
    if is_lfs_pointer(path):
        raise ModelError(f"{path}: this is a Git LFS pointer, not the file; run: git lfs pull")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ModelError(f"{path}: not a GGUF file; download it again")


def _merge_hint(path: Path) -> str:
    first = _PART.sub(r"-00001-of-\2.gguf", path.name)
    return f"merge the parts with llama.cpp: llama-gguf-split --merge {first} OUT.gguf"


def _read(path: Path, content: mmap.mmap) -> GgufFile:
    reader = _Reader(content)
    if (stated := reader.number("I")) not in _VERSIONS:
        raise ValueError(f"GGUF v{stated} is not supported; supported: v2, v3")
    tensors, keys = reader.number("Q"), reader.number("Q")
    metadata: dict[str, Any] = {}
    for _ in range(keys):
        key = reader.text()
        if key in metadata:
            raise ValueError(f"the key {key} appears twice")
        metadata[key] = reader.value(key)
    entries = [reader.tensor() for _ in range(tensors)]
    _check_metadata(metadata, len(entries))
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    data = -(-reader.position // alignment) * alignment
    placed = tuple(_placed(*entry, data, alignment) for entry in entries)
    _check_places(placed, len(content))
    return GgufFile(path=path, metadata=metadata, tensors=placed)


def _check_metadata(metadata: dict[str, Any], tensors: int) -> None:
    if "general.architecture" not in metadata:
        raise ValueError("general.architecture is missing")
    architecture = metadata["general.architecture"]
    types = _TYPES | {f"{architecture}.{name}": kind for name, kind in _MODEL_TYPES.items()}
    for key, kind in types.items():
        value = metadata.get(key)
        if value is not None and not (isinstance(value, kind) and isinstance(value, bool) == (kind is bool)):
            raise ValueError(f"{key} is {str(value)[:40]!r}; expected type {kind.__name__}")
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    if not 0 < alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise ValueError(f"general.alignment is {alignment}; expected a power of two up to {_MAX_ALIGNMENT:,}")
    if (blocks := metadata.get(f"{architecture}.block_count", 0)) > tensors:
        raise ValueError(f"{architecture}.block_count is {blocks:,}, but there are {tensors:,} tensors")


def _check_places(tensors: tuple[GgufTensor, ...], size: int) -> None:
    names: set[str] = set()
    end = 0
    for tensor in sorted(tensors, key=lambda tensor: tensor.start):
        if tensor.name in names:
            raise ValueError(f"the tensor {tensor.name} appears twice")
        if tensor.start < end:
            raise ValueError(f"the tensor {tensor.name} at byte {tensor.start:,} overlaps the previous tensor")
        names.add(tensor.name)
        end = tensor.start + tensor.size
    if end > size:
        raise ValueError(f"the tensors would end at byte {end:,}")


def _placed(name: str, shape: tuple[int, ...], kind: int, offset: int, data: int, alignment: int) -> GgufTensor:
    known = GGMLQuantizationType(kind)
    items, size = GGML_QUANT_SIZES[known]
    if offset % alignment:
        raise ValueError(f"{name}: the offset {offset} is not a multiple of the alignment {alignment}")
    if shape[-1] % items:
        raise ValueError(f"{name}: the row size {shape[-1]} is not a multiple of the {known.name} block size")
    return GgufTensor(name=name, shape=shape, kind=known, start=data + offset, size=prod(shape) // items * size)


class _Reader:
    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self.position = len(_MAGIC)

    def number(self, form: str) -> Any:
        (number,) = struct.unpack_from(f"<{form}", self._content, self.position)
        self.position += struct.calcsize(f"<{form}")
        return number

    def text(self) -> str:
        length = self.number("Q")
        if length > _MAX_TEXT_BYTES:
            raise ValueError(f"the string at byte {self.position:,} has {length:,} bytes")
        (content,) = struct.unpack_from(f"<{length}s", self._content, self.position)
        self.position += length
        return bytes(content).decode()

    def value(self, key: str) -> Any:
        kind = GGUFValueType(self.number("I"))
        if kind == GGUFValueType.STRING:
            return self.text()
        if kind != GGUFValueType.ARRAY:
            return self.number(_NUMBERS[kind])
        inner, length = GGUFValueType(self.number("I")), self.number("Q")
        if length > _MAX_ITEMS:
            raise ValueError(f"{key}: the list has {length:,} items")
        if inner == GGUFValueType.ARRAY:
            raise ValueError(f"{key}: nested lists are not supported")
        if inner != GGUFValueType.STRING:
            form = f"<{length}{_NUMBERS[inner]}"
            numbers = list(struct.unpack_from(form, self._content, self.position))
            self.position += struct.calcsize(form)
            return numbers
        for _ in range(length):
            size = self.number("Q")
            self.position += size
        return length

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, count = self.text(), self.number("I")
        if not 1 <= count <= _MAX_DIMENSIONS:
            raise ValueError(f"{name}: the tensor has {count:,} dimensions")
        dimensions = [self.number("Q") for _ in range(count)]
        if not all(dimensions):
            raise ValueError(f"{name}: a dimension is 0")
        return name, tuple(reversed(dimensions)), self.number("I"), self.number("Q")
