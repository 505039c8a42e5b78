"""Judgments on request from any thread: in the engine's batches, each distinct sample once."""

import hashlib
import queue
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Self

from judgelm.engines.base import Engine
from judgelm.errors import EngineError
from judgelm.modes import BatchMode
from judgelm.records import Judgment, Sample
from judgelm.runs.runner import judge

DEFAULT_CACHE = 50_000
"""Judgments that are remembered."""


class JudgeQueue:
    """Runs one mode on one engine in a thread of its own.

    Callers in several threads share the engine's batches. A judgment is remembered by question, answers and reference;
    one with a failure is not, so that it is asked for again.

    Args:
        mode: way of judging.
        engine: answers the requests; stays open when the queue is closed.
        cache_size: most judgments that are remembered; the least recently used ones go.
    """

    def __init__(self, mode: BatchMode, engine: Engine, *, cache_size: int = DEFAULT_CACHE) -> None:
        self.mode = mode
        self._engine = engine
        self._size = cache_size
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, Judgment] = OrderedDict()
        self._pending: dict[str, Future[Judgment]] = {}
        self._samples: queue.Queue[Sample | None] = queue.Queue()
        self._broken: Exception | None = None
        self.judged = 0
        """Samples that were judged, rather than remembered."""
        self._thread = threading.Thread(target=self._run, name="judge queue", daemon=True)
        self._thread.start()

    def submit(self, sample: Sample) -> "Future[Judgment]":
        """Ask for a judgment; the sample's own id does not matter.

        Raises:
            EngineError: the engine broke, or the queue is closed.
        """
        key = _key(sample)
        with self._lock:
            if self._broken is not None:
                raise EngineError(f"the judge cannot be asked: {self._broken}") from self._broken
            if (known := self._cache.get(key)) is not None:
                self._cache.move_to_end(key)
                done: Future[Judgment] = Future()
                done.set_result(replace(known, sample_id=sample.id))
                return done
            if key not in self._pending:
                self._pending[key] = Future()
                self._samples.put(replace(sample, id=key))
            return self._pending[key]

    def judge(self, samples: Sequence[Sample]) -> list[Judgment]:
        """Judge samples, and return their judgments in the same order.

        Raises:
            EngineError: the engine as a whole broke.
        """
        futures = [self.submit(sample) for sample in samples]
        return [future.result() for future in futures]

    def close(self) -> None:
        """Finish what was asked for, and stop."""
        with self._lock:
            self._broken = self._broken or EngineError("the queue is closed")
        self._samples.put(None)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            for judgment in judge(self._source(), self.mode, self._engine):
                self._finish(judgment)
        except Exception as error:  # whoever waits must hear of it, whatever it is
            with self._lock:
                self._broken, waiting = error, list(self._pending.values())
                self._pending.clear()
            for future in waiting:
                future.set_exception(error)

    def _source(self) -> Iterator[Sample | None]:
        """Samples as they are asked for; None while others are being judged and no more have come."""
        while True:
            try:
                sample = self._samples.get(block=not self._pending)
            except queue.Empty:
                yield None
                continue
            if sample is None:
                return
            yield sample

    def _finish(self, judgment: Judgment) -> None:
        key = judgment.sample_id
        with self._lock:
            self.judged += 1
            if judgment.failure is None:
                self._cache[key] = judgment
                if len(self._cache) > self._size:
                    self._cache.popitem(last=False)
            future = self._pending.pop(key)
        future.set_result(judgment)


def _key(sample: Sample) -> str:
    """A name for what is judged."""
    parts = (sample.question, *sample.answers, "" if sample.reference is None else f"reference {sample.reference}")
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode(errors="surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()
