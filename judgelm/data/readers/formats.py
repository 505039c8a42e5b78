"""The formats of files of rows besides JSON lines: CSV and TSV tables, Parquet, Excel workbooks, one big JSON list.

A JSON list is streamed: the buffer holds a chunk or one row, whichever is longer. It may be a field of an object, under
one of the names in `WRAPPERS`: `{"version": 1, "data": [...]}`.
"""

import codecs
import csv
import io
import json
import logging
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from itertools import chain, groupby, islice, repeat
from typing import IO, Any
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile, ZipFile

from judgelm.bounds import MAX_ROW_BYTES, MAX_ROW_LINES, megabytes
from judgelm.data.readers.rows import Reject, Row, escape_bad_bytes, has_bad_bytes, too_long, truncate_raw
from judgelm.data.readers.values import RowDecoder, cell_value, infinite_number, is_json, plain_value, raw_text
from judgelm.errors import InputError

log = logging.getLogger("judgelm.data")

_BATCH_ROWS = 1024
_VALUE_BYTES = 8
"""Of a value in memory, at least."""
_DELIMITERS = ",;\t|"
USUAL_COLUMNS = frozenset(
    {"id", "question_id", "question", "instruction", "prompt", "answer", "answer_1", "answer_2", "reference", "winner"}
    | {"question_body", "input", "output", "response", "label", "score", "model", "generator", "category", "text"}
)
_SHEET_ROWS = 1 << 20
_ROW_TAGS = (b"<row", b":row", b"</si", b":si>")
_TAG_BYTES = 4
_WORKBOOK_ERRORS = (
    BadZipFile, ParseError, zlib.error, EOFError, OSError, ArithmeticError, AttributeError, LookupError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip
"""What zipfile and openpyxl raise for damaged content."""
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
            texts = [path for path in _text_paths(parquet.metadata) if "key_value" not in path]
            compact = pyarrow.parquet.ParquetFile(source, metadata=parquet.metadata, read_dictionary=texts)
            for values in _parquet_values(parquet, compact):
                rows += 1
                if values is None:
                    yield too_long(file, rows, "")
                    continue
                data = {name: plain_value(value) for name, value in values.items()}
                problem = infinite_number(data)
                yield Reject(file, rows, problem, truncate_raw(raw_text(data))) if problem else Row(file, rows, data)
    except pyarrow.ArrowMemoryError as error:
        way_out = "write it with smaller pages (data_page_size) or smaller row groups"
        raise InputError(f"{file}: after {rows} rows a page does not fit into memory: {error}; {way_out}") from error
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        finding = str(error).splitlines()[0] if str(error) else type(error).__name__
        finding = f"damaged or not Parquet, after {rows} rows: {finding}"
        raise InputError(f"{file}: {finding}; copy or download it again") from error


def _text_paths(metadata: Any) -> list[str]:
    columns = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def _parquet_values(parquet: Any, compact: Any) -> Iterator[dict[str, Any] | None]:
    """The values of each row, in batches by their bytes; None for a row beyond `MAX_ROW_BYTES`.

    Args:
        parquet: the open file.
        compact: the same file with each text that a column repeats kept once. It takes half as long again to read.
    """
    metadata = parquet.metadata
    for (size, reader), indices in groupby(
        range(metadata.num_row_groups), lambda index: _batch_rows(index, parquet, compact)
    ):
        groups = list(indices)
        if not size:
            yield from repeat(None, sum(metadata.row_group(index).num_rows for index in groups))
            continue
        for batch in reader.iter_batches(batch_size=size, row_groups=groups):
            yield from _batch_values(batch)


def _batch_rows(index: int, parquet: Any, compact: Any) -> tuple[int, Any]:
    """The rows of a group to read at a time, and from what; 0 where a row of mean size is too long."""
    group = parquet.metadata.row_group(index)
    columns, rows = [group.column(place) for place in range(group.num_columns)], max(group.num_rows, 1)
    row_bytes = max(group.total_byte_size, _VALUE_BYTES * sum(column.num_values for column in columns), 1) / rows
    size = min(_BATCH_ROWS, int(MAX_ROW_BYTES / row_bytes))
    texts = [
        column
        for column in columns
        if column.has_dictionary_page
        and column.physical_type == "BYTE_ARRAY"
        and column.num_values / rows * size * column.total_uncompressed_size > MAX_ROW_BYTES
    ]
    if not size or not texts:
        return size, parquet
    first = next(compact.iter_batches(batch_size=1, row_groups=[index], columns=[c.path_in_schema for c in texts]))
    longest = sum(map(_longest_text, first.columns))
    return size, compact if longest * size * max(c.num_values for c in texts) / rows > MAX_ROW_BYTES else parquet


def _longest_text(array: Any) -> int:
    """Of the texts that an array keeps once, the number of bytes of the longest."""
    from pyarrow import compute, types

    if types.is_dictionary(array.type):
        return compute.max(compute.binary_length(array.dictionary)).as_py() or 0
    if types.is_struct(array.type):
        return sum(map(_longest_text, array.flatten()))
    return _longest_text(array.values) if types.is_nested(array.type) else 0


def _batch_values(batch: Any) -> Iterator[dict[str, Any] | None]:
    if _unpacked_bytes(batch.to_struct_array()) <= MAX_ROW_BYTES:
        yield from batch.to_pylist()
    elif batch.num_rows == 1:
        yield None
    else:
        half = batch.num_rows // 2
        yield from chain(_batch_values(batch.slice(0, half)), _batch_values(batch.slice(half)))


def _unpacked_bytes(array: Any) -> int:
    """The bytes of an array's values, with what it keeps once counted as often as it is there."""
    from pyarrow import compute, types

    if types.is_dictionary(array.type) and not types.is_primitive(array.type.value_type):
        return int(compute.sum(compute.binary_length(array.dictionary).take(array.indices)).as_py() or 0)
    if types.is_struct(array.type):
        return sum(map(_unpacked_bytes, array.flatten()))
    if types.is_nested(array.type):
        start, end = (array.offsets[0].as_py(), array.offsets[-1].as_py()) if hasattr(array, "offsets") else (0, None)
        return _unpacked_bytes(array.values[start:end])
    return max(int(array.nbytes), _VALUE_BYTES * len(array))


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


def _refuse_doubled(file: str, fields: list[Any], inside: str) -> None:
    """Refuse two fields of one name, in the table or in a structure of it."""
    for name, count in Counter(field.name for field in fields).items():
        if count > 1:
            raise InputError(f'{file}: column "{inside}{name}" appears {count} times; rename or leave out all but one')
    for field in fields:
        nested = [field.type.field(index) for index in range(field.type.num_fields)]
        _refuse_doubled(file, nested, f"{inside}{field.name}.")


def read_table(
    stream: io.BufferedReader | Iterator[bytes],
    file: str,
    delimiter: str | None,
    known: AbstractSet[str] = USUAL_COLUMNS,
    *,
    is_sheet: bool = False,
) -> Iterator[Row | Reject]:
    """Stream the rows of a CSV or TSV file below its header; a row that cannot be used is a reject.

    The header is the first line that is not empty, or the one of the first lines that has the most known columns.
    What is above it, such as a title, is no row, and nor is a line of empty cells.

    Args:
        stream: the file's bytes, or its lines.
        file: the name that rows and rejects carry.
        delimiter: without one it is the one that spreadsheets state in a first line `sep=;`, else the most frequent
            of the header.
        known: columns that readers look for, in lower case; by default the most usual ones.
        is_sheet: the file is a workbook's sheet, whose rows end with their last filled cell.

    Raises:
        InputError: the header cannot be read or has a column twice, no row follows it, or a quote is not closed, so
            that the rows behind it cannot be told apart.
    """
    return _below_survey_lines(_table_rows(stream, file, delimiter, known, is_sheet))


def _below_survey_lines(rows: Iterator[Row | Reject]) -> Iterator[Row | Reject]:
    """The rows below Qualtrics' second and third line of a header: the questions' texts, and `{"ImportId": ...}`."""
    begin = [row for row in (next(rows, None),) if row is not None]
    if begin and isinstance(begin[0], Row) and "ResponseId" in begin[0].data and (second := next(rows, None)):
        ids = second.data.values() if isinstance(second, Row) else ("",)
        begin = [] if all(str(cell).startswith('{"ImportId"') for cell in ids) else [*begin, second]
    yield from chain(begin, rows)


def _table_rows(
    stream: io.BufferedReader | Iterator[bytes],
    file: str,
    delimiter: str | None,
    known: AbstractSet[str],
    is_sheet: bool,
) -> Iterator[Row | Reject]:
    # The limit is the csv module's, for the whole process, and only ever raised here.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_BYTES))
    taken: list[str] = []
    lines = _Lines(stream, file, taken)
    skipped = lines.skip_blank()
    while (first := lines.ahead()) and not first.strip("\r\n"):
        skipped += 1
    if stated := _SEPARATOR_LINE.fullmatch(first):
        skipped, first, delimiter = skipped + 1, lines.ahead(), stated[1]
    above, head = _from_header(first, lines, delimiter, known)
    lines.put_back(head)
    # Strict: an unclosed quote would otherwise swallow the rest of the file as one cell.
    table = csv.reader(lines, delimiter=delimiter or _most_frequent(head[0]), strict=True)
    skipped += above
    header: list[str] | None = None
    any_row = False
    while True:
        taken.clear()
        start = skipped + table.line_num + 1
        try:
            cells = next(table, None)
        except _RowTooLongError:
            if header is None:
                raise InputError(f"{file}:{start}: the header is longer than {megabytes(MAX_ROW_BYTES)}") from None
            if _swallowed(taken, table.dialect, len(header)):
                raise _unclosed(file, start, taken, f"longer than {megabytes(MAX_ROW_BYTES)}") from None
            any_row = True
            yield too_long(file, start, taken[0])
            skipped += lines.skip_row(start)
            continue
        except csv.Error as error:
            if header is None or len(taken) > 1 or _is_open(taken[0]):
                raise _unclosed(file, start, taken, str(error)) from error
            cells, reason = [], f"not a table row: {error}; check its quotes"
        else:
            if cells is None:
                if header is not None and not any_row:
                    raise InputError(f"{file}: no rows below the header")
                return
            if not any(cells):
                skipped += lines.skip_blank()
                continue
            if header is None:
                header = _header(file, start, cells)
                continue
            if is_sheet:
                cells += [""] * (len(header) - len(cells))
            reason = "the header once more; leave the line out" if cells == header else ""
        any_row = True
        if not reason and len(cells) != len(header) and _swallowed(taken, table.dialect, len(header)):
            raise _unclosed(file, start, taken, f"expected {len(header)} cells as in the header, got {len(cells)}")
        row = reason or _row(file, start, header, cells, taken, is_sheet)
        if isinstance(row, str):
            yield Reject(file, start, row, truncate_raw(escape_bad_bytes("".join(taken)).rstrip("\r\n")))
        else:
            yield row


class _RowTooLongError(Exception):
    """The row at hand is beyond `MAX_ROW_BYTES` or `MAX_ROW_LINES`."""


_BLANK_LINES = re.compile(rb"(?:\r?\n)*+")
_QUOTED = re.compile(rb'[^"]*+')
_UNQUOTED = re.compile(rb'(?:[^"\r\n]++|"[^"]*+")*+')


class _Lines:
    """Lines with their ends, of Unix, Windows, or old Macs; each is also added to `taken`, which a new row empties."""

    def __init__(self, source: io.BufferedReader | Iterator[bytes], file: str, taken: list[str]) -> None:
        self._stream = source if isinstance(source, io.BufferedReader) else None
        self._readline: Callable[[], bytes] = (
            partial(source.readline, MAX_ROW_BYTES + 1)
            if isinstance(source, io.BufferedReader)
            else partial(next, source, b"")
        )
        self._file = file
        self._parts: list[bytes] = []
        self._taken = taken
        self._size = 0

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        if not (line := self._parts.pop() if self._parts else self._split(self._readline())):
            raise StopIteration
        self._size = len(line) + (self._size if self._taken else 0)
        text = line.decode(errors="surrogateescape")
        self._taken.append(text)
        if self._size > MAX_ROW_BYTES or len(self._taken) > MAX_ROW_LINES:
            raise _RowTooLongError
        return text

    def ahead(self) -> str:
        """The next line, which `put_back` may return; empty at the end."""
        line = self._parts.pop() if self._parts else self._split(self._readline())
        return line.decode(errors="surrogateescape")

    def put_back(self, lines: Sequence[str]) -> None:
        """Have these lines come next."""
        self._parts += [line.encode(errors="surrogateescape") for line in reversed(lines)]

    def _split(self, line: bytes) -> bytes:
        """The first of the parts of a line that ends in CR, which wait for their turn."""
        if b"\r" not in line:
            return line
        self._parts = line.splitlines(keepends=True)[::-1]
        if len(self._parts) > 1 and len(line) > MAX_ROW_BYTES:
            finding = f"lines end in CR alone, in a file larger than {megabytes(MAX_ROW_BYTES)}"
            raise InputError(f"{self._file}: {finding}; save it with the line ends of Unix or Windows")
        return self._parts.pop()

    def skip_row(self, start: int) -> int:
        """Pass over the rest of a row that is too long: to the end of a line outside of quotes; the lines passed.

        Raises:
            InputError: the file ends within quotes.
        """
        is_open = sum(text.count('"') for text in self._taken) % 2 == 1
        ends = self._taken[-1].endswith(("\n", "\r"))
        passed = int(ends)
        while self._parts and (is_open or not ends):
            part = self._parts.pop()
            is_open ^= part.count(b'"') % 2 == 1
            ends, passed = True, passed + 1
        while self._stream and (is_open or not ends) and (head := self._stream.peek(1)):
            end = (_QUOTED if is_open else _UNQUOTED).match(head).end()  # type: ignore[union-attr]
            sign = head[end : end + 1]
            ends = not is_open and sign in (b"\n", b"\r")
            is_open ^= sign == b'"'
            passed += self._stream.read(end + len(sign)).count(b"\n")
        if is_open:
            raise _unclosed(self._file, start, self._taken, f"longer than {megabytes(MAX_ROW_BYTES)}")
        return passed

    def skip_blank(self) -> int:
        """Pass over the blank lines that come next; their number."""
        return skip_lines(self._stream, _BLANK_LINES) if self._stream and not self._parts else 0


def skip_lines(stream: io.BufferedReader, blank: re.Pattern[bytes]) -> int:
    """Pass over what comes next of a stream and is blank, a buffer at a time; the number of line ends in it."""
    lines = 0
    while end := blank.match(stream.peek(1)).end():  # type: ignore[union-attr]  # it matches nothing, too
        lines += stream.read(end).count(b"\n")
    return lines


_HEADER_WITHIN = 12
"""Lines in which a header is looked for."""


def _from_header(first: str, lines: _Lines, delimiter: str | None, known: AbstractSet[str]) -> tuple[int, list[str]]:
    """The number of lines above the header, and the lines read from it on.

    A line below the first one is the header only where it has two known columns, and more than those above it.
    """

    def names_in(line: str) -> set[str]:
        cells: list[str] = []
        with suppress(csv.Error):
            cells = next(csv.reader([line], delimiter=delimiter or _most_frequent(line)), [])
        return {cell.strip().casefold() for cell in cells}

    names = names_in(first)
    read, most, header, quotes = [first], len(names & known), 0, first.count('"')
    wanted = 2  # a second header line is next to the first
    while len(read) < (_HEADER_WITHIN if most < 2 or "" in names else wanted) and (line := lines.ahead()):
        further = names_in(line) if quotes % 2 == 0 else set()
        if len(further & known) > max(most, 1):
            names, most, header, wanted = further, len(further & known), len(read), len(read) + 2
        quotes += line.count('"')
        read.append(line)
        if sum(map(len, read)) > MAX_ROW_BYTES:
            break
    return header, read[header:]


def _most_frequent(header: str) -> str:
    """The most frequent separator; spreadsheets write `;` where decimals have a comma."""
    return max(_DELIMITERS, key="".join(header.split('"')[::2]).count)


def _header(file: str, line: int, cells: list[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice[:1] == [""]:
        raise InputError(f"{file}:{line}: {names.count('')} columns have no name in the header; name or delete them")
    if twice:
        raise InputError(f'{file}:{line}: column "{twice[0]}" appears twice in the header; rename one')
    return names


def _row(file: str, line: int, header: list[str], cells: list[str], taken: list[str], is_sheet: bool) -> Row | str:
    """The row, or the reason why it is none."""
    if len(cells) != len(header):
        way_out = "name all columns in the header" if is_sheet else "quote cells that hold separators"
        if sum(map(bool, header)) == 1:
            way_out += f', or delete the lines above the header if "{max(header)}" is a title'
        return f"expected {len(header)} cells as in the header, got {len(cells)}; {way_out}"
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
_IN_TEXT = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
_OUTSIDE = re.compile(r'[^"\[\]{}]*+')
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
        data = self._stream.read(max(self._chunk, min(len(rest), MAX_ROW_BYTES + 1 - len(rest))))
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
            self.advance(_WHITE.match(self.text, self.position).end())  # type: ignore[union-attr]
            if self.position < len(self.text) or self.ended:
                return self.text[self.position : self.position + 1]
            self.more()

    def skip_value(self) -> None:
        """Pass over the text, list or object that begins here, whatever its length."""
        depth, in_text = 0, False
        while True:
            pattern = _IN_TEXT if in_text else _OUTSIDE
            end = pattern.match(self.text, self.position).end()  # type: ignore[union-attr]
            self.advance(end)
            if end >= len(self.text) - in_text and not self.ended:  # a backslash at the end belongs to what follows
                self.more()
                continue
            sign = self.text[end : end + 1]
            if not sign or (in_text and sign != '"'):
                raise _BrokenListError("broken JSON list: the file ends within a row: it is cut short")
            self.advance(end + 1)
            if sign == '"':
                in_text = not in_text
            else:
                depth += 1 if sign in "[{" else -1
            if depth == 0 and not in_text:
                return


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
    except (_BrokenListError, _RowTooLongError) as broken:
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
            try:
                source.advance(_decode(source)[1])
            except _RowTooLongError:
                source.skip_value()
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
    try:
        value, end = _decode(source)
    except _RowTooLongError:
        reject = too_long(file, source.line, source.text[source.position : source.position + _CHUNK])
        source.skip_value()
        return reject
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
    """The value that begins here, and its end.

    Raises:
        _RowTooLongError: it is longer than `MAX_ROW_BYTES` characters, and neither number nor literal.
        _BrokenListError: it cannot be read.
    """
    while True:
        try:
            value, end = source.decoder.raw_decode(source.text, source.position)
            # A number that ends with the buffer may go on in the next chunk.
            if (end < len(source.text) or source.ended) and end - source.position <= MAX_ROW_BYTES:
                return value, end
        except json.JSONDecodeError as error:
            cut = error.msg.startswith("Unterminated string") or error.pos > len(source.text) - _CUT_TOKEN
            if source.ended or not cut:
                raise _BrokenListError(_finding(source, error)) from error
        except (RecursionError, ValueError) as error:
            raise _BrokenListError(f"not usable JSON: {error}") from error
        if len(source.text) - source.position > MAX_ROW_BYTES:
            finding = f"longer than {megabytes(MAX_ROW_BYTES)}"
            if source.text[source.position] not in '"[{':
                raise _BrokenListError(f"a number {finding}")
            raise _RowTooLongError(f"a field's name is {finding}")
        source.more()


def _finding(source: _Source, error: json.JSONDecodeError) -> str:
    if error.pos >= len(source.text):
        return "broken JSON list: the file ends within a row: it is cut short"
    line = source.line + source.text.count("\n", source.position, error.pos)
    return f"broken JSON list: {error.msg} at line {line}, character {source.dropped + error.pos + 1} of the file"
