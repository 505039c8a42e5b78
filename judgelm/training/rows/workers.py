"""Rows of all epochs out of what they are made of, on all cores: chunk by chunk, in the order of the files.

A chunk has the same items whatever the number of workers, and what is drawn depends on ids alone, so the rows are the
same bytes. Workers are started anew, never forked: this process may hold a GPU, threads and connections by now.
"""

import contextlib
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields
from itertools import chain, islice
from multiprocessing import connection, get_context, parent_process
from types import ModuleType
from typing import Any

import pyarrow as pa

from judgelm.errors import RunError
from judgelm.training.rows.builder import RowMaker
from judgelm.training.rows.records import RowCounts

CHUNK = 256
"""Items of a chunk."""
_MOST_WORKERS = 16
"""One process reads for all; it can feed about as many."""
_FEW_CHUNKS = 8
"""Up to so many are made here: a worker takes some seconds to start."""
_TOKENS = pa.list_(pa.int32())


@dataclass(frozen=True, slots=True, kw_only=True)
class RowJob:
    """How rows are made.

    Attributes:
        make: the builder for a tokenizer and such options.
        tokenizer: a fast transformers tokenizer.
        options: how labelled answers become rows.
        epochs: of which epochs, from 0.
    """

    make: Callable[[Any, Any], RowMaker]
    tokenizer: Any
    options: Any
    epochs: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What a chunk of items came to.

    Attributes:
        items: how many there were.
        rows: those of each epoch of the job.
        counts: what became of the items in the job's first epoch.
    """

    items: int
    rows: list[pa.RecordBatch]
    counts: RowCounts


def usable_workers(asked: int | None) -> int:
    """Processes that make rows: as many as asked for, else one for each core that this process may use, up to 16."""
    if asked:
        return asked
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_WORKERS)


def schema_of(row: type) -> pa.Schema:
    """The columns of a kind of row: its sample's id, and as many lists of tokens as it has."""
    first, *others = fields(row)
    return pa.schema([(first.name, pa.string()), *((other.name, _TOKENS) for other in others)])


def make_chunks(items: Iterable[Any], job: RowJob, workers: int | None) -> Iterator[Chunk]:
    """Make rows of items, a chunk at a time and in their order.

    Args:
        items: what a builder's `items` gives.
        job: how.
        workers: processes; None takes one for each core, and none but this for a few thousand items.

    Raises:
        RunError: a worker died.
    """
    reading = iter(items)
    chunks: Iterator[tuple[Any, ...]] = iter(lambda: tuple(islice(reading, CHUNK)), ())
    count = usable_workers(workers)
    if workers is None:
        few = list(islice(chunks, _FEW_CHUNKS))
        count = count if len(few) == _FEW_CHUNKS else 1
        chunks = chain(few, chunks)
    if count == 1 or not _can_travel(job.tokenizer):
        maker = job.make(job.tokenizer, job.options)
        return (_chunk_of(maker, job.epochs, chunk) for chunk in chunks)
    return _in_processes(chunks, job, count)


def _in_processes(chunks: Iterator[tuple[Any, ...]], job: RowJob, workers: int) -> Iterator[Chunk]:
    """Chunks made by workers, of which each has two waiting at most."""
    pending: deque[Future[Chunk]] = deque()
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start, initargs=(job,))
    try:
        for chunk in chunks:
            with _bare_main():
                pending.append(pool.submit(_make, chunk))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise RunError(
            "a process that makes training rows died, perhaps for want of memory; dataset_num_proc: 1 makes them in "
            "one process"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _chunk_of(maker: RowMaker, epochs: Sequence[int], items: Sequence[Any]) -> Chunk:
    """The rows of some items, for each epoch; an item's epochs follow each other, as they repeat its prompts."""
    rows: list[list[Any]] = [[] for _ in epochs]
    counts = maker.counts = RowCounts()
    for item in items:
        for epoch, made in zip(epochs, rows, strict=True):
            maker.counts = counts if epoch == epochs[0] else RowCounts()
            row = maker.make(item, epoch)
            if row is not None:
                made.append(row)
    return Chunk(items=len(items), rows=[_batch(maker.row, made) for made in rows], counts=counts)


def _batch(kind: type, rows: Sequence[Any]) -> pa.RecordBatch:
    schema = schema_of(kind)
    columns = [pa.array([getattr(row, column.name) for row in rows], column.type) for column in schema]
    return pa.record_batch(columns, schema=schema)


_worker: tuple[RowMaker, Sequence[int]] | None = None
"""A worker's own, once it has started."""


def _start(job: RowJob) -> None:
    """Make a worker ready; Ctrl-C is for the process that reads, which then ends its workers."""
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would fight over the cores that the workers have
    _worker = job.make(job.tokenizer, job.options), job.epochs


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _make(items: Sequence[Any]) -> Chunk:
    assert _worker is not None
    return _chunk_of(*_worker, items)


def _can_travel(tokenizer: Any) -> bool:
    """Whether another process can load the tokenizer's class; code that came with a model cannot be imported there."""
    return not type(tokenizer).__module__.startswith("transformers_modules")


@contextlib.contextmanager
def _bare_main() -> Iterator[None]:
    """Start workers without this process's script: importing it again takes seconds, and not every script can bear it.

    `multiprocessing` has a worker import whatever `__main__` is when it starts.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
