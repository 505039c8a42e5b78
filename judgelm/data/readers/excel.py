"""Read Excel workbooks."""

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
_PYTHON_ERRORS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_WORKBOOK_ERRORS = (BadZipFile, ParseError, zlib.error, EOFError, OSError, *_PYTHON_ERRORS)
"""Errors that zipfile and openpyxl raise for damaged files."""


def read_workbook(
    source: IO[bytes], file: str, known: AbstractSet[str], sheet: str | None = None
) -> Iterator[Row | Reject]:
    """Stream the rows of one sheet of an Excel workbook; for `known`, see `read_table`.

    The text of a merged cell is repeated in the first column of each of its rows. `sheet` is a name or a 1-based
    number; by default, the only sheet that is not empty.
    """
    from openpyxl import load_workbook  # optional, and importing it takes 0.3 s

    with _workbook_errors(file):
        _check_parts(source)
        values, formulas = (load_workbook(source, read_only=True, data_only=only).worksheets for only in (True, False))
        if sheet is None:
            filled = [index for index, each in enumerate(formulas) if any(map(_texts_of, _rows_of(each)))]
        else:
            filled = [_sheet_index(file, sheet, [each.title for each in formulas])]
        if len(filled) != 1:
            names = ", ".join(formulas[index].title for index in filled) or "none"
            way_out = "choose a sheet with --sheet NAME (sheet in a build configuration), or save it as CSV"
            raise InputError(f"{file}: expected one non-empty sheet, got {names}; {way_out}")
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
        raise InputError(f"{file}: damaged, or not an Excel workbook: {finding}; save it again, or as CSV") from error


def _check_parts(source: IO[bytes]) -> None:
    with ZipFile(source) as archive:
        for name in (name for name in archive.namelist() if name.endswith((".xml", ".rels"))):
            size, tail = 0, b""
            with archive.open(name) as part:
                while block := part.read(_CHUNK):
                    text = tail + block  # a tag may be split between two blocks
                    end = max(map(text.rfind, _ROW_TAGS))
                    size = size + len(block) if end < 0 else len(text) - end
                    tail = block[-_TAG_BYTES:]
                    if size > 2 * MAX_ROW_BYTES:  # slightly longer rows are rejected individually
                        raise ValueError(f"{name} has an unterminated row after {megabytes(2 * MAX_ROW_BYTES)}")


def _rows_of(sheet: Any) -> Iterator[Sequence[Any]]:
    sheet.reset_dimensions()
    return islice(sheet.iter_rows(), _SHEET_ROWS + 1)


def _sheet_lines(file: str, values: Any, formulas: Any, places: dict[int, int]) -> Iterator[bytes]:
    """Yield rows as CSV lines, and map each row's first line to its row number in `places`."""
    merged, line = _MergedCells(values), 1
    if merged.count:
        _warn_once(f"{file}: {merged.count:,} merged cells span several rows; their text is repeated in each row")
    for number, (stored, written) in enumerate(zip(_rows_of(values), _rows_of(formulas), strict=True), 1):
        if number > _SHEET_ROWS:
            raise ValueError(f"more than {_SHEET_ROWS:,} rows")
        if not stored:  # a stray cell far below creates millions of empty rows
            continue
        for cell, formula in zip(stored, written, strict=True):
            if cell.value is None and formula.value is not None:
                finding = f"cell {formula.coordinate}: the formula has no stored value"
                raise InputError(f"{file}: {finding}; save it again in a spreadsheet program, or as CSV")
        texts = merged.filled(number, _texts_of(stored))
        if any(texts):
            text = io.StringIO(newline="")
            csv.writer(text).writerow(texts)
            lines = text.getvalue().encode(errors="surrogateescape").splitlines(keepends=True)
            places[line] = number
            line += len(lines)
            yield from lines


_MAX_TAG = 200
_MERGED = re.compile(rb"""<(?:\w+:)?mergeCell\s[^>]*?\bref=["']([A-Z]+)(\d+):[A-Z]+(\d+)["']""")


@cache
def _warn_once(message: str) -> None:
    log.warning(message)


class _MergedCells:
    """The merged cells of a sheet; only their first row stores the text.

    Merged cells are parsed from the end of the sheet's XML, because openpyxl skips them in read-only mode.
    """

    def __init__(self, sheet: Any) -> None:
        from openpyxl.utils import column_index_from_string

        self._begins: dict[int, set[tuple[int, int]]] = defaultdict(set)
        self._open: dict[int, tuple[int, str]] = {}
        text = b""
        with sheet._get_source() as xml:
            while block := xml.read(_CHUNK):
                text = text[-_MAX_TAG:] + block
                for column, first, last in _MERGED.findall(text):
                    if first != last:
                        self._begins[int(first)].add((column_index_from_string(column.decode()) - 1, int(last)))

        self.count = sum(map(len, self._begins.values()))

    def filled(self, number: int, texts: list[str]) -> list[str]:
        self._open = {column: (last, text) for column, (last, text) in self._open.items() if number <= last}
        for column, (_, text) in self._open.items() if any(texts) else ():
            texts += [""] * (column + 1 - len(texts))
            texts[column] = texts[column] or text
        for column, last in self._begins.get(number, ()):
            self._open[column] = last, texts[column] if column < len(texts) else ""
        return texts


def _sheet_index(file: str, sheet: str, names: list[str]) -> int:
    if sheet in names:
        return names.index(sheet)
    if sheet.isdecimal() and 1 <= int(sheet) <= len(names):
        return int(sheet) - 1
    raise InputError(f'{file}: sheet "{sheet}" not found; choose one of {", ".join(names)}, or a number (from 1)')


def _texts_of(cells: Sequence[Any]) -> list[str]:
    last = max((index for index, cell in enumerate(cells) if cell.value is not None), default=-1)
    texts, size = list[str](), 0
    for cell in cells[: last + 1]:
        texts.append("" if cell.value is None else str(cell.value))
        size += len(texts[-1])
        if size > MAX_ROW_BYTES:
            break
    return texts
