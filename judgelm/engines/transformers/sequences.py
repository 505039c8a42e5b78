"""Queued requests, running replies, and the blocks in which these attend together.

One call attends for all replies of a block, since a call for each takes far longer.
"""

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from judgelm.engines.base import decode_reply
from judgelm.engines.candidates import ScoreTree
from judgelm.engines.images import ProcessedImage
from judgelm.engines.transformers.attention import AttentionOptions, KVCache
from judgelm.errors import EngineError
from judgelm.prompts.truncation import TokenizedPrompt, Tokenizer
from judgelm.records import Completion, FinishReason, Request

NOT_DRAWN = "no token can be drawn: the model's probabilities are not finite; check its weights and dtype"
_MAX_ROWS = 32
_FIRST_ROWS = 4
_SPARE_TOKENS = 32
_Layers = Mapping[int, tuple[Tensor, Tensor]]


def check_request(request: Request) -> None:
    """Refuse a request that this engine cannot answer.

    Raises:
        EngineError: it has a grammar.
    """
    if request.sampling.grammar is not None:
        raise EngineError("the transformers engine does not constrain replies to a grammar; use --engine vllm")


class FinishedSequence(NamedTuple):
    """A finished reply, without its keys and values, which would stay in memory until the next garbage collection."""

    text: str
    finish_reason: FinishReason
    tokens: int


@dataclass(eq=False)
class QueuedRequest:
    """A tokenised request, and its replies as they finish.

    Attributes:
        request: the request itself.
        tokenized: its prompt as the model reads it.
        tree: of the candidates, where there are any.
        images: the prompt's images.
        images_end: tokens of the prompt up to the end of its last image.
        candidate_logprobs: set when the tree has been evaluated.
        alone: whether it runs in passes without other requests, since a pass with it failed.
    """

    request: Request
    tokenized: TokenizedPrompt
    tree: ScoreTree | None
    images: tuple[ProcessedImage, ...] = ()
    images_end: int = 0
    candidate_logprobs: tuple[float, ...] | None = None
    alone: bool = False
    _finished: dict[int, FinishedSequence] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Hold the token ids as an array, which is fast to compare."""
        self.ids: NDArray[np.int32] = np.array(self.tokenized.ids, np.int32)

    @property
    def context(self) -> tuple[str | None, tuple[str, ...]]:
        """Its adapter and images: keys and values of equal tokens differ between contexts."""
        return self.request.adapter, self.tokenized.images

    @property
    def capacity(self) -> int:
        """Maximum tokens of the prompt and one reply."""
        return len(self.tokenized.ids) + self.request.sampling.max_tokens

    @property
    def tree_nodes(self) -> int:
        """Inner nodes of its tree; 0 without one."""
        return 0 if self.tree is None else len(self.tree.tokens)

    def reset(self) -> None:
        """Forget the finished replies."""
        self._finished.clear()

    def finish(self, sequence: "RunningSequence") -> Completion | None:
        """Take a finished reply; returns the completion once all replies are finished."""
        self._finished[sequence.index] = FinishedSequence(
            sequence.text, sequence.finish_reason or "error", len(sequence.ids)
        )
        n = self.request.sampling.n
        if len(self._finished) < n:
            return None
        replies = [self._finished[index] for index in range(n)]
        if any(reply.finish_reason == "error" for reply in replies):
            return self.failed(NOT_DRAWN)
        return Completion(
            key=self.request.key,
            texts=tuple(self.tokenized.opening + reply.text for reply in replies),
            finish_reasons=tuple(reply.finish_reason for reply in replies),
            candidate_logprobs=self.candidate_logprobs,
            prompt_tokens=len(self.tokenized.ids),
            completion_tokens=sum(reply.tokens for reply in replies),
            truncations=self.tokenized.truncations,
            sanitized=self.tokenized.sanitized,
        )

    def rewarded(self, reward: float) -> Completion:
        """The completion of a request to a reward model."""
        return Completion(
            key=self.request.key,
            texts=("",),
            finish_reasons=("stop",),
            reward=reward,
            prompt_tokens=len(self.ids),
            truncations=self.tokenized.truncations,
            sanitized=self.tokenized.sanitized,
        )

    def failed(self, message: str) -> Completion:
        """The completion of a request that the engine could not run."""
        return Completion.failed(
            self.request.key,
            message,
            prompt_tokens=len(self.tokenized.ids),
            truncations=self.tokenized.truncations,
        )


class RunningSequence:
    """A reply being generated: its tokens so far.

    Args:
        parent: the request that it answers.
        index: which of the request's `n` replies it is.
    """

    def __init__(self, parent: QueuedRequest, index: int) -> None:
        self.parent = parent
        self.index = index
        self.ids: list[int] = []
        self.text = ""
        self.finish_reason: FinishReason | None = None
        sampling = parent.request.sampling
        self.generator = torch.Generator() if sampling.temperature > 0 else None
        if self.generator is not None:
            self.generator.manual_seed(sampling.seed + index)

    @property
    def read_tokens(self) -> int:
        """Tokens of prompt and reply that the model has read: all but the last."""
        return len(self.parent.tokenized.ids) + len(self.ids) - 1

    def append(self, token: int, tokenizer: Tokenizer, eos_ids: frozenset[int]) -> None:
        """Append a token and set `finish_reason` if the reply ends with it; a reply that failed takes none."""
        if self.finish_reason is not None:
            return
        sampling = self.parent.request.sampling
        self.ids.append(token)
        if token in eos_ids or sampling.stop or len(self.ids) == sampling.max_tokens:
            self.text, self.finish_reason = decode_reply(self.ids, sampling, tokenizer, eos_ids)


def next_tokens(sequences: Sequence[RunningSequence], logits: torch.Tensor, greedy: Sequence[int]) -> list[int]:
    """The next token of each reply: the most probable, or one drawn with the reply's own generator.

    A reply of which no token can be drawn fails by itself.

    Args:
        sequences: the replies.
        logits: shape (rows, vocabulary), a row for each; those of sampled replies are copied to the CPU at once.
        greedy: the most probable token of each row, and of further ones.
    """
    tokens = list(greedy[: len(sequences)])
    drawn = [row for row, sequence in enumerate(sequences) if sequence.generator is not None]
    if not drawn:
        return tokens
    for row, own in zip(drawn, logits[drawn].float().cpu(), strict=True):
        probabilities = torch.softmax(own / sequences[row].parent.request.sampling.temperature, -1)
        try:
            tokens[row] = int(torch.multinomial(probabilities, 1, generator=sequences[row].generator))
        except RuntimeError:  # NaN among them
            sequences[row].finish_reason = "error"
    return tokens


class DecodeBlock:
    """Replies with room for equally many tokens, their keys and values side by side: one row each.

    Its replies, in order, are a segment of a pass: the last token of each.

    Args:
        capacity: tokens of a row.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.sequences: list[RunningSequence] = []
        self.rows = 0
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._places: tuple[Tensor, Tensor] | None = None
        self._masks: dict[int | None, Tensor] = {}

    @property
    def tokens(self) -> int:
        """New tokens of the pass: one for each place."""
        assert self._places is not None, "begin_pass comes first"
        return len(self._places[1])

    @property
    def allocated_tokens(self) -> int:
        """Tokens that its buffers have room for."""
        return self.rows * self.capacity

    @property
    def full(self) -> bool:
        """True if no further reply fits in."""
        return len(self.sequences) == _MAX_ROWS

    def layers_of(self, sequence: RunningSequence) -> _Layers:
        """A reply's keys and values, per layer, shape (kv heads, capacity, head size)."""
        row = self.sequences.index(sequence)
        return {layer: (keys[row], values[row]) for layer, (keys, values) in self._layers.items()}

    def insert(self, sequence: RunningSequence, layers: _Layers, read: int, nodes: Sequence[int] = ()) -> None:
        """Copy a reply's keys and values into a new row.

        Args:
            sequence: the reply.
            layers: keys and values, per layer, shape (kv heads, tokens, head size).
            read: how many of the first tokens count.
            nodes: places behind those, ascending, of tokens that follow them.
        """
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
        """Twice the rows, or nothing if memory runs out; unused places hold zeros, since products read all of a row."""
        rows = max(_FIRST_ROWS, 2 * self.rows)
        grown: dict[int, tuple[Tensor, Tensor]] = {}
        for layer, pair in layers.items():
            with torch.inference_mode(False):  # or a model in training, which has no such mode, could not write to it
                keys, values = (
                    tensor.new_zeros((rows, tensor.shape[0], self.capacity, tensor.shape[2])) for tensor in pair
                )
            if self.rows:
                keys[: self.rows], values[: self.rows] = self._layers[layer]
            grown[layer] = keys, values
        self._layers, self.rows = grown, rows

    def remove(self, sequence: RunningSequence) -> None:
        """Free a reply's row; the last reply takes it."""
        row, last = self.sequences.index(sequence), len(self.sequences) - 1
        if row < last:
            for buffers in self._layers.values():
                for buffer in buffers:
                    buffer[row] = buffer[last]
        self.sequences[row] = self.sequences[last]
        self.sequences.pop()

    def begin_pass(self, places: Tensor) -> None:
        """Take the places of a pass.

        Args:
            places: shape (replies,), where the last token of each goes.
        """
        self._places = torch.arange(len(places), device=places.device), places
        self._masks = {}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """Attention of each reply's last token, as precise as transformers' `eager`; see `attention.Segment`."""
        assert self._places is not None, "begin_pass comes first"
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
        """0 where a reply sees a place, minus infinity elsewhere, shape (replies, 1, capacity)."""
        assert self._places is not None
        if window not in self._masks:
            last = self._places[1][:, None]
            key = torch.arange(self.capacity, device=last.device)[None]
            seen = key <= last if window is None else (key <= last) & (key > last - window)
            self._masks[window] = torch.zeros(seen.shape, device=last.device).masked_fill_(~seen, -math.inf)[:, None]
        return self._masks[window]


class DecodeBlocks:
    """All running replies; iterates over them in the order of a pass.

    Args:
        idle_tokens: room for so many tokens is kept in blocks without a reply, since new memory is slow to touch.
    """

    def __init__(self, idle_tokens: int) -> None:
        self._idle_tokens = idle_tokens
        self._all: list[DecodeBlock] = []

    def __len__(self) -> int:
        """Number of running replies."""
        return sum(len(block.sequences) for block in self._all)

    def __iter__(self) -> Iterator[RunningSequence]:
        """The replies, block by block."""
        for block in self._all:
            yield from block.sequences

    @property
    def blocks(self) -> list[DecodeBlock]:
        """Those with a reply."""
        return [block for block in self._all if block.sequences]

    @property
    def tokens(self) -> int:
        """Tokens that the replies have room for, or will have."""
        allocated = sum(block.allocated_tokens for block in self.blocks)
        return max(allocated, sum(sequence.parent.capacity for sequence in self))

    def join(self, sequence: RunningSequence, kv: KVCache, nodes: Sequence[int]) -> None:
        """Let a reply begin.

        Args:
            sequence: the reply, with its first tokens.
            kv: of its prompt.
            nodes: places behind the prompt's tokens where its tokens but the last are.
        """
        self._insert(sequence, kv.layers(), kv.length, nodes)

    def make_room(self) -> None:
        """Move replies whose rows are full into larger rows."""
        for block in list(self._all):
            for sequence in [reply for reply in block.sequences if reply.read_tokens == block.capacity]:
                self._insert(sequence, block.layers_of(sequence), sequence.read_tokens)
                self._remove(block, sequence)

    def copy(self, sequence: RunningSequence, kv: KVCache) -> None:
        """Append to `kv` the tokens of a reply and its prompt that it does not have yet."""
        block = self._block_of(sequence)
        for layer, (keys, values) in block.layers_of(sequence).items():
            new = slice(kv.length, sequence.read_tokens)
            kv.write(layer, keys[None, :, new], values[None, :, new], kv.length)
        kv.advance(sequence.read_tokens - kv.length)

    def leave(self, sequence: RunningSequence) -> None:
        """Free a reply's row."""
        self._remove(self._block_of(sequence), sequence)

    def discard(self, keys: Set[str]) -> None:
        """Free the rows of all replies to the requests with these keys."""
        for sequence in [reply for reply in self if reply.parent.request.key in keys]:
            self.leave(sequence)

    def free_idle(self) -> None:
        """Free the memory of blocks without a reply."""
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
    """The capacity of a row that holds so many tokens: a multiple of 128, and from 512 at most a quarter more.

    Each capacity is a block, and a block of few replies takes as long as one of many.
    """
    step = max(128, 1 << (tokens.bit_length() - 3))
    return -(-tokens // step) * step
