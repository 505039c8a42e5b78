"""Rows of files before their fields are interpreted, and rejects: rows that a reader cannot use, with their reasons.

Every reader of foreign files uses `convert_rows` or, where its rows come from a `SampleStream`, `FileUse`. A file
without usable rows is an error.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from judgelm.data.readers.values import raw_text
from judgelm.errors import InputError

_RAW_KEPT_WHOLE = 1_000_000
_RAW_SHOWN = 10_000
_PARTICULARS = re.compile(r'(id|opens|question than) "[^"]*"')
_BAD_BYTE = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class Row:
    """One good row. `line` counts from 1; in Parquet it is the row's number, in a JSON list where the row begins."""

    file: str
    line: int
    data: dict[str, object]


@dataclass(frozen=True, slots=True)
class Reject:
    """One row that could not be used, with the reason. `raw` is its text, complete up to a million characters."""

    file: str
    line: int
    reason: str
    raw: str

    @property
    def message(self) -> str:
        """The reason with file and line before it, as errors show it."""
        return f"{self.file}:{self.line}: {self.reason}"

    @property
    def kind(self) -> str:
        """The reason without particulars, so that similar rejects are counted together."""
        return re.sub(r"\d+(\.\d+)?", "N", _PARTICULARS.sub(r"\1 ...", self.reason))


def truncate_raw(raw: str) -> str:
    """The text to keep of a rejected row: whole up to a million characters, else its start and full length."""
    return raw if len(raw) <= _RAW_KEPT_WHOLE else f"{raw[:_RAW_SHOWN]} [... {len(raw)} characters in all]"


def escape_bad_bytes(text: str) -> str:
    r"""Text decoded with `surrogateescape`, its undecodable bytes shown as `\xNN`."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def has_bad_bytes(text: str) -> bool:
    """True if text decoded with `surrogateescape` holds bytes that are not UTF-8."""
    return not text.isascii() and _BAD_BYTE.search(text) is not None


def row_error(row: Row, finding: str) -> InputError:
    """The finding with the row's place before it."""
    return InputError(f"{row.file}:{row.line}: {finding}")


def field_error(row: Row, name: str, finding: str) -> InputError:
    """The finding with the row's place and the field's name before it."""
    return row_error(row, f'field "{name}": {finding}')


OnReject = Callable[[Reject], None]

T = TypeVar("T")

_SHOWN_FIELDS = 20


def reject_row(row: Row, error: InputError) -> Reject:
    """The reject of a row that was read well but says something unusable; its raw text is written anew."""
    reason = str(error).removeprefix(f"{row.file}:{row.line}: ")
    return Reject(row.file, row.line, reason, truncate_raw(raw_text(row.data)))


def raise_reject(reject: Reject) -> None:
    """Raise the reject as an error; the default where the caller gives no other handler."""
    raise InputError(reject.message)


class RejectCounts:
    """Counts rejects by reason; to be given as `on_reject`.

    Attributes:
        by_reason: reason without its particulars -> rows.
        first: the first reject, None without any.
    """

    def __init__(self, rejects: Iterable[Reject] = ()) -> None:
        self.by_reason: Counter[str] = Counter()
        self.first: Reject | None = None
        self._first: dict[str, Reject] = {}
        for reject in rejects:
            self(reject)

    def __call__(self, reject: Reject) -> None:
        """Count one."""
        self.by_reason[reject.kind] += 1
        self.first = self.first or reject
        self._first.setdefault(reject.kind, reject)

    def lines(self) -> list[str]:
        """`3 rows: REASON (the first: FILE:LINE)` for each reason, the most frequent first; in full for a single row.

        For a single row the line is the reject's own message.
        """
        return [
            self._first[kind].message
            if count == 1
            else f"{count:,} rows: {kind} (the first: {self._first[kind].file}:{self._first[kind].line})"
            for kind, count in self.by_reason.most_common()
        ]


@dataclass(slots=True, kw_only=True)
class FileUse:
    """Counts of one file's rows, to detect a file without usable rows.

    Attributes:
        path: the file, as errors name it.
        expected: the fields that each row needs, in words.
        on_reject: called with each row that cannot be used.
        used: rows used so far.
        rejected: rows rejected so far.
    """

    path: str
    expected: str
    on_reject: OnReject
    used: int = 0
    rejected: int = 0
    _first: Reject | None = None

    def reject(self, reject: Reject) -> None:
        """Count a reject and pass it on.

        Raises:
            InputError: `on_reject` is `raise_reject`.
        """
        self.rejected += 1
        self._first = self._first or reject
        if self.on_reject is raise_reject and not self.used:
            raise InputError(f"{reject.message}{_hint(self.expected, reject)}")
        self.on_reject(reject)

    def require_used(self) -> None:
        """Refuse a file without a usable row; to be called at its end.

        Raises:
            InputError: names the file, the fields expected, and those of its first reject.
        """
        if not self.used and self._first is not None:
            raise no_usable_row(self.path, self.expected, self.rejected, self._first)


def convert_rows(
    rows: Iterable[Row | Reject],
    convert: Callable[[Row], T],
    *,
    path: str,
    expected: str,
    on_reject: OnReject = raise_reject,
) -> Iterator[T]:
    """Convert each row; a row for which `convert` raises an InputError is a reject.

    Args:
        rows: of one file.
        convert: row -> value.
        path: the file, as errors name it.
        expected: the fields that each row needs, in words.
        on_reject: called with each row that cannot be used. By default the first one is raised as an error.

    Raises:
        InputError: no row of the file can be used, or `on_reject` raises.
    """
    use = FileUse(path=path, expected=expected, on_reject=on_reject)
    for value in _values(rows, convert, use):
        if not isinstance(value, Reject):
            yield value


def unique(convert: Callable[[Row], T], id_of: Callable[[T], str]) -> Callable[[Row], T]:
    """The converter with a check of ids: a row with the id of an earlier row of the file raises an InputError."""
    seen: set[str] = set()

    def read(row: Row) -> T:
        value = convert(row)
        name = id_of(value)
        if name in seen:
            raise row_error(row, f"id {json.dumps(name)} appeared before in this file; ids must be unique")
        seen.add(name)
        return value

    return read


def convert_or_reject(
    rows: Iterable[Row | Reject], convert: Callable[[Row], T], *, path: str, expected: str
) -> Iterator[T | Reject]:
    """As `convert_rows`, with the rejects among the values.

    Raises:
        InputError: no row of the file can be used.
    """
    return _values(rows, convert, FileUse(path=path, expected=expected, on_reject=lambda reject: None))


def _values(rows: Iterable[Row | Reject], convert: Callable[[Row], T], use: FileUse) -> Iterator[T | Reject]:
    for row in rows:
        reject = row if isinstance(row, Reject) else None
        if isinstance(row, Row):
            try:
                value = convert(row)
            except InputError as error:
                reject = reject_row(row, error)
        if reject is None:
            use.used += 1
            yield value
        else:
            use.reject(reject)
            yield reject
    use.require_used()


def no_usable_row(path: str, expected: str, count: int, first: Reject) -> InputError:
    """The error of a file without a usable row."""
    finding = f"no row can be used ({count:,} read); the first: {first.message}"
    return InputError(f"{path}: {finding}{_hint(expected, first)}")


def _hint(expected: str, reject: Reject) -> str:
    """The fields that rows need and those of this row, unless the reason names them."""
    needs = "" if expected in reject.reason else f"; each row needs {expected}"
    fields = _fields(reject)
    has = "" if not fields or fields in reject.reason else f"; its fields are {fields}"
    return f"{needs}{has}"


def _fields(reject: Reject) -> str:
    """The names of a rejected row's fields; empty where it is no object."""
    try:
        data = json.loads(reject.raw)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(data, dict):
        return ""
    more = ", ..." if len(data) > _SHOWN_FIELDS else ""
    return ", ".join(list(data)[:_SHOWN_FIELDS]) + more
