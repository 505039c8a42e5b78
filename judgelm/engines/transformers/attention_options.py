"""Options of an attention layer: scaling, a bound of its scores, a sliding window."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """Options of an attention layer, as its model passes them.

    Attributes:
        scaling: factor on the scores; None for 1 / sqrt(head size).
        window: tokens that a token attends to, itself included; None for all up to itself.
        softcap: bound of the scores through tanh (Gemma 2).
    """

    scaling: float | None = None
    window: int | None = None
    softcap: float | None = None

    def scale(self, query: Tensor) -> float:
        """Factor on the scores."""
        return float(query.shape[-1] ** -0.5) if self.scaling is None else self.scaling

    def capped(self, scores: Tensor) -> Tensor:
        """The scores within their bound."""
        return scores if self.softcap is None else torch.tanh(scores / self.softcap) * self.softcap
