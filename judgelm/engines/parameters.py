"""A model's weights: their number, which gives its operations, and whether all of them are numbers."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

_FINITE_FORMATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


def prefill_parameters(config: Any) -> int:
    """Number of weights that each prompt token is multiplied with.

    All weights of the model, except the input embedding, which is a lookup, and the output head, which only the last
    position uses; of a mixture's experts the share that a token visits.
    """
    build: Any = AutoModelForCausalLM.from_config  # untyped in transformers
    with torch.device("meta"):
        model = build(config)
    apart = {
        id(layer.weight) for layer in (model.get_input_embeddings(), model.get_output_embeddings()) if layer is not None
    }
    text = config.get_text_config()
    visited = getattr(text, "num_experts_per_tok", None)
    experts = getattr(text, "num_local_experts", None) or getattr(text, "num_experts", None)
    share = visited / experts if visited and experts else 1.0
    named = [(name, weight.numel()) for name, weight in model.named_parameters() if id(weight) not in apart]
    return sum(round(size * share) if ".experts." in name else size for name, size in named)


def first_not_finite(weights: Iterable[tuple[str, torch.Tensor]]) -> str | None:
    """Name of the first weight that holds NaN or infinity; None where there is none. Formats of 8 bits are left out."""
    for name, weight in weights:
        if weight.numel() and not weight.is_meta and weight.dtype in _FINITE_FORMATS:
            low, high = torch.aminmax(weight.detach())  # one pass without a copy; NaN goes into both
            if not bool(torch.isfinite(low) & torch.isfinite(high)):
                return name
    return None


def all_parameters(config: Any, *, trust_remote_code: bool = False) -> int | None:
    """Number of weights of the whole model, shared ones counted once; None for an unknown model type."""
    for kind in (AutoModelForCausalLM, AutoModelForImageTextToText):
        build: Any = kind.from_config  # untyped in transformers
        try:
            with torch.device("meta"):
                model = build(config, trust_remote_code=trust_remote_code)
            return sum(int(weight.numel()) for weight in model.parameters())
        except (OSError, ValueError, KeyError, AttributeError, ImportError):
            continue
    return None


def parameters_of_described(described: Mapping[str, Any]) -> int | None:
    """`prefill_parameters` of an engine's model; None for an unknown model type.

    Args:
        described: the `describe()` of an engine that runs a model on this machine.
    """
    model = described["model"]
    try:
        return prefill_parameters(AutoConfig.from_pretrained(model["path"], revision=model.get("revision")))
    except (OSError, ValueError, KeyError):
        return None
