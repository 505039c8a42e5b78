"""Runs one engine for all requests, in a separate thread.

As in batch runs, all flows in flight share the engine's batch. Identical flows run only once.
"""

import asyncio
import math
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic

from judgelm.engines.base import Engine
from judgelm.engines.views import PerRequestFailures
from judgelm.errors import BusyError, EngineError, ShutdownError
from judgelm.modes.flow import RequestFlow, Result
from judgelm.parsing.thinking import separate
from judgelm.records import Request
from judgelm.runs.runner import Listener, drive

_POLL_S = 0.05
_IDLE_S = 0.2
_RATE_WINDOW = 256
_SHUTDOWN = "the server is shutting down; try again later"


@dataclass(eq=False, slots=True)
class _Job:
    begin: Callable[[], RequestFlow[Any]]
    key: Hashable | None
    listener: Listener | None
    waiting: list[Future[Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Outcome:
    job: _Job
    result: Any = None
    error: Exception | None = None


@dataclass(slots=True, kw_only=True)
class WorkerCounts:
    """Flow counts. `joined` flows waited for an identical flow; `dropped` flows had all their futures cancelled."""

    submitted: int = 0
    joined: int = 0
    refused: int = 0
    answered: int = 0
    failed: int = 0
    dropped: int = 0


class EngineWorker:
    """Runs flows from many callers in one thread.

    Args:
        engine: the caller must close the worker first, then the engine.
        max_queue: maximum number of flows in flight, including the engine's batch.
        stop_on_error: stop at the first rejected request instead of failing only its flow. The engine's error is then
            raised unchanged by the flows in flight.

    Attributes:
        failure: the engine's error, or None if it is healthy.
    """

    def __init__(self, engine: Engine, *, max_queue: int = 4096, stop_on_error: bool = False) -> None:
        self.engine = engine
        self.max_queue = max_queue
        self._stop_on_error = stop_on_error
        self.counts = WorkerCounts()
        self._arrived: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._in_flight: set[_Job] = set()
        self._by_key: dict[Hashable, _Job] = {}
        self._dropped: list[_Job] = []
        self._driven: set[_Job] = set()
        self._finished: deque[float] = deque(maxlen=_RATE_WINDOW)
        self._closing = False
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="judgelm-engine", daemon=True)
        self._thread.start()

    def submit(
        self, begin: Callable[[], RequestFlow[Result]], *, key: Hashable | None = None, listener: Listener | None = None
    ) -> "Future[Result]":
        """Start a flow and return a future for its result. Cancelling the future drops the flow.

        Flows with the same key share one result. `listener` receives each partial reply in the engine thread and must
        not block.

        Raises:
            BusyError: the queue is full.
            EngineError: the engine has failed.
            ShutdownError: the worker is shutting down.
        """
        future: Future[Result] = Future()
        with self._lock:
            if self.broken is not None:
                raise EngineError(self.broken)
            if self._closing:
                raise ShutdownError(_SHUTDOWN)
            self.counts.submitted += 1
            job = self._by_key.get(key) if key is not None and listener is None else None
            if job is not None:
                self.counts.joined += 1
                job.waiting.append(future)
            else:
                if len(self._in_flight) >= self.max_queue:
                    self.counts.refused += 1
                    raise BusyError(f"the queue is full ({self.max_queue} judgments); try again later")
                job = _Job(begin, key, listener, [future])
                self._in_flight.add(job)
                if key is not None:
                    self._by_key.setdefault(key, job)
                self._arrived.put(job)
        future.add_done_callback(lambda done: self._leave(job, done) if done.cancelled() else None)
        return future

    @property
    def broken(self) -> str | None:
        """Why the engine failed, or None if it is healthy."""
        return None if self.failure is None else f"the engine failed: {self.failure}"

    @property
    def in_flight(self) -> int:
        """Number of flows in flight, including flows in the engine."""
        return len(self._in_flight)

    def retry_after_s(self) -> int:
        """Estimate how many seconds (at least 1) the queue takes to drain at the recent rate."""
        if len(self._finished) < 2:
            return 1
        elapsed = self._finished[-1] - self._finished[0]
        return max(1, math.ceil(self.in_flight * elapsed / (len(self._finished) - 1)))

    def close(self, finish_s: float = 0.0) -> int:
        """Reject new flows, wait up to `finish_s` for flows in flight, and return how many did not finish."""
        self._closing = True
        until = time.monotonic() + finish_s
        while self._in_flight and self._thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        left = self.give_up()
        self._thread.join()
        return left

    def give_up(self) -> int:
        """Reject new flows, fail all flows in flight, and return how many failed."""
        self._closing = True
        return self._fail_all(ShutdownError(_SHUTDOWN))

    def _leave(self, job: _Job, future: Future[Any]) -> None:
        with self._lock:
            if future in job.waiting:
                job.waiting.remove(future)
            if not job.waiting and job in self._in_flight:
                self._remove(job)
                self.counts.dropped += 1
                self._dropped.append(job)

    def _remove(self, job: _Job) -> None:
        self._in_flight.discard(job)
        if job.key is not None and self._by_key.get(job.key) is job:
            del self._by_key[job.key]

    def _run(self) -> None:
        try:
            engine = self.engine if self._stop_on_error else PerRequestFailures(self.engine)
            for outcome in drive(
                self._new_jobs(), self._flow, engine,
                unwanted=self._take_dropped, listener=lambda job: job.listener, poll_s=_POLL_S,
            ):  # fmt: skip
                self._driven.discard(outcome.job)
                self._finish(outcome)
        except Exception as error:  # whatever happens, no future may be left pending
            self.failure = error
            self._fail_all(error if self._stop_on_error else EngineError(self.broken))

    def _new_jobs(self) -> Iterator[_Job | None]:
        while not (self._closing and not self._in_flight):
            try:
                job = self._arrived.get_nowait() if self._driven else self._arrived.get(timeout=_IDLE_S)
            except queue.Empty:
                yield None
                continue
            if job in self._in_flight:  # not dropped
                self._driven.add(job)
                yield job

    def _flow(self, job: _Job) -> Generator[Any, Any, _Outcome]:
        try:
            return _Outcome(job, result=(yield from job.begin()))
        except Exception as error:
            return _Outcome(job, error=error)

    def _take_dropped(self) -> list[_Job]:
        if not self._dropped:
            return []
        with self._lock:
            dropped, self._dropped = self._dropped, []
        self._driven.difference_update(dropped)
        return dropped

    def _finish(self, outcome: _Outcome) -> None:
        with self._lock:
            self._remove(outcome.job)
            futures, outcome.job.waiting = outcome.job.waiting, []
            self._finished.append(time.monotonic())
            if outcome.error is None:
                self.counts.answered += 1
            else:
                self.counts.failed += 1
        for future in futures:
            _settle(future, outcome)

    def _fail_all(self, error: Exception) -> int:
        with self._lock:
            jobs = list(self._in_flight)
            futures = [future for job in jobs for future in job.waiting]
            for job in jobs:
                job.waiting = []
                self._remove(job)
            self._dropped += jobs
            self.counts.failed += len(jobs)
        for future in futures:
            _settle(future, _Outcome(jobs[0], error=error))
        return len(jobs)


def _settle(future: Future[Any], outcome: _Outcome) -> None:
    with suppress(InvalidStateError):
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.result)


_UPDATE_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True)
class PartialReply:
    """A reply in progress. If `text` is a reason, `reason` is set and `line` contains the score line."""

    line: str
    text: str
    reason: bool


@dataclass(frozen=True, slots=True)
class Finished(Generic[Result]):
    """The result of a finished flow."""

    result: Result


async def stream_flow(
    worker: EngineWorker, begin: Callable[[], RequestFlow[Result]], *, key: Hashable | None = None
) -> AsyncGenerator[tuple[PartialReply, ...] | Finished[Result], None]:
    """Yield partial replies as they change, then the result. Closing the generator drops the flow."""
    latest: dict[str, PartialReply] = {}

    def update(request: Request, text: str) -> None:
        line = separate(request.prompt.prefill, bare=False).reply
        reason = not request.sampling.stop and bool(line)  # score lines have a stop string
        latest[request.key] = PartialReply(line.strip() if reason else "", text, reason)

    waiting = asyncio.wrap_future(worker.submit(begin, key=key, listener=update))
    sent: tuple[PartialReply, ...] = ()
    try:
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=_UPDATE_INTERVAL_S)
            now = tuple(latest.copy().values())
            if now != sent and not waiting.done():
                sent = now
                yield now
        yield Finished(waiting.result())
    finally:
        waiting.cancel()
