"""Read CSV and TSV tables."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

from judgelm.bounds import MAX_ROW_BYTES, MAX_ROW_LINES, megabytes
from judgelm.data.readers.rows import Reject, Row, escape_bad_bytes, has_bad_bytes, too_long
from judgelm.data.readers.values import cell_value
from judgelm.errors import InputError

_DELIMITERS = ",;\t|"
USUAL_COLUMNS = frozenset(
    {"id", "question_id", "question", "instruction", "prompt", "answer", "answer_1", "answer_2", "reference", "winner"}
    | {"question_body", "input", "output", "response", "label", "score", "model", "generator", "category", "text"}
)
_SEPARATOR_LINE = re.compile(r'"?sep=([^"\r\n])"?\s*', re.IGNORECASE)


def read_table(
    stream: io.BufferedReader | Iterator[bytes],
    file: str,
    delimiter: str | None,
    known: AbstractSet[str] = USUAL_COLUMNS,
    *,
    is_sheet: bool = False,
) -> Iterator[Row | Reject]:
    """Stream the rows of a CSV or TSV file; unusable rows are yielded as rejects.

    The header is the first non-empty line, or a line near the top that contains more known columns.

    Args:
        stream: the file's content as a byte stream or as lines.
        file: name for errors.
        delimiter: by default taken from a first line such as `sep=;`, or else the most frequent delimiter in the
            header.
        known: names of known columns, in lower case.
        is_sheet: the table comes from a workbook, so rows may be shorter than the header.
    """
    return _below_survey_lines(_table_rows(stream, file, delimiter, known, is_sheet))


def _below_survey_lines(rows: Iterator[Row | Reject]) -> Iterator[Row | Reject]:
    """Skip the second and third header lines in Qualtrics exports: question texts and `{"ImportId": ...}`."""
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
    # The field size limit of the csv module is global; never lower it.
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
    # Strict, since otherwise an unclosed quote turns the rest of the file into a single cell.
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
            cells, reason = [], f"cannot parse the row: {error}; check the quotes"
        else:
            if cells is None:
                if header is not None and not any_row:
                    raise InputError(f"{file}: contains no rows below the header")
                return
            if not any(cells):
                skipped += lines.skip_blank()
                continue
            if header is None:
                header = _header(file, start, cells)
                continue
            if is_sheet:
                cells += [""] * (len(header) - len(cells))
            reason = "the row repeats the header; remove it" if cells == header else ""
        any_row = True
        if not reason and len(cells) != len(header) and _swallowed(taken, table.dialect, len(header)):
            raise _unclosed(file, start, taken, f"expected {len(header)} cells, as in the header, got {len(cells)}")
        row = reason or _row(file, start, header, cells, taken, is_sheet)
        if isinstance(row, str):
            yield Reject(file, start, row, escape_bad_bytes("".join(taken)).rstrip("\r\n"))
        else:
            yield row


class _RowTooLongError(Exception):
    """The row exceeds `MAX_ROW_BYTES` or `MAX_ROW_LINES`."""


_BLANK_LINES = re.compile(rb"(?:\r?\n)*+")
_QUOTED = re.compile(rb'[^"]*+')
_UNQUOTED = re.compile(rb'(?:[^"\r\n]++|"[^"]*+")*+')


class _Lines:
    """Yields lines, and appends the lines of the current row to `taken`."""

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
        line = self._parts.pop() if self._parts else self._split(self._readline())
        return line.decode(errors="surrogateescape")

    def put_back(self, lines: Sequence[str]) -> None:
        self._parts += [line.encode(errors="surrogateescape") for line in reversed(lines)]

    def _split(self, line: bytes) -> bytes:
        if b"\r" not in line:
            return line
        self._parts = line.splitlines(keepends=True)[::-1]
        if len(self._parts) > 1 and len(line) > MAX_ROW_BYTES:
            finding = f"CR line endings are not supported in files larger than {megabytes(MAX_ROW_BYTES)}"
            raise InputError(f"{self._file}: {finding}; save it with Unix or Windows line endings")
        return self._parts.pop()

    def skip_row(self, start: int) -> int:
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
        return skip_lines(self._stream, _BLANK_LINES) if self._stream and not self._parts else 0


def skip_lines(stream: io.BufferedReader, blank: re.Pattern[bytes]) -> int:
    """Skip the bytes that match `blank`, and return the number of lines skipped."""
    lines = 0
    while end := blank.match(stream.peek(1)).end():  # type: ignore[union-attr]  # matches an empty string too
        lines += stream.read(end).count(b"\n")
    return lines


_HEADER_WITHIN = 12
"""Maximum number of lines to search for the header."""


def _from_header(first: str, lines: _Lines, delimiter: str | None, known: AbstractSet[str]) -> tuple[int, list[str]]:
    """Use the first line, unless a later line has two or more known columns, and more of them than any line above."""

    def names_in(line: str) -> set[str]:
        cells: list[str] = []
        with suppress(csv.Error):
            cells = next(csv.reader([line], delimiter=delimiter or _most_frequent(line)), [])
        return {cell.strip().casefold() for cell in cells}

    names = names_in(first)
    read, most, header, quotes = [first], len(names & known), 0, first.count('"')
    wanted = 2  # there may be a second header line below the first
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
    """Spreadsheets use `;` in locales with decimal commas."""
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
    if len(cells) != len(header):
        way_out = "give every column a name in the header" if is_sheet else "quote cells that contain separators"
        if sum(map(bool, header)) == 1:
            way_out += f', or, if "{max(header)}" is a title, delete the lines above the header'
        return f"expected {len(header)} cells, as in the header, got {len(cells)}; {way_out}"
    if has_bad_bytes("".join(taken)):
        return "not valid UTF-8; save the file as UTF-8 (in Excel: CSV UTF-8), or run: iconv -f WINDOWS-1252 -t UTF-8"
    data: dict[str, object] = {}
    for name, cell in zip(header, cells, strict=True):
        try:
            data[name] = cell_value(cell)
        except ValueError as error:
            return f'field "{name}": {error}'
    return Row(file, line, data)


def _is_open(text: str) -> bool:
    return text.count('"') % 2 == 1


def _swallowed(taken: list[str], dialect: Any, count: int) -> bool:
    inner = (line for line in taken[1:] if not _is_open(line))
    with suppress(csv.Error):
        return any(len(cells) == count for cells in csv.reader(inner, dialect))
    return False


def _unclosed(file: str, line: int, taken: list[str], finding: str) -> InputError:
    quote = next((index for index, part in enumerate(taken) if _is_open(part)), 0)
    end = f" to {line + len(taken) - 1}" if len(taken) > 1 else ""
    problem = f"a quote is not closed, so the rest of the file is unreadable (lines {line}{end}: {finding})"
    return InputError(f"{file}:{line + quote}: {problem}; close it, and double any quotes within cells")
