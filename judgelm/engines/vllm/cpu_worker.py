"""A fix for seeded requests with chunked prompts in vLLM's CPU worker.

vLLM 0.32 rewinds the generators of unfinished prompts, which CPU generators do not support.
"""

from typing import Any

import numpy as np
from vllm.v1.worker.cpu_worker import CPUWorker


class SeededCPUWorker(CPUWorker):  # type: ignore[misc]  # vLLM leaves it untyped
    """Hides the generators of unfinished prompts during sampling."""

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Sample the tokens of the current step."""
        runner: Any = self.model_runner
        if (discarded := getattr(runner, "discard_request_mask", None)) is None:
            return super().sample_tokens(grammar_output)  # Model Runner V2 samples by position
        batch = runner.input_batch
        unfinished = np.nonzero(discarded.np[: batch.num_reqs])[0].tolist()
        set_aside = {row: batch.generators.pop(row) for row in unfinished if row in batch.generators}
        try:
            return super().sample_tokens(grammar_output)
        finally:
            batch.generators.update(set_aside)
