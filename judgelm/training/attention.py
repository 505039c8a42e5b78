"""Attention of a training whose config names none: FlashAttention if a package of it is installed.

With it rows stand one behind another without padding. Kernels of the hub (`attn_implementation:
kernels-community/flash-attn2`, with the `kernels` package) are code that is downloaded and run, so they are used only
where a config names them.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers.utils import (  # type: ignore[attr-defined]  # re-exported implicitly
    is_flash_attn_2_available,
    is_flash_attn_3_available,
    is_flash_attn_4_available,
    is_kernels_available,
)

from judgelm.errors import ConfigError
from judgelm.training.config import base_name

_WIDEST_HEAD = 256
_BUILT_FOR = {8: (2,), 9: (3, 2)}
"""FlashAttention's versions for a GPU of a generation (major compute capability), the fastest first."""
_BUILT_FOR_LATER = (4, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Attention packages of this machine.

    Attributes:
        generation: the GPU's major compute capability; None without a CUDA device.
        versions: installed versions of FlashAttention.
        kernels: whether transformers can load kernels of the hub.
    """

    generation: int | None
    versions: Collection[int]
    kernels: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """The chosen attention.

    Attributes:
        implementation: for `attn_implementation`; None leaves it to transformers 5.x, which takes torch's sdpa.
        note: one sentence for the user.
    """

    implementation: str | None
    note: str


def requested_attention(base: Any, args: Any) -> str | None:
    """The attention that the config names; `model_init_kwargs` take precedence."""
    own = args.model_init_kwargs if isinstance(args.model_init_kwargs, dict) else {}
    requested: str | None = own.get("attn_implementation", base.attn_implementation)
    return requested


def choose_attention(base: Any, args: Any) -> Attention:
    """Choose the attention for a base model on this machine.

    Args:
        base: TRL's `ModelConfig`.
        args: TRL's `SFTConfig` or `DPOConfig`.

    Raises:
        ConfigError: the config names a FlashAttention that is not installed.
    """
    installed = installed_attention(args)
    supported = bool(installed.versions) and supports_flash_attention(base_name(base), revision=base.model_revision)
    half = args.bf16 or args.fp16 or str(base.dtype).removeprefix("torch.") in ("bfloat16", "float16")
    return best_attention(requested_attention(base, args), installed, supported=supported, half=half)


def best_attention(requested: str | None, installed: Installed, *, supported: bool, half: bool) -> Attention:
    """FlashAttention where the GPU, a package, the model and the precision allow it, else sdpa.

    Args:
        requested: what the config names.
        installed: packages and GPU.
        supported: whether the model can run with FlashAttention.
        half: whether products are in 16 bits.

    Raises:
        ConfigError: the config names a FlashAttention that is not installed.
    """
    if requested is not None:
        return Attention(implementation=requested, note=f"{requested}, as requested{_from_hub(requested, installed)}")
    best = _BUILT_FOR.get(installed.generation or 0, _BUILT_FOR_LATER)
    if installed.generation is None:
        reason = "not on a CUDA GPU"
    elif installed.generation < min(_BUILT_FOR):
        reason = "FlashAttention needs an Ampere GPU or a later one"
    elif not half:
        reason = "FlashAttention multiplies in 16 bits; bf16: true would allow it"
    elif not (version := next((version for version in best if version in installed.versions), 0)):
        reason = "flash-attn is not installed"
        if installed.kernels:
            reason += "; attn_implementation: kernels-community/flash-attn2 would load it from the hub"
    elif not supported:
        reason = "the model does not support FlashAttention"
    else:
        return Attention(implementation=f"flash_attention_{version}", note=f"flash_attention_{version}")
    return Attention(implementation=None, note=f"sdpa ({reason})")


def _from_hub(requested: str, installed: Installed) -> str:
    """Note where the requested attention is not installed on this machine."""
    if "/" in requested:
        return ", a kernel of the hub"
    version = requested.removeprefix("flash_attention_")
    if not version.isdecimal() or int(version) in installed.versions:
        return ""
    if installed.kernels:
        return "; its package is not installed, so transformers loads the kernel from the hub"
    raise ConfigError(
        f"attn_implementation is {requested}, but its package is not installed, or there is no GPU for it; leave "
        "attn_implementation out, or install it (pip install flash-attn)"
    )


def installed_attention(args: Any) -> Installed:
    """Device and attention packages of this process."""
    on_cuda = args.device.type == "cuda"
    available = (is_flash_attn_2_available(), is_flash_attn_3_available(), is_flash_attn_4_available())
    return Installed(
        generation=torch.cuda.get_device_capability(args.device)[0] if on_cuda else None,
        versions=[version for version, present in enumerate(available, 2) if present and on_cuda],
        kernels=is_kernels_available(),
    )


def supports_flash_attention(name: str, **options: Any) -> bool:
    """True if a model can be loaded with FlashAttention; False where only the model's own code could tell.

    Args:
        name: folder or hub id.
        options: for its configuration (revision).
    """
    try:
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False, **options)
    except (OSError, ValueError):  # code of its own, or no config, which loading the model reports
        return False
    classes = [getattr(transformers, name, None) for name in config.architectures or ()]
    text = config.get_text_config()
    heads = getattr(text, "num_attention_heads", None) or 1
    width = getattr(text, "head_dim", None) or getattr(text, "hidden_size", 0) // heads
    # transformers 5.x would load a model's own kernels from the hub instead
    return width <= _WIDEST_HEAD and any(
        getattr(each, "_supports_flash_attn", False) and not getattr(each, "_compatible_flash_implementations", None)
        for each in classes
    )
