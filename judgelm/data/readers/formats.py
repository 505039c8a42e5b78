"""The formats of files of rows besides JSON lines: CSV and TSV tables, Parquet, Excel workbooks, one big JSON list.

A JSON list is streamed: the buffer holds a chunk or one row, whichever is longer. It may be a field of an object, under
one of the names in `WRAPPERS`: `{"version": 1, "data": [...]}`.
"""

import codecs
import csv
import io
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import IO, Any
from zipfile import BadZipFile

from judgelm.data.readers.rows import Reject, Row, escape_bad_bytes, has_bad_bytes, truncate_raw
from judgelm.data.readers.values import RowDecoder, cell_value, infinite_number, is_json, plain_value, raw_text
from judgelm.errors import InputError

_CELL_LIMIT = 1 << 30
_BATCH_ROWS = 1024
_DELIMITERS = ",;\t|"
_SEPARATOR_LINE = re.compile(r'"?sep=([^"\r\n])"?\s*', re.IGNORECASE)


def read_parquet(source: str | IO[bytes], file: str) -> Iterator[Row | Reject]:
    """Stream the rows of a file, by its path or open; a null cell is None.

    Raises:
        InputError: the file is not Parquet, is damaged, or has two columns of one name.
    """
    import pyarrow.parquet  # takes 0.3 s, and most files are no Parquet

    rows = 0
    try:
        with pyarrow.parquet.ParquetFile(source) as parquet:
            _refuse_doubled(file, list(parquet.schema_arrow), "")
            for batch in parquet.iter_batches(batch_size=_BATCH_ROWS):
                for values in batch.to_pylist():
                    rows += 1
                    data = {name: plain_value(value) for name, value in values.items()}
                    problem = infinite_number(data)
                    yield (
                        Reject(file, rows, problem, truncate_raw(raw_text(data))) if problem else Row(file, rows, data)
                    )
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        finding = str(error).splitlines()[0] if str(error) else type(error).__name__
        finding = f"damaged or not Parquet, after {rows} rows: {finding}"
        raise InputError(f"{file}: {finding}; copy or download it again") from error


def read_workbook(source: IO[bytes], file: str, sheet: str | None = None) -> Iterator[Row | Reject]:
    """Stream the rows of one sheet of an Excel workbook, as `read_table` reads the same table.

    Args:
        source: the file's bytes.
        file: the name that rows and rejects carry.
        sheet: its name, or its number from 1; None for the one sheet with cells.

    Raises:
        InputError: no workbook, damaged, no such sheet, none or several with cells, or a formula without a stored
            value; else as `read_table`.
    """
    from openpyxl import load_workbook  # of an extra; takes 0.3 s

    try:
        values, formulas = (
            load_workbook(source, read_only=True, data_only=stored).worksheets for stored in (True, False)
        )
        filled = (
            [index for index, each in enumerate(formulas) if any(map(_texts_of, each.iter_rows()))]
            if sheet is None
            else [_sheet_index(file, sheet, [each.title for each in formulas])]
        )
    except (BadZipFile, KeyError, ValueError, OSError) as error:
        raise InputError(f"{file}: damaged or no Excel workbook: {error}; save it again, or as CSV") from error
    if len(filled) != 1:
        names = ", ".join(formulas[index].title for index in filled) or "none"
        raise InputError(
            f"{file}: several sheets or none could have the rows; those with cells are: {names}; choose one with "
            "--sheet NAME (in a build's configuration sheet), or save it as CSV"
        )
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as text:
        table, places, line = csv.writer(text), dict[int, int](), 1
        rows = (sheets[filled[0]].iter_rows() for sheets in (values, formulas))
        for number, (stored, written) in enumerate(zip(*rows, strict=True), 1):
            for cell, formula in zip(stored, written, strict=True):
                if cell.value is None and formula.value is not None:
                    finding = f"cell {formula.coordinate}: a formula without a stored value"
                    raise InputError(f"{file}: {finding}; save the file in a spreadsheet once, or as CSV")
            texts = _texts_of(stored)
            table.writerow(texts)
            places[line] = number
            line += 1 + sum(cell.count("\n") for cell in texts)
        text.flush()
        reader = io.BufferedReader(text.buffer.raw)  # type: ignore[attr-defined]
        reader.seek(0)
        for row in read_table(reader, file, ","):
            yield replace(row, line=places.get(row.line, row.line))
        reader.detach()


def _sheet_index(file: str, sheet: str, names: list[str]) -> int:
    """The index of a sheet by its name, else by its number from 1."""
    if sheet in names:
        return names.index(sheet)
    if sheet.isdecimal() and 1 <= int(sheet) <= len(names):
        return int(sheet) - 1
    raise InputError(f'{file}: no sheet "{sheet}"; choose one of {", ".join(names)}, or its number from 1')


def _texts_of(cells: Sequence[Any]) -> list[str]:
    """The cells as texts, as a spreadsheet writes them into a CSV file; the empty ones at the end are left out."""
    last = max((index for index, cell in enumerate(cells) if cell.value is not None), default=-1)
    return ["" if cell.value is None else str(cell.value) for cell in cells[: last + 1]]


def _refuse_doubled(file: str, fields: list[Any], inside: str) -> None:
    """Refuse two fields of one name, in the table or in a structure of it."""
    for name, count in Counter(field.name for field in fields).items():
        if count > 1:
            raise InputError(f'{file}: column "{inside}{name}" appears {count} times; rename or leave out all but one')
    for field in fields:
        nested = [field.type.field(index) for index in range(field.type.num_fields)]
        _refuse_doubled(file, nested, f"{inside}{field.name}.")


def read_table(stream: io.BufferedReader, file: str, delimiter: str | None) -> Iterator[Row | Reject]:
    """Stream the rows of a CSV or TSV file below its header; a row that cannot be used is a reject.

    Args:
        stream: the file's bytes.
        file: the name that rows and rejects carry.
        delimiter: without one it is the one that spreadsheets state in a first line `sep=;`, else the most frequent
            of the header.

    Raises:
        InputError: the header cannot be read or has a column twice, no row follows it, or a quote is not closed, so
            that the rows behind it cannot be told apart.
    """
    # The limit is the csv module's, for the whole process, and only ever raised here.
    csv.field_size_limit(max(csv.field_size_limit(), _CELL_LIMIT))
    taken: list[str] = []
    lines = _lines(stream, taken)
    skipped, first = next(((number, line) for number, line in enumerate(lines) if line.strip("\r\n")), (0, ""))
    if stated := _SEPARATOR_LINE.fullmatch(first):
        skipped, first, delimiter = skipped + 1, next(lines, ""), stated[1]
    # Strict: an unclosed quote would otherwise swallow the rest of the file as one cell.
    table = csv.reader(chain([first], lines), delimiter=delimiter or _most_frequent(first), strict=True)
    header: list[str] | None = None
    any_row = False
    while True:
        taken[:] = [first] if header is None else []
        start = skipped + table.line_num + 1
        try:
            cells = next(table, None)
        except csv.Error as error:
            if header is None or len(taken) > 1 or _is_open(taken[0]):
                raise _unclosed(file, start, taken, str(error)) from error
            cells, reason = [], f"not a table row: {error}; check its quotes"
        else:
            if cells is None:
                if header is not None and not any_row:
                    raise InputError(f"{file}: no rows below the header")
                return
            if not cells:
                continue
            if header is None:
                header = _header(file, start, cells)
                continue
            reason = ""
        any_row = True
        if not reason and len(cells) != len(header) and _swallowed(taken, table.dialect, len(header)):
            raise _unclosed(file, start, taken, f"expected {len(header)} cells as in the header, got {len(cells)}")
        row = reason or _row(file, start, header, cells, taken)
        if isinstance(row, str):
            yield Reject(file, start, row, truncate_raw(escape_bad_bytes("".join(taken)).rstrip("\r\n")))
        else:
            yield row


def _lines(stream: io.BufferedReader, taken: list[str]) -> Iterator[str]:
    """Lines with their ends, of Unix, Windows, or old Macs; each is also added to `taken`."""
    for line in stream:
        text = line.decode(errors="surrogateescape")
        if "\r" not in text:
            taken.append(text)
            yield text
            continue
        for part in line.splitlines(keepends=True):
            taken.append(part.decode(errors="surrogateescape"))
            yield taken[-1]


def _most_frequent(header: str) -> str:
    """The most frequent separator; spreadsheets write `;` where decimals have a comma."""
    return max(_DELIMITERS, key="".join(header.split('"')[::2]).count)


def _header(file: str, line: int, cells: list[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InputError(f'{file}:{line}: column "{twice[0]}" appears twice in the header; rename one')
    return names


def _row(file: str, line: int, header: list[str], cells: list[str], taken: list[str]) -> Row | str:
    """The row, or the reason why it is none."""
    if len(cells) != len(header):
        return f"expected {len(header)} cells as in the header, got {len(cells)}; quote cells that hold separators"
    if has_bad_bytes("".join(taken)):
        return "not UTF-8; save the file as UTF-8 (in Excel: CSV UTF-8), or run: iconv -f WINDOWS-1252 -t UTF-8"
    data: dict[str, object] = {}
    for name, cell in zip(header, cells, strict=True):
        try:
            data[name] = cell_value(cell)
        except ValueError as error:
            return f'field "{name}": {error}'
    return Row(file, line, data)


def _is_open(text: str) -> bool:
    """True where a quote is opened and not closed."""
    return text.count('"') % 2 == 1


def _swallowed(taken: list[str], dialect: Any, count: int) -> bool:
    """True if a line within this row of several lines is a whole row by itself: a quote before it is not closed."""
    with suppress(csv.Error):
        return any(
            len(cells) == count for cells in csv.reader((line for line in taken[1:] if not _is_open(line)), dialect)
        )
    return False


def _unclosed(file: str, line: int, taken: list[str], finding: str) -> InputError:
    """The error of a file whose rows cannot be told apart any further."""
    quote = next((index for index, part in enumerate(taken) if _is_open(part)), 0)
    end = f" to {line + len(taken) - 1}" if len(taken) > 1 else ""
    problem = f"a quote is not closed, so the rows from here cannot be told apart (lines {line}{end}: {finding})"
    return InputError(f"{file}:{line + quote}: {problem}; close it, or write a quote within a cell twice")


_CHUNK = 1 << 18
_WHITESPACE = " \t\r\n"
_WHITE = re.compile(r"[ \t\r\n]*")
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_COMMA = re.compile(r"[ \t\r\n]*,")
_ROWS = re.compile(r"\[[ \t\r\n]*\{")
_RAW_DECODE = json.JSONDecoder().raw_decode
_CUT_TOKEN = 16
"""An error this near the buffer's end may only mean that a literal or an escape is cut in two."""

WRAPPERS = ("data", "rows", "examples", "instances", "samples", "items", "records")
"""Names under which an object holds the rows of a file."""


class _Source:
    """The undecoded rest of the file, partly in memory.

    Bytes that are not UTF-8 become lone surrogates (`surrogateescape`), so that one bad row costs only itself.
    """

    def __init__(self, stream: io.BufferedReader, chunk: int) -> None:
        self._stream = stream
        self._chunk = chunk
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")
        self.text = ""
        self.position = 0
        self.line = 1
        self.dropped = 0
        self.ended = False
        self.dirty = False
        self.decoder = RowDecoder()

    def more(self) -> None:
        """Drop what was consumed and read on; at least doubles what is left, so re-reading a row stays linear."""
        rest = self.text[self.position :]
        self.dropped += self.position
        data = self._stream.read(max(self._chunk, len(rest)))
        self.ended = not data
        new = self._decoder.decode(data, final=self.ended)
        self.dirty = self.dirty or has_bad_bytes(new)
        self.text, self.position = rest + new, 0

    def advance(self, position: int) -> None:
        self.line += self.text.count("\n", self.position, position)
        self.position = position

    def next_character(self) -> str:
        """The next character that is not white space, not consumed; empty at the end of the file."""
        while True:
            while self.position < len(self.text):
                if self.text[self.position] not in _WHITESPACE:
                    return self.text[self.position]
                self.advance(self.position + 1)
            if self.ended:
                return ""
            self.more()


class _BrokenListError(Exception):
    """The list cannot be followed any further from the source's position."""


def read_list(stream: io.BufferedReader, file: str, chunk: int = _CHUNK) -> Iterator[Row | Reject]:
    """Rows of a JSON list of objects.

    Args:
        stream: the file's bytes, without a byte-order mark, opening with `[`.
        file: the name that rows and rejects carry.
        chunk: bytes read at a time.

    Raises:
        InputError: the list breaks, after the rows before that place.
    """
    yield from _until_broken(_Source(stream, chunk), file, _elements)


def read_wrapped(stream: io.BufferedReader, file: str, chunk: int = _CHUNK) -> Iterator[Row | Reject]:
    """Rows of the list that a JSON object holds under one of `WRAPPERS`; its other fields are passed over.

    Args:
        stream: the file's bytes, without a byte-order mark, for which `is_wrapped` holds.
        file: the name that rows and rejects carry.
        chunk: bytes read at a time.

    Raises:
        InputError: as `read_list`.
    """
    yield from _until_broken(_Source(stream, chunk), file, _fields)


def is_wrapped(head: str) -> bool:
    """True if a file that begins so is one object with its rows in a list, and not JSON lines.

    JSON lines are what goes on behind a first line that is an object by itself.
    """
    line, _, more = head.lstrip(_WHITESPACE).partition("\n")
    if not line.startswith("{") or (more.strip(_WHITESPACE) and is_json(line)):
        return False
    position = head.index("{") + 1
    try:
        while True:
            name, position = _RAW_DECODE(head, _WHITE.match(head, position).end())  # type: ignore[union-attr]
            colon = _COLON.match(head, position)
            if colon is None:
                return False
            if name in WRAPPERS and _ROWS.match(head, colon.end()):
                return True
            _, position = _RAW_DECODE(head, colon.end())
            comma = _COMMA.match(head, position)
            if comma is None:
                return False
            position = comma.end()
    except (ValueError, RecursionError):
        return False


def _until_broken(
    source: _Source, file: str, read: Callable[[_Source, str], Iterator[Row | Reject]]
) -> Iterator[Row | Reject]:
    try:
        yield from read(source, file)
        if source.next_character():
            raise _BrokenListError("text after the end of the JSON list")
    except _BrokenListError as broken:
        way_out = "the rows from here cannot be read; correct the file here, or write one JSON object per line"
        raise InputError(f"{file}:{source.line}: {broken}; {way_out}") from broken


def _fields(source: _Source, file: str) -> Iterator[Row | Reject]:
    """The rows of an object's one list of rows."""
    source.next_character()
    source.advance(source.position + 1)
    wrapper = ""
    while True:
        source.next_character()
        name, end = _decode(source)
        source.advance(end)
        _separator(source, ":", "a field's name")
        if source.next_character() == "[" and name in WRAPPERS:
            if wrapper:
                raise _BrokenListError(f'two lists of rows, "{wrapper}" and "{name}"; keep one of them')
            wrapper = str(name)
            yield from _elements(source, file)
        else:
            _, end = _decode(source)
            source.advance(end)
        if _separator(source, ",}", "a field") == "}":
            return


def _separator(source: _Source, expected: str, behind: str) -> str:
    """Take one of these characters."""
    separator = source.next_character()
    if not separator or separator not in expected:
        names = " or ".join(f'"{character}"' for character in expected)
        finding = f'got "{separator}"' if separator else "the file ends: it is cut short"
        raise _BrokenListError(f"broken JSON list: expected {names} after {behind}, {finding}")
    source.advance(source.position + 1)
    return separator


def _elements(source: _Source, file: str) -> Iterator[Row | Reject]:
    source.next_character()
    source.advance(source.position + 1)
    if source.next_character() == "]":
        source.advance(source.position + 1)
    else:
        while True:
            yield _element(source, file)
            if _separator(source, ",]", "a row") == "]":
                break
            source.next_character()


def _element(source: _Source, file: str) -> Row | Reject:
    value, end = _decode(source)
    line = source.line
    problem = source.decoder.problem_of(value)
    raw = source.text[source.position : end] if source.dirty or problem or type(value) is not dict else ""
    source.advance(end)
    if source.dirty and has_bad_bytes(raw):
        problem = "not UTF-8; save the file as UTF-8"
    if type(value) is dict and not problem:
        return Row(file, line, value)
    reason = problem or "expected a JSON object in the list; write one object per row"
    return Reject(file, line, reason, truncate_raw(escape_bad_bytes(raw)))


def _decode(source: _Source) -> tuple[object, int]:
    while True:
        try:
            value, end = source.decoder.raw_decode(source.text, source.position)
            # A number that ends with the buffer may go on in the next chunk.
            if end < len(source.text) or source.ended:
                return value, end
        except json.JSONDecodeError as error:
            cut = error.msg.startswith("Unterminated string") or error.pos > len(source.text) - _CUT_TOKEN
            if source.ended or not cut:
                raise _BrokenListError(_finding(source, error)) from error
        except (RecursionError, ValueError) as error:
            raise _BrokenListError(f"not usable JSON: {error}") from error
        source.more()


def _finding(source: _Source, error: json.JSONDecodeError) -> str:
    if error.pos >= len(source.text):
        return "broken JSON list: the file ends within a row: it is cut short"
    line = source.line + source.text.count("\n", source.position, error.pos)
    return f"broken JSON list: {error.msg} at line {line}, character {source.dropped + error.pos + 1} of the file"
