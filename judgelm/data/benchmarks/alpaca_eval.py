"""AlpacaEval's judgments: its published annotations, or the same as three tables without repeated texts."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from judgelm.data.benchmarks.base import Benchmark, Entry, Shape, convert_file, plain_row
from judgelm.data.formats.labels import alpaca_eval_label
from judgelm.data.formats.samples import alpaca_eval_sample
from judgelm.data.readers.fields import describe, field_error, row_error
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rejects import OnReject
from judgelm.data.readers.rows import Row
from judgelm.errors import InputError

T = TypeVar("T")

_NEEDS = ("instruction", "output_1", "output_2", "preference")
_ANNOTATIONS = Shape(name="AlpacaEval's annotations", needs=_NEEDS)
_JUDGMENTS = Shape(name="the table of judgments", needs=_NEEDS)
_TABLES: Mapping[str, tuple[str, ...]] = {
    "instructions": ("instruction",),
    "outputs": ("instruction", "generator", "text"),
    "judgments": _NEEDS,
}


def _alpaca_eval(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """Entries of annotations; a judgment that came before is a reject."""
    yield from _converted(files, partial(_entry, set()), on_reject)


def converted_annotations(files: Sequence[str], convert: Callable[[Row, str], T], on_reject: OnReject) -> Iterator[T]:
    """Each annotation of files or of the three tables, with its texts and the id that an imported row has, converted.

    Raises:
        InputError: a file has another shape, or none of its rows can be used.
    """
    yield from _converted(files, lambda row: convert(row, _annotation_id(row)), on_reject)


def are_tables(files: Sequence[str]) -> bool:
    """True for the three tables."""
    return {Path(path).stem for path in files} == _TABLES.keys()


def _converted(files: Sequence[str], convert: Callable[[Row], T], on_reject: OnReject) -> Iterator[T]:
    """Each annotation of files or of the three tables, with its texts, converted."""
    if are_tables(files):
        by_name = {Path(path).stem: path for path in files}
        instructions, outputs = (_columns(by_name[name], _TABLES[name]) for name in ("instructions", "outputs"))
        yield from convert_file(
            by_name["judgments"],
            _JUDGMENTS,
            lambda row, row_number: convert(_joined(instructions, outputs, row)),
            on_reject,
        )
        return
    for path in files:
        yield from convert_file(path, _ANNOTATIONS, lambda row, row_number: convert(row), on_reject)


def _columns(path: str, names: tuple[str, ...]) -> dict[str, list[Any]]:
    """The columns of a table, by name; a row number is an index into them."""
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for row in read_rows(path):
        if not isinstance(row, Row) or any(name not in row.data for name in names):
            raise InputError(f"{path}: expected a table with the columns {', '.join(names)}; give the published file")
        for name in names:
            columns[name].append(row.data[name])
    return columns


def _joined(instructions: dict[str, list[Any]], outputs: dict[str, list[Any]], row: Row) -> Row:
    """The row with the texts in place of row numbers."""
    data = dict(row.data)
    data["instruction"] = instructions["instruction"][_index(row, "instruction", len(instructions["instruction"]))]
    for side in (1, 2):
        index = _index(row, f"output_{side}", len(outputs["text"]))
        data[f"output_{side}"], data[f"generator_{side}"] = outputs["text"][index], outputs["generator"][index]
    return Row(row.file, row.line, data)


def _index(row: Row, name: str, rows: int) -> int:
    """The row number in a field, below `rows`."""
    index = row.data[name]
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < rows:
        raise field_error(
            row, name, f"expected a row number below {rows}, got {describe(index)}; give tables of one set"
        )
    return index


def _entry(seen: set[str], row: Row) -> Entry:
    """A judgment; its annotator is in the metadata, since a pair may be judged by several."""
    sample, label = alpaca_eval_sample(row), alpaca_eval_label(row, False)
    if label is None:
        raise row_error(row, "no preference; the judge gave none, leave the row out")
    name, annotator = _annotation_id(row), _annotator(row)
    if name in seen:
        raise row_error(row, "the same annotator judged this pair before in this import; one judgment stays")
    seen.add(name)
    metadata = {"annotator": annotator} if annotator else {}
    return Entry(plain_row(replace(sample, id=name, metadata=metadata), label))


def _annotation_id(row: Row) -> str:
    """A hash of the pair and its annotator."""
    sample = alpaca_eval_sample(row)
    content = json.dumps([sample.question, *sample.answers, *sample.answer_models, _annotator(row)]).encode()
    return f"ae-{hashlib.blake2b(content, digest_size=8).hexdigest()}"


def _annotator(row: Row) -> str:
    return str(row.data.get("annotator") or "")


ALPACA_EVAL = Benchmark(
    name="alpaca-eval",
    files="annotations.json files, or the folder of instructions.parquet, outputs.parquet and judgments.parquet",
    protocol="Training data rather than a test: judgments by models, of which P(first better) is 2 - preference, and "
    "0.5 for a tie; agreement is the share of pairs whose more probable answer the judge prefers.",
    judge_with="--both-orders",
    source="AlpacaEval (Li et al. 2023), tatsu-lab/alpaca_eval, results/*/*/annotations.json; CC BY-NC 4.0",
    load=_alpaca_eval,
)
