"""A worker's process: an engine, and the calls that the driver makes. Ray makes an actor of it."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from judgelm.engines.base import Engine, EngineOptions
from judgelm.engines.catalog import load_engine, resolve_options
from judgelm.engines.engine_view import LoneFailures
from judgelm.errors import EngineError
from judgelm.package import VERSION
from judgelm.prompts.chat_templates import Thinking
from judgelm.records import Completion, Request
from judgelm.runs.process_cleanup import end_orphans, mark_children

_MARK = "/judgelm-worker"
"""Not a file, but the mark of the processes that a lost worker's engine leaves running on a node."""


class RefusedError(EngineError):
    """An engine refuses a request, as every other worker's would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLocation:
    """A worker's machine and process."""

    node: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEngine:
    """A loaded worker: its engine's description, first statistics and capabilities, and versions."""

    described: dict[str, Any]
    stats: dict[str, Any]
    versions: dict[str, str]
    max_in_flight: int
    supports_grammar: bool
    supports_images: bool
    thinking: Thinking


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTask:
    """The driver's part of a step, for at most about `timeout_s`; keys are those of the requests as sent.

    Attributes:
        aborted: keys of requests to forget.
        requests: new ones.
        watched: keys of requests whose unfinished replies the driver wants.
    """

    aborted: Sequence[str] = ()
    requests: Sequence[Request] = ()
    watched: Sequence[str] = ()
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The finished requests of a step, the watched replies so far by key, and the engine's statistics."""

    completions: list[Completion]
    partial: Mapping[str, str]
    stats: dict[str, Any]


class Worker:
    """An engine in a process of its own.

    Args:
        cores: its CPU cores, and so threads for torch, which is imported only after this.
    """

    def __init__(self, cores: int) -> None:
        os.environ["OMP_NUM_THREADS"] = str(cores)
        self._engine: Engine | None = None
        self._view: Engine | None = None

    def location(self) -> WorkerLocation:
        """The worker's location; the first call, answered as soon as the worker is placed in the cluster."""
        return WorkerLocation(node=platform.node(), pid=os.getpid())

    def resolve(self, name: str, options: EngineOptions) -> tuple[EngineOptions, str]:
        """The options that all workers load with, `auto` resolved on this machine, and a note on it."""
        return resolve_options(name, options)

    def load(self, name: str, options: EngineOptions, lone_failures: bool) -> LoadedEngine:
        """End the processes of a lost worker's engine on this machine, then load the engine.

        Args:
            name: of the engine.
            options: for it.
            lone_failures: see `Cluster`.
        """
        end_orphans(_MARK)
        mark_children(_MARK)
        engine = self._engine = load_engine(name, options)
        self._view = LoneFailures(engine) if lone_failures else engine
        return LoadedEngine(
            described=engine.describe(),
            stats=engine.stats(),
            versions={"judgelm": VERSION, "python": platform.python_version()},
            max_in_flight=engine.max_in_flight,
            supports_grammar=engine.supports_grammar,
            supports_images=engine.supports_images,
            thinking=engine.thinking,
        )

    def step(self, task: StepTask) -> StepResult:
        """Abort, submit and collect requests.

        Raises:
            RefusedError: the engine refuses one of the requests.
            EngineError: the engine broke.
        """
        engine = self._view
        assert engine is not None, "the driver waits for `load`"
        if task.aborted:
            engine.abort(task.aborted)
        if task.requests:
            try:
                engine.submit(task.requests)
            except EngineError as error:
                raise RefusedError(str(error)) from error
        completions = engine.collect(task.timeout_s)
        partial = dict(engine.progress(task.watched)) if task.watched else {}
        return StepResult(completions=completions, partial=partial, stats=engine.stats())

    def close(self) -> None:
        """End the engine and its processes."""
        if self._engine is not None:
            self._engine.close()
