"""Store the keys and values of prompts."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from judgelm.engines.memory import available_bytes


class KVCache:
    """A prompt's keys and values per layer. Tokens from failed passes are not counted.

    `expected` is the initial capacity. The first `shared` tokens are copied from `prefix`.
    """

    __slots__ = ("_layers", "_prefix", "expected", "length")

    def __init__(self, expected: int = 0, prefix: "KVCache | None" = None, shared: int = 0) -> None:
        self.expected = expected
        self.length = shared
        self._prefix = prefix
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def write(self, layer: int, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:
        """Write new tokens at position `past`. Return all keys and values, shape (1, kv heads, tokens, head size)."""
        if self._prefix is not None and layer not in self._layers:
            keys, values = (tensor[:, :, : self.length] for tensor in self._prefix._layers[layer])
            self._layers[layer] = self._grown(layer, keys, values, 0, self.length)
            self.write(layer, keys, values, 0)
        end = past + key.shape[2]
        if layer not in self._layers or self._layers[layer][0].shape[2] < end:
            self._layers[layer] = self._grown(layer, key, value, past, end)
        keys, values = self._layers[layer]
        keys[:, :, past:end] = key
        values[:, :, past:end] = value
        return keys[:, :, :end], values[:, :, :end]

    def _grown(self, layer: int, key: Tensor, value: Tensor, past: int, end: int) -> tuple[Tensor, Tensor]:
        room = max(end, self.expected)
        with torch.inference_mode(False):  # so that a model that is being trained can write to them
            keys = key.new_empty((*key.shape[:2], room, key.shape[3]))
            values = value.new_empty((*value.shape[:2], room, value.shape[3]))
        if layer in self._layers:
            old_keys, old_values = self._layers[layer]
            keys[:, :, :past] = old_keys[:, :, :past]
            values[:, :, :past] = old_values[:, :, :past]
        return keys, values

    def layers(self) -> Mapping[int, tuple[Tensor, Tensor]]:
        """Return the keys and values per layer, each of shape (kv heads, capacity, head size)."""
        return {layer: (keys[0], values[0]) for layer, (keys, values) in self._layers.items()}

    def advance(self, tokens: int) -> None:
        """Count the tokens from a finished pass."""
        self.length += tokens
        self._prefix = None


class TrainedKV(KVCache):
    """Keys and values with gradients."""

    __slots__ = ()

    def write(self, layer: int, key: Tensor, value: Tensor, past: int) -> tuple[Tensor, Tensor]:
        """See `KVCache.write`."""
        if past:
            keys, values = self._layers.pop(layer)
            return torch.cat((keys, key), 2), torch.cat((values, value), 2)
        if self.expected:
            self._layers[layer] = key, value
        return key, value


_MEMORY_SHARE = 0.5


def kv_capacity(model: Any, device: torch.device) -> int:
    """Return the number of tokens that fit in half of the free memory."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * heads * size * model.dtype.itemsize
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
    return max(1, int(_MEMORY_SHARE * free / per_token))
