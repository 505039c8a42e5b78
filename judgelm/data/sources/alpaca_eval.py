"""Read AlpacaEval's judgments as rows to judge, or, for win rates, as comparisons of a model with a baseline.

Judgments are published either as annotations or as three normalised tables. `output_1` is the baseline's output, and
`output_2` the model's. For `preference`, see `alpaca_eval_label`.

Source: tatsu-lab/alpaca_eval, `src/alpaca_eval/utils.py` and `metrics/helpers.py`.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from judgelm.data.plain_rows import plain_row
from judgelm.data.readers.files import first_row, read_converted, read_rows
from judgelm.data.readers.rows import OnReject, Reject, Row, raise_reject, reject_row
from judgelm.data.readers.values import describe
from judgelm.data.sources.layouts import alpaca_eval_label, alpaca_eval_sample
from judgelm.data.sources.source import Entry, Shape, Source, convert_file
from judgelm.errors import InputError

T = TypeVar("T")

_ANNOTATION_FIELDS = ("instruction", "output_1", "output_2", "preference")
_COMPARISON_NEEDS = ", ".join(_ANNOTATION_FIELDS)
_ANNOTATIONS = Shape(name="AlpacaEval's annotations", needs=_ANNOTATION_FIELDS)
_JUDGMENTS = Shape(name="the table of judgments", needs=_ANNOTATION_FIELDS)
_TABLES: Mapping[str, tuple[str, ...]] = {
    "instructions": ("instruction",),
    "outputs": ("instruction", "generator", "text"),
    "judgments": _ANNOTATION_FIELDS,
}


def load_alpaca_eval(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """Read annotations, rejecting repeated judgments."""
    yield from converted_annotations(files, partial(_entry, set()), on_reject)


def converted_annotations(files: Sequence[str], convert: Callable[[Row, str], T], on_reject: OnReject) -> Iterator[T]:
    """Convert each annotation in the files or the three tables; `convert` takes the row with its texts, and its id."""
    if not are_tables(files):
        for path in files:
            yield from convert_file(path, _ANNOTATIONS, lambda row, _: convert(row, _annotation_id(row)), on_reject)
        return
    by_name = {Path(path).stem: path for path in files}
    instructions, outputs = (_columns(by_name[name], _TABLES[name]) for name in ("instructions", "outputs"))

    def with_texts(row: Row, row_number: int) -> T:
        whole = _with_texts(instructions, outputs, row)
        return convert(whole, _annotation_id(whole))

    yield from convert_file(by_name["judgments"], _JUDGMENTS, with_texts, on_reject)


def are_tables(files: Sequence[str]) -> bool:
    """Return True if the files are the three tables."""
    return {Path(path).stem for path in files} == _TABLES.keys()


def _columns(path: str, names: tuple[str, ...]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for row in read_rows(path):
        if not isinstance(row, Row) or any(name not in row.data for name in names):
            raise InputError(f"{path}: expected a table with the columns {', '.join(names)}; pass the published file")
        for name in names:
            columns[name].append(row.data[name])
    return columns


def _with_texts(instructions: dict[str, list[Any]], outputs: dict[str, list[Any]], row: Row) -> Row:
    data = dict(row.data)
    data["instruction"] = instructions["instruction"][_index(row, "instruction", len(instructions["instruction"]))]
    for side in (1, 2):
        index = _index(row, f"output_{side}", len(outputs["text"]))
        data[f"output_{side}"], data[f"generator_{side}"] = outputs["text"][index], outputs["generator"][index]
    return row.with_data(data)


def _index(row: Row, name: str, rows: int) -> int:
    expected = f"a row number below {rows}; pass matching tables"
    return row.typed(name, int, expected, accept=lambda index: 0 <= index < rows)


def _entry(seen: set[str], row: Row, name: str) -> Entry:
    sample, label = alpaca_eval_sample(row), alpaca_eval_label(row, False)
    if label is None:
        raise row.error("no preference: the judge failed; remove the row")
    annotator = _annotator(row)
    if name in seen:
        raise row.error("the same annotator already judged this pair in this import; keep one judgment")
    seen.add(name)
    metadata = {"annotator": annotator} if annotator else {}
    return Entry(plain_row(replace(sample, id=name, metadata=metadata), label))


def _annotation_id(row: Row) -> str:
    sample = alpaca_eval_sample(row)
    content = json.dumps([sample.question, *sample.answers, *sample.answer_models, _annotator(row)]).encode()
    return f"ae-{hashlib.blake2b(content, digest_size=8).hexdigest()}"


def _annotator(row: Row) -> str:
    return str(row.data.get("annotator") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An instruction with the outputs of a baseline and a model.

    Attributes:
        preference: P(the model's output is better), or None if the judge failed.
        lengths: lengths of the baseline's and the model's output in characters.
    """

    instruction: str
    baseline: str
    model: str
    annotator: str
    preference: float | None
    lengths: tuple[int, int]


def read_annotations(path: str, *, on_reject: OnReject = raise_reject) -> Iterator[Comparison]:
    """Read AlpacaEval's annotations as comparisons."""
    return read_converted(path, _comparison, expected=_COMPARISON_NEEDS, on_reject=on_reject)


def _comparison(row: Row) -> Comparison:
    outputs = [row.text(name, _COMPARISON_NEEDS) for name in ("output_1", "output_2")]
    return Comparison(
        instruction=row.text("instruction", _COMPARISON_NEEDS),
        baseline=row.optional_text("generator_1") or "output_1",
        model=row.optional_text("generator_2") or "output_2",
        annotator=row.optional_text("annotator") or "",
        preference=_preference(row),
        lengths=(len(outputs[0]), len(outputs[1])),
    )


def _preference(row: Row) -> float | None:
    if "preference" not in row.data:
        raise row.error(f'field "preference" is missing; each row must contain {_COMPARISON_NEEDS}')
    value = row.data["preference"]
    if value in (None, "") or (isinstance(value, float) and math.isnan(value)):
        return None
    preference = row.number("preference")
    if preference != 0 and not 1 <= preference <= 2:
        raise row.field_error("preference", f"expected a number from 1 to 2, or 0 for a tie, got {preference:g}")
    return 0.5 if preference == 0 else preference - 1


def are_two_outputs(paths: Sequence[str], *, sheet: str | None = None) -> bool:
    """Return True if the paths are two files of AlpacaEval outputs."""
    if len(paths) != 2:
        return False
    rows = [first_row(path, sheet=sheet) for path in paths]
    return all(row is not None and {"instruction", "output"} <= row.data.keys() for row in rows)


def join_outputs(first_path: str, second_path: str, *, sheet: str | None = None) -> Iterator[Row | Reject]:
    """Join the outputs of two models by instruction; the second file is held in memory.

    Rows with no counterpart in the other file, and repeated instructions, are rejected.
    """
    partners: dict[str, Row] = {}
    for row in _outputs(second_path, sheet):
        if isinstance(row, Reject):
            yield row
        else:
            partners[str(row.data["instruction"])] = row
    for row in _outputs(first_path, sheet):
        if isinstance(row, Reject):
            yield row
        elif (partner := partners.pop(str(row.data["instruction"]), None)) is None:
            yield reject_row(row, InputError(f"this instruction is not in {second_path}"))
        else:
            joined = {name: value for name, value in row.data.items() if name not in ("output", "generator")}
            joined |= {"output_1": row.data["output"], "output_2": partner.data["output"]}
            joined |= {"generator_1": row.data.get("generator"), "generator_2": partner.data.get("generator")}
            yield row.with_data(joined)
    for row in partners.values():
        yield reject_row(row, InputError(f"this instruction is not in {first_path}"))


def _outputs(path: str, sheet: str | None) -> Iterator[Row | Reject]:
    seen: set[str] = set()
    any_good = False
    for row in read_rows(path, sheet=sheet):
        if isinstance(row, Reject):
            yield row
            continue
        instruction = row.data.get("instruction")
        if not isinstance(instruction, str) or "output" not in row.data:
            if not any_good:
                finding = "only AlpacaEval outputs (instruction, output) can be joined from two input files"
                raise row.error(f"{finding}; found the fields {', '.join(row.data) or 'none'}")
            yield reject_row(row, InputError(f'field "instruction": expected text, got {describe(instruction)}'))
        elif instruction in seen:
            yield reject_row(row, InputError("this instruction is repeated in this file; keep only one output"))
        else:
            any_good = True
            seen.add(instruction)
            yield row


_ANNOTATED = Source(name="alpaca-eval", sample=alpaca_eval_sample, label=alpaca_eval_label, load=load_alpaca_eval)
SOURCES = (replace(_ANNOTATED, soft="alpaca_eval", single_votes=True),)
