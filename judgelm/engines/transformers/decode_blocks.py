"""Group running replies into blocks, because one attention call per block is much faster."""

import math
from collections.abc import Iterator, Mapping, Sequence, Set

import torch
from torch import Tensor

from judgelm.engines.transformers.attention import AttentionOptions
from judgelm.engines.transformers.kv_cache import KVCache
from judgelm.engines.transformers.sequences import RunningSequence

_MAX_ROWS = 32
_INITIAL_ROWS = 4
_SPARE_TOKENS = 32

_Layers = Mapping[int, tuple[Tensor, Tensor]]


class DecodeBlock:
    """A segment of replies that have the same capacity."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.sequences: list[RunningSequence] = []
        self.rows = 0
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._places: tuple[Tensor, Tensor] | None = None
        self._masks: dict[int | None, Tensor] = {}

    @property
    def tokens(self) -> int:
        """See `Segment`."""
        assert self._places is not None, "call begin_pass first"
        return len(self._places[1])

    @property
    def allocated_tokens(self) -> int:
        """Total capacity of the buffers, in tokens."""
        return self.rows * self.capacity

    @property
    def full(self) -> bool:
        """True if there are no free rows."""
        return len(self.sequences) == _MAX_ROWS

    def layers_of(self, sequence: RunningSequence) -> _Layers:
        """Return a reply's keys and values per layer, each of shape (kv heads, capacity, head size)."""
        row = self.sequences.index(sequence)
        return {layer: (keys[row], values[row]) for layer, (keys, values) in self._layers.items()}

    def insert(self, sequence: RunningSequence, layers: _Layers, read: int, nodes: Sequence[int] = ()) -> None:
        """Copy a reply's keys and values to a new row: the first `read` tokens, then the tokens at offsets `nodes`."""
        row = len(self.sequences)
        if row == self.rows:
            self._grow(layers)
        end = read + len(nodes)
        for layer, (keys, values) in layers.items():
            for buffer, source in zip(self._layers[layer], (keys, values), strict=True):
                buffer[row, :, :read] = source[:, :read]
                if nodes:
                    buffer[row, :, read:end] = source[:, [read + node for node in nodes]]
        self.sequences.append(sequence)

    def _grow(self, layers: _Layers) -> None:
        """Fill new rows with zeros, because matrix products read entire rows."""
        rows = max(_INITIAL_ROWS, 2 * self.rows)
        grown: dict[int, tuple[Tensor, Tensor]] = {}
        for layer, pair in layers.items():
            with torch.inference_mode(False):  # so that a model that is being trained can write to them
                keys, values = (
                    tensor.new_zeros((rows, tensor.shape[0], self.capacity, tensor.shape[2])) for tensor in pair
                )
            if self.rows:
                keys[: self.rows], values[: self.rows] = self._layers[layer]
            grown[layer] = keys, values
        self._layers, self.rows = grown, rows

    def remove(self, sequence: RunningSequence) -> None:
        """Remove a reply and move the last reply into its row."""
        row, last = self.sequences.index(sequence), len(self.sequences) - 1
        if row < last:
            for buffers in self._layers.values():
                for buffer in buffers:
                    buffer[row] = buffer[last]
        self.sequences[row] = self.sequences[last]
        self.sequences.pop()

    def begin_pass(self, places: Tensor) -> None:
        """Set the position of each reply's last token, shape (replies,)."""
        self._places = torch.arange(len(places), device=places.device), places
        self._masks = {}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """See `Segment`."""
        assert self._places is not None, "call begin_pass first"
        rows, places = self._places
        keys, values = self._layers[layer]
        keys[rows, :, places] = key[0].transpose(0, 1)
        values[rows, :, places] = value[0].transpose(0, 1)
        count, kv_heads = len(rows), keys.shape[1]
        grouped = (query[0].transpose(0, 1) * options.scale(query)).reshape(count * kv_heads, -1, query.shape[3])
        products = torch.bmm(grouped, keys[:count].flatten(0, 1).transpose(1, 2))
        scores = options.capped(products.float()).view(count, -1, self.capacity) + self._mask(options.window)
        shares = torch.softmax(scores, -1).to(value.dtype).view(count * kv_heads, -1, self.capacity)
        return torch.bmm(shares, values[:count].flatten(0, 1)).view(1, count, -1, value.shape[3])

    def _mask(self, window: int | None) -> Tensor:
        assert self._places is not None
        if window not in self._masks:
            last = self._places[1][:, None]
            key = torch.arange(self.capacity, device=last.device)[None]
            seen = key <= last if window is None else (key <= last) & (key > last - window)
            self._masks[window] = torch.zeros(seen.shape, device=last.device).masked_fill_(~seen, -math.inf)[:, None]
        return self._masks[window]


class DecodeBlocks:
    """All running replies."""

    def __init__(self, idle_tokens: int) -> None:
        self._idle_tokens = idle_tokens
        self._all: list[DecodeBlock] = []

    def __len__(self) -> int:
        return sum(len(block.sequences) for block in self._all)

    def __iter__(self) -> Iterator[RunningSequence]:
        for block in self._all:
            yield from block.sequences

    @property
    def blocks(self) -> list[DecodeBlock]:
        """Blocks that contain replies."""
        return [block for block in self._all if block.sequences]

    @property
    def tokens(self) -> int:
        """Maximum number of tokens that the replies need."""
        allocated = sum(block.allocated_tokens for block in self.blocks)
        return max(allocated, sum(sequence.parent.capacity for sequence in self))

    def join(self, sequence: RunningSequence, kv: KVCache, nodes: Sequence[int]) -> None:
        """Add a reply to a prompt. `nodes` contains the offsets of all tokens except the last."""
        self._insert(sequence, kv.layers(), kv.length, nodes)

    def make_room(self) -> None:
        """Move replies in full rows to larger rows."""
        for block in list(self._all):
            for sequence in [reply for reply in block.sequences if reply.read_tokens == block.capacity]:
                self._insert(sequence, block.layers_of(sequence), sequence.read_tokens)
                self._remove(block, sequence)

    def copy(self, sequence: RunningSequence, kv: KVCache) -> None:
        """Append the reply's keys and values that are missing from `kv`."""
        block = self._block_of(sequence)
        for layer, (keys, values) in block.layers_of(sequence).items():
            new = slice(kv.length, sequence.read_tokens)
            kv.write(layer, keys[None, :, new], values[None, :, new], kv.length)
        kv.advance(sequence.read_tokens - kv.length)

    def leave(self, sequence: RunningSequence) -> None:
        """Free a reply's row."""
        self._remove(self._block_of(sequence), sequence)

    def discard(self, keys: Set[str]) -> None:
        """Free the rows used by these requests."""
        for sequence in [reply for reply in self if reply.parent.request.key in keys]:
            self.leave(sequence)

    def free_idle(self) -> None:
        """Free empty blocks."""
        self._all = self.blocks

    def clear(self) -> None:
        """Free all memory."""
        self._all = []

    def _insert(self, sequence: RunningSequence, layers: _Layers, read: int, nodes: Sequence[int] = ()) -> None:
        capacity = _row_tokens(min(read + len(nodes) + _SPARE_TOKENS, sequence.parent.capacity))
        block = next((other for other in self._all if other.capacity == capacity and not other.full), None)
        if block is None:
            block = DecodeBlock(capacity)
            self._all.append(block)
        block.insert(sequence, layers, read, nodes)

    def _remove(self, block: DecodeBlock, sequence: RunningSequence) -> None:
        block.remove(sequence)
        idle = [other for other in self._all if not other.sequences]
        if sum(other.allocated_tokens for other in idle) > self._idle_tokens:
            self.free_idle()

    def _block_of(self, sequence: RunningSequence) -> DecodeBlock:
        return next(block for block in self._all if sequence in block.sequences)


def _row_tokens(tokens: int) -> int:
    """Round capacities up, because fewer, fuller blocks are faster."""
    step = max(128, 1 << (tokens.bit_length() - 3))
    return -(-tokens // step) * step
