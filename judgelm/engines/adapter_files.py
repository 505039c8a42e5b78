"""Finds and checks the weights of a PEFT adapter without peft, which vLLM does not need."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HFValidationError
from safetensors import SafetensorError, safe_open

from judgelm.engines.parameters import first_not_finite
from judgelm.engines.pickled_weights import check_pickled
from judgelm.errors import ModelError

_SAFETENSORS, _PICKLED = "adapter_model.safetensors", "adapter_model.bin"
_VOCABULARY = re.compile(
    r"\.(?P<layer>embed_tokens|lm_head|wte|embed_in|embed_out|word_embeddings)\."
    r"(?P<part>weight|base_layer\.weight|lora_embedding_A|lora_B\.weight)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterVocabulary:
    """The embeddings that an adapter holds or adapts.

    Attributes:
        rows: tokens of each, by the layer's name; of all of them those that the model had in training.
        saved: layers whose embeddings the adapter holds whole.
    """

    rows: dict[str, int]
    saved: frozenset[str]


def weights_file(adapter: Path) -> Path | None:
    """The weights in an adapter's folder: safetensors before a pickle; None where there are none."""
    paths = (adapter / _SAFETENSORS, adapter / _PICKLED)
    return next((path for path in paths if path.is_file()), None)


def check_weights(adapter: str) -> None:
    """Refuse an adapter without weights, with pickled ones that hold more than tensors, or with NaN or infinity.

    Raises:
        ModelError: there are no weights, torch refuses to read them, or they are no numbers.
    """
    path = _weights(adapter)
    check_pickled(adapter)
    try:
        name = first_not_finite(_tensors(path))
    except (SafetensorError, OSError):
        return  # loading them gives the error
    if name is not None:
        raise ModelError(f"{adapter}: {name} holds NaN or infinity; take another copy, or train it again")


def adapter_vocabulary(adapter: str) -> AdapterVocabulary:
    """The embeddings in an adapter's weights, which `check_weights` has checked.

    Raises:
        ModelError: there are no weights.
    """
    rows, saved = dict[str, int](), set[str]()
    try:
        for name, tensor in _tensors(_weights(adapter)):
            if tensor.ndim == 2 and (match := _VOCABULARY.search(name)) is not None:
                rows[match["layer"]] = tensor.shape[1 if match["part"] == "lora_embedding_A" else 0]
                if "lora" not in match["part"]:
                    saved.add(match["layer"])
    except (SafetensorError, OSError):
        pass  # loading them gives the error
    return AdapterVocabulary(rows=rows, saved=frozenset(saved))


def _weights(adapter: str) -> Path:
    path = weights_file(Path(adapter)) if Path(adapter).is_dir() else _download(adapter)
    if path is None:
        raise ModelError(f"{adapter}: no weights ({_SAFETENSORS} or {_PICKLED}); use the folder that PEFT saved")
    return path


def _tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    if path.name == _PICKLED:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        for name, value in weights.items() if isinstance(weights, dict) else ():
            if isinstance(value, torch.Tensor):  # loading them says what else is there
                yield str(name), value
        return
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118  # no mapping
            yield name, file.get_tensor(name)


def _download(adapter: str) -> Path | None:
    """The weights of a hub id in the cache; None where the hub has none."""
    for name in (_SAFETENSORS, _PICKLED):
        try:
            return Path(hf_hub_download(adapter, name))
        except EntryNotFoundError:
            continue
        except (OSError, HFValidationError) as error:
            raise ModelError(f"{adapter}: no such folder here, and not available from the hub: {error}") from error
    return None
