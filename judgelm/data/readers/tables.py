"""Rows of tables: CSV or TSV text, and Parquet files batch by batch."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import IO, Any

from judgelm.data.readers.rows import Reject, Row, escape_bad_bytes, has_bad_bytes, truncate_raw
from judgelm.data.readers.values import cell_value, infinite_number, plain_value, raw_text
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
        raise InputError(
            f"{file}: damaged or not Parquet, after {rows} rows: {finding}; copy or download it again"
        ) from error


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
    return InputError(
        f"{file}:{line + quote}: a quote is not closed, so the rows from here cannot be told apart "
        f"(lines {line}{end}: {finding}); close it, or write a quote within a cell twice"
    )
