"""Read rows from JSON lines, JSON lists, CSV, TSV, Parquet, and Excel files.

Unusable rows are yielded as `Reject`. If the rest of a file is unreadable, an `InputError` is raised after the readable
rows.
"""

import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Literal, TypeVar

from judgelm.bounds import MAX_ROW_BYTES, MAX_WHOLE_BYTES, megabytes
from judgelm.data.readers.csv_tables import USUAL_COLUMNS, read_table, skip_lines
from judgelm.data.readers.excel import read_workbook
from judgelm.data.readers.inputs import BUFFER, input_files, is_stream, open_input, seekable, shown_name
from judgelm.data.readers.json_lists import is_wrapped, read_list, read_wrapped
from judgelm.data.readers.parquet import read_parquet
from judgelm.data.readers.rows import OnReject, Reject, Row, convert_rows, raise_reject, row_suffix, too_long
from judgelm.data.readers.values import RowDecoder, raw_text, strip_model_names
from judgelm.errors import InputError

T = TypeVar("T")
Kind = Literal["jsonl", "list", "csv", "tsv", "parquet", "workbook"]

_KINDS: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "workbook",
}
_PARQUET_MAGIC = b"PAR1"


def read_rows(
    path: str,
    *,
    columns: Mapping[str, str] | None = None,
    known: Collection[str] = (),
    once: bool = False,
    sheet: str | None = None,
) -> Iterator[Row | Reject]:
    """Stream the rows of an input with bounded memory.

    The format is determined by the extension. If the extension is unknown, Parquet is detected by its magic bytes and a
    JSON list by `[`; anything else is parsed as JSON lines.

    Args:
        path: a file, a folder, a pattern such as `part-*.jsonl`, a named pipe, or `-` for standard input.
        columns: field -> column in the input.
        known: names of known fields; case and surrounding spaces of columns are ignored.
        once: the input is read only once, so a stream is not copied to disk.
        sheet: name or 1-based number of a workbook's sheet; by default, the only sheet that is not empty.

    Raises:
        InputError: a file is missing, unreadable, damaged, or empty.
    """
    files = input_files(path)
    names = {name.casefold() for name in (*known, *(columns or {}).values())} | USUAL_COLUMNS
    rows = (row for file in files for row in _not_empty(file, _dispatch(file, names, once=once, sheet=sheet)))
    named = ColumnNames(columns or {}, known).renamed(rows) if columns or known else rows
    return map(_with_model_names, named)


def _with_model_names(row: Row | Reject) -> Row | Reject:
    if isinstance(row, Row):
        strip_model_names(row.data)
    return row


def first_row(path: str, *, sheet: str | None = None) -> Row | None:
    """Return the input's first usable row, or None."""
    return next((row for row in read_rows(path, sheet=sheet) if isinstance(row, Row)), None)


def read_converted(
    path: str, convert: Callable[[Row], T], *, expected: str, on_reject: OnReject = raise_reject
) -> Iterator[T]:
    """Convert each row of an input; see `convert_rows`."""
    return convert_rows(read_rows(path), convert, path=path, expected=expected, on_reject=on_reject)


def read_json(path: str) -> Any:
    """Parse a whole file as a single JSON value.

    Raises:
        ValueError: the file is too large, is not a single JSON value, or contains duplicate keys.
    """
    with open_input(path) as stream:
        content = stream.read(MAX_WHOLE_BYTES + 1)
    if len(content) > MAX_WHOLE_BYTES:
        raise ValueError(f"larger than {megabytes(MAX_WHOLE_BYTES)}, the maximum size for a single JSON value")
    text = content.decode()
    decoder = RowDecoder()
    try:
        value = decoder.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if problem := decoder.problem_of(value):
        raise ValueError(problem)
    return value


def _not_empty(path: str, rows: Iterator[Row | Reject]) -> Iterator[Row | Reject]:
    any_row = False
    for row in rows:
        any_row = True
        yield row
    if not any_row:
        raise InputError(f"{shown_name(path)}: contains no rows")


def _dispatch(path: str, known: AbstractSet[str], *, once: bool, sheet: str | None) -> Iterator[Row | Reject]:
    name = shown_name(path)
    with open_input(path, once=once) as stream:
        kind = _kind(path, stream)
        if sheet is not None and kind != "workbook":
            raise InputError(f"{name}: not an Excel workbook; remove --sheet")
        if kind in ("parquet", "workbook"):
            with seekable(stream) as file:
                yield from read_parquet(file, name) if kind == "parquet" else read_workbook(file, name, known, sheet)
        elif kind == "list":
            yield from read_list(stream, name)
        elif kind == "jsonl" and not is_stream(path) and is_wrapped(stream.peek(BUFFER).decode(errors="replace")):
            yield from read_wrapped(stream, name)
        elif kind in ("csv", "tsv"):
            yield from read_table(stream, name, None if kind == "csv" else "\t", known)
        else:
            yield from _read_lines(stream, name)


def _kind(path: str, stream: io.BufferedReader) -> Kind:
    head = stream.peek(BUFFER)
    if head.startswith(_PARQUET_MAGIC):
        return "parquet"
    return _KINDS.get(row_suffix(path)) or ("list" if head.lstrip()[:1] == b"[" else "jsonl")


_BLANK = re.compile(rb"[ \t\r\n]*+")


def _read_lines(stream: io.BufferedReader, file: str) -> Iterator[Row | Reject]:
    decoder, line_number = RowDecoder(), 0
    for line in iter(partial(stream.readline, MAX_ROW_BYTES + 1), b""):
        line_number += 1
        if len(line) > MAX_ROW_BYTES:
            yield too_long(file, line_number, line[:BUFFER].decode(errors="surrogateescape"))
            while line and not line.endswith(b"\n"):
                line = stream.readline(BUFFER)
            continue
        try:
            data = decoder.decode(line.decode())
        except UnicodeDecodeError as error:
            reason = f"invalid UTF-8 at byte {error.start + 1} of the line; save the file as UTF-8"
        except RecursionError:
            reason = "the JSON is nested too deeply; flatten the row"
        except ValueError as error:
            if not line.strip():
                line_number += skip_lines(stream, _BLANK)
                continue
            torn = "" if line.endswith(b"\n") else " (this is the last line of the file; it may be incomplete)"
            table = "" if row_suffix(file) in _KINDS else ", or use the extension .csv or .tsv for tables"
            reason = f"invalid JSON: {error}{torn}; write one JSON object per line{table}"
        else:
            reason = decoder.problem_of(data)
            if type(data) is dict and not reason:
                yield Row(file, line_number, data)
                continue
            reason = reason or f"expected a JSON object, got {_json_kind(data)}; write one object per line"
        yield Reject(file, line_number, reason, line.decode(errors="backslashreplace").rstrip("\r\n"))


def _json_kind(value: object) -> str:
    names = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false"}
    return names.get(type(value), "null")


_MAX_REMEMBERED = 1000


class ColumnNames:
    """Renames columns to known fields, or to the fields that the user assigned (field -> column)."""

    def __init__(self, assigned: Mapping[str, str], known: Collection[str]) -> None:
        self._assigned = dict(assigned)
        self._exact = frozenset(known)
        folded = Counter(map(_folded, known))
        self._known = {_folded(name): name for name in known if folded[_folded(name)] == 1}
        self._names: dict[tuple[str, ...], dict[str, str] | str] = {}

    def renamed(self, rows: Iterable[Row | Reject]) -> Iterator[Row | Reject]:
        """Yield the renamed rows, rejecting rows with missing assigned columns or with ambiguous names."""
        for row in rows:
            if isinstance(row, Reject):
                yield row
                continue
            names = self._names_of(tuple(row.data))
            if isinstance(names, str):
                yield Reject(row.file, row.line, names, raw_text(row.data))
            elif names:
                left_out = self._assigned.keys() - names.keys()
                data = {names.get(name, name): value for name, value in row.data.items() if name not in left_out}
                yield row.with_data(data)
            else:
                yield row

    def _names_of(self, fields: tuple[str, ...]) -> dict[str, str] | str:
        if (names := self._names.get(fields)) is None:
            if len(self._names) > _MAX_REMEMBERED:
                self._names.clear()
            names = self._names[fields] = self._find(fields)
        return names

    def _find(self, fields: tuple[str, ...]) -> dict[str, str] | str:
        alike: dict[str, list[str]] = defaultdict(list)
        for name in fields:
            alike[_folded(name)].append(name)
        names: dict[str, str] = {}
        for field, wanted in self._assigned.items():
            columns = [wanted] if wanted in fields else alike.get(_folded(wanted), [])
            if len(columns) != 1:
                finding = f"it matches several columns: {', '.join(columns)}" if columns else "not found"
                return f'column "{wanted}", assigned to field "{field}": {finding}; the columns are {", ".join(fields)}'
            if columns[0] in names:
                return f'column "{wanted}" is assigned to both "{names[columns[0]]}" and "{field}"; choose one'
            names[columns[0]] = field
        for folded, columns in alike.items():
            field = self._known.get(folded, "")
            columns = [name for name in columns if name not in names and (name == field or name not in self._exact)]
            if not field or field in columns or field in self._assigned:
                continue
            if len(columns) > 1:
                several = " and ".join(f'"{name}"' for name in columns)
                return f'columns {several} all match the field "{field}"; rename all but one'
            if columns:
                names[columns[0]] = field
        return {name: field for name, field in names.items() if name != field or name in self._assigned}


def _folded(name: str) -> str:
    return name.strip().casefold()
