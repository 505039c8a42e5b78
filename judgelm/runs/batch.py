"""One batch run: samples from files, through mode and engine, into run files; resumable at any moment."""

import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Reject
from judgelm.data.samples import ReferencePolicy, SampleStream
from judgelm.engines.base import MODEL_ENGINES, Engine
from judgelm.errors import ConfigError
from judgelm.jsonl import Appender, encode_line
from judgelm.modes import BatchMode
from judgelm.modes.flow import ChecksSamples
from judgelm.records import Judgment, Sample
from judgelm.runs.prefetch import prefetch
from judgelm.runs.run_files import (
    Retry,
    RunFiles,
    input_identities,
    read_finished,
    recorded_dtype,
    run_paths,
    short_sha,
)
from judgelm.runs.runner import judge
from judgelm.runs.self_answers import read_self_answers, with_self_answers
from judgelm.runs.serialization import judgment_row
from judgelm.runs.session import RunSession
from judgelm.runs.stats import RunStats
from judgelm.version import VERSION

_COUNTED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """What a batch run reads and where it writes.

    Attributes:
        inputs: one file of pairs, or two AlpacaEval output files; `-` is standard input.
        out: path of the judgments, `-` for standard output (no manifest, no resume).
        limit: judge at most this many of the input's samples, counted from its beginning.
        references: a file of references by id.
        self_answers: a run file whose judge's own answers are used again, see `judgelm.runs.self_answers`.
        retry: which earlier failures are judged again.
        overwrite: start over.
        parts: what a sample of the input is judged as: itself, several samples, each with an id of its own, or none.
        fingerprint: what else makes the run the one it is, besides model, mode and input.
    """

    inputs: tuple[str, ...]
    out: str
    limit: int | None = None
    references: str | None = None
    self_answers: str | None = None
    retry: Retry = "engine"
    overwrite: bool = False
    parts: Callable[[Sample], Iterable[Sample]] = lambda sample: (sample,)
    fingerprint: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHooks:
    """How a caller follows a run.

    Attributes:
        on_input: the input has been recognised.
        on_resume: earlier sessions have finished so many samples; so many bytes of a torn line were removed.
        on_judgment: a judgment is on disk.
        on_reject: an input line could not be used.
        stop: asked before each sample is begun; True ends the run with what is under way, as if the input ended.
    """

    on_input: Callable[[SampleStream], None] = lambda stream: None
    on_resume: Callable[[int, int], None] = lambda finished, repaired: None
    on_judgment: Callable[[RunStats, Judgment], None] = lambda stats, judgment: None
    on_reject: Callable[[Reject], None] = lambda reject: None
    stop: Callable[[], bool] = lambda: False


def run_batch(job: BatchJob, mode: BatchMode, engine: Engine, *, load_s: float = 0.0, hooks: BatchHooks) -> RunStats:
    """Judge a job's samples; what is finished is on disk whatever happens next.

    Raises:
        InputError: the input as a whole cannot be read.
        RunError: the output cannot be written, or belongs to another run.
        EngineError: the engine broke.
    """
    stats = RunStats(load_s=load_s)
    check_output_is_no_input(job)
    if job.out == "-":
        _to_stdout(job, mode, engine, stats, hooks, sys.stdout.buffer)
        return stats
    described = engine.describe()
    rejects = _Rejects()
    stream = _open_stream(job, mode, stats, hooks, rejects)
    files = RunFiles(
        Path(job.out),
        fingerprint=fingerprint(job, mode, described),
        provenance=provenance(mode, described),
        inputs=input_files(job),
        retry=job.retry,
        overwrite=job.overwrite,
    )
    try:
        hooks.on_resume(len(files.finished), files.repaired_bytes)
        stats.earlier_failures = files.earlier_failures
        rejects.write_to(files)
        files.manifest["input"] = {"format": stream.format.name, "mapping": dict(stream.format.mapping)}
        with RunSession(files, stats, engine) as session:
            try:
                for judgment in judge(_unfinished(job, stream, engine, files.finished, stats, hooks), mode, engine):
                    files.write(judgment)
                    stats.add(judgment)
                    session.tick()
                    hooks.on_judgment(stats, judgment)
            finally:
                stats.coerced = stream.coerced
    finally:
        files.close()
    return stats


def run_dtype(job: BatchJob, dtype: str, engine: str) -> str:
    """The numeric format to load a judge in for a job: `auto` is the format of the run that the job goes on with.

    Raises:
        RunError: the output is there, and is no run's.
    """
    if dtype != "auto" or engine not in MODEL_ENGINES or job.out == "-" or job.overwrite:
        return dtype
    return recorded_dtype(Path(job.out)) or dtype


def pending_samples(job: BatchJob, stats: RunStats) -> Iterator[Sample]:
    """What a run of this job, into files and begun now, would judge; `stats` counts what it would skip.

    Input rows that cannot be used are passed over.

    Raises:
        InputError: the input as a whole cannot be read.
        RunError: another process is writing the output.
    """
    finished: set[int] = set()
    out = Path(job.out)
    if out.is_file() and not job.overwrite:
        Appender(out).close()  # mends the torn line of a killed run, and refuses where another run writes
        finished, _ = read_finished(out, job.retry)
    for sample in input_samples(job):
        for part in job.parts(sample):
            if hash(part.id) in finished:
                stats.skipped += 1
            else:
                yield part


def input_samples(job: BatchJob) -> SampleStream:
    """A job's pairs; input rows that cannot be used are passed over, since the run itself keeps them."""
    return SampleStream(
        job.inputs, on_reject=lambda reject: None, limit=job.limit, references=job.references, answers=(2, 2)
    )


def check_output_is_no_input(job: BatchJob) -> None:
    """Refuse to write over what is read.

    Raises:
        ConfigError: an input is one of the run's own files.
    """
    own = {path.resolve() for path in run_paths(Path(job.out))}
    for path in input_files(job):
        if path != "-" and Path(path).resolve() in own:
            raise ConfigError(f"-o {job.out}: this run would write over its own input {path}; choose another -o")


def count_rows(path: str) -> int | None:
    """How many rows a file has, for the progress bar; None for standard input and where counting would take long."""
    if path == "-":
        return None
    if not Path(path).is_file():
        return None  # a pipe can be read only once
    if path.endswith(".jsonl"):
        with open(path, "rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return sum(1 for _ in read_rows(path)) if Path(path).stat().st_size < _COUNTED_BYTES else None


def fingerprint(job: BatchJob, mode: BatchMode, described: dict[str, Any]) -> dict[str, Any]:
    """What must be the same for two sessions to belong to one run."""
    return {
        "model": _content(described["model"]),
        "engine": {
            key: described[key] for key in ("engine", "dtype", "window", "quantization", "thinking") if key in described
        },
        "template": {"id": mode.template, "sha": mode.template_sha},
        "mode": {"name": mode.name, **_jsonable(asdict(mode))},
        "input": input_identities(input_files(job)),
        **job.fingerprint,
    }


def _content(model: dict[str, Any]) -> dict[str, Any]:
    """A model by its content: where it lies does not matter once its files have a hash."""
    places = {place for place, sha in (("path", "sha"), ("adapter", "adapter_sha")) if sha in model}
    return {key: value for key, value in model.items() if key not in places}


def provenance(mode: BatchMode, described: dict[str, Any]) -> dict[str, Any]:
    """What the judgments of a session are made with, the machine included."""
    return {
        "judgelm": VERSION,
        **described,
        "template": {"id": mode.template, "sha": mode.template_sha},
        "mode": {"name": mode.name, **_jsonable(asdict(mode))},
        "machine": {"system": platform.platform(), "python": platform.python_version()},
    }


def _jsonable(options: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}


def input_files(job: BatchJob) -> list[str]:
    """Every file that a job reads, as it was named."""
    return [*job.inputs, *(path for path in (job.references, job.self_answers) if path)]


def _open_stream(
    job: BatchJob, mode: BatchMode, stats: RunStats, hooks: BatchHooks, record: Callable[[dict[str, object]], None]
) -> SampleStream:
    def on_reject(reject: Reject) -> None:
        stats.rejected += 1
        record(asdict(reject))
        hooks.on_reject(reject)

    use: ReferencePolicy = mode.reference
    stream = SampleStream(
        job.inputs,
        on_reject=on_reject,
        limit=job.limit,
        reference=use,
        references=job.references,
        answers=mode.answers,
        check=mode.check if isinstance(mode, ChecksSamples) else lambda sample: None,
    )
    hooks.on_input(stream)
    return stream


def _unfinished(
    job: BatchJob, stream: SampleStream, engine: Engine, finished: set[int], stats: RunStats, hooks: BatchHooks
) -> Iterator[Sample | None]:
    """What is left to judge of the input's samples, or of their parts; of a pipe as it arrives."""
    source: Iterable[Sample | None] = prefetch(stream, hold=engine.max_in_flight) if "-" in job.inputs else stream
    solves = {} if job.self_answers is None else read_self_answers(job.self_answers)
    for sample in source:
        for part in (None,) if sample is None else job.parts(with_self_answers(sample, solves)):
            if part is not None and hash(part.id) in finished:
                stats.skipped += 1
            elif hooks.stop():
                return
            else:
                yield part


def _to_stdout(
    job: BatchJob, mode: BatchMode, engine: Engine, stats: RunStats, hooks: BatchHooks, out: BinaryIO
) -> None:
    """Write judgments to standard output; rejects go to the hook alone."""
    sha = short_sha(provenance(mode, engine.describe()))
    stream = _open_stream(job, mode, stats, hooks, lambda row: None)
    began = time.monotonic()
    for judgment in judge(_unfinished(job, stream, engine, set(), stats, hooks), mode, engine):
        out.write(encode_line(judgment_row(judgment) | {"provenance": sha}))
        out.flush()
        stats.add(judgment)
        stats.judge_s = time.monotonic() - began
        hooks.on_judgment(stats, judgment)
    stats.coerced = stream.coerced


class _Rejects:
    """Keeps rejects until the run's files are open: reading the input begins before anything is written."""

    def __init__(self) -> None:
        self._kept: list[dict[str, object]] = []
        self._files: RunFiles | None = None

    def __call__(self, row: dict[str, object]) -> None:
        """Take a reject."""
        if self._files is None:
            self._kept.append(row)
        else:
            self._files.reject(row)

    def write_to(self, files: RunFiles) -> None:
        """Write what was kept, and from now on at once."""
        self._files = files
        for row in self._kept:
            files.reject(row)
        self._kept.clear()
