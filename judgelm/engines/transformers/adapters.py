"""PEFT adapters on a loaded model."""

import math
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, PeftModel, load_peft_weights
from peft.utils.other import get_pattern_key
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


def read_lora(adapter: str, *, device: str, dtype: torch.dtype) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """The factors of each layer that a LoRA adapter changes, by the layer's name: shapes (rank, in) and (out, rank).

    The second one is scaled, so that the layer's output grows by `up @ down @ input`.

    Raises:
        ModelError: the folder is no PEFT adapter, or one that changes more than linear layers inside the model.
    """
    check_weights(adapter)
    try:
        config = PeftConfig.from_pretrained(adapter)
        weights = load_peft_weights(adapter, device=device)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{adapter}: cannot load the adapter: {str(error).strip().splitlines()[0]}") from error
    if not isinstance(config, LoraConfig) or config.use_dora:
        raise ModelError(f"{adapter}: only plain LoRA adapters can share a base; serve it alone, with --adapter")
    factors: dict[str, dict[str, torch.Tensor]] = {}
    for name, weight in weights.items():
        layer, _, factor = name.removeprefix("base_model.model.").rpartition(".lora_")
        if factor not in ("A.weight", "B.weight") or layer.endswith("lm_head"):
            raise ModelError(
                f"{adapter}: changes {name}, and adapters that share a base change linear layers inside the model "
                "alone; serve it alone, with --adapter"
            )
        factors.setdefault(layer, {})[factor] = weight
    return {
        layer: (pair["A.weight"].to(dtype), (pair["B.weight"] * _scale(config, layer, pair["A.weight"])).to(dtype))
        for layer, pair in factors.items()
    }


def _scale(config: LoraConfig, layer: str, down: torch.Tensor) -> float:
    """The factor of a layer's product, as PEFT computes it."""
    patterns = config.alpha_pattern or {}
    alpha = patterns.get(get_pattern_key(list(patterns), layer), config.lora_alpha)
    return float(alpha) / (math.sqrt(len(down)) if config.use_rslora else len(down))
