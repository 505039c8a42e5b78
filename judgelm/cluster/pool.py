"""Start, watch, and replace workers, which are Ray actors."""

import os
import platform
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from judgelm.cluster.plan import Node, RayCluster, make_plan
from judgelm.engines.base import Engine, EngineOptions
from judgelm.engines.catalog import load_engine, resolve_options
from judgelm.engines.views import PerRequestFailures
from judgelm.errors import ConfigError, EngineError, JudgelmError, ModelError, first_line
from judgelm.package import VERSION
from judgelm.parsing.thinking import Thinking
from judgelm.records import Completion, Request
from judgelm.runs.process_cleanup import end_orphans, mark_children

_MARK = "/judgelm-worker"
"""Marks the processes that the engine of a lost worker leaves on a node. This is not a file."""
_CALLS_AHEAD = 2
"""Steps in flight per worker; more than one keeps the engine busy while the driver handles earlier results."""
_MAX_LOSSES = 5
_CLOSING_S = 10.0
_OBJECT_STORE_BYTES = 200 << 20
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


class EngineRefusedError(EngineError):
    """An engine rejected a request that all workers would reject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLocation:
    """A worker's machine and process."""

    node: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEngine:
    """A worker has loaded its engine."""

    node: str
    described: dict[str, Any]
    stats: dict[str, Any]
    versions: dict[str, str]
    max_in_flight: int
    supports_grammar: bool
    supports_images: bool
    thinking: Thinking


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The completions, partial replies by key, and statistics of a step."""

    completions: list[Completion]
    partial: Mapping[str, str]
    stats: dict[str, Any]


class Worker:
    """An engine in a separate process. `cores` must be set before torch is imported."""

    def __init__(self, cores: int) -> None:
        os.environ["OMP_NUM_THREADS"] = str(cores)
        self._engine: Engine | None = None
        self._view: Engine | None = None

    def location(self) -> WorkerLocation:
        """Return the location, as soon as Ray has placed the worker."""
        return WorkerLocation(node=platform.node(), pid=os.getpid())

    def resolve(self, name: str, options: EngineOptions) -> tuple[EngineOptions, str]:
        """Return the options for all workers, with `auto` resolved on this machine, and a note."""
        return resolve_options(name, options)

    def load(self, name: str, options: EngineOptions, per_request_failures: bool) -> LoadedEngine:
        """Stop processes left on this machine by the engine of a lost worker, then load the engine."""
        end_orphans(_MARK)
        mark_children(_MARK)
        engine = self._engine = load_engine(name, options)
        self._view = PerRequestFailures(engine) if per_request_failures else engine
        return LoadedEngine(
            node=platform.node(),
            described=engine.describe(),
            stats=engine.stats(),
            versions={"judgelm": VERSION, "python": platform.python_version()},
            max_in_flight=engine.max_in_flight,
            supports_grammar=engine.supports_grammar,
            supports_images=engine.supports_images,
            thinking=engine.thinking,
        )

    def step(
        self, aborted: Sequence[str], requests: Sequence[Request], watched: Sequence[str], timeout_s: float
    ) -> StepResult:
        """Abort, submit, and collect requests, and return partial replies to `watched` requests."""
        engine = self._view
        assert engine is not None, "the engine has not been loaded"
        if aborted:
            engine.abort(aborted)
        if requests:
            try:
                engine.submit(requests)
            except EngineError as error:
                raise EngineRefusedError(str(error)) from error
        completions = engine.collect(timeout_s)
        partial = dict(engine.progress(watched)) if watched else {}
        return StepResult(completions=completions, partial=partial, stats=engine.stats())

    def close(self) -> None:
        """Stop the engine and its processes."""
        if self._engine is not None:
            self._engine.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost:
    """A worker was lost. Unless losses are too frequent, a new worker replaces it."""

    why: str


Event = LoadedEngine | StepResult | WorkerLost


@dataclass(slots=True)
class _Slot:
    """Successive workers with the same number. `calls` maps pending calls to their kinds."""

    actor: Any = None
    calls: dict[Any, str] = field(default_factory=dict)
    location: WorkerLocation | None = None
    is_ready: bool = False
    losses: int = 0
    stats: dict[str, Any] = field(default_factory=dict)


class WorkerPool:
    """The workers of a run.

    Attributes:
        lost: number of lost workers.
        notes: notes for the user.
    """

    def __init__(self, name: str, options: EngineOptions, cluster: RayCluster, gpus: int) -> None:
        self._name, self._options, self._cluster = name, options, cluster
        self._owns_ray = _connect(cluster)
        self._slots: dict[int, _Slot] = {}
        self._stats_of_lost: list[dict[str, Any]] = []
        self._placed_s = time.monotonic()
        self._is_resolved = options.dtype != "auto"
        self.lost = 0
        self.notes: list[str] = []
        try:
            self.plan = make_plan(cluster, _nodes(), gpus)
            self._make = ray.remote(Worker).options(
                num_cpus=self.plan.cores, num_gpus=self.plan.gpus, max_restarts=0, max_task_retries=0
            )
            for worker in range(self.plan.workers):
                self._slots[worker] = _Slot()
                self._begin(self._slots[worker])
        except BaseException:
            self.close()
            raise

    @property
    def ready(self) -> list[int]:
        """Workers that accept requests."""
        return [worker for worker, slot in self._slots.items() if slot.is_ready]

    @property
    def is_loading(self) -> bool:
        """True if a worker has been placed and is loading."""
        return any(slot.location is not None and not slot.is_ready for slot in self._slots.values())

    @property
    def is_incomplete(self) -> bool:
        """True if a worker has not been placed yet."""
        return any(slot.location is None for slot in self._slots.values())

    @property
    def nodes(self) -> list[str]:
        """Names of the workers' machines."""
        return sorted({slot.location.node for slot in self._slots.values() if slot.location is not None})

    @property
    def stats(self) -> list[dict[str, Any]]:
        """Statistics for each engine, including those of lost workers."""
        return self._stats_of_lost + [slot.stats for slot in self._slots.values()]

    def wants_calls(self, worker: int) -> bool:
        """Return True if a worker requires another call to continue."""
        return len(self._slots[worker].calls) < _CALLS_AHEAD

    def step(
        self,
        worker: int,
        timeout_s: float,
        *,
        aborted: Sequence[str] = (),
        requests: Sequence[Request] = (),
        watched: Sequence[str] = (),
    ) -> None:
        """Start a step on a worker (`Worker.step`), which results in a `StepResult` event."""
        slot = self._slots[worker]
        slot.calls[slot.actor.step.remote(aborted, requests, watched, timeout_s)] = "step"

    def wait(self, timeout_s: float) -> Iterator[tuple[int, Event]]:
        """Wait up to `timeout_s` for an event, and yield all events. Raise errors that the user must fix."""
        self._check_places()
        calls = {call: worker for worker, slot in self._slots.items() for call in slot.calls}
        done, _ = ray.wait(list(calls), num_returns=1, timeout=timeout_s)
        if done:
            done, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
        for call in done:
            worker = calls[call]
            slot = self._slots.get(worker)
            if slot is None or call not in slot.calls:
                continue  # from a worker that was found to be lost in this loop
            kind = slot.calls.pop(call)
            try:
                event = self._handle_result(worker, kind, ray.get(call))
            except RayTaskError as error:
                event = self._handle_failure(worker, kind, error)
            except RayError as error:
                event = self._lose(worker, _why(error))
            if event is not None:
                yield worker, event

    def close(self) -> None:
        """Stop all workers, and Ray if this pool started it."""
        if not ray.is_initialized():
            return
        actors = [slot.actor for slot in self._slots.values() if slot.actor is not None]
        closing = [slot.actor.close.remote() for slot in self._slots.values() if slot.is_ready]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=_CLOSING_S)
        for actor in actors:
            ray.kill(actor)
        self._slots.clear()
        if self._owns_ray:
            ray.shutdown()

    def _begin(self, slot: _Slot) -> None:
        slot.actor = self._make.remote(self.plan.cores)
        slot.calls = {slot.actor.location.remote(): "location"}
        slot.location, slot.is_ready, slot.stats = None, False, {}

    def _load_placed(self) -> None:
        idle = [slot for slot in self._slots.values() if slot.location and not (slot.is_ready or slot.calls)]
        if self._is_resolved:
            for slot in idle:
                call = slot.actor.load.remote(self._name, self._options, self._cluster.per_request_failures)
                slot.calls[call] = "load"
        elif idle and not any("resolve" in slot.calls.values() for slot in self._slots.values()):
            idle[0].calls[idle[0].actor.resolve.remote(self._name, self._options)] = "resolve"

    def _handle_result(self, worker: int, kind: str, value: Any) -> Event | None:
        slot = self._slots[worker]
        if kind == "location":
            slot.location = value
            self._load_placed()
            return None
        if kind == "resolve":
            self._options, note = value
            self._is_resolved, self.notes = True, [note] if note else []
            self._load_placed()
            return None
        if kind == "load":
            slot.is_ready = True
        elif value.completions:
            slot.losses = 0
        slot.stats = value.stats
        loaded_or_step: LoadedEngine | StepResult = value
        return loaded_or_step

    def _handle_failure(self, worker: int, kind: str, error: RayTaskError) -> Event:
        cause = error.cause
        if isinstance(cause, ConfigError | ModelError | EngineRefusedError) and (kind == "step" or not self.lost):
            location = self._slots[worker].location
            raise type(cause)(f"on {location.node if location else 'a node'}: {cause}") from cause
        message = str(cause) if isinstance(cause, JudgelmError) else f"{type(cause).__name__}: {first_line(cause)}"
        closing = self._slots[worker].actor.close.remote()
        ray.wait([closing], timeout=_CLOSING_S)
        return self._lose(worker, message)

    def _lose(self, worker: int, why: str) -> WorkerLost:
        slot = self._slots[worker]
        self.lost += 1
        self._stats_of_lost.append(slot.stats)
        slot.losses += 1
        where = f"{slot.location.node}, process {slot.location.pid}: " if slot.location else ""
        ray.kill(slot.actor)
        if slot.losses < _MAX_LOSSES:
            self._begin(slot)
        else:
            del self._slots[worker]
        self._load_placed()
        if not self._slots:
            losses = f"each worker was lost {_MAX_LOSSES} times in a row; see /tmp/ray/session_latest/logs on its node"
            raise EngineError(f"{where}{why} (no workers are left: {losses})")
        return WorkerLost(why=f"{where}{why}")

    def _check_places(self) -> None:
        now = time.monotonic()
        if any(slot.location is not None for slot in self._slots.values()):
            self._placed_s = now
        elif now - self._placed_s > self._cluster.placing_timeout_s:
            has = ", ".join(f"{node.cpus} cores and {node.gpus} GPUs" for node in _nodes()) or "none"
            finding = f"cannot place {self.plan} within {self._cluster.placing_timeout_s:.0f} s; the nodes have {has}"
            raise EngineError(f"{finding}, which may be in use; start more nodes, or request fewer cores")


def _connect(cluster: RayCluster) -> bool:
    """Join or start Ray. Return True if this run must shut Ray down."""
    if ray.is_initialized():
        return False
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    options: dict[str, Any] = {"address": cluster.address, "log_to_driver": False, "logging_level": "ERROR"}
    if cluster.address == "local":
        cores = max(os.cpu_count() or 1, (cluster.workers or 1) * (cluster.cores or 1))
        options |= {"num_cpus": cores, "num_gpus": cluster.gpus, "include_dashboard": False}
        options |= {"object_store_memory": _OBJECT_STORE_BYTES}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
        way_out = "start a cluster with `ray start --head`, or use --ray local"
        if "AuthToken" in str(error.__cause__):
            way_out = "the head node requires a token; set RAY_AUTH_MODE=token and the same token on this machine"
        raise EngineError(f"cannot connect to Ray at {cluster.address}: {first_line(error)}; {way_out}") from error
    finally:
        if threading.current_thread() is threading.main_thread():  # restore the handler that Ray replaced
            signal.signal(signal.SIGTERM, handler)
    return True


def _nodes() -> list[Node]:
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Node(cpus=int(node.get("CPU", 0)), gpus=int(node.get("GPU", 0))) for node in resources]


def _why(error: RayError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line and not line.startswith("\t")]
    return " ".join(lines).split(" Some common causes")[0].rstrip(".") or type(error).__name__
