"""One engine in a thread of its own, and all who wait for it.

Whoever asks, a client's request or a page, begins a flow here; all flows under way share the engine's batch, as they do
in a batch run. What is asked again while it is still being answered is answered once.
"""

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, TypeVar

from judgelm.engines.base import Engine
from judgelm.errors import BusyError, EngineError
from judgelm.modes.flow import Asking
from judgelm.runs.runner import Listener, drive

_POLL_S = 0.05
_IDLE_S = 0.2
_RATE_OVER = 256

Result = TypeVar("Result")


@dataclass(eq=False, slots=True)
class _Job:
    """A flow to drive, and the futures of those who wait for its result."""

    begin: Callable[[], Asking[Any]]
    key: Hashable | None
    listener: Listener | None
    waiting: list[Future[Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a job's flow returned, or raised."""

    job: _Job
    result: Any = None
    error: Exception | None = None


@dataclass(slots=True, kw_only=True)
class WorkerCounts:
    """What the service counted since it began.

    Attributes:
        asked: questions taken, those that joined another included.
        joined: of them, those that waited for the same question's answer instead of being judged themselves.
        refused: not taken since the queue was full.
        answered: flows that ended with a result.
        failed: flows that raised an error, or stood in hand when the engine broke.
        dropped: flows that ended since nobody waited for them any more.
    """

    asked: int = 0
    joined: int = 0
    refused: int = 0
    answered: int = 0
    failed: int = 0
    dropped: int = 0


class EngineWorker:
    """Drives flows for many who wait.

    Args:
        engine: loaded; the service's owner closes it after the service.
        most_waiting: flows in hand, the engine's own batch included, beyond which none is taken.
    """

    def __init__(self, engine: Engine, *, most_waiting: int = 4096) -> None:
        self.engine = engine
        self.most_waiting = most_waiting
        self.counts = WorkerCounts()
        self._arrived: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._in_hand: set[_Job] = set()
        self._by_key: dict[Hashable, _Job] = {}
        self._unwanted: list[_Job] = []
        self._driven: set[_Job] = set()
        self._finished: deque[float] = deque(maxlen=_RATE_OVER)
        self._closing = False
        self._broken: str | None = None
        self._thread = threading.Thread(target=self._run, name="judgelm-engine", daemon=True)
        self._thread.start()

    def ask(
        self,
        begin: Callable[[], Asking[Result]],
        *,
        key: Hashable | None = None,
        listener: Listener | None = None,
    ) -> "Future[Result]":
        """Begin a flow; the future has what it returns or raises. Cancelling the future drops the flow.

        Args:
            begin: makes the flow.
            key: equal for flows with equal results; while one of them is under way the others wait for it.
            listener: is told, in the engine's thread, what each of the flow's replies is so far; it must not block.

        Raises:
            BusyError: more is waiting than is taken, or the service is closing.
            EngineError: the engine broke before.
        """
        future: Future[Result] = Future()
        with self._lock:
            if self._broken is not None:
                raise EngineError(self._broken)
            if self._closing:
                raise BusyError("the server is shutting down and takes nothing new; ask again when it is back")
            self.counts.asked += 1
            job = self._by_key.get(key) if key is not None and listener is None else None
            if job is not None:
                self.counts.joined += 1
                job.waiting.append(future)
            else:
                if len(self._in_hand) >= self.most_waiting:
                    self.counts.refused += 1
                    raise BusyError(
                        f"{self.most_waiting} judgments are waiting, which is all this server takes; ask again later"
                    )
                job = _Job(begin, key, listener, [future])
                self._in_hand.add(job)
                if key is not None:
                    self._by_key.setdefault(key, job)
                self._arrived.put(job)
        future.add_done_callback(lambda done: self._leave(job, done) if done.cancelled() else None)
        return future

    @property
    def waiting(self) -> int:
        """Flows in hand, those in the engine included."""
        return len(self._in_hand)

    @property
    def broken(self) -> str | None:
        """Why the engine cannot answer any more; None while it can."""
        return self._broken

    def retry_after_s(self) -> int:
        """Seconds until what waits now should be answered, at the rate of the last results; at least 1."""
        if len(self._finished) < 2:
            return 1
        took = self._finished[-1] - self._finished[0]
        return max(1, math.ceil(self.waiting * took / (len(self._finished) - 1)))

    def close(self, finish_s: float = 0.0) -> int:
        """Take nothing new, and end when all in hand is answered or the time is up; how many flows had no answer."""
        self._closing = True
        until = time.monotonic() + finish_s
        while self._in_hand and self._thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        left = self._fail_all("the server shut down before this was answered; ask again when it is back")
        self._thread.join()
        return left

    def _leave(self, job: _Job, future: Future[Any]) -> None:
        """Somebody does not wait any more; a flow that nobody waits for is dropped."""
        with self._lock:
            if future in job.waiting:
                job.waiting.remove(future)
            if not job.waiting and job in self._in_hand:
                self._put_away(job)
                self.counts.dropped += 1
                self._unwanted.append(job)

    def _put_away(self, job: _Job) -> None:
        self._in_hand.discard(job)
        if job.key is not None and self._by_key.get(job.key) is job:
            del self._by_key[job.key]

    def _run(self) -> None:
        """The engine's thread."""
        try:
            for outcome in drive(
                self._arriving(), self._flow, self.engine,
                unwanted=self._take_unwanted, listener=lambda job: job.listener, poll_s=_POLL_S,
            ):  # fmt: skip
                self._driven.discard(outcome.job)
                self._give(outcome)
        except Exception as error:  # whatever it was, nobody may wait for ever
            self._broken = f"the engine broke: {error}"
            self._fail_all(self._broken)

    def _arriving(self) -> Iterator[_Job | None]:
        """What was asked, or None for the moment; it waits only where the engine has nothing to do either."""
        while not (self._closing and not self._in_hand):
            try:
                job = self._arrived.get_nowait() if self._driven else self._arrived.get(timeout=_IDLE_S)
            except queue.Empty:
                yield None
                continue
            if job in self._in_hand:  # nobody left meanwhile
                self._driven.add(job)
                yield job

    def _flow(self, job: _Job) -> Generator[Any, Any, _Outcome]:
        """The job's flow, whose errors are its own and nobody else's."""
        try:
            return _Outcome(job, result=(yield from job.begin()))
        except Exception as error:
            return _Outcome(job, error=error)

    def _take_unwanted(self) -> list[_Job]:
        if not self._unwanted:
            return []
        with self._lock:
            gone, self._unwanted = self._unwanted, []
        self._driven.difference_update(gone)
        return gone

    def _give(self, outcome: _Outcome) -> None:
        with self._lock:
            self._put_away(outcome.job)
            futures, outcome.job.waiting = outcome.job.waiting, []
            self._finished.append(time.monotonic())
            if outcome.error is None:
                self.counts.answered += 1
            else:
                self.counts.failed += 1
        for future in futures:
            _settle(future, outcome)

    def _fail_all(self, why: str) -> int:
        """Give everything in hand this error; how much there was."""
        with self._lock:
            jobs = list(self._in_hand)
            futures = [future for job in jobs for future in job.waiting]
            for job in jobs:
                job.waiting = []
                self._put_away(job)
            self._unwanted += jobs
            self.counts.failed += len(jobs)
        for future in futures:
            _settle(future, _Outcome(jobs[0], error=EngineError(why)))
        return len(jobs)


def _settle(future: Future[Any], outcome: _Outcome) -> None:
    """Give one who waits the result or the error, unless it has left just now."""
    try:
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.result)
    except InvalidStateError:
        pass
