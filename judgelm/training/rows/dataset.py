"""The rows of all epochs as a single dataset on disk, built once in training order."""

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch
from accelerate import PartialState
from datasets.utils import tqdm
from numpy.typing import NDArray
from pydantic import TypeAdapter
from transformers.trainer_pt_utils import get_length_grouped_indices

from judgelm.package import VERSION
from judgelm.prompts.judge_card import template_of
from judgelm.training.arguments import JudgeArguments, rows_per_step
from judgelm.training.rows.builder import RowBuilder, RowCounts, RowOptions
from judgelm.training.rows.chunks import RowJob, make_chunks, schema_of
from judgelm.training.rows.sft import SFTRowBuilder

_COUNTS = TypeAdapter(RowCounts)
ROWS_FOLDER = "rows"
"""Subfolder of output_dir for the rows, removed when the judge is saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Number and order of passes over the rows. `steps` takes precedence over `epochs`."""

    epochs: float
    steps: int | None
    batch: int
    group_by_length: bool
    seed: int

    def epochs_of(self, rows_per_epoch: int) -> float:
        """Return the number of epochs, computed from `steps` if it is set."""
        return self.epochs if self.steps is None else self.steps * self.batch / rows_per_epoch

    def whole_epochs(self, rows_per_epoch: int | None) -> int:
        """Return the number of epochs to build, or 1 if the number depends on an unknown row count."""
        if self.steps is not None and rows_per_epoch is None:
            return 1
        return int(np.ceil(self.epochs_of(rows_per_epoch or 0)))


def schedule_of(args: Any) -> Schedule:
    """Return the schedule from a trainer's arguments."""
    return Schedule(
        epochs=args.num_train_epochs,
        steps=args.max_steps if args.max_steps > 0 else None,
        batch=rows_per_step(args),
        group_by_length=args.train_sampling_strategy == "group_by_length",
        seed=args.seed,
    )


def training_order(lengths: NDArray[np.int64], sizes: Sequence[int], schedule: Schedule) -> NDArray[np.int64]:
    """Return row indices in training order. `sizes` is the number of rows per epoch. Epochs are not mixed."""
    order = []
    begin = 0
    for epoch, size in enumerate(sizes):
        generator = torch.Generator().manual_seed(schedule.seed * 1_000_003 + epoch)
        if schedule.group_by_length:
            indices = get_length_grouped_indices(  # type: ignore[no-untyped-call]  # untyped in transformers
                lengths[begin : begin + size].tolist(), schedule.batch, generator=generator
            )
        else:
            indices = torch.randperm(size, generator=generator).tolist()
        order.append(np.asarray(indices, dtype=np.int64) + begin)
        begin += size
    return np.concatenate(order)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRows:
    """Rows in training order.

    Attributes:
        name: hash of the options and files.
        per_epoch: number of rows in the first epoch.
    """

    name: str
    dataset: datasets.Dataset
    counts: RowCounts
    epochs: int
    per_epoch: int
    schedule: Schedule
    window: int


def build_rows(
    tokenizer: Any, builder: Callable[[Any, Any], RowBuilder], options: RowOptions, judge: JudgeArguments, args: Any
) -> tuple[EpochRows, EpochRows | None]:
    """Build rows for training and, if `eval_data` is set, for evaluation."""
    schedule = schedule_of(args)
    state = PartialState()

    def build(paths: Sequence[str], schedule: Schedule) -> EpochRows:
        folder = Path(str(args.output_dir)) / ROWS_FOLDER
        return build_epochs(tokenizer, options, paths, schedule, folder, builder, workers=args.dataset_num_proc)

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
) -> EpochRows:
    """Build the rows, or load them from an earlier run with the same settings.

    One process per machine must call this first.
    """
    name = _fingerprint(tokenizer, options, paths, schedule)
    file, facts = folder / f"{name}.arrow", folder / f"{name}.counts.json"
    if not facts.exists():
        folder.mkdir(parents=True, exist_ok=True)
        job = RowJob(builder=builder, tokenizer=tokenizer, options=options, epochs=range(0))
        _write(job, paths, schedule, file, facts, workers)
    written = json.loads(facts.read_text(encoding="utf-8"))
    dataset = datasets.Dataset.from_file(str(file))
    batches = np.array(written["batches"])  # shape (batches, 2): the epoch and number of rows of each batch
    by_epoch = np.argsort(np.repeat(batches[:, 0], batches[:, 1]), kind="stable")
    sizes = np.bincount(batches[:, 0], weights=batches[:, 1]).astype(int).tolist()
    order = by_epoch[training_order(_lengths(dataset)[by_epoch], sizes, schedule)]
    return EpochRows(
        name=name,
        dataset=dataset.select(order.tolist()),
        counts=_COUNTS.validate_python(written["counts"]),
        epochs=len(sizes),
        per_epoch=sizes[0],
        schedule=schedule,
        window=options.window,
    )


def _write(job: RowJob, paths: Sequence[str], schedule: Schedule, file: Path, facts: Path, workers: int | None) -> None:
    partial = file.with_suffix(".partial")
    counts: list[RowCounts] = []
    batches: list[tuple[int, int]] = []
    builder = job.builder(job.tokenizer, job.options)
    schema = schema_of(builder.row)
    done, interval_s = 0, 0.5 if sys.stderr.isatty() else 30
    try:
        with pa.OSFile(str(partial), "wb") as out, pa.ipc.new_stream(out, schema) as sink:
            while done < (end := schedule.whole_epochs(counts[0].made if counts else None)):
                epochs = range(done, end)
                builder.counts = RowCounts()
                chunks = make_chunks(builder.items(paths), replace(job, epochs=epochs), workers)
                with tqdm(desc="building rows", unit=" rows", mininterval=interval_s, delay=0.5, leave=False) as bar:
                    for chunk in chunks:
                        for epoch, batch in zip(epochs, chunk.rows, strict=True):
                            sink.write_batch(batch)
                            batches.append((epoch, batch.num_rows))
                        builder.counts.add(chunk.counts)
                        bar.update(chunk.items * len(epochs))
                builder.check(paths)
                counts.append(builder.counts)
                done = end
        partial.replace(file)
        written = {"batches": batches, "counts": _COUNTS.dump_python(counts[0], mode="json")}
        partial.write_text(json.dumps(written), encoding="utf-8")
        partial.replace(facts)
    finally:
        partial.unlink(missing_ok=True)


def _lengths(dataset: datasets.Dataset) -> NDArray[np.int64]:
    columns = [column for column in dataset.data.table.columns if pa.types.is_list(column.type)]
    lengths = (pyarrow.compute.list_value_length(column).to_numpy() for column in columns)
    return np.asarray(sum(lengths, start=np.zeros(len(dataset))), dtype=np.int64)


def _fingerprint(tokenizer: Any, options: RowOptions, paths: Sequence[str], schedule: Schedule) -> str:
    epochs = [schedule.epochs] if schedule.steps is None else [schedule.steps, schedule.batch]
    made_by = [VERSION, template_of(options.template, options.prompt).sha, asdict(options), epochs]
    made_by += [tokenizer.chat_template, tokenizer.eos_token_id]
    plain = json.loads(json.dumps(made_by), parse_int=float)  # 3 in a config file is 3.0 as a command-line option
    digest = hashlib.sha256(json.dumps(plain).encode())
    digest.update(tokenizer.backend_tokenizer.to_str().encode())
    for path in paths:
        digest.update(file_sha(path).encode())
    return digest.hexdigest()[:16]


def file_sha(path: str) -> str:
    """Return the SHA-256 hash in hex, or an empty string if the file cannot be read."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
    return ""
