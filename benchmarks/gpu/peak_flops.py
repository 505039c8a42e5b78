"""Peak rates of the device: matrix products at the models' own shapes, and copies of its memory."""

import time
from collections.abc import Callable

import torch

from benchmarks.dummy_model import Shape

_BLOCKS = 5


def layer_flops(shape: Shape, tokens: int, device: str, dtype: torch.dtype, block_s: float) -> float:
    """FLOP/s of the matrix products of one layer, one behind another, over `tokens` rows of random numbers.

    Four of hidden x hidden (query, key, value, output), two of hidden x inner, one of inner x hidden: what a model's
    linear layers can reach if nothing but these products took time.
    """
    hidden, inner = shape.hidden, shape.inner
    sizes = [(hidden, hidden)] * 4 + [(hidden, inner)] * 2 + [(inner, hidden)]
    rows = {width: torch.randn(tokens, width, device=device, dtype=dtype) for width in (hidden, inner)}
    weights = [torch.randn(width, out, device=device, dtype=dtype) for width, out in sizes]
    outs = {out: torch.empty(tokens, out, device=device, dtype=dtype) for _, out in sizes}

    def products() -> None:
        for (width, out), weight in zip(sizes, weights, strict=True):
            torch.mm(rows[width], weight, out=outs[out])

    operations = sum(2 * tokens * width * out for width, out in sizes)
    return operations / seconds_of(products, device, block_s)


def copy_bandwidth(count: int, device: str, block_s: float) -> float:
    """Bytes per second, read and written, of copies of `count` bytes on the device."""
    source = torch.zeros(count, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * count / seconds_of(lambda: target.copy_(source), device, block_s)


def seconds_of(work: Callable[[], object], device: str, block_s: float) -> float:
    """Seconds of one call in the best of five blocks, each of about `block_s` seconds, after a warm-up."""
    for _ in range(2):
        _timed(work, 1, device)
    calls = max(1, round(block_s / _timed(work, 1, device)))
    return min(_timed(work, calls, device) for _ in range(_BLOCKS)) / calls


def _timed(work: Callable[[], object], calls: int, device: str) -> float:
    synchronize(device)
    began = time.perf_counter()
    for _ in range(calls):
        work()
    synchronize(device)
    return time.perf_counter() - began


def synchronize(device: str) -> None:
    """Wait until the device has done all it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def square_flops(device: str, dtype: torch.dtype, seconds: float) -> float:
    """FLOP/s of a product of two large square matrices, the best of some rounds that take about `seconds` together."""
    side = 8192 if device.startswith("cuda") else 2048
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    return 2 * side**3 / seconds_of(lambda: torch.mm(left, right, out=out), device, seconds / _BLOCKS)
