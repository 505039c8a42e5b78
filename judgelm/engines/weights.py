"""Check weight files before a library loads them."""

import os
import pickle
import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

import torch
from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HFValidationError
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from judgelm.bounds import read_text
from judgelm.errors import ModelError
from judgelm.jsonl import parse_json

_FINITE_FORMATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_SAFETENSORS, _PICKLED = "adapter_model.safetensors", "adapter_model.bin"
_VOCABULARY = re.compile(
    r"\.(?P<layer>embed_tokens|lm_head|wte|embed_in|embed_out|word_embeddings)\."
    r"(?P<part>weight|base_layer\.weight|lora_embedding_A|lora_B\.weight)$"
)
_KINDS = (("model*.safetensors", "pytorch_model*.bin"), ("adapter_model.safetensors", "adapter_model.bin"))
_IN_ORDER = (
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
)  # fmt: skip
"""transformers loads the first of these files that exists."""
_BLOCKED = re.compile(r"GLOBAL (\S+)|function (<.+?>)")
_POINTER = b"version https://git-lfs"
_USE_SAFETENSORS = "use a safetensors copy of the model"


def first_not_finite(weights: Iterable[tuple[str, torch.Tensor]]) -> str | None:
    """Return the name of the first weight that contains NaN or infinity. 8-bit weights are skipped."""
    for name, weight in weights:
        if weight.numel() and not weight.is_meta and weight.dtype in _FINITE_FORMATS:
            low, high = torch.aminmax(weight.detach())  # one pass without a copy; NaN propagates to both
            if not bool(torch.isfinite(low) & torch.isfinite(high)):
                return name
    return None


def all_parameters(config: Any, *, trust_remote_code: bool = False) -> int | None:
    """Count the parameters. Shared parameters are counted once. Return None if the model type is unknown."""
    for kind in (AutoModelForCausalLM, AutoModelForImageTextToText):
        build: Any = kind.from_config  # untyped in transformers
        try:
            with torch.device("meta"):
                model = build(config, trust_remote_code=trust_remote_code)
            return sum(int(weight.numel()) for weight in model.parameters())
        except (OSError, ValueError, KeyError, AttributeError, ImportError):
            continue
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterVocabulary:
    """The embeddings in an adapter's weights.

    Attributes:
        rows: vocabulary size during training, by layer.
        saved: layers whose full embeddings are saved.
    """

    rows: dict[str, int]
    saved: frozenset[str]


def weights_file(adapter: Path) -> Path | None:
    """Return an adapter's weights file, preferring safetensors."""
    paths = (adapter / _SAFETENSORS, adapter / _PICKLED)
    return next((path for path in paths if path.is_file()), None)


def check_weights(adapter: str) -> None:
    """Reject missing weights, unsafe pickles, NaN, and infinity."""
    path = _weights(adapter)
    check_pickled(adapter)
    try:
        name = first_not_finite(_tensors(path))
    except (SafetensorError, OSError):
        return  # the error is reported when the weights are loaded
    if name is not None:
        raise ModelError(f"{adapter}: {name} contains NaN or infinity; use another copy, or retrain the adapter")


def adapter_vocabulary(adapter: str) -> AdapterVocabulary:
    """Return an adapter's embeddings. Call `check_weights` first."""
    rows, saved = dict[str, int](), set[str]()
    try:
        for name, tensor in _tensors(_weights(adapter)):
            if tensor.ndim == 2 and (match := _VOCABULARY.search(name)) is not None:
                rows[match["layer"]] = tensor.shape[1 if match["part"] == "lora_embedding_A" else 0]
                if "lora" not in match["part"]:
                    saved.add(match["layer"])
    except (SafetensorError, OSError):
        pass  # the error is reported when the weights are loaded
    return AdapterVocabulary(rows=rows, saved=frozenset(saved))


def _weights(adapter: str) -> Path:
    path = weights_file(Path(adapter)) if Path(adapter).is_dir() else _download(adapter)
    if path is None:
        raise ModelError(f"{adapter}: no weights found ({_SAFETENSORS} or {_PICKLED}); use the folder that PEFT saved")
    return path


def _tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    if path.name == _PICKLED:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        for name, value in weights.items() if isinstance(weights, dict) else ():
            if isinstance(value, torch.Tensor):  # anything else is reported when the adapter is loaded
                yield str(name), value
        return
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118  # safe_open is not a mapping
            yield name, file.get_tensor(name)


def _download(adapter: str) -> Path | None:
    for name in (_SAFETENSORS, _PICKLED):
        try:
            return Path(hf_hub_download(adapter, name))
        except EntryNotFoundError:
            continue
        except (OSError, HFValidationError) as error:
            raise ModelError(f"{adapter}: no such folder, and not available from the hub: {error}") from error
    return None


def pickled_files(folder: Path) -> list[Path]:
    """Return a folder's pickled weight files, unless the folder contains safetensors."""
    kinds = [pickled for safe, pickled in _KINDS if not any(folder.glob(safe))]
    return [path for pickled in kinds for path in sorted(folder.glob(pickled)) if path.is_file()]


def check_pickled(source: str, revision: str | None = None) -> None:
    """Reject unsafe pickles, and indexes that list files outside the folder. For hub ids, check the cached files."""
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
    """Check pickles before loading. If loading fails, report which file was rejected."""
    check_pickled(source, revision)
    try:
        yield
    except pickle.UnpicklingError as error:
        check_pickled(source, revision)
        raise ModelError(f"{source}: the pickled weights contain more than tensors; {_USE_SAFETENSORS}") from error


def _folder(source: str, revision: str | None) -> Path:
    if Path(source).is_dir():
        return Path(source)
    for name in ("config.json", "adapter_config.json"):
        try:
            cached = try_to_load_from_cache(source, name, revision=revision)
        except ValueError:  # neither a folder nor a hub id, which is reported on loading
            break
        if isinstance(cached, str):
            return Path(cached).parent
    return Path(source)


def _check_index(index: Path, *, local: bool) -> None:
    for name in sorted(set(_shards(index))):
        path = PureWindowsPath(name)  # splits at / and \
        if path.drive or path.root or ".." in path.parts or not path.name or "\0" in name:
            raise ModelError(f"{index}: lists {name!r}, which is outside this folder (not opened); use another copy")
        if local and not (index.parent / name).is_file():
            raise ModelError(f"{index}: lists {name}, but the file is missing; copy or download the model again")


def _shards(index: Path) -> list[str]:
    try:
        files: list[Any] = list(parse_json(read_text(index))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{index}: weight_map is missing or invalid; copy or download the model again") from error
    if not files or not all(isinstance(file, str) for file in files):
        raise ModelError(f"{index}: weight_map lists no files; copy or download the model again")
    return files


def is_lfs_pointer(path: Path) -> bool:
    """Return True if the file is a Git LFS pointer."""
    with path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER


def _finding(path: Path, error: pickle.UnpicklingError) -> str:
    if blocked := _BLOCKED.search(str(error)):
        call = blocked[1] or blocked[2]
        return f"loading this pickle would call {call}; it was rejected, and nothing was run; {_USE_SAFETENSORS}"
    if is_lfs_pointer(path):
        return "this is a Git LFS pointer, not the weights; run: git lfs pull"
    return f"torch cannot load this file safely (weights_only); download it again, or {_USE_SAFETENSORS}"


class WeightsCheck:
    """Checks loaded weights in vLLM workers."""

    model_runner: Any

    def first_weight_not_finite(self) -> str | None:
        """See `first_not_finite`."""
        return first_not_finite(self.model_runner.get_model().named_parameters())
