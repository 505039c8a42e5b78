"""Schedules requests to workers, and handles the requests of lost workers.

Knows neither Ray nor processes, and has no clock: the caller passes the time (seconds, from any start).

A worker has a limited number of tokens in flight. The limit grows while requests come back soon and shrinks while they
come back late, so that a slow worker gets less, and no worker has much more than some seconds of work when the input
ends. Prompts that begin alike go to the worker that has read that beginning, which it need not read again.

A request can kill the worker that reads it (out of memory, a broken kernel). Requests that were in flight at two losses
are sent to a worker one at a time; if the worker is lost again while it has no other request, the request fails.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace
from itertools import count

from judgelm.records import Completion, Request

_SOON_S = 10.0
_SOON_S_PER_REPLY_TOKEN = 0.1
"""A busy engine without a queue answers within this time; a decoding step is faster on a GPU or a small CPU."""
_MIN_TOKENS = 4096
_BYTES_PER_TOKEN = 4
_LOSSES_TO_SUSPECT = 2
_MAX_HOMES = 10_000


@dataclass(slots=True, kw_only=True)
class _Task:
    request: Request
    tokens: int
    prefix: int
    losses: int = 0
    sent_s: float = 0.0


@dataclass(slots=True)
class _WorkerQueue:
    """The requests in flight at a worker, and their limits; `exclusive` while it works on a suspect alone."""

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
        """Raise the limit where it was reached and the request came back soon; lower it where it came late."""
        if waited_s > _SOON_S + _SOON_S_PER_REPLY_TOKEN * task.request.sampling.max_tokens:
            self.max_tokens = max(_MIN_TOKENS, self.max_tokens - task.tokens)
        elif 2 * self.tokens > self.max_tokens:
            self.max_tokens += task.tokens


class Scheduler:
    """Sends requests to workers, which are identified by number.

    Attributes:
        sent_again: requests that were in flight at a lost worker.
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
        """True if any request waits or is in flight."""
        return bool(self._waiting or self._suspects or any(queue.tasks for queue in self._queues.values()))

    def in_flight(self, worker: int) -> int:
        """Number of requests in flight at a worker."""
        return len(self._queues[worker].tasks)

    def sent_keys(self, worker: int, keys: Set[str]) -> list[str]:
        """The keys under which a worker has some of these requests in flight."""
        return [sent for sent, task in self._queues[worker].tasks.items() if task.request.key in keys] if keys else []

    def request_key(self, worker: int, sent_key: str) -> str | None:
        """A request's own key; None where the worker does not have it any more."""
        task = self._queues[worker].tasks.get(sent_key)
        return task.request.key if task else None

    def add_worker(self, worker: int, max_requests: int) -> None:
        """Add a worker that is ready and takes at most this many requests."""
        self._queues[worker] = _WorkerQueue(max_requests)

    def add(self, requests: Iterable[Request]) -> None:
        """Queue requests; those with a prefilled reply first, since a worker may still have that reply cached."""
        for request in requests:
            task = _Task(request=request, tokens=_tokens(request), prefix=_prefix(request))
            if request.prompt.prefill:
                self._waiting.appendleft(task)
            else:
                self._waiting.append(task)

    def dispatch(self, now_s: float) -> dict[int, list[Request]]:
        """The requests to send to each worker now, each under a new unique key."""
        dispatched: dict[int, list[Request]] = {}
        reserved = self._reserved()
        if reserved is not None and not self._queues[reserved].tasks:
            dispatched[reserved] = [self._send(reserved, self._suspects.popleft(), now_s)]
            self._queues[reserved].exclusive = True
        while self._waiting and (worker := self._choose(self._waiting[0].prefix, reserved)) is not None:
            dispatched.setdefault(worker, []).append(self._send(worker, self._waiting.popleft(), now_s))
        return dispatched

    def complete(self, worker: int, completion: Completion, now_s: float) -> Completion | None:
        """A worker's completion under the request's own key; None where the request was aborted meanwhile."""
        queue = self._queues[worker]
        if completion.key not in queue.tasks:
            return None
        task = queue.tasks[completion.key]
        queue.adapt(task, now_s - task.sent_s)
        queue.remove(completion.key)
        return replace(completion, key=task.request.key)

    def abort(self, keys: Iterable[str]) -> dict[int, list[str]]:
        """Forget requests; returns for each worker the keys under which it has some of them."""
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
        """Remove a lost worker: its requests are sent again before all others, or fail."""
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
        """The worker that gets nothing new until it is free for a suspect; None where there is no suspect."""
        if not self._suspects or not self._queues:
            return None
        return min(self._queues, key=lambda worker: (not self._queues[worker].exclusive, self._queues[worker].tokens))

    def _choose(self, prefix: int, reserved: int | None) -> int | None:
        """The worker that has read the prefix, up to twice its limit; else the one with the smallest load."""
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
    """Approximate tokens of a request, its reply at its maximum."""
    text = sum(len(span.text.encode()) for span in request.prompt.spans) + len(request.prompt.prefill.encode())
    return text // _BYTES_PER_TOKEN + request.sampling.max_tokens * request.sampling.n


def _prefix(request: Request) -> int:
    """A hash of the prompt up to its first answer: equal for both orders, and for all pairs of one question."""
    texts: list[str] = []
    for span in request.prompt.spans:
        if span.kind == "answer":
            break
        texts.append(span.text)
    return hash(tuple(texts))


def _failed(task: _Task, why: str) -> Completion:
    error = f"{task.losses} workers were lost with this request in flight, the last while it had no other: {why}"
    return Completion.failed(task.request.key, error)
