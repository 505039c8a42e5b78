"""Finds the weights of a PEFT adapter without peft, which vLLM does not need."""

from pathlib import Path

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HFValidationError

from judgelm.engines.pickled_weights import check_pickled
from judgelm.errors import ModelError

_SAFETENSORS, _PICKLED = "adapter_model.safetensors", "adapter_model.bin"


def weights_file(adapter: Path) -> Path | None:
    """The weights in an adapter's folder: safetensors before a pickle; None where there are none."""
    paths = (adapter / _SAFETENSORS, adapter / _PICKLED)
    return next((path for path in paths if path.is_file()), None)


def check_weights(adapter: str) -> None:
    """Refuse an adapter without weights, or with pickled ones that hold more than tensors.

    Raises:
        ModelError: there are no weights, or torch refuses to read them.
    """
    path = weights_file(Path(adapter)) if Path(adapter).is_dir() else _download(adapter)
    if path is None:
        raise ModelError(f"{adapter}: no weights ({_SAFETENSORS} or {_PICKLED}); use the folder that PEFT saved")
    check_pickled(adapter)


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
