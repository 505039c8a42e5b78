"""PEFT adapters on a loaded model."""

from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HFValidationError
from peft import PeftModel
from peft.utils import SAFETENSORS_WEIGHTS_NAME
from safetensors import SafetensorError

from judgelm.errors import ModelError


def put_adapter(model: Any, adapter: str, *, merge: bool) -> Any:
    """The model with the adapter on it; merged where the weights allow it, so that it costs nothing.

    Raises:
        ModelError: the folder is no PEFT adapter, or does not fit the model.
    """
    check_safetensors(adapter)
    try:
        peft_model = PeftModel.from_pretrained(model, adapter)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{adapter}: cannot load the adapter: {str(error).strip().splitlines()[0]}") from error
    return peft_model.merge_and_unload() if merge else peft_model


def weights_file(adapter: Path) -> Path:
    """Where the weights of an adapter's folder are."""
    return adapter / SAFETENSORS_WEIGHTS_NAME


def check_safetensors(adapter: str) -> None:
    """Refuse an adapter that would be loaded from pickled weights.

    Raises:
        ModelError: there are no safetensors weights.
    """
    if Path(adapter).is_dir():
        found = weights_file(Path(adapter)).is_file()
    else:
        try:
            found = bool(hf_hub_download(adapter, SAFETENSORS_WEIGHTS_NAME))
        except EntryNotFoundError:
            found = False
        except (OSError, HFValidationError) as error:
            raise ModelError(f"{adapter}: no such folder here, and not to be had from the hub: {error}") from error
    if not found:
        raise ModelError(f"{adapter}: holds no {SAFETENSORS_WEIGHTS_NAME}; pickled adapters are never loaded")
