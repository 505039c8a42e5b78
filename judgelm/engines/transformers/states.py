"""Record the state of a prompt's last token after some of the layers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from judgelm.engines.transformers.batch import NewPrompt
from judgelm.errors import EngineError


class StateRecorder:
    """Records states, normalised by the model's final norm: the input of a head on a model with fewer layers."""

    def __init__(self, model: Any) -> None:
        decoder = model.get_decoder() if hasattr(model, "get_decoder") else None  # a model in training has none
        self._layers, self._norm = getattr(decoder, "layers", ()), getattr(decoder, "norm", None)
        self.layers = len(self._layers) if isinstance(self._norm, nn.Module) else 0

    def check(self, layers: Sequence[int]) -> None:
        """Raise an EngineError if the model has no such layers."""
        if layers and not self.layers:
            raise EngineError("states are not supported for this architecture; judge without a head")
        if unknown := [layer for layer in layers if not 1 <= layer <= self.layers]:
            raise EngineError(f"the state of layer {unknown[0]} was requested, but the model has {self.layers} layers")

    @contextmanager
    def recording(self, fresh: Sequence[NewPrompt], places: Sequence[int]) -> Iterator[None]:
        """Set `QueuedRequest.states` in a pass. `places` are the indices of the prompts' last tokens in the row."""
        wanted = [(new.queued, place) for new, place in zip(fresh, places, strict=True) if new.queued.request.states]
        if not wanted:
            yield
            return
        layers = sorted({layer for queued, _ in wanted for layer in queued.request.states})
        kept: dict[int, Tensor] = {}

        def keep(layer: int, output: Tensor | tuple[Tensor, ...]) -> None:
            hidden = output[0] if isinstance(output, tuple) else output
            kept[layer] = hidden[0, [place for _, place in wanted]]

        hooks = [
            self._layers[layer - 1].register_forward_hook(
                lambda module, inputs, output, layer=layer: keep(layer, output)
            )
            for layer in layers
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        assert self._norm is not None, "checked when the request was queued"
        normed = {layer: self._norm(states[None])[0].to("cpu", torch.float32).numpy() for layer, states in kept.items()}
        for row, (queued, _) in enumerate(wanted):
            queued.states = np.stack([normed[layer][row] for layer in queued.request.states])
