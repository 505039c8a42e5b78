"""The limit of a judge's speed on this machine: its own matrices, each multiplied with as many rows as suit it."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import get_context
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.peak_flops import seconds_of
from judgelm.engines.transformers.layers import PackedLinear, is_packable

_ROWS = 1024
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000"}
"""For glibc: to take fresh pages for each output takes as long as a product of integers."""


@contextmanager
def ceiling_process() -> Iterator[ProcessPoolExecutor]:
    """A process for ceilings alone, which keeps the memory that it has freed."""
    before = dict(os.environ)
    os.environ.update(_KEEP_MEMORY)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(os.getpid).result()  # a process starts with its first work
        os.environ.clear()
        os.environ.update(before)
        yield pool


def ceiling_tokens_per_s(config: Any, format: str, device: str, block_s: float) -> float:
    """Prompt tokens per second if nothing but the layers' matrix products took time.

    Attention, norms and the vocabulary's matrix are left out.

    Args:
        config: of a Llama or a Qwen2.
        format: `float32`, `bfloat16`, `float16` or `int8`; the product of integers alone.
        device: `cpu` or `cuda`.
        block_s: seconds of each of five measurements, of which the best counts.
    """
    products = [_product(*size, format, device) for size in layer_sizes(config)]

    def layer() -> None:
        for product in products:
            product()

    with torch.inference_mode():
        return _ROWS / (seconds_of(layer, device, block_s) * config.num_hidden_layers)


def layer_sizes(config: Any) -> list[tuple[int, int]]:
    """Features in and out of a layer's matrices: query, key, value, output, gate, up, down."""
    hidden, inner = config.hidden_size, config.intermediate_size
    head = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
    queries, keys = head * config.num_attention_heads, head * config.num_key_value_heads
    return [
        (hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden), (hidden, inner), (hidden, inner),
        (inner, hidden),
    ]  # fmt: skip


def _product(features: int, outputs: int, format: str, device: str) -> Callable[[], object]:
    """A product of a matrix with rows, in the form in which this machine computes it fastest."""
    if format == "int8":
        integers, weight = (torch.randint(-127, 127, (count, features), dtype=torch.int8) for count in (_ROWS, outputs))
        return lambda: torch._int_mm(integers, weight.T)
    dtype = getattr(torch, format)
    plain = nn.Linear(features, outputs, bias=False, dtype=dtype, device=device)
    rows = torch.randn(_ROWS, features, dtype=dtype, device=device)
    layer = PackedLinear(plain) if is_packable(plain.weight) else plain
    return lambda: layer(rows)


def needed_tokens(prompts: Sequence[Sequence[int]]) -> int:
    """Prompt tokens that must be computed if every beginning that prompts share is computed once."""
    ordered = sorted(map(tuple, prompts))
    shared = (_shared(first, second) for first, second in pairwise(ordered))
    return sum(map(len, ordered)) - sum(shared)


def _shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common beginning."""
    for position, (here, there) in enumerate(zip(first, second, strict=False)):
        if here != there:
            return position
    return min(len(first), len(second))
