"""A method that vLLM adds to its workers on any device; it loads this class by its name."""

from typing import Any

from judgelm.engines.parameters import first_not_finite


class WeightsCheck:
    """Looks at the weights where they are, after vLLM loaded them."""

    model_runner: Any

    def first_weight_not_finite(self) -> str | None:
        """Name of the first weight of this worker that holds NaN or infinity."""
        return first_not_finite(self.model_runner.get_model().named_parameters())
