"""Finds GGUF files, here or on the hub, and reads and checks their headers before anything is dequantised."""

import re
import struct
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gguf import GGMLQuantizationType, GGUFReader
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from packaging.version import Version

from judgelm.engines.weights import is_lfs_pointer
from judgelm.errors import ConfigError, ModelError, first_line

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_MAGIC = b"GGUF"
_OLDEST_TRANSFORMERS = "5.17"


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """The header of a GGUF file.

    Attributes:
        metadata: its keys; of lists of texts only the length.
        weights: their number.
        tensors: names of the tensors in the file.
        dtype: `float32`, `float16` or `bfloat16` where the weights are stored in it; None where they are quantised.
    """

    path: Path
    metadata: dict[str, Any]
    weights: int
    tensors: tuple[str, ...]
    dtype: str | None

    @property
    def architecture(self) -> str:
        """The model's architecture, by llama.cpp's name."""
        return str(self.metadata["general.architecture"])


def find_file(model: str, revision: str | None = None) -> Path:
    """The file that a name means: a path, or `owner/name/file.gguf` on the hub, which is downloaded.

    Raises:
        ModelError: no such file here, and not available from the hub.
    """
    path = Path(model)
    if path.is_file():
        return path
    if path.exists() or model.startswith((".", "/", "~")) or model.count("/") < 2:
        raise ModelError(f"{model}: no such file; a GGUF model is a local file or, on the hub, owner/name/file.gguf")
    owner, name, file = model.split("/", 2)
    try:
        return Path(hf_hub_download(f"{owner}/{name}", file, revision=revision))
    except LocalEntryNotFoundError as error:
        raise ModelError(
            f"{model}: no such file here, and the hub cannot be reached; check the path or the network"
        ) from error
    except EntryNotFoundError as error:
        raise ModelError(f"{model}: {owner}/{name} has no file {file}; look at its files on the hub") from error
    except (HfHubHTTPError, HFValidationError) as error:
        first = str(error).strip().splitlines()[0]
        raise ModelError(f"{model}: no such file here, and the hub says: {first}; check the name") from error


def read_header(path: Path) -> GgufFile:
    """Read the header of a file, and check that all of its tensors are there.

    Raises:
        ModelError: it is no GGUF file, a part of one, truncated, or of a kind that transformers cannot convert.
        ConfigError: the installed transformers is too old.
    """
    if Version(version("transformers")) < Version(_OLDEST_TRANSFORMERS):
        raise ConfigError(
            f"transformers {version('transformers')} is installed, and GGUF files need {_OLDEST_TRANSFORMERS}; run: "
            f"pip install 'transformers>={_OLDEST_TRANSFORMERS}'"
        )
    from transformers.integrations.gguf.reader import read_gguf_metadata

    _check_kind(path)
    try:
        metadata, _ = read_gguf_metadata(str(path))
        if int(metadata.get("split.count", 1)) > 1:
            raise ModelError(f"{path}: one of {metadata['split.count']} parts of a model; {_merge_hint(path)}")
        if metadata.get("general.type", "model") != "model":
            raise ModelError(f"{path}: holds a model's {metadata['general.type']}; use the model's own file")
        tensors = GGUFReader(path).tensors
    except (ValueError, IndexError, KeyError, struct.error, OverflowError, MemoryError) as error:
        raise ModelError(
            f"{path}: truncated or damaged ({first_line(error)}); {path.stat().st_size:,} bytes; download it again"
        ) from error
    return GgufFile(
        path=path,
        metadata=metadata,
        weights=sum(int(tensor.n_elements) for tensor in tensors),
        tensors=tuple(tensor.name for tensor in tensors),
        dtype=_dtype({tensor.tensor_type for tensor in tensors}),
    )


def _dtype(kinds: set[GGMLQuantizationType]) -> str | None:
    """The format of unquantised weights, beside which norms may be in float32; None for quantised ones."""
    halves = {GGMLQuantizationType.BF16: "bfloat16", GGMLQuantizationType.F16: "float16"}
    return {frozenset(): "float32", **{frozenset({kind}): name for kind, name in halves.items()}}.get(
        frozenset(kinds - {GGMLQuantizationType.F32})
    )


def _check_kind(path: Path) -> None:
    """Refuse by name and first bytes a file that is no whole GGUF file."""
    if (part := _PART.search(path.name)) and int(part[2]) > 1:
        raise ModelError(f"{path}: part {int(part[1])} of {int(part[2])} of a model; {_merge_hint(path)}")
    if is_lfs_pointer(path):
        raise ModelError(f"{path}: a Git LFS pointer instead of the file; run: git lfs pull")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ModelError(f"{path}: not a GGUF file (it does not begin with GGUF); download it again")


def _merge_hint(path: Path) -> str:
    first = _PART.sub(r"-00001-of-\2.gguf", path.name)
    return f"join the parts with llama.cpp: llama-gguf-split --merge {first} OUT.gguf"
