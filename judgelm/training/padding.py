"""TODO."""

from typing import Any

from transformers.utils.generic import is_flash_attention_requested

from judgelm.engines.transformers.attention import ATTENTION_NAME, add_segments
from judgelm.engines.transformers.loaded_model import runs_packed
from judgelm.errors import ConfigError


def settle_padding(model: Any, args: Any, *, trees: bool = False) -> str:
    """Decide whether rows are laid one behind another without padding, and give the model the attention for it.

    FlashAttention reads them as they are. In place of sdpa, judgelm's packed attention does: torch's variable-length
    kernel for 16 bits on a CUDA GPU, and a call of sdpa for each row elsewhere.

    Args:
        model: loaded, with an adapter or without.
        args: TRL's `SFTConfig`; its `padding_free` of None becomes True where the attention can.
        trees: whether a tree of score lines follows each row, which FlashAttention cannot read.

    Returns:
        The layout, with the reason where rows are padded.

    Raises:
        ConfigError: `padding_free` is true, and the model cannot.
    """
    flash = is_flash_attention_requested(requested_attention_implementation=model.config._attn_implementation)
    obstacle = "" if flash and not trees else packing_obstacle(model, args, trees=trees)
    if obstacle and args.padding_free:
        raise ConfigError(
            f"padding_free is true, but {model.config._name_or_path} needs padded rows: {obstacle}; leave it out"
        )
    if obstacle or args.padding_free is False:
        args.padding_free = False
        return f"padded rows ({obstacle or 'padding_free is false'})"
    args.padding_free = True
    if not flash:
        model.config._attn_implementation = ATTENTION_NAME
        model.get_decoder().register_forward_pre_hook(add_segments, with_kwargs=True)
    return "no padding"


def packing_obstacle(model: Any, args: Any, *, trees: bool = False) -> str:
    """The reason why judgelm's packed attention cannot train a model; empty where it can.

    Args:
        model: loaded.
        args: TRL's `SFTConfig`.
        trees: whether a tree of score lines follows each row.
    """
    config, attention = model.config, model.config._attn_implementation
    text, kind = config.get_text_config(), config.model_type
    dropout = [name for name, rate in text.to_dict().items() if "att" in name and "drop" in name and rate]
    reasons = {
        f"its attention is {attention}, not sdpa": attention not in ("sdpa", ATTENTION_NAME),
        f"{kind} models have parts for more than text": text is not config,
        f"{kind} layers have more than an attention that can be replaced": not runs_packed(model),
        f"{kind} layers attend to sinks": any(name.endswith("sinks") for name, _ in model.named_parameters()),
        f"{kind} tokens see later ones": getattr(
            text, "use_bidirectional_attention", not getattr(text, "is_causal", 1)
        ),
        f"it drops attention at random ({', '.join(dropout)})": dropout,
        "score lines do not fit a sliding window": trees and getattr(text, "sliding_window", None) is not None,
        "torch_compile would compile again for each number of tokens": args.torch_compile,
    }
    return next((reason for reason, applies in reasons.items() if applies), "")
