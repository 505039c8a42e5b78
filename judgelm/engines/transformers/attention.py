"""Attention over packed sequences, without padding.

Matrix products treat all sequences as one row. Only attention processes the sequences separately.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import signature
from itertools import accumulate, pairwise
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from judgelm.engines.transformers.kv_cache import KVCache as KVCache  # for training
from judgelm.engines.transformers.kv_cache import TrainedKV as TrainedKV
from judgelm.errors import EngineError

_WIDEST_HEAD = 256
_AMPERE = 8
_GROUPED = {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
"""Grouped queries, which the torch 2.11 kernel does not support."""
VarlenKernel = Callable[..., Tensor]
"""Signature of `torch.nn.attention.varlen.varlen_attn`."""
ATTENTION_NAME = "judgelm_packed"
_CAUSAL_BLOCK = 64


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """Options for an attention layer.

    Attributes:
        scaling: defaults to 1 / sqrt(head size).
        window: number of tokens that a token attends to, including itself.
        softcap: bound on the scores, applied with tanh (Gemma 2).
    """

    scaling: float | None = None
    window: int | None = None
    softcap: float | None = None

    def scale(self, query: Tensor) -> float:
        """Return the scaling factor."""
        return float(query.shape[-1] ** -0.5) if self.scaling is None else self.scaling

    def capped(self, scores: Tensor) -> Tensor:
        """Apply the softcap."""
        return scores if self.softcap is None else torch.tanh(scores / self.softcap) * self.softcap


def varlen_kernel(query: Tensor, value: Tensor, options: AttentionOptions) -> VarlenKernel | None:
    """Return torch's FlashAttention kernel if it supports these tensors and options."""
    head = query.shape[3]
    fits = value.shape[3] == head <= _WIDEST_HEAD and head % 8 == 0
    if not (query.is_cuda and query.dtype in (torch.bfloat16, torch.float16) and fits) or options.softcap is not None:
        return None
    if not _GROUPED and query.shape[1] != value.shape[1]:
        return None
    kernel: Any = varlen_attn  # its type includes optional statistics
    return kernel if _major(query.device.index) >= _AMPERE else None


@lru_cache
def _major(device: int) -> int:
    return torch.cuda.get_device_capability(device)[0]


class Segment(Protocol):
    """Consecutive tokens in a pass whose attention is computed together."""

    @property
    def tokens(self) -> int:
        """Number of new tokens."""
        ...

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """Compute the attention output, shape (1, tokens, heads, head size).

        `query` has shape (1, heads, tokens, head size). `key` and `value` have shape (1, kv heads, tokens, head size).
        """
        ...


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    segments: Sequence[Segment] | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Compute attention for each segment. Called by transformers."""
    if segments is None or attention_mask is not None or others.get("s_aux") is not None or others.get("dropout"):
        raise EngineError("this model's attention does not support packing; use --engine vllm")
    if torch.is_autocast_enabled(device := query.device.type):  # RoPE in float32 leaves query and key in float32
        query, key, value = (tensor.to(torch.get_autocast_dtype(device)) for tensor in (query, key, value))
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    options = AttentionOptions(scaling, sliding_window, softcap)
    each = [
        segment.attend(layer, queries, keys, values, options)
        for segment, (queries, keys, values) in zip(segments, _split(segments, query, key, value), strict=True)
    ]
    return each[0] if len(each) == 1 else torch.cat(each, 1), None


def _split(segments: Sequence[Segment], *tensors: Tensor) -> Iterator[Any]:
    """Split tensors without slicing, because the gradient of a slice would cover all tokens."""
    tokens = [segment.tokens for segment in segments]
    return zip(*(torch.split(tensor, tokens, 2) for tensor in tensors), strict=True)


@dataclass(frozen=True, slots=True)
class PromptSegment:
    """The tokens of a prompt that are not in its cache yet."""

    kv: KVCache
    tokens: int
    masks: dict[tuple[int | None, ...], Tensor] = field(default_factory=dict)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """See `Segment`."""
        keys, values = self.kv.write(layer, key, value, self.kv.length)
        slides = options.window is not None and keys.shape[2] > options.window
        if slides or options.softcap is not None:
            return _attend(query, keys, values, self._mask(0, self.tokens, options.window, query), options)
        in_training = isinstance(
            self.kv, TrainedKV
        )  # in training, gradients for blocks take more time than blocks save
        if query.device.type == "cpu" and not in_training:
            return self._by_blocks(query, keys, values, options)
        mask = None if self.kv.length == 0 or self.tokens == 1 else self._mask(0, self.tokens, None, query)
        return _attend(query, keys, values, mask, options)

    def _by_blocks(self, query: Tensor, keys: Tensor, values: Tensor, options: AttentionOptions) -> Tensor:
        """Pass only the visible keys to each block of queries, because the CPU kernel also computes masked keys."""
        blocks = []
        for start in range(0, self.tokens, _CAUSAL_BLOCK):
            end = min(start + _CAUSAL_BLOCK, self.tokens)
            visible = self.kv.length + end
            behind_others = visible > end - start and self.tokens > 1
            mask = self._mask(start, end, None, query) if behind_others else None
            blocks.append(_attend(query[:, :, start:end], keys[:, :, :visible], values[:, :, :visible], mask, options))
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)

    def _mask(self, start: int, end: int, window: int | None, query: Tensor) -> Tensor:
        if (start, end, window) not in self.masks:
            position = torch.arange(start, end, device=query.device)[:, None] + self.kv.length
            key = torch.arange(self.kv.length + end, device=query.device)[None]
            seen = key <= position if window is None else (key <= position) & (key > position - window)
            self.masks[start, end, window] = _additive(seen, query.dtype)
        return self.masks[start, end, window]


@dataclass(frozen=True, slots=True)
class PromptBatch:
    """All new prompts in a pass, computed in one kernel call if possible."""

    prompts: Sequence[PromptSegment]
    kernel_for: Callable[[Tensor, Tensor, AttentionOptions], VarlenKernel | None] = varlen_kernel
    bounds: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """See `Segment`."""
        return sum(prompt.tokens for prompt in self.prompts)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """See `Segment`."""
        kernel = self.kernel_for(query, value, options)
        parts = list(zip(self.prompts, _split(self.prompts, query, key, value), strict=True))
        if kernel is None:
            each = [prompt.attend(layer, q, k, v, options) for prompt, (q, k, v) in parts]
            return each[0] if len(each) == 1 else torch.cat(each, 1)
        pairs = [prompt.kv.write(layer, keys, values, prompt.kv.length) for prompt, (_, keys, values) in parts]
        if any(prompt.kv.length for prompt in self.prompts):
            key, value = (torch.cat(tensors, 2) for tensors in zip(*pairs, strict=True))
        lengths = [prompt.kv.length + prompt.tokens for prompt in self.prompts]
        query_bounds, key_bounds = self._bounds(lengths, query.device)
        out = kernel(
            query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1), query_bounds, key_bounds,
            max(prompt.tokens for prompt in self.prompts), max(lengths), scale=options.scaling,
            window_size=(-1 if options.window is None else options.window - 1, 0), **_GROUPED,
        )  # fmt: skip
        return out[None]

    def _bounds(self, lengths: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
        if device not in self.bounds:
            tokens = [prompt.tokens for prompt in self.prompts]
            self.bounds[device] = (_ends(tokens, device), _ends(lengths, device))
        return self.bounds[device]


def _ends(lengths: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)


def trained_rows(lengths: Sequence[int], kvs: Sequence[TrainedKV] | None = None) -> PromptBatch:
    """Pack rows for training."""
    masks: dict[tuple[int | None, ...], Tensor] = {}  # rows have no cached tokens, so they share masks
    stored = kvs or [TrainedKV()] * len(lengths)
    return PromptBatch([PromptSegment(kv, tokens, masks) for kv, tokens in zip(stored, lengths, strict=True)])


def add_segments(_: torch.nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Forward pre-hook that adds `segments` to rows packed by TRL (`cu_seq_lens_q`)."""
    if "segments" not in options and (bounds := options.get("cu_seq_lens_q")) is not None:
        options["segments"] = [trained_rows([end - begin for begin, end in pairwise(bounds.tolist())])]
    return args, options


@dataclass(frozen=True, slots=True)
class TreeSegment:
    """The inner nodes of a candidate tree, computed in the same pass as the prompt.

    Attributes:
        behind: number of new prompt tokens in this pass.
    """

    kv: KVCache
    behind: int
    visible: Tensor
    masks: dict[torch.dtype, Tensor] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """See `Segment`."""
        return len(self.visible)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """See `Segment`."""
        past = self.kv.length + self.behind
        if options.window is not None and past + self.tokens > options.window:
            raise EngineError("the prompt and its candidates exceed the sliding window; use --engine vllm")
        keys, values = self.kv.write(layer, key, value, past)
        if query.dtype not in self.masks:
            seen = torch.cat((self.visible.new_ones((self.tokens, past)), self.visible), 1)
            self.masks[query.dtype] = _additive(seen.to(query.device), query.dtype)
        return _attend(query, keys, values, self.masks[query.dtype], options)


def _additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Avoid boolean masks, which would be converted in every layer."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -math.inf)


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, options: AttentionOptions) -> Tensor:
    if options.softcap is not None and mask is not None:
        return _capped(query, keys, values, mask, options).transpose(1, 2)
    arguments = {"is_causal": mask is None and query.shape[2] > 1, "enable_gqa": query.shape[1] != keys.shape[1]}
    output = F.scaled_dot_product_attention(query, keys, values, mask, scale=options.scaling, **arguments)
    return output.transpose(1, 2)


def _capped(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, options: AttentionOptions) -> Tensor:
    groups = query.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
    scores = options.capped(query @ keys.transpose(2, 3) * options.scale(query)) + mask
    return torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype) @ values


AttentionInterface.register(ATTENTION_NAME, packed_attention)
