"""Linear layers with products of 8-bit integers, for CPUs.

A weight has a scale for each output channel and each block of input channels, an activation for each token and block.
Single channels of a model's activations are far larger than the others, and would leave those few of a block's steps.
So each input channel is divided by a factor that its weights are multiplied with, as in SmoothQuant.

Source: Xiao et al., SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models (2023).
"""

import platform
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it
from torch import Tensor, nn

MIGRATIONS = (0.55, 0.65, 0.75)
"""Migration strengths of SmoothQuant, 0 to 1: 1 moves all of the activations' range into the weights."""
_BLOCK = 192
_TINY = 1e-8
_ZERO = 128  # the kernel is fast for unsigned activations alone
_PRODUCT_FLAGS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})


class Int8Linear(nn.Module):
    """A linear layer without gradients. Long rows are products of several blocks, each with scales of its own.

    Args:
        linear: the layer, on the CPU.
        factors: of the input channels, shape (features in,).
        flags: the CPU's; one without instructions for 8-bit products adds two of them in 16 bits, and takes weights
            of 7 bits, or the sum would not fit.
    """

    def __init__(self, linear: nn.Linear, factors: Tensor, flags: frozenset[str]) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.dtype = linear.weight.dtype
        self.bias = linear.bias
        self.inverse = (1 / factors).to(self.dtype)
        self.blocks = blocks_of(linear.in_features)
        integers, scales = quantised_weight(linear.weight.detach().float() * factors, flags)
        self.packed = [torch.ops.onednn.qlinear_prepack(block.contiguous(), None) for block in integers]
        self.scales = [scale.flatten() for scale in scales]
        self.zeros = torch.zeros(self.out_features, dtype=torch.int64)

    def forward(self, row: Tensor) -> Tensor:
        """Shape (..., features in) to (..., features out)."""
        integers, scales = quantised_tokens(row.reshape(-1, self.in_features) * self.inverse)
        unsigned = integers.add_(_ZERO - 256).view(torch.uint8)  # wraps around: -127 becomes 1, and 127 becomes 255
        output = self.product(unsigned, 0).mul_(scales[0])
        for block in range(1, self.blocks):
            output.addcmul_(self.product(unsigned, block), scales[block])
        if self.bias is not None:
            output += self.bias
        return output.view(*row.shape[:-1], self.out_features)

    def product(self, unsigned: Tensor, block: int) -> Tensor:
        """A block's product, shape (tokens, features out), before the tokens' scales."""
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            unsigned[block], 1.0, _ZERO, self.packed[block], self.scales[block], self.zeros, None,
            1.0, 0, self.dtype, "none", [], "",
        )  # fmt: skip
        return product


def blocks_of(features: int) -> int:
    """Number of equal blocks, near 192 features each: smaller ones are more exact, and each costs a pass."""
    wanted = max(1, round(features / _BLOCK))
    return next(count for count in range(wanted, 0, -1) if features % count == 0)


def quantised_weight(weight: Tensor, flags: frozenset[str]) -> tuple[Tensor, Tensor]:
    """Integers of a float32 weight, (blocks, features out, block), and scales, (blocks, features out, 1)."""
    return _quantised(weight, 127 if flags & _PRODUCT_FLAGS else 63)


def quantised_tokens(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Integers from -127 to 127, (blocks, tokens, block), and scales in the rows' dtype, (blocks, tokens, 1)."""
    return _quantised(rows, 127)


def _quantised(rows: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    blocks = rows.view(len(rows), blocks_of(rows.shape[1]), -1).transpose(0, 1)
    scales = blocks.abs().amax(2, keepdim=True).float().clamp_min_(_TINY) / largest
    if rows.dtype != torch.float32:
        scales = (scales * (1 + 2**-7)).to(rows.dtype)  # rounded up, so that no integer is too large
    return (blocks / scales).round_().to(torch.int8).contiguous(), scales


def dequantised(integers: Tensor, scales: Tensor) -> Tensor:
    """The rows that integers and scales stand for, shape (rows, features)."""
    return (integers.float() * scales).transpose(0, 1).flatten(1)


@dataclass(frozen=True, slots=True)
class Smoothing:
    """Factors for a layer's input channels, and the output's relative error with them, 0 for none."""

    factors: Tensor
    error: float


def best_smoothing(linear: nn.Linear, rows: Tensor, flags: frozenset[str]) -> Smoothing:
    """The factors with the smallest error.

    Args:
        linear: the layer.
        rows: some of its inputs, shape (tokens, features in).
        flags: the CPU's.
    """
    rows, weight = rows.float(), linear.weight.detach().float()
    expected = F.linear(rows, weight)
    activations, weights = rows.abs().amax(0).clamp_min_(_TINY), weight.abs().amax(0).clamp_min_(_TINY)
    tried = []
    for migration in MIGRATIONS:
        factors = activations**migration / weights ** (1 - migration)
        factors /= factors.median()
        integers, scales = quantised_weight(weight * factors, flags)
        tokens, token_scales = quantised_tokens(rows / factors)
        output = F.linear(dequantised(tokens, token_scales), dequantised(integers, scales))
        tried.append(Smoothing(factors, float((output - expected).norm() / expected.norm().clamp_min(_TINY))))
    return min(tried, key=lambda smoothing: smoothing.error)


def runs_int8() -> bool:
    """True if this build of torch has the kernels, on a kind of CPU that they were tried on."""
    has_kernels = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_kernels and platform.machine().lower() in {"x86_64", "amd64"}
