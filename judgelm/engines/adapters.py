"""PEFT adapters on a loaded model."""

from pathlib import Path
from typing import Any

from peft import PeftModel

from judgelm.errors import ModelError


def put_adapter(model: Any, adapter: str, *, merge: bool) -> Any:
    """The model with the adapter on it; merged where the weights allow it, so that it costs nothing.

    Raises:
        ModelError: the folder is no PEFT adapter, or does not fit the model.
    """
    if Path(adapter).is_dir() and not (Path(adapter) / "adapter_model.safetensors").is_file():
        raise ModelError(f"{adapter}: no adapter_model.safetensors in this folder; it is not a PEFT adapter")
    try:
        peft_model = PeftModel.from_pretrained(model, adapter)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"{adapter}: cannot load the adapter: {str(error).strip().splitlines()[0]}") from error
    return peft_model.merge_and_unload() if merge else peft_model
