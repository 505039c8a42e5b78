"""Passes over running replies alone, recorded as CUDA graphs.

Such a pass has few tokens and as many kernels as any other: to launch them one by one takes longer than to run them. A
recorded pass is launched whole. It repeats the same kernels on the same memory, so it always computes all rows of its
blocks (see `DecodeBlock`), and reads tokens and places from buffers that are filled before. Where there are no graphs,
the same function runs as it is.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from judgelm.engines.transformers.decode_blocks import DecodeBlock
from judgelm.engines.transformers.memory import is_out_of_memory

_MAX_GRAPHS, _MAX_SEEN = 4, 64
_SEEN_BEFORE = 2

Result = TypeVar("Result")
Recorder = Callable[[Callable[[], Result]], Callable[[], Result]]
"""Turns a function of tensors that stay in their places into one that repeats it."""


class DecodeResult(NamedTuple):
    """Logits of a pass, shape (replies, vocabulary), and the most probable token of each reply."""

    logits: Tensor
    greedy: Tensor


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A recorded pass: its input, shape (2, rows), token ids above positions, and the function that repeats it."""

    tokens: Tensor
    repeat: Callable[[], DecodeResult]


class DecodeGraphs:
    """The recorded passes of a model, at most `_MAX_GRAPHS`.

    Args:
        forward: of the model: token ids and positions, shape (1, rows) each, and the blocks; returns logits, shape
            (rows, vocabulary).
        recorder: records a pass.
    """

    def __init__(
        self, forward: Callable[[Tensor, Tensor, Sequence[DecodeBlock]], Tensor], recorder: Recorder[DecodeResult]
    ) -> None:
        self._forward = forward
        self._recorder = recorder
        self._recorded: OrderedDict[tuple[tuple[int, int], ...], _Recorded] = OrderedDict()
        self._seen: OrderedDict[tuple[tuple[int, int], ...], int] = OrderedDict()
        self.failure = ""

    def run(self, blocks: Sequence[DecodeBlock], device: torch.device) -> DecodeResult:
        """Run a pass over the last token of each reply; logits and tokens in the order of the blocks and replies.

        A pass over blocks that were seen before is recorded, unless recording failed once.
        """
        rows = [row for block in blocks for row in _rows_of(block)]
        tokens = torch.tensor(rows, pin_memory=device.type == "cuda").T
        key = tuple(block.buffers for block in blocks)
        if (recorded := self._recorded.get(key)) is not None:
            self._recorded.move_to_end(key)
            recorded.tokens.copy_(tokens, non_blocking=True)
            result = recorded.repeat()
        else:
            static = tokens.to(device, non_blocking=True).contiguous()
            result = self._pass(static, blocks)
            if self._is_worth_recording(key):
                self._record(key, static, blocks)
        return self._of_replies(result, blocks, device)

    def clear(self) -> None:
        """Forget all recorded passes, whose memory is freed."""
        self._recorded.clear()

    def _pass(self, tokens: Tensor, blocks: Sequence[DecodeBlock]) -> DecodeResult:
        """All rows of the blocks, shape (rows, ...)."""
        start = 0
        for block in blocks:
            block.begin_pass(tokens[1, start : start + block.rows])
            start += block.rows
        logits = self._forward(tokens[:1], tokens[1:], blocks)
        return DecodeResult(logits, logits.argmax(-1))

    def _is_worth_recording(self, key: tuple[tuple[int, int], ...]) -> bool:
        self._seen[key] = self._seen.pop(key, 0) + 1
        while len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)
        return not self.failure and self._seen[key] >= _SEEN_BEFORE

    def _record(self, key: tuple[tuple[int, int], ...], tokens: Tensor, blocks: Sequence[DecodeBlock]) -> None:
        """Record a pass; a model that cannot be recorded runs on as before."""
        while len(self._recorded) >= _MAX_GRAPHS:
            self._recorded.popitem(last=False)
        try:
            repeat = self._recorder(lambda: self._pass(tokens, tuple(blocks)))
        except (torch.OutOfMemoryError, RuntimeError) as error:
            self.clear()
            if not is_out_of_memory(error):
                self.failure = f"decoding without CUDA graphs, which this model does not support: {error}"
            return
        self._recorded[key] = _Recorded(tokens, repeat)

    @staticmethod
    def _of_replies(result: DecodeResult, blocks: Sequence[DecodeBlock], device: torch.device) -> DecodeResult:
        """The rows that have a reply."""
        index, start = list[int](), 0
        for block in blocks:
            index += range(start, start + len(block.sequences))
            start += block.rows
        if len(index) == start:
            return result
        taken = torch.tensor(index, device=device)
        return DecodeResult(result.logits[taken], result.greedy[taken])


def _rows_of(block: DecodeBlock) -> list[tuple[int, int]]:
    """Token id and position of each row's last token; 0 and 0 where it has no reply."""
    replies = [(sequence.ids[-1], sequence.read_tokens) for sequence in block.sequences]
    return replies + [(0, 0)] * (block.rows - len(replies))


class CudaGraphRecorder:
    """Records functions as CUDA graphs, which share the memory of what they do not return."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], DecodeResult]) -> Callable[[], DecodeResult]:
        """Record a function that has run before.

        Raises:
            RuntimeError: it waits for the device, or does something else that a graph cannot hold.
        """
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = run()

        def repeat() -> DecodeResult:
            graph.replay()
            return result

        return repeat


def repeat_plainly(run: Callable[[], DecodeResult]) -> Callable[[], DecodeResult]:
    """The function itself, for devices without graphs."""
    return run
