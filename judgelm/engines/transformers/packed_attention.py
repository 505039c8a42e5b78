"""Attention over packed sequences: no padding, no mask, a separate KV cache for each sequence.

Tokens of many sequences are packed into one row, so every matrix product of the model runs over all of them at once.
Only attention looks at one sequence at a time. New prompts and single decode steps share a pass. The function is
registered with transformers under `ATTENTION_NAME`; the segments reach it as a keyword of the model's forward. A mask
is built only for sliding windows and score trees.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it
from torch import Tensor
from transformers import AttentionInterface

from judgelm.errors import EngineError

ATTENTION_NAME = "judgelm_packed"
_CAUSAL_BLOCK = 128
_SPARE_TOKENS = 64


class KVCache:
    """Keys and values of one sequence, per layer; the buffers grow as needed.

    Tokens written during a pass count only once `advance` is called, so a pass that ran out of memory can be repeated.

    Args:
        capacity: maximum tokens.
        expected: tokens after the first pass, for which there is room at once.
    """

    __slots__ = ("_expected", "_layers", "capacity", "length")

    def __init__(self, capacity: int, expected: int = 0) -> None:
        self.capacity = capacity
        self._expected = expected
        self.length = 0
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write new tokens; returns all keys and values, shape (1, kv heads, tokens, head size)."""
        end = self.length + key.shape[2]
        if layer not in self._layers or self._layers[layer][0].shape[2] < end:
            self._layers[layer] = self._grown(layer, key, value, end)
        keys, values = self._layers[layer]
        keys[:, :, self.length : end] = key
        values[:, :, self.length : end] = value
        return keys[:, :, :end], values[:, :, :end]

    def _grown(self, layer: int, key: Tensor, value: Tensor, end: int) -> tuple[Tensor, Tensor]:
        """Larger buffers with the counted tokens; decode steps read all of a buffer, see `_next_token`."""
        room = min(self.capacity, max(end, self._expected) + _SPARE_TOKENS)
        with torch.inference_mode(False):  # or a model in training, which has no such mode, could not write to it
            keys = key.new_empty((*key.shape[:2], room, key.shape[3]))
            values = value.new_zeros((*value.shape[:2], room, value.shape[3]))
        if layer in self._layers:
            old_keys, old_values = self._layers[layer]
            keys[:, :, : self.length] = old_keys[:, :, : self.length]
            values[:, :, : self.length] = old_values[:, :, : self.length]
        return keys, values

    def buffers(self, layer: int) -> tuple[Tensor, Tensor]:
        """The whole buffers of keys and values; values not yet written are 0."""
        return self._layers[layer]

    def extended(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The counted tokens followed by new ones, which are not stored."""
        keys, values = self._layers[layer]
        past = slice(0, self.length)
        return torch.cat((keys[:, :, past], key), 2), torch.cat((values[:, :, past], value), 2)

    def advance(self, tokens: int) -> None:
        """Count tokens that a finished pass has written."""
        self.length += tokens

    def copy_prefix(self, source: "KVCache", tokens: int) -> None:
        """Copy another sequence's first tokens into this empty one."""
        for layer, (keys, values) in source._layers.items():
            self.write(layer, keys[:, :, :tokens], values[:, :, :tokens])
        self.length = tokens

    def fork(self) -> "KVCache":
        """A copy for another sample of the same prompt."""
        copy = KVCache(self.capacity, self._expected)
        copy.length = self.length
        copy._layers = {layer: (keys.clone(), values.clone()) for layer, (keys, values) in self._layers.items()}
        return copy


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of new tokens of one sequence within a pass.

    Attributes:
        kv: the sequence's keys and values.
        tokens: number of new tokens.
        tree: for a score tree, shape (tokens, tokens), True where a node attends to a node; its tokens are not stored.
    """

    kv: KVCache
    tokens: int
    tree: Tensor | None = None


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
    """Attention of each segment over its own sequence.

    Args:
        module: the attention layer; its `layer_idx` names the layer.
        query: shape (1, heads, all tokens, head size).
        key: shape (1, kv heads, all tokens, head size); `value` alike.
        value: see `key`.
        attention_mask: always None: transformers builds none for this name.
        segments: the sequences that the tokens belong to, in order.
        scaling: factor on the scores; None for 1 / sqrt(head size).
        sliding_window: tokens that a token attends to, itself included.
        softcap: bound of the scores through tanh (Gemma 2).
        others: further keywords of the model; attention sinks are refused.

    Returns:
        Shape (1, all tokens, heads, head size), and None for the weights.

    Raises:
        EngineError: the model needs a feature that this function lacks.
    """
    if segments is None or attention_mask is not None or others.get("s_aux") is not None:
        raise EngineError("this model's attention cannot run packed in the transformers engine; use --engine vllm")
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    out = query.new_empty((1, query.shape[2], query.shape[1], value.shape[3]))
    start = 0
    for segment in segments:
        span = slice(start, start + segment.tokens)
        extend = segment.kv.write if segment.tree is None else segment.kv.extended
        keys, values = extend(layer, key[:, :, span], value[:, :, span])
        mask = _mask(segment, keys.shape[2], sliding_window, query.device)
        queries = query[:, :, span]
        if softcap is not None:
            out[:, span] = _softcapped(queries, keys, values, mask, scaling, softcap).transpose(1, 2)
        elif mask is None and segment.tokens == 1 and _slow_for_one_token(query):
            out[:, span] = _next_token(queries, *segment.kv.buffers(layer), keys.shape[2], scaling).transpose(1, 2)
        elif mask is None and query.device.type == "cpu":
            _causal(queries, keys, values, scaling, out[:, span])
        else:
            out[:, span] = _attend(queries, keys, values, mask, scaling).transpose(1, 2)
        start += segment.tokens
    return out, None


def _mask(segment: Segment, length: int, window: int | None, device: torch.device) -> Tensor | None:
    """Mask of the `length` keys that each new token attends to, shape (tokens, length); None for all up to itself.

    On CUDA a run of tokens behind others needs a mask: the kernels' own causal attention only takes squares.
    """
    past = length - segment.tokens
    slides = window is not None and length > window
    if segment.tree is not None:
        if slides:
            raise EngineError("a score tree does not fit a sliding window shorter than the prompt; use --engine vllm")
        seen = segment.tree.new_ones((segment.tokens, past))
        return torch.cat((seen, segment.tree), 1)
    if not slides and (past == 0 or segment.tokens == 1 or device.type == "cpu"):
        return None
    position = torch.arange(past, length, device=device)[:, None]
    key = torch.arange(length, device=device)[None, :]
    mask = key <= position
    return mask & (key > position - window) if slides and window is not None else mask


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scaling: float | None) -> Tensor:
    """Attention through the mask, or causal without one."""
    return F.scaled_dot_product_attention(
        query,
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None and query.shape[2] > 1,
        scale=scaling,
        enable_gqa=query.shape[1] != keys.shape[1],
    )


def _causal(query: Tensor, keys: Tensor, values: Tensor, scaling: float | None, out: Tensor) -> None:
    """Causal attention of a sequence's last run of tokens, into `out`, shape (1, tokens, heads, head size).

    Works by blocks of queries, each with the keys up to its end: torch's CPU kernel goes through the keys 512 at a time
    and also computes those that are masked for all queries.
    """
    tokens, past = query.shape[2], keys.shape[2] - query.shape[2]
    for start in range(0, tokens, _CAUSAL_BLOCK):
        end = min(start + _CAUSAL_BLOCK, tokens)
        visible = past + end
        square = visible == end - start
        mask = (
            None if square or tokens == 1 else torch.ones((end - start, visible), dtype=torch.bool).tril(past + start)
        )
        block = _attend(query[:, :, start:end], keys[:, :, :visible], values[:, :, :visible], mask, scaling)
        out[:, start:end] = block.transpose(1, 2)


def _slow_for_one_token(query: Tensor) -> bool:
    """True if torch's fused kernel is slow for a single query, as on the CPU in 16 bits."""
    return query.device.type == "cpu" and query.dtype != torch.float32


def _next_token(query: Tensor, keys: Tensor, values: Tensor, length: int, scaling: float | None) -> Tensor:
    """Attention of one token by two plain products, as precise as transformers' `eager` attention.

    The products run over the whole buffers: for a part of a buffer torch would first copy that part, which takes longer
    than computing the rest.
    """
    heads, size = keys.shape[1], keys.shape[3]
    scale = size**-0.5 if scaling is None else scaling
    grouped = query.view(heads, -1, size) * scale
    scores = torch.bmm(grouped, keys[0].transpose(1, 2))[:, :, :length]
    shares = values.new_zeros((*grouped.shape[:2], keys.shape[2]))
    shares[:, :, :length] = torch.softmax(scores, -1, dtype=torch.float32)
    return torch.bmm(shares, values[0]).view(1, query.shape[1], 1, values.shape[3])


def _softcapped(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scaling: float | None, softcap: float
) -> Tensor:
    """Attention with scores bounded by `softcap * tanh(score / softcap)`, which no fused kernel computes."""
    groups = query.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
    scores = query @ keys.transpose(2, 3) * (scaling if scaling is not None else query.shape[3] ** -0.5)
    scores = torch.tanh(scores / softcap) * softcap
    if mask is None and query.shape[2] > 1:
        mask = torch.ones(scores.shape[2:], dtype=torch.bool, device=query.device).tril(keys.shape[2] - query.shape[2])
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype) @ values


AttentionInterface.register(ATTENTION_NAME, packed_attention)
