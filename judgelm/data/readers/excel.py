"""Excel workbooks."""

import csv
import io
import logging
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import IO, Any
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile, ZipFile

from judgelm.bounds import MAX_ROW_BYTES, megabytes
from judgelm.data.readers.csv_tables import read_table
from judgelm.data.readers.rows import Reject, Row
from judgelm.errors import InputError

log = logging.getLogger("judgelm.data")
_CHUNK = 1 << 18
_SHEET_ROWS = 1 << 20
_ROW_TAGS = (b"<row", b":row", b"</si", b":si>")
_TAG_BYTES = 4
_WORKBOOK_ERRORS = (
    BadZipFile, ParseError, zlib.error, EOFError, OSError, ArithmeticError, AttributeError, LookupError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip
"""What zipfile and openpyxl raise for damaged content."""


def read_workbook(
    source: IO[bytes], file: str, known: AbstractSet[str], sheet: str | None = None
) -> Iterator[Row | Reject]:
    """Stream the rows of one sheet of an Excel workbook, as `read_table` reads the same table.

    Args:
        source: the file's bytes.
        file: the name that rows and rejects carry.
        known: names of columns by which the header is found.
        sheet: its name, or its number from 1; None for the one sheet with cells.

    A merged cell's value is in each of its rows that has other cells, in the first of its columns.

    Raises:
        InputError: no workbook, damaged, no such sheet, none or several with cells, or a formula without a stored
            value; else as `read_table`.
    """
    from openpyxl import load_workbook  # of an extra; takes 0.3 s

    with _workbook_errors(file):
        _check_parts(source)
        values, formulas = (
            load_workbook(source, read_only=True, data_only=stored).worksheets for stored in (True, False)
        )
        filled = (
            [index for index, each in enumerate(formulas) if any(map(_texts_of, _rows_of(each)))]
            if sheet is None
            else [_sheet_index(file, sheet, [each.title for each in formulas])]
        )
        if len(filled) != 1:
            names = ", ".join(formulas[index].title for index in filled) or "none"
            raise InputError(
                f"{file}: several sheets or none could have the rows; those with cells are: {names}; choose one with "
                "--sheet NAME (in a build's configuration sheet), or save it as CSV"
            )
        places: dict[int, int] = {}
        lines = _sheet_lines(file, values[filled[0]], formulas[filled[0]], places)
        for row in read_table(lines, file, ",", known, is_sheet=True):
            yield replace(row, line=places.pop(row.line, row.line))


@contextmanager
def _workbook_errors(file: str) -> Iterator[None]:
    try:
        yield
    except _WORKBOOK_ERRORS as error:
        finding = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{file}: damaged or not an Excel workbook: {finding}; save it again, or as CSV") from error


def _check_parts(source: IO[bytes]) -> None:
    """Refuse XML that the parser would hold in memory without end: long stretches in which no row or text ends.

    Raises:
        ValueError: names the part.
    """
    with ZipFile(source) as archive:
        for name in (name for name in archive.namelist() if name.endswith((".xml", ".rels"))):
            size, tail = 0, b""
            with archive.open(name) as part:
                while block := part.read(_CHUNK):
                    text = tail + block  # a tag may be cut by the end of a block
                    end = max(map(text.rfind, _ROW_TAGS))
                    size = size + len(block) if end < 0 else len(text) - end
                    tail = block[-_TAG_BYTES:]
                    if size > 2 * MAX_ROW_BYTES:  # so that a row somewhat too long is a reject
                        raise ValueError(f"{name} has {megabytes(2 * MAX_ROW_BYTES)} without the end of a row")


def _rows_of(sheet: Any) -> Iterator[Sequence[Any]]:
    """The rows as far as they have cells, whatever size the sheet states."""
    sheet.reset_dimensions()
    return islice(sheet.iter_rows(), _SHEET_ROWS + 1)


def _sheet_lines(file: str, values: Any, formulas: Any, places: dict[int, int]) -> Iterator[bytes]:
    """The lines of a sheet's rows as CSV; `places` gets the number of a row's first line -> the row's number."""
    merged, line = _MergedCells(values), 1
    if merged.count:
        _say_once(f"{file}: merged cells over several rows: {merged.count:,}; the text of each is read in all of them")
    for number, (stored, written) in enumerate(zip(_rows_of(values), _rows_of(formulas), strict=True), 1):
        if number > _SHEET_ROWS:
            raise ValueError(f"more than {_SHEET_ROWS:,} rows")
        if not stored:  # millions of them, below which a paste left one far cell
            continue
        for cell, formula in zip(stored, written, strict=True):
            if cell.value is None and formula.value is not None:
                finding = f"cell {formula.coordinate}: a formula without a stored value"
                raise InputError(f"{file}: {finding}; save the file in a spreadsheet once, or as CSV")
        texts = merged.filled(number, _texts_of(stored))
        if any(texts):
            text = io.StringIO(newline="")
            csv.writer(text).writerow(texts)
            lines = text.getvalue().encode(errors="surrogateescape").splitlines(keepends=True)
            places[line] = number
            line += len(lines)
            yield from lines


_LONGEST_TAG = 200
_MERGED = re.compile(rb"""<(?:\w+:)?mergeCell\s[^>]*?\bref=["']([A-Z]+)(\d+):[A-Z]+(\d+)["']""")


@cache
def _say_once(message: str) -> None:
    """Warn once in a process, however often a file is read."""
    log.warning(message)


class _MergedCells:
    """The merged cells of a sheet, whose text spreadsheets keep in the first row alone.

    openpyxl leaves them out of what it streams, so they are taken from the sheet's XML, at whose end they are.

    Attributes:
        count: merged cells over several rows.
    """

    def __init__(self, sheet: Any) -> None:
        from openpyxl.utils import column_index_from_string

        self._begins: dict[int, set[tuple[int, int]]] = defaultdict(set)
        self._open: dict[int, tuple[int, str]] = {}
        text = b""
        with sheet._get_source() as xml:
            while block := xml.read(_CHUNK):
                text = text[-_LONGEST_TAG:] + block
                for column, first, last in _MERGED.findall(text):
                    if first != last:
                        self._begins[int(first)].add((column_index_from_string(column.decode()) - 1, int(last)))

        self.count = sum(map(len, self._begins.values()))

    def filled(self, number: int, texts: list[str]) -> list[str]:
        """A row's texts with those of the merged cells that began above it; an empty row stays empty."""
        self._open = {column: (last, text) for column, (last, text) in self._open.items() if number <= last}
        for column, (_, text) in self._open.items() if any(texts) else ():
            texts += [""] * (column + 1 - len(texts))
            texts[column] = texts[column] or text
        for column, last in self._begins.get(number, ()):
            self._open[column] = last, texts[column] if column < len(texts) else ""
        return texts


def _sheet_index(file: str, sheet: str, names: list[str]) -> int:
    """The index of a sheet by its name, else by its number from 1."""
    if sheet in names:
        return names.index(sheet)
    if sheet.isdecimal() and 1 <= int(sheet) <= len(names):
        return int(sheet) - 1
    raise InputError(f'{file}: no sheet "{sheet}"; choose one of {", ".join(names)}, or its number from 1')


def _texts_of(cells: Sequence[Any]) -> list[str]:
    """The cells as texts, as a spreadsheet writes them into a CSV file; the empty ones at the end are left out.

    Cells behind the one with which a row is too long are left out, too, since the row is not read.
    """
    last = max((index for index, cell in enumerate(cells) if cell.value is not None), default=-1)
    texts, size = list[str](), 0
    for cell in cells[: last + 1]:
        texts.append("" if cell.value is None else str(cell.value))
        size += len(texts[-1])
        if size > MAX_ROW_BYTES:
            break
    return texts
