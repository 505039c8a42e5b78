"""The engines of judgelm as systems to be measured, driven by its runner."""

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.dummy_model import TEMPLATE
from benchmarks.throughput.baselines import REASON_TOKENS, SCORE_TOKENS, Work, Workload
from judgelm.engines.base import Engine
from judgelm.errors import EngineError
from judgelm.modes import Pairwise
from judgelm.records import Completion, Judgment, Sample
from judgelm.runs.runner import judge


class TimedEngine:
    """An engine that measures its time at work: within `collect`, where its passes run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.at_work_s = 0.0

    def __getattr__(self, name: str) -> Any:
        """Everything else is the engine's."""
        return getattr(self._engine, name)

    def collect(self, timeout_s: float) -> list[Completion]:
        """Work, and count the time."""
        began = time.perf_counter()
        done = self._engine.collect(timeout_s)
        self.at_work_s += time.perf_counter() - began
        return done


class EngineSystem:
    """An engine of this package, driven by its runner; the template is the one its judge was trained with."""

    def __init__(self, engine: Engine, template: str = TEMPLATE) -> None:
        self._engine = TimedEngine(engine)
        self._template = template
        self.judgments: list[Judgment] = []

    def judge(self, samples: Sequence[Sample], workload: Workload) -> Work:
        """Judge them, and keep the judgments.

        Raises:
            EngineError: a pair could not be judged, so the time would say nothing.
        """
        self._engine.at_work_s = 0.0
        began = time.perf_counter()
        self.judgments = list(judge(samples, self._mode(workload), self._engine))
        seconds = time.perf_counter() - began
        failed = [
            judgment.failure.why or judgment.failure.code for judgment in self.judgments if judgment.failure is not None
        ]
        if failed:
            raise EngineError(f"{len(failed)} of {len(samples)} pairs were not judged: {failed[0]}")
        return Work(
            pairs=len(samples),
            prompt_tokens=sum(judgment.prompt_tokens for judgment in self.judgments),
            completion_tokens=sum(judgment.completion_tokens for judgment in self.judgments),
            seconds=seconds,
            idle=1 - self._engine.at_work_s / seconds,
        )

    def _mode(self, workload: Workload) -> Pairwise:
        """The mode that a workload stands for."""
        return Pairwise(
            template=self._template,
            both_orders=workload == "both",
            distribution=workload == "distribution",
            reasons="all" if workload == "reasons" else "none",
            reason_tokens=REASON_TOKENS,
            max_tokens=SCORE_TOKENS,
        )
