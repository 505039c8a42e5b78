"""Keys and values of one prompt."""

from collections.abc import Mapping

import torch
from torch import Tensor


class KVCache:
    """Keys and values of one prompt, per layer, for as long as it is read or may be shared.

    Tokens written during a pass count only once `advance` is called, so a pass that ran out of memory can be repeated.

    Args:
        expected: tokens for which there is room at once; the buffers grow when more come.
    """

    __slots__ = ("_layers", "expected", "length")

    def __init__(self, expected: int = 0) -> None:
        self.expected = expected
        self.length = 0
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def write(self, layer: int, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:
        """Write new tokens behind `past` others; returns all up to them, shape (1, kv heads, tokens, head size)."""
        end = past + key.shape[2]
        if layer not in self._layers or self._layers[layer][0].shape[2] < end:
            self._layers[layer] = self._grown(layer, key, value, past, end)
        keys, values = self._layers[layer]
        keys[:, :, past:end] = key
        values[:, :, past:end] = value
        return keys[:, :, :end], values[:, :, :end]

    def _grown(self, layer: int, key: Tensor, value: Tensor, past: int, end: int) -> tuple[Tensor, Tensor]:
        """Larger buffers with the tokens so far."""
        room = max(end, self.expected)
        with torch.inference_mode(False):  # or a model in training, which has no such mode, could not write to it
            keys = key.new_empty((*key.shape[:2], room, key.shape[3]))
            values = value.new_empty((*value.shape[:2], room, value.shape[3]))
        if layer in self._layers:
            old_keys, old_values = self._layers[layer]
            keys[:, :, :past] = old_keys[:, :, :past]
            values[:, :, :past] = old_values[:, :, :past]
        return keys, values

    def layers(self) -> Mapping[int, tuple[Tensor, Tensor]]:
        """Keys and values, per layer, shape (kv heads, tokens, head size); the places behind `length` do not count."""
        return {layer: (keys[0], values[0]) for layer, (keys, values) in self._layers.items()}

    def advance(self, tokens: int) -> None:
        """Count tokens that a finished pass has written."""
        self.length += tokens

    def copy_prefix(self, source: "KVCache", tokens: int) -> None:
        """Copy another prompt's first tokens into this empty one."""
        for layer, (keys, values) in source._layers.items():
            self.write(layer, keys[:, :, :tokens], values[:, :, :tokens], 0)
        self.length = tokens
