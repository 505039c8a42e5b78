"""PEFT adapters on a loaded model."""

import math
import warnings
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, PeftModel, load_peft_weights
from peft.utils.other import get_pattern_key

from judgelm.engines.model_files import LOAD_ERRORS, nan_in
from judgelm.engines.weights import adapter_vocabulary, check_weights
from judgelm.errors import ModelError, first_line


def load_adapter(model: Any, adapter: str, *, merge: bool) -> Any:
    """The model with the adapter; a merged one costs no time per token.

    Raises:
        ModelError: the folder is no PEFT adapter, or does not fit the model.
    """
    peft_model = attach_adapter(model, adapter)
    return peft_model.merge_and_unload() if merge else peft_model


def attach_adapter(model: Any, adapter: str, *, trainable: bool = False) -> Any:
    """The model with the adapter beside its weights.

    Raises:
        ModelError: the folder is no PEFT adapter, or does not fit the model.
    """
    check_weights(adapter)
    fit_vocabulary(model, adapter)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Found missing adapter keys")  # PEFT would leave them at random
            peft_model = PeftModel.from_pretrained(model, adapter, is_trainable=trainable)
    except (*LOAD_ERRORS, UserWarning) as error:
        raise ModelError(f"{adapter}: cannot load the adapter: {first_line(error)[:300]}") from error
    if (place := nan_in(peft_model.peft_config["default"].to_dict().items())) is not None:
        raise ModelError(f"{adapter}: adapter_config.json: {place} is NaN; restore the adapter's folder")
    return peft_model


def fit_vocabulary(model: Any, adapter: str) -> None:
    """Resize a base's embeddings to the vocabulary of an adapter that holds them, as the adapter's training did.

    Raises:
        ModelError: the adapter was trained with another vocabulary, and does not hold its embeddings.
    """
    vocabulary, weight = adapter_vocabulary(adapter), model.get_input_embeddings().weight
    base = int(getattr(weight, "ds_shape", weight.shape)[0])  # ZeRO-3 keeps a part of it here
    if not (others := {layer: rows for layer, rows in vocabulary.rows.items() if rows != base}):
        return
    rows = max(others.values())
    heads = {id(layer): name for name, layer in model.named_modules()}
    own = {
        heads[id(layer)].rpartition(".")[2] for layer in (model.get_input_embeddings(), model.get_output_embeddings())
    }
    missing = own - vocabulary.saved if rows > base else set()
    if missing or len(set(vocabulary.rows.values())) > 1:
        sizes = ", ".join(f"{layer} {count:,}" for layer, count in sorted(vocabulary.rows.items()))
        lacks = f": no {' and no '.join(sorted(missing))}" if missing else ""
        raise ModelError(
            f"{adapter}: trained with another vocabulary ({sizes} tokens) than its base has ({base:,}), and lacks some "
            f"of its embeddings{lacks}; pass the base that was resized for it"
        )
    model.resize_token_embeddings(rows, mean_resizing=False)


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
    except LOAD_ERRORS as error:
        raise ModelError(f"{adapter}: cannot load the adapter: {first_line(error)}") from error
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
