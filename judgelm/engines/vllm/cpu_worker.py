"""vLLM's worker on the CPU, corrected for seeded requests whose prompt is computed in several steps.

vLLM samples a token for every sequence of a step and discards that of an unfinished prompt. It then takes the draw
back by the generator's offset, which generators on the CPU do not have: vLLM 0.32 ends with a RuntimeError. Here such a
sequence has no generator in that step, so nothing is drawn, and its replies do not depend on how its prompt was split.
vLLM loads this class by its name, in worker processes too.
"""

from typing import Any

import numpy as np
from vllm.v1.worker.cpu_worker import CPUWorker


class SeededCPUWorker(CPUWorker):  # type: ignore[misc]  # vLLM leaves it untyped
    """The worker, with the generators of unfinished prompts set aside while a step samples."""

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Sample the tokens of the step that was just computed."""
        runner: Any = self.model_runner
        if (discarded := getattr(runner, "discard_request_mask", None)) is None:
            return super().sample_tokens(grammar_output)  # vLLM's second runner draws by position
        batch = runner.input_batch
        unfinished = np.nonzero(discarded.np[: batch.num_reqs])[0].tolist()
        set_aside = {row: batch.generators.pop(row) for row in unfinished if row in batch.generators}
        try:
            return super().sample_tokens(grammar_output)
        finally:
            batch.generators.update(set_aside)
