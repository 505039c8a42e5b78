"""Every epoch's rows, made once and laid one behind another on the disk, in the order in which they will be trained on.

A trainer prepares its data once, while swaps and dropped references are drawn anew in every epoch; so each epoch is
written out, and the trainer passes once, in sequence, through all of them. The order depends on the seed alone: not on
the number of processes, and not on whether a run was resumed.
"""

import contextlib
import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch
from numpy.typing import NDArray
from transformers.trainer_pt_utils import get_length_grouped_indices

from judgelm.prompts.catalog import get_template
from judgelm.training.rows.builder import RowBuilder, RowMaker
from judgelm.training.rows.records import RowCounts, RowOptions
from judgelm.training.rows.workers import Chunk, RowJob, make_chunks, schema_of
from judgelm.version import VERSION

Progress = Callable[[int, int], None]
"""Is told how many of the labelled answers have become rows, and of how many epochs these are made at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """How a training passes through its rows.

    Attributes:
        epochs: how often each row is seen; a part of an epoch counts.
        steps: optimiser steps; where given they decide, and `epochs` follows from them.
        batch: rows of one optimiser step.
        group_by_length: whether rows of like length stand together (less padding), else each epoch is shuffled.
        seed: of the order.
    """

    epochs: float
    steps: int | None
    batch: int
    group_by_length: bool
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRows:
    """Rows in the order of training.

    Attributes:
        name: stands for the rows' bytes: who makes them, how, from which files; not for their order.
        dataset: columns `sample_id` and its kind of row's lists of tokens; row i is the i-th to be trained on.
        counts: what became of the data in the first epoch; others differ by what is drawn.
        epochs: how many lie one behind another, whole ones.
        per_epoch: rows of the first.
    """

    name: str
    dataset: datasets.Dataset
    counts: RowCounts
    epochs: int
    per_epoch: int


def lay_out(
    tokenizer: Any,
    options: RowOptions,
    paths: Sequence[str],
    passage: Passage,
    folder: Path,
    make: Callable[[Any, Any], RowMaker] = RowBuilder,
    *,
    workers: int | None = None,
    progress: Progress = lambda items, epochs: None,
) -> EpochRows:
    """Make the rows of all epochs, or find them where an earlier run of the same settings and files left them.

    To be called by one process of a machine first; the others then find what it wrote.

    Args:
        tokenizer: a fast transformers tokenizer.
        options: how labelled answers become rows.
        paths: labelled files.
        passage: how often, and in which order.
        folder: where the rows are kept; made if missing.
        make: the builder for a tokenizer and such options.
        workers: processes that make rows; None takes one for each core. The files are the same on any number.
        progress: is told after every chunk.

    Raises:
        ConfigError: no such template, or a probability outside 0 to 1.
        InputError: a file cannot be read, or has no row that could be used.
        RunError: a worker died.
    """
    name = _fingerprint(tokenizer, options, paths, passage)
    file, facts = folder / f"{name}.arrow", folder / f"{name}.json"
    if not facts.exists():
        folder.mkdir(parents=True, exist_ok=True)
        job = RowJob(make=make, tokenizer=tokenizer, options=options, epochs=range(0))
        _write(job, paths, passage, file, facts, workers, progress)
    found = json.loads(facts.read_text(encoding="utf-8"))
    dataset = datasets.Dataset.from_file(str(file))
    order = training_order(_lengths(dataset), found["sizes"], passage)
    return EpochRows(
        name=name,
        dataset=dataset.select(order.tolist()),
        counts=_counts_from_json(found["counts"]),
        epochs=len(found["sizes"]),
        per_epoch=found["sizes"][0],
    )


def training_order(lengths: NDArray[np.int64], sizes: Sequence[int], passage: Passage) -> NDArray[np.int64]:
    """Indices of all epochs' rows in the order of training; each epoch stays whole.

    Args:
        lengths: shape (rows,), in tokens.
        sizes: rows of each epoch; they sum to the rows.
        passage: seed and grouping.

    Returns:
        shape (rows,), a permutation.
    """
    order = []
    begin = 0
    for epoch, size in enumerate(sizes):
        generator = torch.Generator().manual_seed(passage.seed * 1_000_003 + epoch)
        if passage.group_by_length:
            found = get_length_grouped_indices(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
                lengths[begin : begin + size].tolist(), passage.batch, generator=generator
            )
        else:
            found = torch.randperm(size, generator=generator).tolist()
        order.append(np.asarray(found, dtype=np.int64) + begin)
        begin += size
    return np.concatenate(order)


def _write(
    job: RowJob,
    paths: Sequence[str],
    passage: Passage,
    file: Path,
    facts: Path,
    workers: int | None,
    progress: Progress,
) -> None:
    """Write all epochs, each whole; the files get their names once they are complete.

    The files are read once for all epochs, and once more where steps say only after the first how many there are.
    """
    partial = file.with_suffix(".partial")
    sizes: list[int] = []
    counts: list[RowCounts] = []
    maker = job.make(job.tokenizer, job.options)
    schema = schema_of(maker.row)
    try:
        with pa.OSFile(str(partial), "wb") as out, pa.ipc.new_stream(out, schema) as sink:
            while len(sizes) < (end := _epochs(passage, sizes)):
                epochs = range(len(sizes), end)
                maker.counts = RowCounts()
                chunks = make_chunks(maker.items(paths), replace(job, epochs=epochs), workers)
                sizes += _write_epochs(
                    _counted(chunks, maker, progress, len(epochs)), epochs, sink, schema, file.parent
                )
                maker.check(paths)
                counts.append(maker.counts)
        partial.replace(file)
        partial.write_text(json.dumps({"sizes": sizes, "counts": _counts_to_json(counts[0])}), encoding="utf-8")
        partial.replace(facts)
    finally:
        partial.unlink(missing_ok=True)


def _counted(chunks: Iterable[Chunk], maker: RowMaker, progress: Progress, epochs: int) -> Iterator[Chunk]:
    """The chunks, each added to the maker's counts, which hold what reading has counted."""
    items = 0
    for chunk in chunks:
        maker.counts.add(chunk.counts)
        items += chunk.items
        progress(items, epochs)
        yield chunk


def _write_epochs(
    chunks: Iterable[Chunk],
    epochs: Sequence[int],
    sink: pa.ipc.RecordBatchStreamWriter,
    schema: pa.Schema,
    folder: Path,
) -> list[int]:
    """Append the epochs one behind another to the stream; the rows of each.

    All are made at once, so those behind the first wait in files without a name, which vanish with this process.
    """
    sizes = [0 for _ in epochs]
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in epochs[1:]]
        later = [stack.enter_context(pa.ipc.new_stream(file, schema)) for file in waiting]
        for chunk in chunks:
            for number, (batch, writer) in enumerate(zip(chunk.rows, [sink, *later], strict=True)):
                writer.write_batch(batch)
                sizes[number] += batch.num_rows
        for file, writer in zip(waiting, later, strict=True):
            writer.close()
            file.seek(0)
            for batch in pa.ipc.open_stream(file):
                sink.write_batch(batch)
    return sizes


def _epochs(passage: Passage, sizes: Sequence[int]) -> int:
    """Whole epochs that are needed; how many steps one lasts is known once it is written."""
    if passage.steps is None:
        return int(np.ceil(passage.epochs))
    return int(np.ceil(passage.steps * passage.batch / sizes[0])) if sizes else 1


def _lengths(dataset: datasets.Dataset) -> NDArray[np.int64]:
    """Tokens of each row, in all its lists together: only which row is longer matters."""
    columns = [column for column in dataset.data.table.columns if pa.types.is_list(column.type)]
    return np.asarray(sum(pyarrow.compute.list_value_length(column).to_numpy() for column in columns), dtype=np.int64)


def _fingerprint(tokenizer: Any, options: RowOptions, paths: Sequence[str], passage: Passage) -> str:
    """A name for the rows: who makes them, how, how many epochs, and the files' bytes."""
    epochs = [passage.epochs] if passage.steps is None else [passage.steps, passage.batch]
    made_by = [VERSION, get_template(options.template).sha, asdict(options), epochs]
    made_by += [tokenizer.chat_template, tokenizer.eos_token_id]
    plain = json.loads(json.dumps(made_by), parse_int=float)  # a file's 3 is a flag's 3.0
    digest = hashlib.sha256(json.dumps(plain).encode())
    digest.update(tokenizer.backend_tokenizer.to_str().encode())
    for path in paths:
        digest.update(file_sha(path).encode())
    return digest.hexdigest()[:16]


def file_sha(path: str) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal; empty where it cannot be read, which reading it will say."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
    return ""


def _counts_to_json(counts: RowCounts) -> dict[str, Any]:
    found = {field.name: getattr(counts, field.name) for field in fields(counts)}
    return found | {"scores": sorted(counts.scores)}


def _counts_from_json(found: dict[str, Any]) -> RowCounts:
    counters: dict[str, Counter[str]] = {name: Counter(found.get(name)) for name in ("files", "kinds", "left_out")}
    return RowCounts(**(found | counters | {"scores": set(found["scores"])}))
