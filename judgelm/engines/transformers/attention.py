"""Attention over packed sequences: no padding, separate keys and values for each sequence.

Tokens of many sequences are packed into one row, so every matrix product of the model runs over all of them at once.
Only attention looks at each sequence alone: at new prompts, on a GPU all of them in one call; at the tree of candidates
behind each; and at a block of running replies (`sequences`) in one call. The function is registered with transformers
under `ATTENTION_NAME`; the segments reach it as a keyword of the model's forward. Training without padding takes
the same segments, whose keys and values carry gradients (`TrainedKV`).
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

from judgelm.engines.transformers.kv_cache import KVCache, TrainedKV
from judgelm.errors import EngineError

_WIDEST_HEAD = 256
_AMPERE = 8
_GROUPED = {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
"""Lets queries share keys. torch 2.11's kernel has no such option: it is used where each query head has its own."""
VarlenKernel = Callable[..., Tensor]
"""Attention as `torch.nn.attention.varlen.varlen_attn` has it: the last query of a sequence sees its last key."""
ATTENTION_NAME = "judgelm_packed"
_CAUSAL_BLOCK = 64


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """Options of an attention layer, as its model passes them.

    Attributes:
        scaling: factor on the scores; None for 1 / sqrt(head size).
        window: tokens that a token attends to, itself included; None for all up to itself.
        softcap: bound of the scores through tanh (Gemma 2).
    """

    scaling: float | None = None
    window: int | None = None
    softcap: float | None = None

    def scale(self, query: Tensor) -> float:
        """Factor on the scores."""
        return float(query.shape[-1] ** -0.5) if self.scaling is None else self.scaling

    def capped(self, scores: Tensor) -> Tensor:
        """The scores within their bound."""
        return scores if self.softcap is None else torch.tanh(scores / self.softcap) * self.softcap


def varlen_kernel(query: Tensor, value: Tensor, options: AttentionOptions) -> VarlenKernel | None:
    """FlashAttention as torch has it built in, where it can compute this attention; else None.

    Args:
        query: shape (1, heads, tokens, head size).
        value: shape (1, kv heads, tokens, head size).
        options: of the layer; no such kernel bounds scores.
    """
    head = query.shape[3]
    fits = value.shape[3] == head <= _WIDEST_HEAD and head % 8 == 0
    if not (query.is_cuda and query.dtype in (torch.bfloat16, torch.float16) and fits) or options.softcap is not None:
        return None
    if not _GROUPED and query.shape[1] != value.shape[1]:
        return None
    kernel: Any = varlen_attn  # it also returns statistics where they are asked for
    return kernel if _major(query.device.index) >= _AMPERE else None


@lru_cache
def _major(device: int) -> int:
    """A GPU's major compute capability."""
    return torch.cuda.get_device_capability(device)[0]


class Segment(Protocol):
    """Tokens of a pass that attend together."""

    @property
    def tokens(self) -> int:
        """Number of new tokens."""
        ...

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """Attention of the new tokens.

        Args:
            layer: the attention layer.
            query: shape (1, heads, tokens, head size).
            key: shape (1, kv heads, tokens, head size); `value` alike.
            value: see `key`.
            options: of the layer.

        Returns:
            Shape (1, tokens, heads, head size).
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
    """Attention of each segment over its own sequences.

    Args:
        module: the attention layer; its `layer_idx` names the layer.
        query: shape (1, heads, all tokens, head size).
        key: shape (1, kv heads, all tokens, head size); `value` alike.
        value: see `key`.
        attention_mask: always None: transformers builds none for this name.
        segments: what the tokens belong to, in order.
        scaling: see `AttentionOptions`.
        sliding_window: tokens that a token attends to, itself included.
        softcap: see `AttentionOptions`.
        others: further keywords of the model; attention sinks and dropout are refused.

    Returns:
        Shape (1, all tokens, heads, head size), and None for the weights.

    Raises:
        EngineError: the model needs a feature that this function lacks.
    """
    if segments is None or attention_mask is not None or others.get("s_aux") is not None or others.get("dropout"):
        raise EngineError("this model's attention cannot run packed in the transformers engine; use --engine vllm")
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
    """Query, key and value of each segment. The gradient of a slice would be a tensor of all tokens."""
    tokens = [segment.tokens for segment in segments]
    return zip(*(torch.split(tensor, tokens, 2) for tensor in tensors), strict=True)


@dataclass(frozen=True, slots=True)
class PromptSegment:
    """New tokens of a prompt, each behind those before it.

    Attributes:
        kv: the prompt's keys and values; those of the new tokens are written to it, and not yet counted.
        tokens: number of new tokens.
        masks: those of this pass, which all layers share.
    """

    kv: KVCache
    tokens: int
    masks: dict[tuple[int | None, ...], Tensor] = field(default_factory=dict)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """See `Segment`."""
        keys, values = self.kv.write(layer, key, value, self.kv.length)
        slides = options.window is not None and keys.shape[2] > options.window
        if slides or options.softcap is not None:
            return _attend(query, keys, values, self._mask(0, self.tokens, options.window, query), options)
        in_training = isinstance(self.kv, TrainedKV)  # the gradients of blocks cost more than blocks save
        if query.device.type == "cpu" and not in_training:
            return self._by_blocks(query, keys, values, options)
        mask = None if self.kv.length == 0 or self.tokens == 1 else self._mask(0, self.tokens, None, query)
        return _attend(query, keys, values, mask, options)

    def _by_blocks(self, query: Tensor, keys: Tensor, values: Tensor, options: AttentionOptions) -> Tensor:
        """Blocks of queries, each with the keys up to its end.

        torch's CPU kernel goes through the keys 512 at a time and also computes those that are masked for all queries.
        """
        blocks = []
        for start in range(0, self.tokens, _CAUSAL_BLOCK):
            end = min(start + _CAUSAL_BLOCK, self.tokens)
            visible = self.kv.length + end
            behind_others = visible > end - start and self.tokens > 1
            mask = self._mask(start, end, None, query) if behind_others else None
            blocks.append(_attend(query[:, :, start:end], keys[:, :, :visible], values[:, :, :visible], mask, options))
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)

    def _mask(self, start: int, end: int, window: int | None, query: Tensor) -> Tensor:
        """Of the new tokens from `start` to `end`, for all keys up to the last of them."""
        if (start, end, window) not in self.masks:
            position = torch.arange(start, end, device=query.device)[:, None] + self.kv.length
            key = torch.arange(self.kv.length + end, device=query.device)[None]
            seen = key <= position if window is None else (key <= position) & (key > position - window)
            self.masks[start, end, window] = _additive(seen, query.dtype)
        return self.masks[start, end, window]


@dataclass(frozen=True, slots=True)
class PromptBatch:
    """All new prompts of a pass: in one call where the device has a kernel for them, else one by one.

    Attributes:
        prompts: in the order of their tokens.
        kernel_for: the kernel for a query, or None.
    """

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
        """Where each prompt's queries and its keys begin and end, shape (prompts + 1,) each; the same in all layers."""
        if device not in self.bounds:
            tokens = [prompt.tokens for prompt in self.prompts]
            self.bounds[device] = (_ends(tokens, device), _ends(lengths, device))
        return self.bounds[device]


def _ends(lengths: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)


def trained_rows(lengths: Sequence[int], kvs: Sequence[TrainedKV] | None = None) -> PromptBatch:
    """Rows of a pass in training, one behind another, in which each token attends to its own row.

    Args:
        lengths: tokens of each row.
        kvs: of each row; by default nothing is stored.
    """
    masks: dict[tuple[int | None, ...], Tensor] = {}  # no row has tokens before it, so rows share them
    stored = kvs or [TrainedKV()] * len(lengths)
    return PromptBatch([PromptSegment(kv, tokens, masks) for kv, tokens in zip(stored, lengths, strict=True)])


def add_segments(_: torch.nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Add `segments` to a forward pass over rows whose bounds are `cu_seq_lens_q`, as TRL has them: a pre-hook.

    The bounds are read from the device once for all layers.
    """
    if "segments" not in options and (bounds := options.get("cu_seq_lens_q")) is not None:
        options["segments"] = [trained_rows([end - begin for begin, end in pairwise(bounds.tolist())])]
    return args, options


@dataclass(frozen=True, slots=True)
class TreeSegment:
    """The inner nodes of a prompt's score tree, which follow the prompt in the same pass.

    Attributes:
        kv: the prompt's keys and values; those of the nodes are written behind them and never counted.
        behind: tokens of the prompt that are new in this pass, and so not yet counted either.
        visible: shape (nodes, nodes), True where a node attends to a node.
        masks: those of this pass, which all layers share.
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
        """See `Segment`.

        Raises:
            EngineError: the layer's window does not hold prompt and tree.
        """
        past = self.kv.length + self.behind
        if options.window is not None and past + self.tokens > options.window:
            raise EngineError("a score tree does not fit a sliding window shorter than the prompt; use --engine vllm")
        keys, values = self.kv.write(layer, key, value, past)
        if query.dtype not in self.masks:
            seen = torch.cat((self.visible.new_ones((self.tokens, past)), self.visible), 1)
            self.masks[query.dtype] = _additive(seen.to(query.device), query.dtype)
        return _attend(query, keys, values, self.masks[query.dtype], options)


def _additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a key is seen, minus infinity elsewhere; torch would turn truth values into this in every layer."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -math.inf)


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, options: AttentionOptions) -> Tensor:
    """Attention with a mask that is added to the scores, or causal without one; shape (1, tokens, heads, head size)."""
    if options.softcap is not None and mask is not None:
        return _capped(query, keys, values, mask, options).transpose(1, 2)
    return F.scaled_dot_product_attention(
        query,
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None and query.shape[2] > 1,
        scale=options.scaling,
        enable_gqa=query.shape[1] != keys.shape[1],
    ).transpose(1, 2)


def _capped(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, options: AttentionOptions) -> Tensor:
    """Attention with bounded scores, which no fused kernel computes; it always has a mask."""
    groups = query.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
    scores = options.capped(query @ keys.transpose(2, 3) * options.scale(query)) + mask
    return torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype) @ values


AttentionInterface.register(ATTENTION_NAME, packed_attention)
