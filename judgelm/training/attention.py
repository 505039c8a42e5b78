"""Which attention a training takes where its recipe names none: FlashAttention if a package of it is installed.

With it rows stand one behind another without padding. Kernels of the hub (`attn_implementation:
kernels-community/flash-attn2`, with the `kernels` package) are code that is downloaded and run, so they are taken where
a recipe names them and never by themselves.
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

_WIDEST_HEAD = 256
_BUILT_FOR = {8: (2,), 9: (3, 2)}
"""FlashAttention's versions for a GPU of a generation (major compute capability), the fastest first."""
_BUILT_FOR_LATER = (4, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What a machine has.

    Attributes:
        generation: the GPU's major compute capability; None where training is on no CUDA device.
        versions: of FlashAttention, by package.
        kernels: whether transformers can load kernels of the hub.
    """

    generation: int | None
    versions: Collection[int]
    kernels: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """What is taken.

    Attributes:
        implementation: for `attn_implementation`; None leaves it to transformers, which takes torch's sdpa.
        note: one sentence for the user.
    """

    implementation: str | None
    note: str


def choose_attention(asked: str | None, installed: Installed, *, supported: bool, half: bool) -> Attention:
    """FlashAttention where the GPU, a package, the model and the precision allow it, else sdpa.

    Args:
        asked: what the recipe names.
        installed: what there is.
        supported: whether the model can take FlashAttention.
        half: whether products are in 16 bits.

    Raises:
        ConfigError: the recipe names a FlashAttention that is not there.
    """
    if asked is not None:
        return Attention(implementation=asked, note=f"{asked}, as asked{_from_hub(asked, installed)}")
    best = _BUILT_FOR.get(installed.generation or 0, _BUILT_FOR_LATER)
    if installed.generation is None:
        why = "not on a CUDA GPU"
    elif installed.generation < min(_BUILT_FOR):
        why = "FlashAttention needs an Ampere GPU or a later one"
    elif not half:
        why = "FlashAttention multiplies in 16 bits; bf16: true would allow it"
    elif not (version := next((version for version in best if version in installed.versions), 0)):
        why = "flash-attn is not installed"
        if installed.kernels:
            why += "; attn_implementation: kernels-community/flash-attn2 would load it from the hub"
    elif not supported:
        why = "the model does not take FlashAttention"
    else:
        return Attention(implementation=f"flash_attention_{version}", note=f"flash_attention_{version}")
    return Attention(implementation=None, note=f"sdpa ({why})")


def _from_hub(asked: str, installed: Installed) -> str:
    """What has to be said where the named attention is not on this machine."""
    if "/" in asked:
        return ", a kernel of the hub"
    version = asked.removeprefix("flash_attention_")
    if not version.isdecimal() or int(version) in installed.versions:
        return ""
    if installed.kernels:
        return "; its package is not installed, so transformers loads the kernel from the hub"
    raise ConfigError(
        f"attn_implementation is {asked}, but its package is not installed, or there is no GPU for it; leave "
        "attn_implementation out, or install it (pip install flash-attn)"
    )


def look_at_machine(args: Any) -> Installed:
    """What this process trains on and has installed."""
    on_cuda = args.device.type == "cuda"
    found = (is_flash_attn_2_available(), is_flash_attn_3_available(), is_flash_attn_4_available())
    return Installed(
        generation=torch.cuda.get_device_capability(args.device)[0] if on_cuda else None,
        versions=[version for version, there in enumerate(found, 2) if there and on_cuda],
        kernels=is_kernels_available(),
    )


def takes_flash_attention(name: str, **options: Any) -> bool:
    """Whether a model can be loaded with FlashAttention; not where its own code would be needed to know.

    Args:
        name: folder or hub id.
        options: for its configuration (revision).
    """
    try:
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False, **options)
    except ValueError:  # code of its own
        return False
    kinds = [getattr(transformers, kind, None) for kind in config.architectures or ()]
    text = config.get_text_config()
    heads = getattr(text, "num_attention_heads", None) or 1
    width = getattr(text, "head_dim", None) or getattr(text, "hidden_size", 0) // heads
    # a model that names kernels of its own would be given one of those instead, from the hub
    return width <= _WIDEST_HEAD and any(
        getattr(kind, "_supports_flash_attn", False) and not getattr(kind, "_compatible_flash_implementations", None)
        for kind in kinds
    )
