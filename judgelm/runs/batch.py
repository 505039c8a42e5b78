"""Run a judge on samples from files and write run files."""

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from queue import Empty, Queue
from typing import Any, BinaryIO

from judgelm.data.readers.files import read_rows
from judgelm.data.readers.inputs import all_input_files, input_files, is_stream
from judgelm.data.readers.rows import Reject
from judgelm.data.samples import AS_WRITTEN, Reading, SampleStream, no_common_id
from judgelm.data.sources.alpaca_eval import are_two_outputs
from judgelm.engines.base import MODEL_ENGINES, Engine
from judgelm.errors import InputError
from judgelm.jsonl import Appender, encode_line
from judgelm.modes import BatchMode
from judgelm.modes.readings import prompt_of
from judgelm.records import Judgment, Sample
from judgelm.runs.answers import SelfAnswers, read_self_answers, with_self_answers
from judgelm.runs.recorded_rows import row_names
from judgelm.runs.run_files import (
    FinishedIds,
    Retry,
    RunFiles,
    check_output_is_no_input,
    judging_fingerprint,
    provenance,
    recorded,
    short_sha,
)
from judgelm.runs.runner import judge
from judgelm.runs.session import RunSession, pending
from judgelm.runs.stats import RunStats
from judgelm.serialization import judgment_row

_COUNTED_BYTES = 64 << 20
_WAIT_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """Input and output of a batch run.

    Attributes:
        inputs: files, folders, or patterns, or two AlpacaEval output files. Use `-` for standard input.
        out: file for the judgments. Use `-` for standard output, without a manifest or resuming.
        parts: maps an input sample to the samples to judge.
        fingerprint: entries in addition to model, mode, and input.
    """

    inputs: tuple[str, ...]
    out: str
    limit: int | None = None
    references: str | None = None
    self_answers: str | None = None
    retry: Retry = "engine"
    overwrite: bool = False
    reading: Reading = AS_WRITTEN
    parts: Callable[[Sample], Iterable[Sample]] = lambda sample: (sample,)
    fingerprint: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHooks:
    """Callbacks of a run.

    Attributes:
        on_resume: receives the number of finished samples and the number of bytes removed from an incomplete line.
        stop: called before each sample. If it returns True, the run ends after the samples in flight.
    """

    on_input: Callable[[SampleStream], None] = lambda stream: None
    on_resume: Callable[[int, int], None] = lambda finished, repaired: None
    on_judgment: Callable[[RunStats, Judgment], None] = lambda stats, judgment: None
    on_reject: Callable[[Reject], None] = lambda reject: None
    stop: Callable[[], bool] = lambda: False


def run_batch(job: BatchJob, mode: BatchMode, engine: Engine, *, load_s: float = 0.0, hooks: BatchHooks) -> RunStats:
    """Judge a job's samples and write each finished judgment to disk immediately.

    Raises:
        InputError: the input cannot be read. Samples before the error are judged.
        RunError: the output cannot be written, or contains judgments from another run or for different texts.
    """
    stats = RunStats(load_s=load_s)
    files_read = files_of_job(job)
    check_output_is_no_input(job.out, [*job.inputs, *files_read])
    if job.out == "-":
        _to_stdout(job, mode, engine, stats, hooks, sys.stdout.buffer)
        return stats
    described = engine.describe()
    held: list[dict[str, object]] = []  # buffered until the files are open
    record: Callable[[dict[str, object]], None] = held.append
    stream = _open_stream(job, mode, stats, hooks, lambda row: record(row))
    with RunFiles(
        Path(job.out),
        fingerprint=judging_fingerprint(mode, described, files_read) | row_names(job.reading) | dict(job.fingerprint),
        provenance=provenance(mode, described),
        inputs=files_read,
        retry=job.retry,
        overwrite=job.overwrite,
    ) as files:
        hooks.on_resume(len(files.finished), files.repaired_bytes)
        stats.earlier_failures = files.finished.failures
        record = files.reject
        for row in held:
            record(row)
        files.manifest["input"] = {"format": stream.source.name, "mapping": dict(stream.source.fields)}
        judgments = _judged(job, stream, mode, engine, files.finished, stats, hooks)
        with RunSession(files, stats, engine) as session, closing(judgments):
            for judgment in judgments:
                files.write(judgment)
                stats.add(judgment)
                session.tick()
                hooks.on_judgment(stats, judgment)
    return stats


def _judged(
    job: BatchJob,
    stream: SampleStream,
    mode: BatchMode,
    engine: Engine,
    finished: FinishedIds,
    stats: RunStats,
    hooks: BatchHooks,
) -> Generator[Judgment]:
    broken: list[InputError] = []
    try:
        samples = _until_broken(_pending(job, stream, engine, finished, stats, hooks), broken)
        yield from judge(samples, mode, engine)
    finally:
        stats.coerced, stats.repeated, stats.empty_slots = stream.coerced, stream.repeated, stream.empty_slots
    if broken:
        raise broken[0]


def run_engine(job: BatchJob, engine: str) -> str:
    """Return the engine for a job. With `auto`, a resumed run keeps its engine."""
    if engine != "auto" or job.out == "-" or job.overwrite:
        return engine
    earlier = recorded(Path(job.out), "engine")
    return earlier if earlier in MODEL_ENGINES else engine


def run_dtype(job: BatchJob, dtype: str, engine: str) -> str:
    """Return the dtype for a job. With `auto`, a resumed run keeps its dtype."""
    if dtype != "auto" or engine not in MODEL_ENGINES or job.out == "-" or job.overwrite:
        return dtype
    return recorded(Path(job.out), "dtype") or dtype


def pending_samples(job: BatchJob, stats: RunStats) -> Iterator[Sample]:
    """Yield the samples that this job would judge, and count finished samples in `stats`."""
    finished = FinishedIds()
    out = Path(job.out)
    if out.is_file() and not job.overwrite:
        Appender(out).close()  # removes a killed run's incomplete last line; raises if another run is writing
        finished = FinishedIds(out, job.retry)
    return pending((part for sample in input_samples(job) for part in job.parts(sample)), finished.holds, stats)


def input_samples(job: BatchJob, answers: tuple[int, int] | None = (2, 2)) -> SampleStream:
    """Return a job's samples, skipping rejected rows."""
    return SampleStream(
        job.inputs,
        on_reject=lambda reject: None,
        limit=job.limit,
        references=job.references,
        answers=answers,
        reading=job.reading,
        repeats="skip",
    )


def check_joins(job: BatchJob) -> list[str]:
    """Check that the references and the judge's answers match the input's IDs.

    Returns a note for each file that lacks some IDs. Raises InputError if a file contains none of the IDs. Pipes are
    not checked.
    """
    if any(map(is_stream, job.inputs)) or not (job.references or job.self_answers):
        return []
    stream = input_samples(job, answers=None)
    read = answered = 0
    for sample in _with_self_answers(stream, job.self_answers):
        read += 1
        answered += sample is not None and "solves" in sample.metadata
    counts = ((job.references, stream.references_used), (job.self_answers, answered))
    incomplete = [(path, count) for path, count in counts if path is not None and count < read]
    return [f"{path} contains {count:,} of the input's {read:,} ids" for path, count in incomplete]


def _with_self_answers(samples: Iterable[Sample | None], path: str | None) -> Iterator[Sample | None]:
    own = SelfAnswers() if path is None else read_self_answers(path)
    read = joined = 0
    for sample in samples:
        answered = None if sample is None else with_self_answers(sample, own)
        read += sample is not None
        joined += answered is not sample
        yield answered
    if path is not None and read and not joined:
        raise no_common_id(path, read)


def count_rows(paths: Sequence[str], *, sheet: str | None = None) -> int | None:
    """Count the input rows for the progress bar. Return None for streams and large files."""
    if any(map(is_stream, paths)):
        return None
    try:
        files = all_input_files(paths[:1] if are_two_outputs(paths, sheet=sheet) else paths)
        if any(not file.endswith(".jsonl") and Path(file).stat().st_size >= _COUNTED_BYTES for file in files):
            return None
        return sum(_rows_of(file, sheet) for file in files)
    except InputError:
        return None  # the run itself reports the error


def _rows_of(path: str, sheet: str | None) -> int:
    if path.endswith(".jsonl"):
        with open(path, "rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return sum(1 for _ in read_rows(path, sheet=sheet))


def files_of_job(job: BatchJob) -> list[str]:
    """Return all files that a job reads."""
    others = (path for path in (job.references, job.self_answers) if path)
    return [*all_input_files(job.inputs), *(file for path in others for file in input_files(path))]


def _open_stream(
    job: BatchJob, mode: BatchMode, stats: RunStats, hooks: BatchHooks, record: Callable[[dict[str, object]], None]
) -> SampleStream:
    def on_reject(reject: Reject) -> None:
        stats.rejected += 1
        record(asdict(reject))
        hooks.on_reject(reject)

    stream = SampleStream(
        job.inputs,
        on_reject=on_reject,
        limit=job.limit,
        reference=mode.reference,
        references=job.references,
        answers=mode.answers,
        check=mode.check,
        prompt=prompt_of(mode),
        reading=job.reading,
        once=True,
        repeats="skip",
    )
    hooks.on_input(stream)
    return stream


def _pending(
    job: BatchJob, stream: SampleStream, engine: Engine, finished: FinishedIds, stats: RunStats, hooks: BatchHooks
) -> Iterator[Sample | None]:
    piped = any(map(is_stream, job.inputs))
    source: Iterable[Sample | None] = prefetch(stream, hold=engine.max_in_flight) if piped else stream
    samples = _with_self_answers(source, job.self_answers)
    parts = (part for sample in samples for part in ((None,) if sample is None else job.parts(sample)))
    return takewhile(lambda part: not hooks.stop(), pending(parts, finished.holds, stats))


def _until_broken(samples: Iterable[Sample | None], broken: list[InputError]) -> Iterator[Sample | None]:
    try:
        yield from samples
    except InputError as error:
        broken.append(error)


def prefetch(samples: Iterable[Sample], *, hold: int) -> Iterator[Sample | None]:
    """Read samples from a pipe in a background thread, buffering up to `hold` samples.

    Yields None while no sample is available.
    """
    queue: Queue[Sample | Exception | None] = Queue(maxsize=hold)

    def read() -> None:
        try:
            for sample in samples:
                queue.put(sample)
        except Exception as error:  # raised again in the consumer's thread
            queue.put(error)
        else:
            queue.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            item = queue.get(timeout=_WAIT_S)
        except Empty:
            yield None
            continue
        if item is None:
            return
        if isinstance(item, Exception):
            raise item
        yield item


def _to_stdout(
    job: BatchJob, mode: BatchMode, engine: Engine, stats: RunStats, hooks: BatchHooks, out: BinaryIO
) -> None:
    sha = short_sha(provenance(mode, engine.describe()))
    stream = _open_stream(job, mode, stats, hooks, lambda row: None)
    began = time.monotonic()
    for judgment in _judged(job, stream, mode, engine, FinishedIds(), stats, hooks):
        out.write(encode_line(judgment_row(judgment) | {"provenance": sha}))
        out.flush()
        stats.add(judgment)
        stats.judge_s = time.monotonic() - began
        hooks.on_judgment(stats, judgment)
