"""Build cleaned, split, and augmented training and validation sets from labelled files.

The output does not depend on the number of workers: draws depend on ids, and chunks are written in order.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from judgelm.data.augmentation import augment, swap_answers
from judgelm.data.builder.balance import Baselines, PairFacts, baselines, over_balance, over_limit, to_swap, win_rates
from judgelm.data.builder.counts import BuildCounts
from judgelm.data.builder.options import BuildOptions, usable_workers
from judgelm.data.builder.reader import CHUNK_PAIRS, DropReason, LengthFilter, PairCache, PairReader, read_chunk
from judgelm.data.builder.splits import Side, SubsetSizes, nested_order, split_questions, subset_sizes
from judgelm.data.dataset_files import DatasetFiles
from judgelm.data.labelled_pair import judgelm_row
from judgelm.errors import ConfigError, InputError, RunError
from judgelm.jsonl import Appender, check_no_input

_SCRATCH = ".build-"
_LEFT_OUT = -1
_SIDES: tuple[Side, ...] = ("train", "validation", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """The result of a build.

    `files` maps file names to numbers of rows; `baselines` has an entry per set and stage.
    """

    counts: BuildCounts
    files: dict[str, int]
    subsets: SubsetSizes
    left_out: Path
    baselines: tuple[Baselines, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Arrays of shape (pairs,): side (index into `_SIDES`, or `_LEFT_OUT`), rank in nested subsets, and swaps."""

    sides: NDArray[np.int8]
    ranks: NDArray[np.int64]
    swaps: NDArray[np.bool_]
    sizes: SubsetSizes
    baselines: tuple[Baselines, ...]


def build(
    options: BuildOptions, *, tokenizer: Any = None, progress: Callable[[str, int], None] = lambda stage, pairs: None
) -> BuildResult:
    """Run a build: read, clean, split, augment, and write.

    `options.max_tokens` requires a fast tokenizer. `progress` is called with the stage and the number of finished
    pairs.

    Raises:
        InputError: an input cannot be read, or there are no usable pairs.
        ConfigError: a set would be empty, or the template is unknown.
        RunError: the output cannot be written.
    """
    limit = options.max_tokens
    length_filter = None if limit is None else LengthFilter(limit, tokenizer, options.template)
    folder = Path(options.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _build(options, folder, length_filter, progress)
    except OSError as error:  # unreadable inputs raise InputError instead
        where = f"{folder}: cannot write here: {error.strerror or error}"
        raise RunError(f"{where}; free up space or choose another output directory; no sets were modified") from error


def _build(
    options: BuildOptions, folder: Path, length_filter: LengthFilter | None, progress: Callable[[str, int], None]
) -> BuildResult:
    check_no_input([folder / "left_out.jsonl"], options.files_read)
    with Appender(folder / "left_out.jsonl", overwrite=True) as left_out, _scratch(folder) as scratch:
        cache = PairCache(scratch / "pairs")
        reader = PairReader(options, left_out, length_filter)
        seen = 0
        for seen, _ in enumerate(cache.write(reader.pairs()), 1):
            if seen % CHUNK_PAIRS == 0:
                progress("reading", seen)
        if not seen:
            raise InputError(f"there are no usable pairs; for the reasons, see {folder / 'left_out.jsonl'}")
        plan = _plan(options, reader)
        counts = reader.counts
        with DatasetFiles(folder, options.format, inputs=options.files_read) as files:
            _write(options, cache, plan, files, counts, progress)
    left_out_path, rows = folder / "left_out.jsonl", files.rows
    return BuildResult(counts=counts, files=rows, subsets=plan.sizes, left_out=left_out_path, baselines=plan.baselines)


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Yield a cache folder, and remove folders left by killed builds (safe, because builds lock `left_out.jsonl`)."""
    for left_behind in folder.glob(f"{_SCRATCH}*"):
        shutil.rmtree(left_behind)
    with tempfile.TemporaryDirectory(dir=folder, prefix=_SCRATCH) as scratch:
        yield Path(scratch)


def _plan(options: BuildOptions, reader: PairReader) -> _Plan:
    sides = np.zeros(len(reader.questions), dtype=np.int8)
    if options.validation or options.test:
        split = split_questions(reader.groups, seed=options.seed, validation=options.validation, test=options.test)
        sides[:] = [_SIDES.index(split.side(question)) for question in reader.questions]
    before = sides.copy()
    _sample(options, reader, sides)
    swaps = np.zeros(len(sides), dtype=np.bool_)
    if "position" in options.balance:
        for side in range(len(_SIDES)):
            swaps[list(to_swap(_facts_of(reader, sides, side), seed=options.seed))] = True
    training = np.flatnonzero(sides == 0)
    sizes = subset_sizes(len(training), options.subsets)
    ranks = np.zeros(len(sides), dtype=np.int64)
    if sizes.sizes:
        ranks[training] = nested_order((reader.strata[pair] for pair in training), seed=options.seed)
    baselines = _baselines(reader, before, sides, swaps) if options.balance else ()
    return _Plan(sides=sides, ranks=ranks, swaps=swaps, sizes=sizes, baselines=baselines)


def _sample(options: BuildOptions, reader: PairReader, sides: NDArray[np.int8]) -> None:
    def leave_out(pairs: set[int], reason: DropReason) -> None:
        for index in sorted(pairs):
            sides[index] = _LEFT_OUT
            reader.drop(reader.facts[index].source, reader.facts[index].id, reason)

    if options.max_per_question is not None:
        pairs = list(enumerate(reader.facts))
        leave_out(over_limit(pairs, options.max_per_question, seed=options.seed), "over max_per_question")
    for side in range(len(_SIDES)) if options.balance else ():
        pairs = _facts_of(reader, sides, side)
        share = options.longer_share if side == 0 else 0.5
        out = over_balance(pairs, options.balance, options.length_strata, seed=options.seed, longer_share=share)
        leave_out(out, "left out for balance")
        if pairs and len(out) == len(pairs):
            finding = f"balance {', '.join(options.balance)} leaves none of {len(pairs)} {_SIDES[side]} pairs"
            raise ConfigError(f"{finding}; use fewer properties in balance or fewer length_strata, or add pairs")


def _facts_of(reader: PairReader, sides: NDArray[np.int8], side: int) -> list[tuple[int, PairFacts]]:
    return [(index, reader.facts[index]) for index in np.flatnonzero(sides == side).tolist()]


def _baselines(
    reader: PairReader, before: NDArray[np.int8], after: NDArray[np.int8], swaps: NDArray[np.bool_]
) -> tuple[Baselines, ...]:
    rates = win_rates(facts for _, facts in _facts_of(reader, before, 0))
    rows = []
    for side, name in enumerate(_SIDES):
        for stage, sides in (("before", before), ("after", after)):
            if pairs := _facts_of(reader, sides, side):
                swapped = [bool(swaps[index]) and stage == "after" for index, _ in pairs]
                facts = [facts for _, facts in pairs]
                rows.append(baselines(facts, rates, set_name=name, stage=stage, swapped=swapped))
    return tuple(rows)


def _write(
    options: BuildOptions,
    cache: PairCache,
    plan: _Plan,
    files: DatasetFiles,
    counts: BuildCounts,
    progress: Callable[[str, int], None],
) -> None:
    columns = (plan.sides, plan.ranks, plan.swaps)
    starts = range(0, len(plan.sides), CHUNK_PAIRS)
    parts = [[column[start : start + CHUNK_PAIRS].tolist() for column in columns] for start in starts]
    for epoch in range(options.epochs):
        work = partial(_chunk, options, cache.path, epoch)
        with _mapping(usable_workers(options.workers)) as mapping:
            for done, (rows, part) in enumerate(mapping(work, cache.offsets, parts), 1):
                for side, rank, row in rows:
                    files.write(side, row)
                    for size in plan.sizes.sizes if side == "train" else ():
                        if rank < size:
                            files.write(f"train-{size}", row)
                counts += part
                progress(f"writing, epoch {epoch + 1} of {options.epochs}", min(done * CHUNK_PAIRS, len(plan.sides)))


def _chunk(
    options: BuildOptions, cache_path: Path, epoch: int, offset: int, part: list[list[Any]]
) -> tuple[list[tuple[Side, int, dict[str, Any]]], BuildCounts]:
    counts = BuildCounts()
    rows = []
    for pair, side_index, rank, swap in zip(read_chunk(cache_path, offset), *part, strict=True):
        if side_index == _LEFT_OUT:
            continue
        side = _SIDES[side_index]
        if epoch == 0:
            counts.add_clean(pair)
        placed = swap_answers(pair, options.ambiguous).pair if swap else pair
        if swap and epoch == 0:
            counts.swapped[f"{'swapped' if placed is not pair else 'ambiguous, not swapped'} for balance"] += 1
        derived = [placed][epoch:] if side != "train" else augment(placed, options, epoch, counts)
        for written in derived:
            getattr(counts, side).add(written)
            rows.append((side, rank, judgelm_row(written)))
    return rows, counts


@contextmanager
def _mapping(workers: int) -> Iterator[Callable[..., Iterator[Any]]]:
    if workers == 1:
        yield map
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield pool.map
