"""What runs in a worker's process: an engine, and the calls through which it is fed. Ray makes an actor of it."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from judgelm.engines.base import Engine, EngineOptions
from judgelm.engines.catalog import load_engine, resolve_options
from judgelm.errors import EngineError
from judgelm.prompts.thinking import Thinking
from judgelm.records import Completion, Request
from judgelm.runs.process_cleanup import end_orphans, mark_children
from judgelm.version import VERSION

_MARK = "/judgelm-worker"
"""A name, not a file: what a lost worker's engine left running on a node is known by it."""


class RefusedError(EngineError):
    """An engine does not take a request at all, so no other worker's would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLocation:
    """Where a worker runs."""

    node: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEngine:
    """A loaded worker: its engine's description, first counts and limits, and the versions around it."""

    described: dict[str, Any]
    stats: dict[str, Any]
    versions: dict[str, str]
    max_in_flight: int
    supports_grammar: bool
    supports_images: bool
    thinking: Thinking


class Worker:
    """An engine in a process of its own.

    Args:
        cores: CPU cores it was given, and so threads for torch, which is imported only after this.
    """

    def __init__(self, cores: int) -> None:
        os.environ["OMP_NUM_THREADS"] = str(cores)
        self._engine: Engine | None = None

    def place(self) -> WorkerLocation:
        """Where this is; the first call to be answered, as soon as the worker has a place in the cluster."""
        return WorkerLocation(node=platform.node(), pid=os.getpid())

    def resolve(self, name: str, options: EngineOptions) -> tuple[EngineOptions, str]:
        """The options that all workers load with, what is `auto` chosen on this machine; and a note on it."""
        return resolve_options(name, options)

    def load(self, name: str, options: EngineOptions) -> LoadedEngine:
        """Load the engine; what the engine of a lost worker left behind on this machine is ended first."""
        end_orphans(_MARK)
        mark_children(_MARK)
        engine = self._engine = load_engine(name, options)
        return LoadedEngine(
            described=engine.describe(),
            stats=engine.stats(),
            versions={"judgelm": VERSION, "python": platform.python_version()},
            max_in_flight=engine.max_in_flight,
            supports_grammar=engine.supports_grammar,
            supports_images=engine.supports_images,
            thinking=engine.thinking,
        )

    def step(
        self, dropped: Sequence[str], requests: Sequence[Request], timeout_s: float
    ) -> tuple[list[Completion], dict[str, Any]]:
        """Forget, take, work up to about `timeout_s`: what is finished, and what the engine has counted so far.

        Raises:
            RefusedError: the engine does not take one of the requests.
            EngineError: the engine broke.
        """
        engine = self._engine
        assert engine is not None, "the driver waits for `load`"
        if dropped:
            engine.abort(dropped)
        if requests:
            try:
                engine.submit(requests)
            except EngineError as error:
                raise RefusedError(str(error)) from error
        return engine.collect(timeout_s), engine.stats()

    def close(self) -> None:
        """End the engine and its processes."""
        if self._engine is not None:
            self._engine.close()
