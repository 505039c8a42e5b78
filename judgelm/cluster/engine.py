"""The Ray driver: an engine whose requests are answered by workers, each of which holds an engine.

The runner sees one engine, so resume, reasons and distributions work as on one device. The requests of a lost worker or
node are sent to another worker, and a new worker is started in its place.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from judgelm.cluster.plan import Cluster, gpus_each
from judgelm.cluster.pool import Event, StepDone, WorkerLost, WorkerPool, WorkerReady
from judgelm.cluster.scheduler import Scheduler
from judgelm.cluster.worker import StepTask
from judgelm.engines.base import EngineOptions
from judgelm.errors import EngineError
from judgelm.prompts.chat_templates import NOT_ASKED
from judgelm.records import Completion, Request

log = logging.getLogger("judgelm.cluster")

_LOAD_POLL_S = 1.0
_LONGEST_STEP_S = 0.5
_IDLE_CHECK_S = 5.0
"""Time between calls to idle workers, by which a lost one is noticed before the next request."""
_BY_DEVICE = {"engine_args"}
"""Parts of an engine's description that may differ: all get the same arguments, and vLLM sets the rest by device."""
_JOINING_S = 10.0
"""Wait of the first ready worker for others to be placed; a process takes seconds to start."""


class RayEngine:
    """Workers as one engine. Greedy replies in float32 equal those of a single worker; sampled ones repeat as well.

    Args:
        pool: the workers, started.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self.supports_grammar = self.supports_images = False  # these and thinking: until a worker is ready
        self.thinking = NOT_ASKED
        self._pool = pool
        self._scheduler = Scheduler()
        self._first_ready: WorkerReady | None = None
        self._max_in_flight: dict[int, int] = {}
        self._aborted: dict[int, list[str]] = {}
        self._finished: list[Completion] = []
        self._watched: set[str] = set()
        self._partial: dict[str, str] = {}
        self._checked_s = time.monotonic()
        self._is_closed = False

    @classmethod
    def load(cls, name: str, options: EngineOptions, cluster: Cluster) -> "RayEngine":
        """Start the workers and wait until all that are placed soon have loaded; others join when they are placed.

        Raises:
            ConfigError: the cluster has no room for a worker.
            ModelError: the model cannot be loaded.
            EngineError: no Ray, no worker, or workers that have loaded different models.
        """
        pool = WorkerPool(name, options, cluster, gpus_each(name, options))
        engine = cls(pool)
        joining_until = 0.0
        try:
            while not pool.ready or pool.is_loading or (pool.is_incomplete and time.monotonic() < joining_until):
                had_one = bool(pool.ready)
                engine._watch(_LOAD_POLL_S)
                joining_until = joining_until if had_one else time.monotonic() + _JOINING_S
        except BaseException:
            engine.close()
            raise
        return engine

    @property
    def max_in_flight(self) -> int:
        """Twice what all workers take: requests stuck on a hanging node must not starve the others."""
        return 2 * (sum(self._max_in_flight.values()) or self._loaded.loaded.max_in_flight)

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests for the workers."""
        self._scheduler.add(requests)

    def collect(self, timeout_s: float) -> list[Completion]:
        """Send requests to the workers and wait up to `timeout_s` until one is finished.

        A worker's step takes no longer than `timeout_s`: new and aborted requests reach it at the next one. Without
        requests, lost workers are replaced.

        Raises:
            EngineError: all workers are lost for good, or one has loaded another model than the others.
        """
        until = time.monotonic() + timeout_s
        step_s = min(timeout_s, _LONGEST_STEP_S)
        watched, self._watched = self._watched, set()
        if not self._scheduler.is_busy:
            self._check_idle()
        while not self._finished and self._scheduler.is_busy:
            self._send(step_s, watched)
            if (left := until - time.monotonic()) <= 0:
                break
            self._watch(left)
        self._send(step_s, watched)  # workers continue while the caller handles the completions
        finished, self._finished = self._finished, []
        return finished

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """The unfinished replies to these requests, as the workers' last steps left them.

        Workers report a reply once it was asked for here. A reply that a lost worker had begun stays until another
        worker has begun it; only greedy replies in float32 are sure to be the same again.
        """
        keys = set(keys)
        self._watched |= keys
        return {key: self._partial[key] for key in keys & self._partial.keys()}

    def abort(self, keys: Iterable[str]) -> None:
        """Forget requests."""
        keys = set(keys)
        for worker, gone in self._scheduler.abort(keys).items():
            self._aborted.setdefault(worker, []).extend(gone)
        self._finished = [completion for completion in self._finished if completion.key not in keys]
        self._partial = {key: text for key, text in self._partial.items() if key not in keys}

    def describe(self) -> dict[str, Any]:
        """The description that all workers' engines share."""
        return self._loaded.loaded.described

    def stats(self) -> dict[str, Any]:
        """The statistics of all workers' engines together, and those of the workers."""
        total = total_stats(self._pool.stats)
        return total | {
            "notes": [*self._pool.notes, *total.get("notes", [])],
            "workers": str(self._pool.plan),
            "nodes": self._pool.nodes,
            "lost_workers": self._pool.lost,
            "requests_sent_again": self._scheduler.sent_again,
        }

    def close(self) -> None:
        """End the workers."""
        if not self._is_closed:
            self._is_closed = True
            self._pool.close()

    @property
    def _loaded(self) -> WorkerReady:
        if self._first_ready is None:
            raise EngineError("no worker has loaded yet")
        return self._first_ready

    def _send(self, step_s: float, watched: set[str]) -> None:
        """Send requests to workers with room, and a call to those that have work but no call to do it in."""
        dispatched = self._scheduler.dispatch(time.monotonic())
        for worker in self._pool.ready:
            requests, aborted = dispatched.get(worker, []), self._aborted.pop(worker, [])
            idle = self._scheduler.in_flight(worker) and self._pool.wants_calls(worker)
            if requests or aborted or idle:
                keys = self._scheduler.sent_keys(worker, watched)
                task = StepTask(aborted=aborted, requests=requests, watched=keys, timeout_s=step_s)
                self._pool.step(worker, task)

    def _check_idle(self) -> None:
        """Call the idle workers now and then, and take what has happened to them."""
        now = time.monotonic()
        if now - self._checked_s >= _IDLE_CHECK_S:
            self._checked_s = now
            for worker in self._pool.ready:
                if self._pool.wants_calls(worker):
                    self._pool.step(worker, StepTask(timeout_s=0.0))
        self._watch(0.0)

    def _watch(self, timeout_s: float) -> None:
        for event in self._pool.wait(timeout_s):
            self._handle(event)

    def _handle(self, event: Event) -> None:
        worker = event.worker
        if isinstance(event, WorkerReady):
            self._check_alike(event)
            self.supports_grammar = event.loaded.supports_grammar
            self.supports_images = event.loaded.supports_images
            self.thinking = event.loaded.thinking
            self._max_in_flight[worker] = event.loaded.max_in_flight
            self._scheduler.add_worker(worker, event.loaded.max_in_flight)
        elif isinstance(event, WorkerLost):
            log.warning("lost a worker, whose requests go to others: %s", event.why)
            self._max_in_flight.pop(worker, None)
            self._aborted.pop(worker, None)
            self._finished += self._scheduler.lose_worker(worker, event.why)
        else:
            self._take(event)

    def _take(self, done: StepDone) -> None:
        """Take a step's finished and unfinished replies, except those of requests that were aborted meanwhile."""
        now = time.monotonic()
        completed = (self._scheduler.complete(done.worker, completion, now) for completion in done.completions)
        finished = [completion for completion in completed if completion is not None]
        for completion in finished:
            self._partial.pop(completion.key, None)
        self._finished += finished
        for sent_key, text in done.partial.items():
            if (key := self._scheduler.request_key(done.worker, sent_key)) is not None:
                self._partial[key] = text

    def _check_alike(self, ready: WorkerReady) -> None:
        """Refuse a worker that would judge differently from the first.

        Raises:
            EngineError: it has loaded another model, or runs other versions.
        """
        first = self._first_ready = self._first_ready or ready
        sides = [worker.loaded.described | worker.loaded.versions for worker in (first, ready)]
        for name in sorted((sides[0].keys() | sides[1].keys()) - _BY_DEVICE):
            expected, actual = (side.get(name) for side in sides)
            if expected != actual:
                raise EngineError(
                    f"the workers do not agree: {name} is {expected} on {first.location.node} and {actual} on "
                    f"{ready.location.node}; give all nodes the same model files and packages"
                )


def total_stats(stats: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The statistics of all workers together: numbers and counts added, names united."""
    total: dict[str, Any] = {}
    for worker_stats in stats:
        for name, value in worker_stats.items():
            total[name] = _sum(total[name], value) if name in total else value
    return total


def _sum(left: Any, right: Any) -> Any:
    if isinstance(left, dict):
        return total_stats([left, right])
    if isinstance(left, list):
        return sorted({*left, *right})
    return left + right if isinstance(left, int | float) and isinstance(right, int | float) else left or right
