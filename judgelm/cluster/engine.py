"""The Ray driver: an engine whose requests are answered by workers, each of which holds an engine.

To the runner it is one engine, so resume, reasons and distributions work as they do on one device. A lost worker, or
its node, costs what it had in hand: that is sent to another, and another worker is started in its place.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from judgelm.cluster.plan import Cluster, gpus_each
from judgelm.cluster.pool import Event, WorkerLost, WorkerPool, WorkerReady
from judgelm.cluster.scheduler import Scheduler
from judgelm.engines.base import EngineOptions
from judgelm.errors import EngineError
from judgelm.prompts.thinking import NOT_ASKED
from judgelm.records import Completion, Request

_LOAD_POLL_S = 1.0
_BY_DEVICE = {"engine_args"}
"""Of an engine's description, what may differ: all get the same arguments, and vLLM chooses the rest by device."""
_JOINING_S = 10.0
"""How long the first worker that is ready waits for others to have a place; a process takes seconds to start."""


class RayEngine:
    """Workers as one engine. Greedy replies in float32 are those of a single worker; sampled ones repeat as well.

    Args:
        pool: the workers, started.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self.supports_grammar = self.supports_images = False  # until a worker says otherwise
        self.thinking = NOT_ASKED  # as those
        self._pool = pool
        self._feeder = Scheduler()
        self._first: WorkerReady | None = None
        self._max_in_flight: dict[int, int] = {}
        self._dropped: dict[int, list[str]] = {}
        self._finished: list[Completion] = []
        self._is_closed = False

    @classmethod
    def load(cls, name: str, options: EngineOptions, cluster: Cluster) -> "RayEngine":
        """Start the workers and wait until all that soon have a place have loaded; others join when they have one.

        Raises:
            ConfigError: the cluster has no room for a worker.
            ModelError: the model cannot be loaded.
            EngineError: no Ray, no worker, or workers that have not loaded the same.
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
        """Twice what all workers want in hand: what is stuck in a node that hangs must not starve the others."""
        return 2 * (sum(self._max_in_flight.values()) or self._loaded.loaded.max_in_flight)

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests for whichever workers have room."""
        self._feeder.add(requests)

    def collect(self, timeout_s: float) -> list[Completion]:
        """Feed the workers and wait up to `timeout_s` until something is finished.

        Raises:
            EngineError: all workers are lost for good, or one has loaded something else than the others.
        """
        until = time.monotonic() + timeout_s
        while not self._finished and self._feeder.is_busy:
            self._send()
            if (left := until - time.monotonic()) <= 0:
                break
            self._watch(left)
        self._send()  # workers go on while the caller handles what is finished
        finished, self._finished = self._finished, []
        return finished

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Nothing: workers send whole replies."""
        return {}

    def abort(self, keys: Iterable[str]) -> None:
        """Forget requests."""
        keys = set(keys)
        for worker, gone in self._feeder.drop(keys).items():
            self._dropped.setdefault(worker, []).extend(gone)
        self._finished = [completion for completion in self._finished if completion.key not in keys]

    def describe(self) -> dict[str, Any]:
        """What the workers' engines say, all of them the same."""
        return self._loaded.loaded.described

    def stats(self) -> dict[str, Any]:
        """What the workers' engines have counted, all together, and how the workers fared."""
        total = total_stats(self._pool.stats)
        notes = {"notes": [*self._pool.notes, *total.get("notes", [])]}
        return (
            total
            | notes
            | {
                "workers": str(self._pool.plan),
                "nodes": self._pool.nodes,
                "lost_workers": self._pool.lost,
                "requests_sent_again": self._feeder.sent_again,
            }
        )

    def close(self) -> None:
        """End the workers."""
        if not self._is_closed:
            self._is_closed = True
            self._pool.close()

    @property
    def _loaded(self) -> WorkerReady:
        if self._first is None:
            raise EngineError("no worker has loaded yet")
        return self._first

    def _send(self) -> None:
        """Requests for those with room, and a call for those that have work and none to do it in."""
        dealt = self._feeder.deal(time.monotonic())
        for worker in self._pool.ready:
            requests, dropped = dealt.get(worker, []), self._dropped.pop(worker, [])
            idle = self._feeder.in_hand(worker) and self._pool.wants_calls(worker)
            if requests or dropped or idle:
                self._pool.step(worker, dropped, requests)

    def _watch(self, timeout_s: float) -> None:
        for event in self._pool.wait(timeout_s):
            self._take(event)

    def _take(self, event: Event) -> None:
        worker = event.worker
        if isinstance(event, WorkerReady):
            self._check_alike(event)
            self.supports_grammar = event.loaded.supports_grammar
            self.supports_images = event.loaded.supports_images
            self.thinking = event.loaded.thinking
            self._max_in_flight[worker] = event.loaded.max_in_flight
            self._feeder.join(worker, event.loaded.max_in_flight)
        elif isinstance(event, WorkerLost):
            self._max_in_flight.pop(worker, None)
            self._dropped.pop(worker, None)
            self._finished += self._feeder.lose(worker, event.why)
        else:
            now = time.monotonic()
            settled = (self._feeder.settle(worker, completion, now) for completion in event.completions)
            self._finished += [completion for completion in settled if completion is not None]

    def _check_alike(self, joined: WorkerReady) -> None:
        """Refuse a worker that would judge otherwise than the first.

        Raises:
            EngineError: it has loaded another model, or runs other versions.
        """
        first = self._first = self._first or joined
        sides = [one.loaded.described | one.loaded.versions for one in (first, joined)]
        for name in sorted((sides[0].keys() | sides[1].keys()) - _BY_DEVICE):
            there, here = (side.get(name) for side in sides)
            if there != here:
                raise EngineError(
                    f"the workers do not agree: {name} is {there} on {first.place.node} and {here} on "
                    f"{joined.place.node}; give all nodes the same model files and packages"
                )


def total_stats(stats: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all workers counted together: numbers added up, counts by kind likewise, names united."""
    total: dict[str, Any] = {}
    for one in stats:
        for name, value in one.items():
            total[name] = _plus(total[name], value) if name in total else value
    return total


def _plus(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return total_stats([one, other])
    if isinstance(one, list):
        return sorted({*one, *other})
    return one + other if isinstance(one, int | float) and isinstance(other, int | float) else one or other
