"""Floating-point operations of a training, and its steps.

Operations are the usual 6 for each parameter and token, 4 where the weights are frozen.
"""

import math
from dataclasses import dataclass

from judgelm.doctor.training_plan.estimate import Cluster, ModelFacts, Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Floating-point operations; `model` and `attention` count forward and backward, `recomputation` comes on top."""

    model: float
    attention: float
    recomputation: float

    @property
    def all(self) -> float:
        """All operations that the GPUs compute."""
        return self.model + self.attention + self.recomputation

    def seconds(self, *, gpus: int, gpu_flops: float, mfu: float) -> float:
        """Time at a model FLOPs utilisation, which by its definition does not count recomputation as work done."""
        return (self.model + self.attention) / (gpus * gpu_flops * mfu)


def operations_of(model: ModelFacts, recipe: Recipe, tokens: float, *, mean_length: float | None = None) -> Operations:
    """Operations for some tokens.

    Args:
        model: what is trained.
        recipe: how.
        tokens: how many.
        mean_length: of a row, which decides what attention costs; None takes the window.
    """
    frozen = 4 * model.total + 6 * model.adapter
    pairs = model.layers * model.query * (mean_length or recipe.window)  # causal: half of the window's square
    return Operations(
        model=tokens * (frozen if recipe.lora else 6 * model.total),
        attention=6 * tokens * pairs,
        recomputation=tokens * 2 * (model.total + pairs) if recipe.checkpointing else 0.0,
    )


def steps_of(recipe: Recipe, cluster: Cluster, rows: int) -> int:
    """Optimiser steps of a whole training, as transformers' Trainer counts them."""
    if recipe.max_steps > 0:
        return recipe.max_steps
    batches = math.ceil(rows / (recipe.micro_batch * cluster.gpus))
    return math.ceil(recipe.epochs * max(1, math.ceil(batches / recipe.accumulation)))
