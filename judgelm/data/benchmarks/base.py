"""Benchmarks, their loaders, and functions that loaders share.

A loader makes rows of judgelm's plain format, which batch runs and label readers read.
`judgelm.data.benchmarks.importer` writes them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeVar

from judgelm.data.formats.labels import json_scores
from judgelm.data.readers.fields import describe, row_error
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rejects import OnReject, convert_rows, reject_row
from judgelm.data.readers.rows import Reject, Row
from judgelm.errors import InputError
from judgelm.records import Label, Sample

T = TypeVar("T")


class Entry(NamedTuple):
    """One row to write.

    `truth` is its line for the studies on correctness (`judgelm study self-reference`, `ssr`); None where the benchmark
    has no objective truth.
    """

    row: dict[str, object]
    truth: dict[str, object] | None = None


Load = Callable[[Sequence[str], OnReject], Iterator[Entry]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark.

    Attributes:
        name: its name on the command line.
        files: the files to give, in words.
        protocol: definition of its metric in one sentence; printed, and kept beside the imported rows.
        judge_with: options of `judgelm-batch` that the protocol requires; may be empty.
        source: paper and published file.
        load: files, a handler of rejects -> entries. Raises InputError where a file has another shape.
        details: further facts of the protocol, such as a table of sections.
        unverified: what was taken from a description and not from the published files; empty where all was read.
    """

    name: str
    files: str
    protocol: str
    judge_with: str
    source: str
    load: Load
    details: Mapping[str, object] = field(default_factory=dict)
    unverified: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of the rows of a benchmark's file.

    Attributes:
        name: of the benchmark, for errors.
        needs: fields of each row.
    """

    name: str
    needs: tuple[str, ...]


def convert_file(path: str, shape: Shape, make: Callable[[Row, int], T], on_reject: OnReject) -> Iterator[T]:
    """Convert each row of a file, with its number from 1; a row that cannot be used is a reject.

    Raises:
        InputError: the file cannot be read, its first good row lacks a field, or none of its rows can be used.
    """
    numbers = count(1)
    return convert_rows(
        _rows_of(path, shape),
        lambda row: make(row, next(numbers)),
        path=path,
        expected=", ".join(shape.needs),
        on_reject=on_reject,
    )


def row_loader(name: str, shape: Shape, make: Callable[[Row, int], Entry], *, several_files: bool = False) -> Load:
    """A loader that makes an entry of each row, of one file unless `several_files`."""

    def load(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
        for path in files if several_files else (single_file(files, name),):
            yield from convert_file(path, shape, make, on_reject)

    return load


def _rows_of(path: str, shape: Shape) -> Iterator[Row | Reject]:
    """The rows of a file that have all fields; later rows without one are rejects."""
    known = False
    for row in read_rows(path):
        if isinstance(row, Reject):
            yield row
            continue
        missing = [need for need in shape.needs if need not in row.data]
        if not missing:
            known = True
            yield row
            continue
        fields = ", ".join(row.data) or "none"
        error = row_error(row, f"no row of {shape.name}: it lacks {', '.join(missing)} and has the fields {fields}")
        if not known:
            raise InputError(f"{error}; give the published file, or name the benchmark that this is")
        yield reject_row(row, error)


def single_file(files: Sequence[str], benchmark: str) -> str:
    """The one file that was given.

    Raises:
        InputError: more than one.
    """
    if len(files) != 1:
        raise InputError(f"{benchmark}: expected one file, got {len(files)}: {', '.join(files)}; import one at a time")
    return files[0]


def plain_row(sample: Sample, label: Label | None = None) -> dict[str, object]:
    """A sample and its label as a plain row, without the fields that have nothing in them."""
    row: dict[str, object] = {"id": sample.id, "question": sample.question}
    if len(sample.answers) == 2:
        row |= {"answer_1": sample.answers[0], "answer_2": sample.answers[1]}
    elif len(sample.answers) == 1:
        row["answer"] = sample.answers[0]
    elif sample.answers:
        row["answers"] = list(sample.answers)
    if label is not None and label.winner is not None:
        row["winner"] = label.winner
    if label is not None and label.scores is not None:
        row["scores"] = json_scores(label.scores)
    if label is not None and label.preference is not None:
        row["preference"] = label.preference
    more = {
        "votes": list(label.votes) if label is not None else None,
        "reason": None if label is None else label.reason,
        "answer_models": list(sample.answer_models),
        "reference": sample.reference,
        "category": sample.category,
        "metadata": {name: _in_json(value) for name, value in sample.metadata.items()},
    }
    return row | {name: value for name, value in more.items() if value}


def _in_json(value: object) -> object:
    """The value for JSON: NaN (an empty cell of a table) becomes null, a date its text."""
    if isinstance(value, Mapping):
        return {str(name): _in_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


def choice_field(row: Row, name: str, values: Mapping[object, T]) -> T:
    """The meaning of a field's value.

    Raises:
        InputError: it is none of the known values.
    """
    value = row.data.get(name)
    known = value in values if isinstance(value, str | int) and not isinstance(value, bool) else False
    if not known:
        expected = ", ".join(str(key) for key in values)
        raise row_error(row, f'field "{name}": expected one of {expected}, got {describe(value)}; correct the row')
    return values[value]


def model_from_filename(path: str) -> str:
    """The model of a file of answers: the file's name without its endings."""
    name = Path(path).name
    for ending in (".gz", ".jsonl", ".json"):
        name = name.removesuffix(ending)
    return name
