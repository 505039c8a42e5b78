"""Speed up LoRA layers on a CPU.

The products with A and B are added in place to the product with W. W is converted once to oneDNN's layout if there is
enough memory. The results match PEFT up to rounding errors.
"""

from functools import partial
from typing import Any

import torch
from peft.tuners.lora.layer import Linear as LoraLinear
from torch import Tensor, nn
from transformers import Trainer

from judgelm.engines.dtype import available_bytes
from judgelm.engines.transformers.layers import is_packable

_COPIES_SHARE = 0.25  # of free memory


def speed_up_lora(trainer: Trainer) -> int:
    """Replace the forward pass of plain LoRA layers on the CPU, and return the number of layers replaced."""
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled or trainer.model is None:
        return 0
    layers = [module for module in trainer.model.modules() if isinstance(module, LoraLinear) and _is_plain(module)]
    weights: list[Any] = [layer.base_layer.weight for layer in layers]
    copies = 2 * sum(weight.numel() * weight.element_size() for weight in weights)
    packs = copies <= _COPIES_SHARE * available_bytes() and all(map(is_packable, weights))
    for layer in layers:
        layer.forward = partial(_forward, layer, FrozenWeight() if packs else None)  # type: ignore[method-assign]
    return len(layers)


class FrozenWeight:
    """A frozen weight in oneDNN's layout and in the dtype that was used last."""

    def __init__(self) -> None:
        self._packed: tuple[torch.dtype, Tensor, Tensor] | None = None

    def packed(self, weight: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        """Return the weight packed for forward and backward, or None if this CPU has no kernels for the dtype."""
        if self._packed is None or self._packed[0] != dtype:
            plain = weight.detach().to(dtype)
            if not is_packable(plain):
                return None
            reorder = torch.ops.mkldnn._reorder_linear_weight
            self._packed = dtype, reorder(plain), reorder(plain.t().contiguous())
        return self._packed[1:]


def _is_plain(layer: LoraLinear) -> bool:
    base, adapters = layer.base_layer, layer.active_adapters
    if type(base) is not nn.Linear or base.weight.device.type != "cpu" or len(adapters) != 1:
        return False
    name = adapters[0]
    no_extras = name not in layer.lora_variant and not layer.lora_bias[name] and not base.weight.requires_grad
    return no_extras and isinstance(layer.lora_dropout[name], nn.Identity)


def _forward(layer: LoraLinear, frozen: FrozenWeight | None, x: Tensor) -> Tensor:
    """Return W x + b + s B A x, with shape (..., out)."""
    if layer.disable_adapters or layer.merged:
        result: Tensor = LoraLinear.forward(layer, x)
        return result
    name = layer.active_adapters[0]
    base: Any = layer.base_layer
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    first, second = layer.lora_A[name].weight, layer.lora_B[name].weight
    packed = None if frozen is None else frozen.packed(base.weight, dtype)
    plain = base.weight.to(dtype) if packed is None else None
    arguments = (x.to(dtype), plain, packed, first.to(dtype), (second * layer.scaling[name]).to(dtype))
    adapted: Tensor = _AdaptedLinear.apply(*arguments)  # type: ignore[no-untyped-call]
    return adapted if base.bias is None else adapted + base.bias.to(dtype)


class _AdaptedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, plain: Tensor | None, packed: tuple[Tensor, Tensor] | None, first: Tensor, second: Tensor
    ) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        with torch.autocast("cpu", enabled=False):
            reduced = rows @ first.t()
            frozen = rows @ plain.t() if plain is not None else _product(rows, packed, 0)
            result = frozen.addmm_(reduced, second.t())
        ctx.save_for_backward(rows, first, second, reduced)
        ctx.plain, ctx.packed, ctx.shape = plain, packed, x.shape
        return result.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, first, second, reduced = ctx.saved_tensors
        outer = gradients[0].reshape(-1, gradients[0].shape[-1])
        inner = outer @ second
        below = None
        if ctx.needs_input_grad[0]:
            frozen = outer @ ctx.plain if ctx.plain is not None else _product(outer, ctx.packed, 1)
            below = frozen.addmm_(inner, first).view(ctx.shape)
        return below, None, None, inner.t() @ rows, outer.t() @ reduced


def _product(rows: Tensor, packed: tuple[Tensor, Tensor] | None, direction: int) -> Tensor:
    assert packed is not None
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed[direction], None, "none", [], "")
    return product
