"""A model's layers in other forms: packed for a CPU, with products of 8-bit integers, with an exact output head.

torch hands a linear layer's weight to oneDNN row by row, and oneDNN rearranges it in every call; in float32 it takes
MKL, which on processors that are not Intel's uses AVX2 alone. Packed layers use oneDNN's products, and rearrange the
weight once, when the model is loaded. A gated MLP applies activation and product where the matrix products write their
results, and a norm reads and writes its row once. Only the rounding of intermediate values changes.

8-bit layers have a scale for each output channel and each block of input channels, and for each token and block of
activations. Single channels of a model's activations are far larger than the others, and would leave those few of a
block's steps. So each input channel is divided by a factor that its weights are multiplied with, as in SmoothQuant.

Source: Xiao et al., SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models (2023).
"""

import json
import platform
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it
from torch import Tensor, nn

from judgelm.engines.dtype import this_cpu_flags
from judgelm.engines.transformers.attention import KVCache, PromptSegment
from judgelm.errors import ConfigError
from judgelm.package import EVERYDAY_PAIRS
from judgelm.prompts.truncation import Tokenizer

_KEPT_BYTES = 24 * 2**20
"""Below glibc's 32 MiB, above which each block of memory is one of its own."""
_PRECISION = {torch.bfloat16: 2e-2, torch.float32: 1e-5}
MIGRATIONS = (0.55, 0.65, 0.75)
"""Migration strengths of SmoothQuant, 0 to 1: 1 moves all of the activations' range into the weights."""
_BLOCK = 192
_TINY = 1e-8
_ZERO = 128  # the kernel is fast for unsigned activations alone
_PRODUCT_FLAGS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
_SAMPLED_TOKENS = 256
_LARGEST_ERROR = 0.03
_EVERY = 4
"""Share of the everyday pairs: some thousand tokens are enough."""


class PackedLinear(nn.Module):
    """A linear layer without gradients, its weight in oneDNN's own layout.

    Args:
        linear: bfloat16 or float32, on the CPU.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        self.bias = linear.bias

    def forward(self, row: Tensor, activation: str = "none") -> Tensor:
        """The layer's output, shape (..., features in) to (..., features out); `swish` applies SiLU to it."""
        output: Tensor = torch.ops.mkldnn._linear_pointwise(row, self.weight, self.bias, activation, [], "")
        return output

    def times(self, row: Tensor, other: Tensor) -> Tensor:
        """The output of `forward`, multiplied by another tensor of its shape."""
        output: Tensor = torch.ops.mkldnn._linear_pointwise.binary(row, other, self.weight, self.bias, "mul")
        return output


class PackedMlp(nn.Module):
    """Down(SiLU(gate(x)) * up(x)), as in Llama, Mistral and Qwen."""

    def __init__(self, gate: PackedLinear, up: PackedLinear, down: PackedLinear) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = gate, up, down

    def forward(self, row: Tensor) -> Tensor:
        """Shape (1, tokens, hidden) to the same.

        Tokens go in chunks whose intermediate values glibc keeps for the next chunk. It returns larger ones to the
        system, and to get their pages again takes as long as a product. Adapters need all tokens of the pass at once.
        """
        if any(type(layer) is not PackedLinear for layer in self.children()):
            return self._chunk(row)
        size = row.shape[1] * self.gate_proj.out_features * row.itemsize
        chunks = [self._chunk(chunk) for chunk in row.tensor_split(1 + size // _KEPT_BYTES, 1)]
        return chunks[0] if len(chunks) == 1 else torch.cat(chunks, 1)

    def _chunk(self, row: Tensor) -> Tensor:
        output: Tensor = self.down_proj(self.up_proj.times(row, self.gate_proj(row, "swish")))
        return output


class PackedNorm(nn.Module):
    """Root mean square norm, in float32 inside."""

    def __init__(self, weight: nn.Parameter, epsilon: float) -> None:
        super().__init__()
        self.weight = weight
        self.epsilon = epsilon

    def forward(self, row: Tensor) -> Tensor:
        """Shape (..., hidden) to the same.

        torch's CPU build computes `rms_norm` in seven passes over float32 copies, and a scale for each channel in one.
        """
        channels = row.reshape(1, -1, row.shape[-1])
        size = torch.linalg.vector_norm(channels[0], dim=1, dtype=torch.float32)
        square = size.square_().div_(row.shape[-1])
        scaled = F.batch_norm(channels, torch.zeros_like(square), square, eps=self.epsilon)
        return scaled.mul_(self.weight).view(row.shape)


@torch.inference_mode()
def pack(model: nn.Module) -> None:
    """Replace the model's layers in place, where device, numeric format and this build of torch allow.

    Weights that two layers share (tied embeddings), layers of other kinds (quantised, adapters) and layers whose packed
    form computes something else stay as they are.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    weights = [id(weight) for _, weight in model.named_parameters(remove_duplicate=False)]
    shared = {weight for weight in weights if weights.count(weight) > 1}
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and is_packable(child.weight) and id(child.weight) not in shared:
                setattr(parent, name, PackedLinear(child))
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if (packed := _norm(child) or _mlp(child)) is not None:
                setattr(parent, name, packed)


def is_packable(weight: Tensor) -> bool:
    """True if a layer of this weight can be packed on this machine."""
    if weight.device.type != "cpu" or weight.dtype not in _PRECISION:
        return False
    return weight.dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _norm(module: nn.Module) -> PackedNorm | None:
    weight, epsilon = getattr(module, "weight", None), getattr(module, "variance_epsilon", None)
    if not isinstance(weight, nn.Parameter) or not isinstance(epsilon, float) or not is_packable(weight):
        return None
    packed = PackedNorm(weight, epsilon)
    return packed if _alike(module, packed, weight) else None


def _mlp(module: nn.Module) -> PackedMlp | None:
    layers = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    gate, up, down = layers
    if not (isinstance(gate, PackedLinear) and isinstance(up, PackedLinear) and isinstance(down, PackedLinear)):
        return None
    packed = PackedMlp(gate, up, down)
    return packed if _alike(module, packed, gate.weight) else None


def _alike(module: nn.Module, packed: nn.Module, weight: Tensor) -> bool:
    """True if both compute the same for synthetic rows as wide as the weight, except for rounding."""
    features = weight.shape[-1]
    rows = torch.linspace(-3, 3, 4 * features).sin().view(1, 4, features).to(weight.dtype)
    expected, actual = module(rows).float(), packed(rows).float()
    return bool((expected - actual).abs().max() <= _PRECISION[weight.dtype] * expected.abs().max())


class OutputHead(nn.Module):
    """Logits in float32, computed in the weights' format except those of some tokens.

    Args:
        linear: the model's head, packed or not; its weight has shape (vocabulary, hidden).
    """

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear = linear
        self._known: set[int] = set()
        self._tokens: Tensor | None = None
        self._rows: Tensor | None = None
        self._bias: Tensor | None = None

    @property
    def weight(self) -> Any:
        """The head's weight, as transformers looks for it."""
        return self.linear.weight

    def compute_exactly(self, tokens: Collection[int]) -> None:
        """Compute the logits of these token ids in float32 from now on, beside those named before."""
        if self._known.issuperset(tokens):
            return
        self._known |= set(tokens)
        weight = self.linear.weight
        assert isinstance(weight, Tensor)
        plain = weight.to_dense() if weight.is_mkldnn else weight.detach()
        self._tokens = torch.tensor(sorted(self._known), device=plain.device)
        self._rows = plain[self._tokens].float()
        bias = self.linear.bias
        self._bias = bias.detach()[self._tokens].float() if isinstance(bias, Tensor) else None

    def forward(self, hidden: Tensor) -> Tensor:
        """Shape (..., hidden) to (..., vocabulary), float32."""
        logits: Tensor = self.linear(hidden).float()
        if self._tokens is not None and self._rows is not None:
            logits[..., self._tokens] = F.linear(hidden.float(), self._rows, self._bias)
        return logits


def install_head(model: Any) -> OutputHead | None:
    """Put an `OutputHead` in the place of a 16-bit model's head.

    None where the head is of another kind, and for a model in training, which is wrapped and stays unchanged.
    """
    find: Any = getattr(model, "get_output_embeddings", None)
    head: Any = None if find is None else find()
    if isinstance(head, OutputHead):
        return head
    if type(head) not in (nn.Linear, PackedLinear) or head.weight.dtype not in (torch.bfloat16, torch.float16):
        return None
    exact = OutputHead(head)
    model.set_output_embeddings(exact)
    return exact


class Int8Linear(nn.Module):
    """A linear layer without gradients. Long rows are products of several blocks, each with separate scales.

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


def check_int8(device: str) -> None:
    """Refuse a device that cannot run 8-bit products.

    Raises:
        ConfigError: it is no x86 CPU.
    """
    if device != "cpu" or not runs_int8():
        raise ConfigError(f"--quantization int8 is for x86 CPUs, not for {device}; on a GPU take 8bit or 4bit")


@torch.inference_mode()
def quantise(model: Any, tokenizer: Tokenizer) -> str:
    """Quantise a model on the CPU in place, except its head and the layers whose output would change too much.

    Returns:
        A note for the user.
    """
    head = model.get_output_embeddings()
    layers = {
        (parent, name): child
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear and child is not head
    }
    smoothings = _calibrated(model, layers.values(), tokenizer)
    exact_enough = {
        slot: smoothing.factors
        for slot, layer in layers.items()
        if (smoothing := smoothings.get(layer)) is not None and smoothing.error <= _LARGEST_ERROR
    }
    for (parent, name), factors in exact_enough.items():
        setattr(parent, name, Int8Linear(layers[parent, name], factors, this_cpu_flags()))
    limit = f"the others would be off by more than {_LARGEST_ERROR:.0%}, or were not used by the calibration text"
    return f"int8: {len(exact_enough)} of {len(layers)} linear layers" + (
        f"; {limit}" if len(exact_enough) < len(layers) else ""
    )


def _calibrated(model: Any, layers: Iterable[nn.Linear], tokenizer: Tokenizer) -> dict[nn.Module, Smoothing]:
    """The factors of each layer that the model uses, found in one packed pass over everyday questions and answers."""
    smoothings: dict[nn.Module, Smoothing] = {}
    flags = this_cpu_flags()

    def calibrate(layer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, nn.Linear)
        rows = arguments[0].reshape(-1, layer.in_features)
        step = max(1, len(rows) // _SAMPLED_TOKENS)
        smoothings[layer] = best_smoothing(layer, rows[::step], flags)

    rows = [json.loads(line) for line in EVERYDAY_PAIRS.read_text(encoding="utf-8").splitlines()[::_EVERY]]
    texts = ["\n\n".join((row["question"], row["answer_1"], row["answer_2"])) for row in rows]
    sequences: list[list[int]] = tokenizer(texts, add_special_tokens=True)["input_ids"]
    hooks = [layer.register_forward_pre_hook(calibrate) for layer in layers]
    try:
        model(
            input_ids=torch.tensor([[token for ids in sequences for token in ids]]),
            position_ids=torch.tensor([[position for ids in sequences for position in range(len(ids))]]),
            use_cache=False,
            logits_to_keep=1,
            segments=[PromptSegment(KVCache(), len(ids)) for ids in sequences],
        )
    finally:
        for registered in hooks:
            registered.remove()
    return smoothings
