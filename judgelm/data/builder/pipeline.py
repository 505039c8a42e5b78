"""The data builder: labelled files in; cleaned, split and augmented training and validation sets out.

Three stages: read clean pairs into a cache; plan the validation questions and the nested subsets, which depend on all
pairs; write the augmented rows epoch by epoch, chunk by chunk, on several processes. Draws depend on ids alone and
chunks are written in their order, so the files are the same bytes on any number of workers.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from judgelm.data.augmentation import augment
from judgelm.data.builder.counts import BuildCounts
from judgelm.data.builder.dataset_files import DatasetFiles
from judgelm.data.builder.options import BuildOptions
from judgelm.data.builder.other_tasks import chat_rows, multi_rows, single_row
from judgelm.data.builder.reader import CHUNK_PAIRS, LengthFilter, PairCache, PairReader, read_chunk
from judgelm.data.builder.splits import SubsetSizes, nested_order, split_questions, subset_sizes
from judgelm.data.labelled_pair import LabelledPair, judgelm_row
from judgelm.errors import InputError, RunError
from judgelm.jsonl import Appender
from judgelm.prompts.catalog import get_template

_CHAT = get_template("judgelm-chat")
_SCRATCH = ".build-"
_NOT_IN_TRAINING = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """The result of a build.

    Attributes:
        counts: rows by outcome.
        files: rows by file name.
        subsets: the sizes that were written, and those too large.
        left_out: the file that lists every row left out.
    """

    counts: BuildCounts
    files: dict[str, int]
    subsets: SubsetSizes
    left_out: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The side of each pair: `ranks`, shape (pairs,), is its rank among nested subsets, or `_NOT_IN_TRAINING`."""

    ranks: NDArray[np.int64]
    sizes: SubsetSizes


def build(
    options: BuildOptions, *, tokenizer: Any = None, progress: Callable[[str, int], None] = lambda stage, pairs: None
) -> BuildResult:
    """Read, clean, split, augment and write.

    Args:
        options: the build.
        tokenizer: a fast tokenizer, where `options.max_tokens` is set.
        progress: called with the stage and the number of pairs that have passed it.

    Raises:
        InputError: an input cannot be read, or no pair is left.
        ConfigError: a set would be empty, or the template is unknown.
        RunError: the output cannot be written.
    """
    length_filter = (
        None if options.max_tokens is None else LengthFilter(options.max_tokens, tokenizer, options.template)
    )
    folder = Path(options.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _build(options, folder, length_filter, progress)
    except OSError as error:  # inputs have errors of their own
        where = f"{folder}: cannot write here: {error.strerror or error}"
        raise RunError(f"{where}; make room, or choose another out; no set was changed") from error


def _build(
    options: BuildOptions, folder: Path, length_filter: LengthFilter | None, progress: Callable[[str, int], None]
) -> BuildResult:
    with Appender(folder / "left_out.jsonl", overwrite=True) as left_out, _scratch(folder) as scratch:
        cache = PairCache(scratch / "pairs")
        reader = PairReader(options, left_out, length_filter)
        seen = 0
        for seen, _ in enumerate(cache.write(reader.pairs()), 1):
            if seen % CHUNK_PAIRS == 0:
                progress("reading", seen)
        if not seen:
            raise InputError(f"no pair can be trained on; {folder / 'left_out.jsonl'} says why, row by row")
        plan = _plan(options, reader)
        counts = reader.counts
        with DatasetFiles(folder, options.format) as files:
            _write(options, cache, plan, files, counts, progress)
            if "multi" in options.abilities:
                _write_multi(options, cache, plan, reader.questions, files)
    return BuildResult(counts=counts, files=files.rows, subsets=plan.sizes, left_out=folder / "left_out.jsonl")


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A folder for the cache, without those of killed builds. A lock on `left_out.jsonl` admits one build at a time."""
    for left_behind in folder.glob(f"{_SCRATCH}*"):
        shutil.rmtree(left_behind)
    with tempfile.TemporaryDirectory(dir=folder, prefix=_SCRATCH) as scratch:
        yield Path(scratch)


def _plan(options: BuildOptions, reader: PairReader) -> _Plan:
    ranks = np.full(len(reader.questions), _NOT_IN_TRAINING, dtype=np.int64)
    training = np.arange(len(ranks))
    if options.validation:
        share = options.validation if options.validation < 1 else None
        questions = None if share is not None else int(options.validation)
        split = split_questions(reader.groups, seed=options.seed, fraction=share, questions=questions)
        training = np.flatnonzero([split.side(question) == "train" for question in reader.questions])
    sizes = subset_sizes(len(training), options.subsets)
    ranks[training] = 0
    if sizes.sizes:
        ranks[training] = nested_order((reader.strata[pair] for pair in training), seed=options.seed)
    return _Plan(ranks=ranks, sizes=sizes)


def _write(
    options: BuildOptions,
    cache: PairCache,
    plan: _Plan,
    files: DatasetFiles,
    counts: BuildCounts,
    progress: Callable[[str, int], None],
) -> None:
    """Write the rows epoch by epoch in the order of their pairs; validation pairs unchanged, in the first epoch."""
    places = [plan.ranks[start : start + CHUNK_PAIRS] for start in range(0, len(plan.ranks), CHUNK_PAIRS)]
    for epoch in range(options.epochs):
        work = partial(_chunk, options, cache.path, epoch)
        with _mapping(options.workers) as mapping:
            for done, (rows, others, part) in enumerate(mapping(work, cache.offsets, places), 1):
                for rank, row in rows:
                    files.write(_side(rank), row)
                    for size in plan.sizes.sizes:
                        if rank < size:
                            files.write(f"train-{size}", row)
                for name, row in others:
                    files.write(name, row)
                counts += part
                progress(f"writing, epoch {epoch + 1} of {options.epochs}", min(done * CHUNK_PAIRS, len(plan.ranks)))


def _write_multi(
    options: BuildOptions, cache: PairCache, plan: _Plan, questions: list[bytes], files: DatasetFiles
) -> None:
    """Write rows of several answers; pairs of questions with more than one pair are held in memory."""
    often = {question for question, pairs in Counter(questions).items() if pairs > 1}
    groups: dict[tuple[str, bytes], list[LabelledPair]] = {}
    pairs = chain.from_iterable(read_chunk(cache.path, offset) for offset in cache.offsets)
    for pair, question, rank in zip(pairs, questions, plan.ranks.tolist(), strict=True):
        if question in often:
            groups.setdefault((_side(rank), question), []).append(pair)
    for (side, _), group in groups.items():
        for row in multi_rows(group, seed=options.seed, scale=options.scale):
            files.write(f"{side}-multi", row)


def _side(rank: int) -> str:
    return "validation" if rank == _NOT_IN_TRAINING else "train"


def _chunk(
    options: BuildOptions, cache_path: Path, epoch: int, offset: int, ranks: NDArray[np.int64]
) -> tuple[list[tuple[int, dict[str, Any]]], list[tuple[str, dict[str, Any]]], BuildCounts]:
    """One chunk's rows of pairs, each with its pair's rank; rows of other sets, with their names."""
    counts = BuildCounts()
    rows, others = [], []
    for pair, rank in zip(read_chunk(cache_path, offset), ranks.tolist(), strict=True):
        if rank != _NOT_IN_TRAINING:
            derived = list(augment(pair, options, epoch, counts))
            tally = counts.train
        else:
            derived = [pair] if epoch == 0 else []
            tally = counts.validation
        for written in derived:
            tally.add(written)
            rows.append((rank, judgelm_row(written)))
            if "chat" in options.abilities:
                others += [(f"{_side(rank)}-chat", row) for row in chat_rows(written, _CHAT, options.scale)]
        if "single" in options.abilities and epoch == 0 and (row := single_row(pair, seed=options.seed)) is not None:
            others.append((f"{_side(rank)}-single", row))
    return rows, others, counts


@contextmanager
def _mapping(workers: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """A `map` that keeps the order: here, or in worker processes."""
    if workers == 1:
        yield map
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield pool.map
