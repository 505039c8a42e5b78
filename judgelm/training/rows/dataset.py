"""The rows of all epochs as one dataset on the disk, built once and in the order of training."""

import contextlib
import hashlib
import json
import sys
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
from accelerate import PartialState
from numpy.typing import NDArray

from judgelm.package import VERSION
from judgelm.prompts.catalog import get_template
from judgelm.training.config import JudgeArguments
from judgelm.training.rows.builder import RowBuilder, SFTRowBuilder
from judgelm.training.rows.progress import Progress, row_progress
from judgelm.training.rows.records import RowCounts, RowOptions
from judgelm.training.rows.workers import Chunk, RowJob, make_chunks, schema_of
from judgelm.training.schedule import Schedule, schedule_of, training_order

ROWS_FOLDER = "rows"
"""The folder beside the checkpoints that holds the rows of all epochs until the judge is saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRows:
    """Rows in the order of training.

    Attributes:
        name: hash of the rows' bytes: builder, options and files; not of their order.
        dataset: columns `sample_id` and lists of tokens; row i is the i-th to be trained on.
        counts: statistics of the first epoch; others differ by what is drawn.
        epochs: number of epochs one behind another, whole ones.
        per_epoch: rows of the first.
        schedule: how the training passes through them.
        window: most tokens of a row, and the judge's window.
    """

    name: str
    dataset: datasets.Dataset
    counts: RowCounts
    epochs: int
    per_epoch: int
    schedule: Schedule
    window: int


def build_rows(
    tokenizer: Any,
    builder: Callable[[Any, Any], RowBuilder],
    options: RowOptions,
    judge: JudgeArguments,
    args: Any,
    *,
    extra_files: Sequence[str] = (),
) -> tuple[EpochRows, EpochRows | None]:
    """Build the rows to train on, and those to evaluate on if there are any.

    Args:
        tokenizer: the base's.
        builder: class that makes rows, for a tokenizer and options.
        options: how labelled answers become rows.
        judge: names the files.
        args: TRL's `SFTConfig` or `DPOConfig`.
        extra_files: files that are read beside those of the training and of the evaluation.

    Raises:
        ConfigError, InputError, RunError: see `build_epochs`.
    """
    schedule = schedule_of(args)
    state = PartialState()

    def build(paths: Sequence[str], schedule: Schedule) -> EpochRows:
        with row_progress(paths, sys.stderr, joined=bool(extra_files)) as progress:
            return build_epochs(
                tokenizer,
                options,
                [*paths, *extra_files],
                schedule,
                Path(str(args.output_dir)) / ROWS_FOLDER,
                builder,
                workers=args.dataset_num_proc,
                progress=progress,
            )

    with state.main_process_first(), state.local_main_process_first():
        train = build(judge.train_data, schedule)
        once = replace(schedule, epochs=1, steps=None, group_by_length=False)
        return train, build(judge.eval_data, once) if judge.eval_data else None


def build_epochs(
    tokenizer: Any,
    options: RowOptions,
    paths: Sequence[str],
    schedule: Schedule,
    folder: Path,
    builder: Callable[[Any, Any], RowBuilder] = SFTRowBuilder,
    *,
    workers: int | None = None,
    progress: Progress = lambda items, epochs: None,
) -> EpochRows:
    """Build the rows of all epochs, or load them where an earlier run with the same settings and files left them.

    One process of a machine must call it first; the others then load what it wrote.

    Args:
        tokenizer: a fast transformers tokenizer.
        options: how labelled answers become rows.
        paths: labelled files.
        schedule: how often, and in which order.
        folder: where the rows are stored; made if missing.
        builder: class that makes rows, for a tokenizer and such options.
        workers: processes that make rows; None takes one for each core. The files are the same on any number.
        progress: is called after every chunk.

    Raises:
        ConfigError: no such template, or a probability outside 0 to 1.
        InputError: a file cannot be read, or has no row that could be used.
        RunError: a worker died.
    """
    name = _fingerprint(tokenizer, options, paths, schedule)
    file, facts = folder / f"{name}.arrow", folder / f"{name}.json"
    if not facts.exists():
        folder.mkdir(parents=True, exist_ok=True)
        job = RowJob(builder=builder, tokenizer=tokenizer, options=options, epochs=range(0))
        _write(job, paths, schedule, file, facts, workers, progress)
    written = json.loads(facts.read_text(encoding="utf-8"))
    dataset = datasets.Dataset.from_file(str(file))
    order = training_order(_lengths(dataset), written["sizes"], schedule)
    return EpochRows(
        name=name,
        dataset=dataset.select(order.tolist()),
        counts=_counts_from_json(written["counts"]),
        epochs=len(written["sizes"]),
        per_epoch=written["sizes"][0],
        schedule=schedule,
        window=options.window,
    )


def _write(
    job: RowJob,
    paths: Sequence[str],
    schedule: Schedule,
    file: Path,
    facts: Path,
    workers: int | None,
    progress: Progress,
) -> None:
    """Write all epochs, each whole; the files get their names once they are complete.

    The input is read once for all epochs, and once more where `steps` gives their number only after the first.
    """
    partial = file.with_suffix(".partial")
    sizes: list[int] = []
    counts: list[RowCounts] = []
    builder = job.builder(job.tokenizer, job.options)
    schema = schema_of(builder.row)
    try:
        with pa.OSFile(str(partial), "wb") as out, pa.ipc.new_stream(out, schema) as sink:
            while len(sizes) < (end := schedule.whole_epochs(sizes[0] if sizes else None)):
                epochs = range(len(sizes), end)
                builder.counts = RowCounts()
                chunks = make_chunks(builder.items(paths), replace(job, epochs=epochs), workers)
                sizes += _write_epochs(
                    _counted(chunks, builder, progress, len(epochs)), epochs, sink, schema, file.parent
                )
                builder.check(paths)
                counts.append(builder.counts)
        partial.replace(file)
        partial.write_text(json.dumps({"sizes": sizes, "counts": _counts_to_json(counts[0])}), encoding="utf-8")
        partial.replace(facts)
    finally:
        partial.unlink(missing_ok=True)


def _counted(chunks: Iterable[Chunk], builder: RowBuilder, progress: Progress, epochs: int) -> Iterator[Chunk]:
    """The chunks, each added to the builder's counts, which hold those of the reading."""
    items = 0
    for chunk in chunks:
        builder.counts.add(chunk.counts)
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
    """Append the epochs one behind another to the stream; return the number of rows of each.

    All are made at once, so later epochs wait in unnamed files, which vanish with this process.
    """
    sizes = [0 for _ in epochs]
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in epochs[1:]]
        later = [stack.enter_context(pa.ipc.new_stream(file, schema)) for file in waiting]
        for chunk in chunks:
            for epoch, (batch, writer) in enumerate(zip(chunk.rows, [sink, *later], strict=True)):
                writer.write_batch(batch)
                sizes[epoch] += batch.num_rows
        for file, writer in zip(waiting, later, strict=True):
            writer.close()
            file.seek(0)
            for batch in pa.ipc.open_stream(file):
                sink.write_batch(batch)
    return sizes


def _lengths(dataset: datasets.Dataset) -> NDArray[np.int64]:
    """Tokens of each row, in all its lists together: only which row is longer matters."""
    columns = [column for column in dataset.data.table.columns if pa.types.is_list(column.type)]
    return np.asarray(sum(pyarrow.compute.list_value_length(column).to_numpy() for column in columns), dtype=np.int64)


def _fingerprint(tokenizer: Any, options: RowOptions, paths: Sequence[str], schedule: Schedule) -> str:
    """A name for the rows: a hash of version, options, tokenizer, epochs and the files' bytes."""
    epochs = [schedule.epochs] if schedule.steps is None else [schedule.steps, schedule.batch]
    made_by = [VERSION, get_template(options.template).sha, asdict(options), epochs]
    made_by += [tokenizer.chat_template, tokenizer.eos_token_id]
    plain = json.loads(json.dumps(made_by), parse_int=float)  # a file's 3 is a flag's 3.0
    digest = hashlib.sha256(json.dumps(plain).encode())
    digest.update(tokenizer.backend_tokenizer.to_str().encode())
    for path in paths:
        digest.update(file_sha(path).encode())
    return digest.hexdigest()[:16]


def file_sha(path: str) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal; empty where it cannot be read, which reading it reports."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
    return ""


def _counts_to_json(counts: RowCounts) -> dict[str, Any]:
    by_name = {field.name: getattr(counts, field.name) for field in fields(counts)}
    return by_name | {"scores": sorted(counts.scores)}


def _counts_from_json(by_name: dict[str, Any]) -> RowCounts:
    counters: dict[str, Counter[str]] = {name: Counter(by_name.get(name)) for name in ("files", "kinds", "left_out")}
    return RowCounts(**(by_name | counters | {"scores": set(by_name["scores"])}))
