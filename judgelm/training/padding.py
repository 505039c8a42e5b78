"""Padding-free training, in which rows are concatenated if the attention implementation supports it."""

from typing import Any

from transformers.utils.generic import is_flash_attention_requested

from judgelm.engines.transformers.attention import ATTENTION_NAME, add_segments
from judgelm.engines.transformers.loaded_model import runs_packed
from judgelm.errors import ConfigError


def settle_padding(model: Any, args: Any, *, trees: bool = False) -> str:
    """Decide whether to concatenate rows instead of padding them, set up the attention, and describe the layout.

    judgelm's packed attention replaces sdpa. If score-line `trees` follow the rows, packed attention also replaces
    FlashAttention.
    """
    flash = is_flash_attention_requested(requested_attention_implementation=model.config._attn_implementation)
    obstacle = "" if flash and not trees else packing_obstacle(model, args, trees=trees)
    if obstacle and args.padding_free:
        raise ConfigError(f"padding_free is true, but rows must be padded: {obstacle}; remove padding_free")
    if obstacle or args.padding_free is False:
        args.padding_free = False
        return f"padded rows ({obstacle or 'padding_free is false'})"
    args.padding_free = True
    if not flash:
        model.config._attn_implementation = ATTENTION_NAME
        model.get_decoder().register_forward_pre_hook(add_segments, with_kwargs=True)
    return "no padding"


def packing_obstacle(model: Any, args: Any, *, trees: bool = False) -> str:
    """Return the reason the model cannot be trained with judgelm's packed attention, or an empty string."""
    config, attention = model.config, model.config._attn_implementation
    text, kind = config.get_text_config(), config.model_type
    dropout = [name for name, rate in text.to_dict().items() if "att" in name and "drop" in name and rate]
    both_ways = getattr(text, "use_bidirectional_attention", not getattr(text, "is_causal", 1))
    reasons = {
        f"the attention implementation is {attention}, not sdpa": attention not in ("sdpa", ATTENTION_NAME),
        f"{kind} models are not text-only": text is not config,
        f"the attention of {kind} layers cannot be replaced": not runs_packed(model),
        f"{kind} layers use attention sinks": any(name.endswith("sinks") for name, _ in model.named_parameters()),
        f"{kind} attention is not causal": both_ways,
        f"the model uses attention dropout ({', '.join(dropout)})": dropout,
        "score lines do not support sliding-window attention": trees
        and getattr(text, "sliding_window", None) is not None,
        "torch_compile would recompile for every new number of tokens": args.torch_compile,
    }
    return next((reason for reason, applies in reasons.items() if applies), "")
