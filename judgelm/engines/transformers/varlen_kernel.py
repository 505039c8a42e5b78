"""The choice of a kernel that attends to many sequences of different lengths in one call."""

from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from judgelm.engines.transformers.attention_options import AttentionOptions

_WIDEST_HEAD = 256
_AMPERE = 8


class VarlenKernel(Protocol):
    """Attention as `torch.nn.attention.varlen.varlen_attn` has it: the last query of a sequence sees its last key."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: Tensor,
        max_q: int,
        max_k: int,
        *,
        scale: float | None,
        window_size: tuple[int, int],
        enable_gqa: bool,
    ) -> Tensor:
        """Shape (queries, heads, head size)."""
        ...


def varlen_kernel(query: Tensor, value: Tensor, options: AttentionOptions) -> VarlenKernel | None:
    """FlashAttention as torch has it built in, where it can compute this attention; else None.

    Args:
        query: shape (1, heads, tokens, head size).
        value: shape (1, kv heads, tokens, head size).
        options: of the layer; no such kernel bounds scores.
    """
    head = query.shape[3]
    half = query.dtype in (torch.bfloat16, torch.float16)
    if not (query.is_cuda and half) or options.softcap is not None or value.shape[3] != head or head > _WIDEST_HEAD:
        return None
    kernel: Any = varlen_attn  # it also returns statistics where they are asked for
    return kernel if _major(query.device.index) >= _AMPERE else None


@lru_cache
def _major(device: int) -> int:
    """A GPU's major compute capability."""
    return torch.cuda.get_device_capability(device)[0]
