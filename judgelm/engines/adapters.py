"""PEFT adapters on a loaded model."""

from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HFValidationError
from peft import PeftModel
from peft.utils import SAFETENSORS_WEIGHTS_NAME, WEIGHTS_NAME
from safetensors import SafetensorError

from judgelm.engines.pickled_weights import check_pickled
from judgelm.errors import ModelError


def put_adapter(model: Any, adapter: str, *, merge: bool) -> Any:
    """The model with the adapter on it; merged where the weights allow it, so that it costs nothing.

    Raises:
        ModelError: the folder is no PEFT adapter, or does not fit the model.
    """
    check_weights(adapter)
    try:
        peft_model = PeftModel.from_pretrained(model, adapter)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{adapter}: cannot load the adapter: {str(error).strip().splitlines()[0]}") from error
    return peft_model.merge_and_unload() if merge else peft_model


def weights_file(adapter: Path) -> Path | None:
    """The weights in an adapter's folder: safetensors before a pickle; None where there are none."""
    paths = (adapter / SAFETENSORS_WEIGHTS_NAME, adapter / WEIGHTS_NAME)
    return next((path for path in paths if path.is_file()), None)


def check_weights(adapter: str) -> None:
    """Refuse an adapter without weights, or with pickled ones that hold more than tensors.

    Raises:
        ModelError: there are no weights, or torch refuses them.
    """
    path = weights_file(Path(adapter)) if Path(adapter).is_dir() else _download(adapter)
    if path is None:
        raise ModelError(
            f"{adapter}: no weights ({SAFETENSORS_WEIGHTS_NAME} or {WEIGHTS_NAME}); give the folder that PEFT saved"
        )
    check_pickled(adapter)


def _download(adapter: str) -> Path | None:
    """The weights of a hub id in the cache; None where the hub has none."""
    for name in (SAFETENSORS_WEIGHTS_NAME, WEIGHTS_NAME):
        try:
            return Path(hf_hub_download(adapter, name))
        except EntryNotFoundError:
            continue
        except (OSError, HFValidationError) as error:
            raise ModelError(f"{adapter}: no such folder here, and not to be had from the hub: {error}") from error
    return None
