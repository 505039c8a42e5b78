"""Build rows in chunks on all cores, in file order. The output does not depend on the number of workers.

Workers are spawned, not forked, because this process may have a GPU context, threads, and connections.
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

from judgelm.data.builder.options import usable_workers
from judgelm.errors import RunError
from judgelm.training.rows.builder import RowBuilder, RowCounts

CHUNK = 256


_FEW_CHUNKS = 8
"""Maximum number of chunks to build in this process, because workers are slow to start."""


_TOKENS = pa.list_(pa.int32())


_COLUMNS: dict[Any, pa.DataType] = {str: pa.string(), float: pa.float64(), int: pa.int64()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowJob:
    """The task of a worker."""

    builder: Callable[[Any, Any], RowBuilder]
    tokenizer: Any
    options: Any
    epochs: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows built from some items, with one batch per epoch, and the counts for the first epoch."""

    items: int
    rows: list[pa.RecordBatch]
    counts: RowCounts


def schema_of(row: type) -> pa.Schema:
    """Return the columns of a row class."""
    return pa.schema([(column.name, _COLUMNS.get(column.type, _TOKENS)) for column in fields(row)])


def make_chunks(items: Iterable[Any], job: RowJob, workers: int | None) -> Iterator[Chunk]:
    """Build rows from items in order. By default, use one worker for up to 2,048 items, otherwise all cores."""
    reading = iter(items)
    chunks: Iterator[tuple[Any, ...]] = iter(lambda: tuple(islice(reading, CHUNK)), ())
    count = usable_workers(workers)
    if workers is None:
        few = list(islice(chunks, _FEW_CHUNKS))
        count = count if len(few) == _FEW_CHUNKS else 1
        chunks = chain(few, chunks)
    if count == 1 or not _can_unpickle(job.tokenizer):
        builder = job.builder(job.tokenizer, job.options)
        return (_chunk_of(builder, job.epochs, chunk) for chunk in chunks)
    return _in_processes(chunks, job, count)


def _in_processes(chunks: Iterator[tuple[Any, ...]], job: RowJob, workers: int) -> Iterator[Chunk]:
    pending: deque[Future[Chunk]] = deque()
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start, initargs=(job,))
    try:
        for chunk in chunks:
            with _hidden_main():
                pending.append(pool.submit(_build, chunk))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise RunError(
            "a process that builds rows died, possibly because it ran out of memory; set dataset_num_proc: 1"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _chunk_of(builder: RowBuilder, epochs: Sequence[int], items: Sequence[Any]) -> Chunk:
    """Build rows by epoch. All epochs of an item are built together, because they share prompts."""
    rows: list[list[Any]] = [[] for _ in epochs]
    counts = builder.counts = RowCounts()
    for item in items:
        for epoch, built in zip(epochs, rows, strict=True):
            builder.counts = counts if epoch == epochs[0] else RowCounts()
            row = builder.build(item, epoch)
            if row is not None:
                built.append(row)
    return Chunk(items=len(items), rows=[_batch(builder.row, built) for built in rows], counts=counts)


def _batch(row_class: type, rows: Sequence[Any]) -> pa.RecordBatch:
    schema = schema_of(row_class)
    columns = [pa.array([getattr(row, column.name) for row in rows], column.type) for column in schema]
    return pa.record_batch(columns, schema=schema)


_worker: tuple[RowBuilder, Sequence[int]] | None = None


def _start(job: RowJob) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its workers
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the tokenizer's threads would compete with the workers for cores
    _worker = job.builder(job.tokenizer, job.options), job.epochs


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _build(items: Sequence[Any]) -> Chunk:
    assert _worker is not None
    return _chunk_of(*_worker, items)


def _can_unpickle(tokenizer: Any) -> bool:
    """Remote code cannot be imported in another process."""
    return not type(tokenizer).__module__.startswith("transformers_modules")


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
    """Keep workers from importing the main script, which is slow and may fail."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
