"""Layers in the form that a CPU computes fastest: with the fewest passes over memory.

torch hands a linear layer's weight to oneDNN row by row, and oneDNN rearranges it in every call; in float32 it takes
MKL, which on processors that are not Intel's uses AVX2 alone. Here the products are oneDNN's, and the weight is
rearranged once, when the model is loaded. A gated MLP applies activation and product where the matrix products write
their results, and a norm reads and writes its row once. Only the rounding of intermediate values changes.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it
from torch import Tensor, nn

_PRECISION = {torch.bfloat16: 2e-2, torch.float32: 1e-5}


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
        """Shape (..., hidden) to the same."""
        output: Tensor = self.down_proj(self.up_proj.times(row, self.gate_proj(row, "swish")))
        return output


class PackedNorm(nn.Module):
    """Root mean square norm, in float32 inside."""

    def __init__(self, weight: nn.Parameter, epsilon: float) -> None:
        super().__init__()
        self.weight = weight
        self.epsilon = epsilon

    def forward(self, row: Tensor) -> Tensor:
        """Shape (..., hidden) to the same."""
        return F.rms_norm(row, self.weight.shape, self.weight, self.epsilon)


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
