"""LoRA layers on a CPU: the adapter's products are added in place.

peft computes W x, A x, B A x, the scaled product and the sum one after another, each a pass over the activations, and
so does the backward pass. On a CPU these passes cost more than the products. Here the products with A and B are
accumulated onto those with W, and the scale is part of B: the same numbers up to rounding.
"""

from types import MethodType
from typing import Any

import torch
from peft.tuners.lora.layer import Linear as LoraLinear
from torch import Tensor, nn
from transformers import Trainer


def speed_up_lora(trainer: Trainer) -> int:
    """Exchange the forward pass of a trainer's plain LoRA layers that lie on a CPU.

    Left as they are: layers with dropout, a bias of their own, DoRA or another variant, several adapters, quantised
    base weights; and models whose weights are sharded (DeepSpeed, FSDP), which their own layers gather.

    Returns:
        Number of layers that were changed.
    """
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled or trainer.model is None:
        return 0
    layers = [module for module in trainer.model.modules() if isinstance(module, LoraLinear) and _is_plain(module)]
    for layer in layers:
        layer.forward = MethodType(_forward, layer)  # type: ignore[method-assign]
    return len(layers)


def _is_plain(layer: LoraLinear) -> bool:
    base, adapters = layer.base_layer, layer.active_adapters
    if type(base) is not nn.Linear or base.weight.device.type != "cpu" or len(adapters) != 1:
        return False
    name = adapters[0]
    no_extras = name not in layer.lora_variant and not layer.lora_bias[name] and not base.weight.requires_grad
    return no_extras and isinstance(layer.lora_dropout[name], nn.Identity)


def _forward(layer: LoraLinear, x: Tensor) -> Tensor:
    """W x + b + s B A x, shape (..., out)."""
    if layer.disable_adapters or layer.merged:
        result: Tensor = LoraLinear.forward(layer, x)
        return result
    name = layer.active_adapters[0]
    base: Any = layer.base_layer
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    first, second = layer.lora_A[name].weight, layer.lora_B[name].weight
    arguments = (x.to(dtype), base.weight.to(dtype), first.to(dtype), (second * layer.scaling[name]).to(dtype))
    adapted: Tensor = _AdaptedLinear.apply(*arguments)  # type: ignore[no-untyped-call]
    return adapted if base.bias is None else adapted + base.bias.to(dtype)


class _AdaptedLinear(torch.autograd.Function):
    """x W^T + x A^T B^T; W is frozen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, first: Tensor, second: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        with torch.autocast("cpu", enabled=False):
            reduced = rows @ first.t()
            result = (rows @ weight.t()).addmm_(reduced, second.t())
        ctx.save_for_backward(rows, weight, first, second, reduced)
        ctx.shape = x.shape
        return result.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, first, second, reduced = ctx.saved_tensors
        outer = gradients[0].reshape(-1, gradients[0].shape[-1])
        inner = outer @ second
        below = (outer @ weight).addmm_(inner, first).view(ctx.shape) if ctx.needs_input_grad[0] else None
        return below, None, inner.t() @ rows, outer.t() @ reduced
