"""Which worker gets which request, and what becomes of a lost worker's requests.

Knows neither Ray nor processes, and has no clock: the caller says what time it is (seconds, from any beginning).

A worker has at most so many tokens in hand. That window grows while requests come back soon and shrinks while they
come back late, so that a slow worker gets less, and none has much more than some seconds of work when the input ends.
Prompts that begin alike go to the worker that has read that beginning, which it need not read again.

A request can end the worker that reads it (out of memory, a broken kernel). Those that were in hand at two losses are
sent to a worker one at a time; one with which alone a worker is lost then has failed.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count

from judgelm.records import Completion, Request

_SOON_S = 10.0
_SOON_S_PER_REPLY_TOKEN = 0.1
"""A busy engine that lets nothing wait answers within this: slower than a decoding step takes on a GPU or small CPU."""
_LEAST_TOKENS = 4096
_BYTES_PER_TOKEN = 4
_LOSSES_TO_SUSPECT = 2
_KEPT_HOMES = 10_000


@dataclass(slots=True, kw_only=True)
class _Task:
    request: Request
    tokens: int
    head: int
    losses: int = 0
    sent_s: float = 0.0


@dataclass(slots=True)
class _WorkerQueue:
    """What a worker has, and may have: `alone` while it is given a suspect and nothing else."""

    most_requests: int
    most_tokens: int = _LEAST_TOKENS
    tokens: int = 0
    alone: bool = False
    tasks: dict[str, _Task] = field(default_factory=dict)

    def has_room(self, factor: int = 1) -> bool:
        few = len(self.tasks) < factor * self.most_requests and self.tokens < factor * self.most_tokens
        return few and not self.alone

    def take(self, key: str, task: _Task) -> None:
        self.tasks[key] = task
        self.tokens += task.tokens

    def give(self, key: str) -> _Task:
        task = self.tasks.pop(key)
        self.tokens -= task.tokens
        self.alone = self.alone and bool(self.tasks)
        return task

    def learn(self, task: _Task, waited_s: float) -> None:
        """Grow where the window was the limit and the request came back soon; shrink where it came late."""
        if waited_s > _SOON_S + _SOON_S_PER_REPLY_TOKEN * task.request.sampling.max_tokens:
            self.most_tokens = max(_LEAST_TOKENS, self.most_tokens - task.tokens)
        elif 2 * self.tokens > self.most_tokens:
            self.most_tokens += task.tokens


class Scheduler:
    """Requests on their way to workers, which are known by number.

    Attributes:
        sent_again: requests that a lost worker had in hand.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Task] = deque()
        self._suspects: deque[_Task] = deque()
        self._hands: dict[int, _WorkerQueue] = {}
        self._homes: OrderedDict[int, int] = OrderedDict()
        self._serial = count()
        self.sent_again = 0

    @property
    def is_busy(self) -> bool:
        """Whether any request waits or is in a worker's hand."""
        return bool(self._waiting or self._suspects or any(hand.tasks for hand in self._hands.values()))

    def in_hand(self, worker: int) -> int:
        """How many requests a worker has."""
        return len(self._hands[worker].tasks)

    def join(self, worker: int, most_requests: int) -> None:
        """A worker is ready, and wants at most so many requests in hand."""
        self._hands[worker] = _WorkerQueue(most_requests)

    def add(self, requests: Iterable[Request]) -> None:
        """Queue requests; those that go on from a reply before all others, as a worker may still have that reply."""
        for request in requests:
            task = _Task(request=request, tokens=_tokens(request), head=_head(request))
            if request.prompt.prefill:
                self._waiting.appendleft(task)
            else:
                self._waiting.append(task)

    def deal(self, now_s: float) -> dict[int, list[Request]]:
        """What to send to which worker now; each request under a key that no other ever has."""
        dealt: dict[int, list[Request]] = {}
        reserved = self._reserved()
        if reserved is not None and not self._hands[reserved].tasks:
            dealt[reserved] = [self._send(reserved, self._suspects.popleft(), now_s)]
            self._hands[reserved].alone = True
        while self._waiting and (worker := self._taker(self._waiting[0].head, reserved)) is not None:
            dealt.setdefault(worker, []).append(self._send(worker, self._waiting.popleft(), now_s))
        return dealt

    def settle(self, worker: int, completion: Completion, now_s: float) -> Completion | None:
        """A worker's completion under the request's own key; None where the request was dropped meanwhile."""
        hand = self._hands[worker]
        if completion.key not in hand.tasks:
            return None
        task = hand.tasks[completion.key]
        hand.learn(task, now_s - task.sent_s)
        hand.give(completion.key)
        return replace(completion, key=task.request.key)

    def drop(self, keys: Iterable[str]) -> dict[int, list[str]]:
        """Forget requests; for each worker the keys under which it has some of them."""
        dropped = set(keys)
        self._waiting = deque(task for task in self._waiting if task.request.key not in dropped)
        self._suspects = deque(task for task in self._suspects if task.request.key not in dropped)
        found: dict[int, list[str]] = {}
        for worker, hand in self._hands.items():
            gone = [key for key, task in hand.tasks.items() if task.request.key in dropped]
            for key in gone:
                hand.give(key)
            if gone:
                found[worker] = gone
        return found

    def lose(self, worker: int, why: str) -> list[Completion]:
        """A worker is no more: what it had in hand is sent again, before all else, or has failed."""
        hand = self._hands.pop(worker, None)
        tasks = list(hand.tasks.values()) if hand else []
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
        if not self._suspects or not self._hands:
            return None
        return min(self._hands, key=lambda worker: (not self._hands[worker].alone, self._hands[worker].tokens))

    def _taker(self, head: int, reserved: int | None) -> int | None:
        """The worker that has read the beginning, which may go to twice its window for it; else the emptiest."""
        home = self._homes.get(head)
        if home is not None and home != reserved and home in self._hands and self._hands[home].has_room(2):
            return home
        free = [worker for worker, hand in self._hands.items() if worker != reserved and hand.has_room()]
        return min(free, key=lambda worker: self._hands[worker].tokens / self._hands[worker].most_tokens, default=None)

    def _send(self, worker: int, task: _Task, now_s: float) -> Request:
        key = str(next(self._serial))
        task.sent_s = now_s
        self._hands[worker].take(key, task)
        self._homes[task.head] = worker
        self._homes.move_to_end(task.head)
        if len(self._homes) > _KEPT_HOMES:
            self._homes.popitem(last=False)
        return replace(task.request, key=key)


def _tokens(request: Request) -> int:
    """About how many tokens a request is, its reply at its longest."""
    text = sum(len(span.text.encode()) for span in request.prompt.spans) + len(request.prompt.prefill.encode())
    return text // _BYTES_PER_TOKEN + request.sampling.max_tokens * request.sampling.n


def _head(request: Request) -> int:
    """The same for prompts that are alike up to their first answer: both orders, and all pairs of one question."""
    texts: list[str] = []
    for span in request.prompt.spans:
        if span.kind == "answer":
            break
        texts.append(span.text)
    return hash(tuple(texts))


def _failed(task: _Task, why: str) -> Completion:
    error = f"{task.losses} workers were lost with this request in hand, the last while it had no other: {why}"
    return Completion(key=task.request.key, texts=(), finish_reasons=("error",), error=error)
