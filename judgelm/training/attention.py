"""Choose the attention implementation for training.

Kernels from the hub are downloaded code, so they are used only if configured.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import torch
import transformers
from transformers.utils import import_utils

from judgelm.errors import ConfigError
from judgelm.training.arguments import base_name

_MAX_HEAD_WIDTH = 256


_FLASH = {version: getattr(import_utils, f"is_flash_attn_{version}_available") for version in (2, 3, 4)}


_BUILT_FOR = {8: (2,), 9: (3, 2)}
"""Supported FlashAttention versions, fastest first, for each major compute capability."""


_BUILT_FOR_LATER = (4, 2)


class Attention(NamedTuple):
    """The chosen implementation (None: transformers' default) and a note for the user."""

    implementation: str | None
    note: str


def requested_attention(base: Any, args: Any) -> str | None:
    """Return the configured implementation; `model_init_kwargs` takes precedence."""
    own = args.model_init_kwargs if isinstance(args.model_init_kwargs, dict) else {}
    requested: str | None = own.get("attn_implementation", base.attn_implementation)
    return requested


def choose_attention(base: Any, args: Any) -> Attention:
    """Choose the attention implementation for this machine."""
    generation = torch.cuda.get_device_capability(args.device)[0] if args.device.type == "cuda" else None
    installed = [version for version, is_available in _FLASH.items() if generation is not None and is_available()]
    if (requested := requested_attention(base, args)) is not None:
        return named_attention(requested, installed, kernels=import_utils.is_kernels_available())
    half = args.bf16 or args.fp16 or str(base.dtype).removeprefix("torch.") in ("bfloat16", "float16")
    supported = bool(installed) and supports_flash_attention(base_name(base), revision=base.model_revision)
    return best_attention(generation, installed, half=half, supported=supported)


def best_attention(generation: int | None, installed: Collection[int], *, half: bool, supported: bool) -> Attention:
    """Return FlashAttention if both the model and the machine support it, otherwise sdpa."""
    versions = [each for each in _BUILT_FOR.get(generation or 0, _BUILT_FOR_LATER) if each in installed]
    reasons = {
        "not on a CUDA GPU": generation is None,
        "FlashAttention requires an Ampere or later GPU": (generation or 0) < min(_BUILT_FOR),
        "FlashAttention requires bf16: true": not half,
        "flash-attn is not installed": not versions,
        "the model does not support FlashAttention": not supported,
    }
    for reason, applies in reasons.items():
        if applies:
            return Attention(None, f"sdpa ({reason})")
    return Attention(f"flash_attention_{versions[0]}", f"flash_attention_{versions[0]}")


def named_attention(requested: str, installed: Collection[int], *, kernels: bool) -> Attention:
    """Return the requested implementation, with a note if transformers has to download it."""
    version, note = requested.removeprefix("flash_attention_"), ""
    if "/" in requested:
        note = ", a kernel from the hub"
    elif version.isdecimal() and int(version) not in installed:
        if not kernels:
            way_out = "install flash-attn, or remove attn_implementation"
            raise ConfigError(f"attn_implementation {requested} is not available on this machine; {way_out}")
        note = "; its package is not installed, so transformers loads the kernel from the hub"
    return Attention(requested, f"{requested}, as requested{note}")


def supports_flash_attention(name: str, **options: Any) -> bool:
    """Return False for models with custom code."""
    try:
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False, **options)
    except (OSError, ValueError):  # custom code, or a missing config, which is reported when the model is loaded
        return False
    classes = [getattr(transformers, name, None) for name in config.architectures or ()]
    text = config.get_text_config()
    heads = getattr(text, "num_attention_heads", None) or 1
    width = getattr(text, "head_dim", None) or getattr(text, "hidden_size", 0) // heads
    # transformers 5.x would load a kernel for this model from the hub instead
    return width <= _MAX_HEAD_WIDTH and any(
        getattr(each, "_supports_flash_attn", False) and not getattr(each, "_compatible_flash_implementations", None)
        for each in classes
    )
