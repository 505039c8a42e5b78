"""LoRA adapters that share a base model.

PEFT selects adapters per row. Packed passes have only one row, so adapters are selected per token here.
"""

import math
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it
from torch import Tensor, nn

from judgelm.engines.model_files import LOAD_ERRORS, adapter_truncator
from judgelm.engines.transformers.loaded_model import LoadedModel
from judgelm.engines.weights import check_weights
from judgelm.errors import ModelError, first_line
from judgelm.prompts.truncation import Truncator

_ALONE = "load it by itself with --adapter"
_MIN_STRETCH = 32
"""Shorter stretches are gathered into one matrix product."""

TokenGroups = dict[str, list[slice | Tensor]]
"""Tokens in a pass, by adapter: long stretches, and the indices of all short stretches."""


class AdaptedLinear(nn.Module):
    """Adds each adapter's output for the tokens that use the adapter."""

    def __init__(self, base: nn.Module, groups: TokenGroups) -> None:
        super().__init__()
        self.base = base
        self.factors: dict[str, tuple[Tensor, Tensor]] = {}
        self._groups = groups

    def forward(self, row: Tensor, activation: str = "none") -> Tensor:
        """See `PackedLinear.forward`."""
        output: Tensor = self.base(row)
        for adapter, tokens in self._groups.items():
            if (factors := self.factors.get(adapter)) is None:
                continue
            down, up = factors
            for stretch in tokens:
                product = F.linear(row[0, stretch], down)
                if isinstance(stretch, Tensor):
                    output[0].index_add_(0, stretch, F.linear(product, up))
                else:
                    output[0, stretch].addmm_(product, up.T)
        return F.silu(output) if activation == "swish" else output

    def times(self, row: Tensor, other: Tensor) -> Tensor:
        """Multiply the output of `forward` by a tensor."""
        return self.forward(row).mul_(other)


class LoraAdapters:
    """A model's loaded adapters and their truncators."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        truncator = Truncator(loaded.tokenizer, loaded.window, loaded.vision, loaded.thinking.mode)
        self._truncators: dict[str | None, Truncator] = {None: truncator}
        self._layers: dict[str, AdaptedLinear] = {}
        self._groups: TokenGroups = {}

    def __len__(self) -> int:
        return len(self._truncators) - 1

    def truncator(self, adapter: str | None) -> Truncator:
        """Return an adapter's truncator, loading the adapter if needed."""
        if adapter not in self._truncators:
            self.load(str(adapter))
        return self._truncators[adapter]

    def load(self, adapter: str) -> None:
        """Load an adapter unless it is already loaded."""
        if adapter in self._truncators:
            return
        identity = self._loaded.identity
        if "adapter" in identity:
            raise ModelError(f"{identity['adapter']} is an adapter; to use it together with {adapter}, load the base")
        model = self._loaded.model
        truncator = adapter_truncator(self._truncators[None], str(identity["path"]), adapter)
        factors = read_lora(adapter, device=str(model.device), dtype=model.dtype)
        layers = {name: self._layer(name, adapter, *shapes) for name, shapes in factors.items()}
        for name, layer in layers.items():
            layer.factors[adapter] = factors[name]
            self._wrap(name, layer)
        self._truncators[adapter] = truncator

    def select(self, owners: Iterable[tuple[str | None, int]]) -> None:
        """Select the adapter for each stretch of tokens in the next pass."""
        stretches: dict[str, list[slice]] = {}
        start = 0
        for adapter, run in groupby(owners, key=lambda owner: owner[0]):
            end = start + sum(tokens for _, tokens in run)
            if adapter is not None and end > start:
                stretches.setdefault(adapter, []).append(slice(start, end))
            start = end
        self._groups.clear()
        for adapter, slices in stretches.items():
            self._groups[adapter] = self._gathered(slices)

    def _gathered(self, slices: list[slice]) -> list[slice | Tensor]:
        short = [stretch for stretch in slices if stretch.stop - stretch.start < _MIN_STRETCH]
        if len(short) < 2:
            return [*slices]
        places = torch.cat([torch.arange(stretch.start, stretch.stop) for stretch in short])
        return [*(each for each in slices if each not in short), places.to(self._loaded.model.device)]

    def _layer(self, name: str, adapter: str, down: Tensor, up: Tensor) -> AdaptedLinear:
        if name in self._layers:
            return self._layers[name]
        try:
            base: Any = self._loaded.model.get_submodule(name)
            features = (base.in_features, base.out_features)
        except AttributeError as error:
            raise ModelError(f"{adapter}: the model has no linear layer {name}; use one for this base") from error
        if features != (down.shape[1], up.shape[0]):
            shapes = f"{down.shape[1]} to {up.shape[0]} features, but the base maps {features[0]} to {features[1]}"
            raise ModelError(f"{adapter}: layer {name} maps {shapes}; use one for this base")
        return AdaptedLinear(base, self._groups)

    def _wrap(self, name: str, layer: AdaptedLinear) -> None:
        if name not in self._layers:
            self._layers[name] = layer
            parent, _, attribute = name.rpartition(".")
            setattr(self._loaded.model.get_submodule(parent), attribute, layer)


def read_lora(adapter: str, *, device: str, dtype: torch.dtype) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Load each layer's factors, of shapes (rank, in) and (out, rank). The second factor is already scaled."""
    from peft import LoraConfig, PeftConfig, load_peft_weights  # importing peft takes a second
    from peft.utils.other import get_pattern_key

    check_weights(adapter)
    try:
        config = PeftConfig.from_pretrained(adapter)
        weights = load_peft_weights(adapter, device=device)
    except LOAD_ERRORS as error:
        raise ModelError(f"{adapter}: cannot load the adapter: {first_line(error)}") from error
    if not isinstance(config, LoraConfig) or config.use_dora:
        raise ModelError(f"{adapter}: only plain LoRA adapters can share a base model; {_ALONE}")
    factors: dict[str, dict[str, torch.Tensor]] = {}
    for name, weight in weights.items():
        layer, _, factor = name.removeprefix("base_model.model.").rpartition(".lora_")
        if factor not in ("A.weight", "B.weight") or layer.endswith("lm_head"):
            finding = f"modifies {name}, but adapters that share a base may only modify its inner linear layers"
            raise ModelError(f"{adapter}: {finding}; {_ALONE}")
        factors.setdefault(layer, {})[factor] = weight
    patterns, scaled = config.alpha_pattern or {}, {}
    for layer, pair in factors.items():
        down, up = pair["A.weight"], pair["B.weight"]
        alpha = patterns.get(get_pattern_key(list(patterns), layer), config.lora_alpha)  # like PEFT
        scale = float(alpha) / (math.sqrt(len(down)) if config.use_rslora else len(down))
        scaled[layer] = (down.to(dtype), (up * scale).to(dtype))
    return scaled
