"""PEFT adapters on a loaded model."""

from typing import Any

from peft import PeftModel
from safetensors import SafetensorError

from judgelm.engines.adapter_files import check_weights
from judgelm.errors import ModelError


def load_adapter(model: Any, adapter: str, *, merge: bool) -> Any:
    """The model with the adapter; a merged one costs no time per token.

    Raises:
        ModelError: the folder is no PEFT adapter, or does not fit the model.
    """
    check_weights(adapter)
    try:
        peft_model = PeftModel.from_pretrained(model, adapter)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{adapter}: cannot load the adapter: {str(error).strip().splitlines()[0]}") from error
    return peft_model.merge_and_unload() if merge else peft_model
