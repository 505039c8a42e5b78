"""The Ray driver: an engine that forwards requests to workers.

Each worker has a limit on tokens in flight. Fast requests increase this limit, and slow requests decrease it. At the
end of the input, only a few seconds of work are left. Prompts with the same prefix are sent to the same worker, which
may have cached the prefix.

A lost worker is replaced, and its requests are sent again. A request can kill its worker (out of memory, a broken
kernel). It is therefore sent alone after two losses, and fails after the third loss.
"""

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from judgelm.cluster.plan import RayCluster
from judgelm.cluster.pool import LoadedEngine, StepResult, WorkerLost, WorkerPool
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import gpus_each
from judgelm.errors import EngineError
from judgelm.parsing.thinking import NOT_ASKED
from judgelm.records import Completion, Request

log = logging.getLogger("judgelm.cluster")

_LOAD_POLL_S = 1.0
_MAX_STEP_S = 0.5
_IDLE_CHECK_S = 5.0
"""Interval between calls to idle workers, so that lost workers are detected before the next request."""
_BY_DEVICE = {"engine_args"}
"""Entries in an engine's description that may differ between workers, because vLLM sets them per device."""
_JOINING_S = 10.0
"""Time for the first ready worker to wait for others to be placed."""
_SOON_S = 10.0
_SOON_S_PER_REPLY_TOKEN = 0.1
"""Maximum time per reply token of a request that counts as fast."""
_MIN_TOKENS = 4096
_BYTES_PER_TOKEN = 4
_LOSSES_TO_SUSPECT = 2
_MAX_HOMES = 10_000


class RayEngine:
    """Workers that act as a single engine. In float32, greedy replies do not depend on the number of workers."""

    def __init__(self, pool: WorkerPool) -> None:
        self.supports_grammar = self.supports_images = False  # set when a worker is ready
        self.thinking = NOT_ASKED
        self._pool = pool
        self._scheduler = Scheduler()
        self._first_loaded: LoadedEngine | None = None
        self._max_in_flight: dict[int, int] = {}
        self._aborted: dict[int, list[str]] = {}
        self._finished: list[Completion] = []
        self._watched: set[str] = set()
        self._partial: dict[str, str] = {}
        self._checked_s = time.monotonic()
        self._is_closed = False

    @classmethod
    def load(cls, name: str, options: EngineOptions, cluster: RayCluster) -> "RayEngine":
        """Start the workers, and wait until the first workers are loaded. The others join later."""
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
        """Twice the capacity of the workers, so that requests on a hanging node do not block other requests."""
        return 2 * (sum(self._max_in_flight.values()) or self._loaded.max_in_flight)

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests."""
        self._scheduler.add(requests)

    def collect(self, timeout_s: float) -> list[Completion]:
        """Dispatch requests, and wait up to `timeout_s` for a completion.

        Workers receive new and aborted requests between steps of at most `timeout_s`.

        Raises:
            EngineError: all workers are lost permanently, or their models differ.
        """
        until = time.monotonic() + timeout_s
        step_s = min(timeout_s, _MAX_STEP_S)
        watched, self._watched = self._watched, set()
        if not self._scheduler.is_busy:
            self._check_idle()
        while not self._finished and self._scheduler.is_busy:
            self._send(step_s, watched)
            if (left := until - time.monotonic()) <= 0:
                break
            self._watch(left)
        self._send(step_s, watched)  # workers keep running while the caller handles completions
        finished, self._finished = self._finished, []
        return finished

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Return the partial replies to these requests, as reported after each worker's last step.

        Workers report a partial reply only after the first call with its key. The partial reply of a lost worker is
        kept until another worker starts the request.
        """
        keys = set(keys)
        self._watched |= keys
        return {key: self._partial[key] for key in keys & self._partial.keys()}

    def abort(self, keys: Iterable[str]) -> None:
        """Abort requests."""
        keys = set(keys)
        for worker, gone in self._scheduler.abort(keys).items():
            self._aborted.setdefault(worker, []).extend(gone)
        self._finished = [completion for completion in self._finished if completion.key not in keys]
        self._partial = {key: text for key, text in self._partial.items() if key not in keys}

    def describe(self) -> dict[str, Any]:
        """Return the description shared by the engines of all workers."""
        return self._loaded.described

    def stats(self) -> dict[str, Any]:
        """Return statistics about the workers, and totals over their engines."""
        total = total_stats(self._pool.stats)
        return total | {
            "notes": [*self._pool.notes, *total.get("notes", [])],
            "workers": str(self._pool.plan),
            "nodes": self._pool.nodes,
            "lost_workers": self._pool.lost,
            "requests_sent_again": self._scheduler.sent_again,
        }

    def close(self) -> None:
        """Stop the workers."""
        if not self._is_closed:
            self._is_closed = True
            self._pool.close()

    @property
    def _loaded(self) -> LoadedEngine:
        if self._first_loaded is None:
            raise EngineError("no worker has finished loading")
        return self._first_loaded

    def _send(self, step_s: float, watched: set[str]) -> None:
        dispatched = self._scheduler.dispatch(time.monotonic())
        for worker in self._pool.ready:
            requests, aborted = dispatched.get(worker, []), self._aborted.pop(worker, [])
            idle = self._scheduler.in_flight(worker) and self._pool.wants_calls(worker)
            if requests or aborted or idle:
                keys = self._scheduler.sent_keys(worker, watched)
                self._pool.step(worker, step_s, aborted=aborted, requests=requests, watched=keys)

    def _check_idle(self) -> None:
        now = time.monotonic()
        if now - self._checked_s >= _IDLE_CHECK_S:
            self._checked_s = now
            for worker in self._pool.ready:
                if self._pool.wants_calls(worker):
                    self._pool.step(worker, 0.0)
        self._watch(0.0)

    def _watch(self, timeout_s: float) -> None:
        for worker, event in self._pool.wait(timeout_s):
            if isinstance(event, LoadedEngine):
                self._check_alike(event)
                self.supports_grammar, self.supports_images = event.supports_grammar, event.supports_images
                self.thinking = event.thinking
                self._max_in_flight[worker] = event.max_in_flight
                self._scheduler.add_worker(worker, event.max_in_flight)
            elif isinstance(event, WorkerLost):
                log.warning("lost a worker; sending its requests to other workers: %s", event.why)
                self._max_in_flight.pop(worker, None)
                self._aborted.pop(worker, None)
                self._finished += self._scheduler.lose_worker(worker, event.why)
            else:
                self._take(worker, event)

    def _take(self, worker: int, result: StepResult) -> None:
        now = time.monotonic()
        completed = (self._scheduler.complete(worker, completion, now) for completion in result.completions)
        finished = [completion for completion in completed if completion is not None]
        for completion in finished:
            self._partial.pop(completion.key, None)
        self._finished += finished
        for sent_key, text in result.partial.items():
            if (key := self._scheduler.request_key(worker, sent_key)) is not None:
                self._partial[key] = text

    def _check_alike(self, ready: LoadedEngine) -> None:
        first = self._first_loaded = self._first_loaded or ready
        sides = [worker.described | worker.versions for worker in (first, ready)]
        for name in sorted((sides[0].keys() | sides[1].keys()) - _BY_DEVICE):
            expected, actual = (side.get(name) for side in sides)
            if expected != actual:
                values = f"{name} is {expected} on {first.node} and {actual} on {ready.node}"
                raise EngineError(f"the workers differ: {values}; use the same model files and packages on all nodes")


def total_stats(stats: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sum numbers and counts, and concatenate lists."""
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


@dataclass(slots=True, kw_only=True)
class _Task:
    request: Request
    tokens: int
    prefix: int
    losses: int = 0
    sent_s: float = 0.0


@dataclass(slots=True)
class _WorkerQueue:
    """A worker's requests in flight. `exclusive` is set while a suspect request runs alone."""

    max_requests: int
    max_tokens: int = _MIN_TOKENS
    tokens: int = 0
    exclusive: bool = False
    tasks: dict[str, _Task] = field(default_factory=dict)

    def has_room(self, factor: int = 1) -> bool:
        few = len(self.tasks) < factor * self.max_requests and self.tokens < factor * self.max_tokens
        return few and not self.exclusive

    def add(self, key: str, task: _Task) -> None:
        self.tasks[key] = task
        self.tokens += task.tokens

    def remove(self, key: str) -> _Task:
        task = self.tasks.pop(key)
        self.tokens -= task.tokens
        self.exclusive = self.exclusive and bool(self.tasks)
        return task

    def adapt(self, task: _Task, waited_s: float) -> None:
        """After a fast request, increase the limit if it was reached; after a slow request, decrease it."""
        if waited_s > _SOON_S + _SOON_S_PER_REPLY_TOKEN * task.request.sampling.max_tokens:
            self.max_tokens = max(_MIN_TOKENS, self.max_tokens - task.tokens)
        elif 2 * self.tokens > self.max_tokens:
            self.max_tokens += task.tokens


class Scheduler:
    """Distributes requests to numbered workers.

    This class does not use Ray or a clock; the caller passes the time.

    Attributes:
        sent_again: number of requests that were in flight when their worker was lost.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Task] = deque()
        self._suspects: deque[_Task] = deque()
        self._queues: dict[int, _WorkerQueue] = {}
        self._homes: OrderedDict[int, int] = OrderedDict()
        self._serial = count()
        self.sent_again = 0

    @property
    def is_busy(self) -> bool:
        """True if requests are waiting or in flight."""
        return bool(self._waiting or self._suspects or any(queue.tasks for queue in self._queues.values()))

    def in_flight(self, worker: int) -> int:
        """Return a worker's number of requests in flight."""
        return len(self._queues[worker].tasks)

    def sent_keys(self, worker: int, keys: Set[str]) -> list[str]:
        """Return the keys that a worker uses for these requests."""
        return [sent for sent, task in self._queues[worker].tasks.items() if task.request.key in keys] if keys else []

    def request_key(self, worker: int, sent_key: str) -> str | None:
        """Return the original key of a request, or None if the worker no longer has the request."""
        task = self._queues[worker].tasks.get(sent_key)
        return task.request.key if task else None

    def add_worker(self, worker: int, max_requests: int) -> None:
        """Add a ready worker."""
        self._queues[worker] = _WorkerQueue(max_requests)

    def add(self, requests: Iterable[Request]) -> None:
        """Queue requests; requests with a prefill come first, because a worker may have cached it."""
        for request in requests:
            task = _Task(request=request, tokens=_tokens(request), prefix=_prefix(request))
            if request.prompt.prefill:
                self._waiting.appendleft(task)
            else:
                self._waiting.append(task)

    def dispatch(self, now_s: float) -> dict[int, list[Request]]:
        """Return the requests to send to each worker, under unique keys."""
        dispatched: dict[int, list[Request]] = {}
        reserved = self._reserved()
        if reserved is not None and not self._queues[reserved].tasks:
            dispatched[reserved] = [self._send(reserved, self._suspects.popleft(), now_s)]
            self._queues[reserved].exclusive = True
        while self._waiting and (worker := self._choose(self._waiting[0].prefix, reserved)) is not None:
            dispatched.setdefault(worker, []).append(self._send(worker, self._waiting.popleft(), now_s))
        return dispatched

    def complete(self, worker: int, completion: Completion, now_s: float) -> Completion | None:
        """Return a completion with the request's original key, or None if the request was aborted."""
        queue = self._queues[worker]
        if completion.key not in queue.tasks:
            return None
        task = queue.tasks[completion.key]
        queue.adapt(task, now_s - task.sent_s)
        queue.remove(completion.key)
        return replace(completion, key=task.request.key)

    def abort(self, keys: Iterable[str]) -> dict[int, list[str]]:
        """Remove requests, and return the keys used by each worker."""
        dropped = set(keys)
        self._waiting = deque(task for task in self._waiting if task.request.key not in dropped)
        self._suspects = deque(task for task in self._suspects if task.request.key not in dropped)
        aborted: dict[int, list[str]] = {}
        for worker, queue in self._queues.items():
            gone = [key for key, task in queue.tasks.items() if task.request.key in dropped]
            for key in gone:
                queue.remove(key)
            if gone:
                aborted[worker] = gone
        return aborted

    def lose_worker(self, worker: int, why: str) -> list[Completion]:
        """Remove a lost worker. Its requests fail, or are sent again before all others."""
        queue = self._queues.pop(worker, None)
        tasks = list(queue.tasks.values()) if queue else []
        for task in tasks:
            task.losses += 1
        if len(tasks) == 1 and tasks[0].losses >= _LOSSES_TO_SUSPECT:
            return [_failed(tasks[0], why)]
        self.sent_again += len(tasks)
        self._suspects.extend(task for task in tasks if task.losses >= _LOSSES_TO_SUSPECT)
        self._waiting.extendleft(task for task in reversed(tasks) if task.losses < _LOSSES_TO_SUSPECT)
        return []

    def _reserved(self) -> int | None:
        if not self._suspects or not self._queues:
            return None
        return min(self._queues, key=lambda worker: (not self._queues[worker].exclusive, self._queues[worker].tokens))

    def _choose(self, prefix: int, reserved: int | None) -> int | None:
        home = self._homes.get(prefix)
        if home is not None and home != reserved and home in self._queues and self._queues[home].has_room(2):
            return home
        free = [worker for worker, queue in self._queues.items() if worker != reserved and queue.has_room()]
        return min(free, key=lambda worker: self._queues[worker].tokens / self._queues[worker].max_tokens, default=None)

    def _send(self, worker: int, task: _Task, now_s: float) -> Request:
        key = str(next(self._serial))
        task.sent_s = now_s
        self._queues[worker].add(key, task)
        self._homes[task.prefix] = worker
        self._homes.move_to_end(task.prefix)
        if len(self._homes) > _MAX_HOMES:
            self._homes.popitem(last=False)
        return replace(task.request, key=key)


def _tokens(request: Request) -> int:
    text = sum(len(text.encode()) for text in (*request.prompt.texts, request.prompt.prefill))
    return text // _BYTES_PER_TOKEN + request.sampling.max_tokens * request.sampling.n


def _prefix(request: Request) -> int:
    """Hash the prompt up to the first answer, which is the same in both orders and in all pairs for a question."""
    texts = [str(message["content"]) for message in request.prompt.messages[:1]]
    for span in request.prompt.spans:
        if span.kind == "answer":
            break
        texts.append(span.text)
    return hash(tuple(texts))


def _failed(task: _Task, why: str) -> Completion:
    error = f"{task.losses} workers were lost while running this request, the last time by itself: {why}"
    return Completion.failed(task.request.key, error)
