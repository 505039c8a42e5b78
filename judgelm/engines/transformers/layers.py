"""Faster layers for CPUs, and an exact output head.

oneDNN reorders a linear layer's weight on every call. Packed layers reorder it once. Packing changes results only by
rounding errors.
"""

from collections.abc import Collection
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it
from torch import Tensor, nn

_KEPT_BYTES = 24 * 2**20
"""Stays below glibc's 32 MiB threshold for separate memory mappings."""
_PRECISION = {torch.bfloat16: 2e-2, torch.float32: 1e-5}


class PackedLinear(nn.Module):
    """A linear layer without gradients that stores its weight in oneDNN's layout."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        self.bias = linear.bias

    def forward(self, row: Tensor, activation: str = "none") -> Tensor:
        """Map shape (..., in features) to (..., out features). `swish` applies SiLU."""
        output: Tensor = torch.ops.mkldnn._linear_pointwise(row, self.weight, self.bias, activation, [], "")
        return output

    def times(self, row: Tensor, other: Tensor) -> Tensor:
        """Multiply the output of `forward` by a tensor."""
        output: Tensor = torch.ops.mkldnn._linear_pointwise.binary(row, other, self.weight, self.bias, "mul")
        return output


class PackedMlp(nn.Module):
    """down(SiLU(gate(x)) * up(x)), as in Llama, Mistral, and Qwen."""

    def __init__(self, gate: PackedLinear, up: PackedLinear, down: PackedLinear) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = gate, up, down

    def forward(self, row: Tensor) -> Tensor:
        """Process tokens in chunks that are small enough for glibc to reuse their memory."""
        if any(type(layer) is not PackedLinear for layer in self.children()):
            return self._chunk(row)
        size = row.shape[1] * self.gate_proj.out_features * row.itemsize
        chunks = [self._chunk(chunk) for chunk in row.tensor_split(1 + size // _KEPT_BYTES, 1)]
        return chunks[0] if len(chunks) == 1 else torch.cat(chunks, 1)

    def _chunk(self, row: Tensor) -> Tensor:
        output: Tensor = self.down_proj(self.up_proj.times(row, self.gate_proj(row, "swish")))
        return output


class PackedNorm(nn.Module):
    """RMS norm, computed in float32."""

    def __init__(self, weight: nn.Parameter, epsilon: float) -> None:
        super().__init__()
        self.weight = weight
        self.epsilon = epsilon

    def forward(self, row: Tensor) -> Tensor:
        """Normalise a tensor of shape (..., hidden)."""
        channels = row.reshape(1, -1, row.shape[-1])
        size = torch.linalg.vector_norm(channels[0], dim=1, dtype=torch.float32)
        square = size.square_().div_(row.shape[-1])
        scaled = F.batch_norm(channels, torch.zeros_like(square), square, eps=self.epsilon)
        return scaled.mul_(self.weight).view(row.shape)


@torch.inference_mode()
def pack(model: nn.Module) -> None:
    """Replace supported layers in place. Layers with shared weights are not replaced."""
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
    """Return True if this machine can pack the weight."""
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
    features = weight.shape[-1]
    rows = torch.linspace(-3, 3, 4 * features).sin().view(1, 4, features).to(weight.dtype)
    expected, actual = module(rows).float(), packed(rows).float()
    return bool((expected - actual).abs().max() <= _PRECISION[weight.dtype] * expected.abs().max())


class OutputHead(nn.Module):
    """Computes the logits of selected tokens in float32."""

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear = linear
        self._known: set[int] = set()
        self._tokens: Tensor | None = None
        self._rows: Tensor | None = None
        self._bias: Tensor | None = None

    @property
    def weight(self) -> Any:
        """The head's weight, which transformers accesses."""
        return self.linear.weight

    def compute_exactly(self, tokens: Collection[int]) -> None:
        """Add tokens whose logits are computed in float32."""
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
        """Map shape (..., hidden) to float32 logits of shape (..., vocabulary)."""
        logits: Tensor = self.linear(hidden).float()
        if self._tokens is not None and self._rows is not None:
            logits[..., self._tokens] = F.linear(hidden.float(), self._rows, self._bias)
        return logits


def install_head(model: Any) -> OutputHead | None:
    """Replace a 16-bit model's head with an `OutputHead`."""
    find: Any = getattr(model, "get_output_embeddings", None)
    head: Any = None if find is None else find()
    if isinstance(head, OutputHead):
        return head
    if type(head) not in (nn.Linear, PackedLinear) or head.weight.dtype not in (torch.bfloat16, torch.float16):
        return None
    exact = OutputHead(head)
    model.set_output_embeddings(exact)
    return exact
