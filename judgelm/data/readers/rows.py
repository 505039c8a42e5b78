"""Rows read from files, and rejects: unusable rows with the reason."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from string import ascii_lowercase
from typing import Literal, TypeVar

from judgelm.bounds import MAX_ROW_BYTES, megabytes
from judgelm.data.readers.values import ID_FIELDS, as_float, describe, encodable, list_value, raw_text, whole_number
from judgelm.errors import InputError

T = TypeVar("T")

Compression = Literal["gzip", "bzip2", "xz", "zstd"]

COMPRESSED_SUFFIXES: dict[str, Compression] = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}

_RAW_KEPT_WHOLE = 1_000_000
_RAW_SHOWN = 10_000
_PARTICULARS = re.compile(r'(id|opens|question than) "[^"]*"')
_BAD_BYTE = re.compile("[\udc80-\udcff]")
_URLS = ("data:", "http://", "https://")
_NUMBERS = re.compile(r"\s*+(?:\[\s*+)?(-?\d+(?:\.\d+)?(?:[\s,]+-?\d+(?:\.\d+)?)*)\s*+(?:\]\s*)?")


def row_suffix(name: str) -> str:
    """Return the lower-case extension without compression, such as `.csv` for `a.CSV.gz`."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a file, with methods to read and validate its fields.

    `line` is the 1-based line where the row begins, or the row number in a Parquet file.
    """

    file: str
    line: int
    data: dict[str, object]

    def error(self, finding: str) -> InputError:
        """Return an error that includes the file and line."""
        return InputError(f"{self.file}:{self.line}: {finding}")

    def field_error(self, name: str, finding: str) -> InputError:
        """Return an error that includes the file, line, and field."""
        return self.error(f'field "{name}": {finding}')

    def with_data(self, data: dict[str, object]) -> "Row":
        """Return a row with the same location but different fields."""
        return Row(self.file, self.line, data)

    def text(self, name: str, needs: str) -> str:
        """Return a string field; empty strings are allowed."""
        value = self.data.get(name)
        if isinstance(value, str) and (value.isascii() or encodable(value)):
            return value
        raise self._text_error(name, needs)

    def _text_error(self, name: str, needs: str) -> InputError:
        if name not in self.data:
            return self.error(f'field "{name}" is missing; each row must contain {needs}')
        value = self.data[name]
        if isinstance(value, str):
            return self.field_error(name, "contains half a surrogate pair, which UTF-8 cannot encode; remove it")
        if value is None:
            return self.field_error(name, 'expected text, got null or NaN; write "" for empty text')
        if isinstance(value, list | dict) and row_suffix(self.file) in (".csv", ".tsv"):
            finding = f"expected text, got a Python list: {describe(value)}"
            return self.field_error(name, f"{finding}; write plain text, or save the table as JSON lines")
        if isinstance(value, int | float):
            quoted = json.dumps(json.dumps(value))
            return self.field_error(name, f"expected text, got {describe(value)}; write it as {quoted}")
        return self.field_error(name, f"expected text, got {describe(value)}; write it as one string")

    def typed(self, name: str, kind: type[T], expected: str, *, accept: Callable[[T], bool] = lambda value: True) -> T:
        """Return a field of this type, for which `accept` is true. The error says what was `expected`."""
        value = self.data.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool) or not accept(value):
            finding, semicolon, way_out = expected.partition("; ")
            raise self.field_error(name, f"expected {finding}, got {describe(value)}{semicolon}{way_out}")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a string field, or None if it is missing, null, or NaN."""
        return None if self.data.get(name) is None else self.text(name, name)

    def texts(self, *names: str, needs: Sequence[str] = ()) -> tuple[str, ...]:
        """Return string fields."""
        expected = ", ".join(needs or names)
        return tuple(self.text(name, expected) for name in names)

    def optional_texts(self, *names: str) -> tuple[str, ...]:
        """Return string fields, or an empty tuple if one is missing."""
        several = all(self.data.get(name) is not None for name in names)
        return tuple(self.text(name, name) for name in names) if several else ()

    def has(self, name: str) -> bool:
        """Return True if the field is not missing, null, or an empty string."""
        return self.data.get(name) not in (None, "")

    def text_list(self, name: str, count: int | None = None) -> tuple[str, ...]:
        """Return a list of `count` strings (by default, at least one); a table cell may contain a JSON list."""
        value = list_value(self.data[name])
        expected = f"{count} strings" if count else "a list of strings"
        if not isinstance(value, list):
            raise self.field_error(name, f'expected {expected}, got {describe(value)}; write it as ["...", "..."]')
        if not value or (count and len(value) != count):
            raise self.field_error(name, f"expected {expected}, got {len(value)}")
        for text in value:
            if not isinstance(text, str) or not encodable(text):
                raise self.field_error(name, f"expected {expected}, but the list contains {describe(text)}")
        return tuple(value)

    def numbered_texts(self, pattern: str, needs: str) -> tuple[str, ...]:
        """Return two or more text fields, named by replacing `{}` in `pattern` with 1, 2, 3, ..."""
        texts = [self.text(pattern.format(1), needs), self.text(pattern.format(2), needs)]
        while self.data.get(name := pattern.format(len(texts) + 1)) is not None:
            texts.append(self.text(name, needs))
        self.refuse_left_over(pattern, len(texts))
        return tuple(texts)

    def refuse_left_over(self, pattern: str, count: int) -> None:
        """Reject numbered fields that would be ignored, such as `answer_0`, or `answer_4` if `answer_3` is missing.

        The first `count` fields are allowed.
        """
        for name in _left_over_names(tuple(self.data), pattern, count):
            if (value := self.data[name]) not in (None, ""):
                first, last = (1, count) if pattern.format(1) in self.data else ("a", ascii_lowercase[count - 1])
                read = f"judgelm reads only {pattern.format(first)} to {pattern.format(last)}"
                way_out = "number the fields consecutively, or remove this field"
                raise self.field_error(name, f"contains {describe(value)}, but {read}; {way_out}")

    def reference(self, name: str = "reference") -> str | None:
        """Return the reference (a string or `{"text": ...}`), or None if it is missing or blank."""
        value = self.data.get(name)
        row = self.with_data({name: value.get("text")}) if isinstance(value, dict) else self
        text = row.optional_text(name)
        return text if text and text.strip() else None

    def images(self) -> tuple[str, ...]:
        """Return the images in `images` or `image`. Relative paths are resolved against the file's folder."""
        name = "images" if self.data.get("images") else "image"
        value = list_value(self.data.get(name))
        if not value:
            return ()
        return tuple(self.image(name, image) for image in (value if isinstance(value, list) else [value]))

    def image(self, name: str, image: object) -> str:
        """Return one image path or URL."""
        if not isinstance(image, str) or not image or not encodable(image):
            raise self.field_error(name, f"expected the image path as a string, got {describe(image)}")
        return image if image.startswith(_URLS) else str(Path(self.file).parent / image)

    def id(self, names: Sequence[str] = ID_FIELDS) -> str | None:
        """Return the id, stripped, from the first field with a value; `1.0` is read as `1`."""
        for name in names:
            value = self.data.get(name)
            if value is None or value == "":
                continue
            if isinstance(value, str) and encodable(value):
                if text := value.strip():
                    return whole_number(text)
                continue
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            if isinstance(value, float) and value.is_integer():
                return str(int(value))
            raise self.field_error(name, f"expected the id to be text or a whole number, got {describe(value)}")
        return None

    def required_id(self, name: str, use: str) -> str:
        """Return the id in a required field; the error for a missing field includes `use`."""
        if (value := self.id((name,))) is None:
            raise self.error(f'field "{name}" is missing; {use}')
        return value

    def extras(self, known: Collection[str]) -> dict[str, object]:
        """Return `metadata`, merged with all fields that are not in `known`."""
        extras = {name: value for name, value in self.data.items() if name not in known}
        own = extras.get("metadata")
        if isinstance(own, dict):
            del extras["metadata"]
            return {**own, **extras}
        return extras

    def number(self, name: str) -> float:
        """Return a finite number, parsing strings."""
        value, parsed = self.data.get(name), math.nan
        with suppress(ValueError):
            parsed = float(value) if isinstance(value, str) else as_float(value)
        if not math.isfinite(parsed):
            raise self.field_error(name, f"expected a finite number, got {describe(value)}")
        return parsed

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """Return `count` finite numbers from a list such as `[8, 6, 5]`, or a string such as `8 6 5`."""
        value = self.data[name]
        if count == 1 and not isinstance(value, str | list):
            return (self.number(name),)
        if isinstance(value, str):
            match = _NUMBERS.fullmatch(value)
            numbers = () if match is None else tuple(float(part) for part in re.split(r"[\s,]+", match[1]))
            if len(numbers) == count:
                return numbers
        elif isinstance(value, list) and len(value) == count and all(math.isfinite(as_float(score)) for score in value):
            return tuple(float(score) for score in value)
        raise self.field_error(name, f"expected {count} finite number{'s' * (count > 1)}, got {describe(value)}")

    def score_pair(self, name: str) -> tuple[float, float]:
        """Return two finite numbers."""
        first, second = self.numbers(name, 2)
        return first, second


@lru_cache
def _left_over_names(names: tuple[str, ...], pattern: str, count: int) -> tuple[str, ...]:
    numbers = pattern.format(1) in names
    prefix, _, suffix = pattern.partition("{}")
    index = "[0-9]+" if numbers else "[a-z]"
    similar = re.compile(rf"\s*{re.escape(prefix)}{index}{re.escape(suffix)}\s*", re.IGNORECASE)
    read = {pattern.format(index) for index in (range(1, count + 1) if numbers else ascii_lowercase[:count])}
    return tuple(name for name in names if name not in read and similar.fullmatch(name))


@dataclass(frozen=True, slots=True)
class Reject:
    """An unusable row. `raw` is its text, truncated if longer than a million characters."""

    file: str
    line: int
    reason: str
    raw: str

    def __post_init__(self) -> None:
        if len(self.raw) > _RAW_KEPT_WHOLE:
            start = f"{self.raw[:_RAW_SHOWN]} [... {len(self.raw)} characters in total]"
            object.__setattr__(self, "raw", start)

    @property
    def message(self) -> str:
        """The reason, preceded by the file and line."""
        return f"{self.file}:{self.line}: {self.reason}"

    @property
    def kind(self) -> str:
        """The reason with numbers and ids removed, so that similar rejects are counted together."""
        return re.sub(r"\d++(?:\.\d+)?+(?! MB)", "N", _PARTICULARS.sub(r"\1 ...", self.reason))


def too_long(file: str, line: int, start: str) -> Reject:
    """Return the reject for a row that exceeds the size limit."""
    reason = f"the row exceeds the size limit ({megabytes(MAX_ROW_BYTES)} and a million lines); shorten or split it"
    return Reject(file, line, reason, f"{escape_bad_bytes(start[:_RAW_SHOWN])} [... cut here]")


def escape_bad_bytes(text: str) -> str:
    r"""Replace undecodable bytes (`surrogateescape`) with `\xNN`."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def has_bad_bytes(text: str) -> bool:
    """Return True if the text, decoded with `surrogateescape`, was not valid UTF-8."""
    return not text.isascii() and _BAD_BYTE.search(text) is not None


OnReject = Callable[[Reject], None]

_SHOWN_FIELDS = 20


def reject_row(row: Row, error: InputError) -> Reject:
    """Return the reject for a row with an unusable value."""
    reason = str(error).removeprefix(f"{row.file}:{row.line}: ")
    return Reject(row.file, row.line, reason, raw_text(row.data))


def raise_reject(reject: Reject) -> None:
    """Raise the reject as an error."""
    raise InputError(reject.message)


class RejectCounts:
    """Counts rejects by reason; pass it as `on_reject`."""

    def __init__(self, rejects: Iterable[Reject] = ()) -> None:
        self.by_reason: Counter[str] = Counter()
        self.first: Reject | None = None
        self._first: dict[str, Reject] = {}
        for reject in rejects:
            self(reject)

    def __call__(self, reject: Reject) -> None:
        """Count a reject."""
        self.by_reason[reject.kind] += 1
        self.first = self.first or reject
        self._first.setdefault(reject.kind, reject)

    def lines(self) -> list[str]:
        """Return lines such as `3 rows: REASON (first: FILE:LINE)`, most frequent first."""
        return [
            self._first[kind].message
            if count == 1
            else f"{count:,} rows: {kind} (first: {self._first[kind].file}:{self._first[kind].line})"
            for kind, count in self.by_reason.most_common()
        ]


@dataclass(slots=True, kw_only=True)
class FileUse:
    """Counts used and rejected rows, to detect files that have no usable rows."""

    path: str
    expected: str
    on_reject: OnReject
    used: int = 0
    rejected: int = 0
    _first: Reject | None = None

    def reject(self, reject: Reject) -> None:
        """Count a reject and pass it to `on_reject`."""
        self.rejected += 1
        self._first = self._first or reject
        if self.on_reject is raise_reject and not self.used:
            raise InputError(f"{reject.message}{_hint(self.expected, reject)}")
        self.on_reject(reject)

    def require_used(self) -> None:
        """Raise an error if no row was used; call this at the end of the file."""
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
    """Convert each row. If `convert` raises an InputError, the row is rejected; by default, a reject raises an error.

    Raises:
        InputError: there are no usable rows, or `on_reject` raises an error.
    """
    values = _values(rows, convert, FileUse(path=path, expected=expected, on_reject=on_reject))
    yield from (value for value in values if not isinstance(value, Reject))


def unique(convert: Callable[[Row], T], id_of: Callable[[T], str]) -> Callable[[Row], T]:
    """Wrap a converter so that rows with repeated ids are rejected."""
    seen: set[str] = set()

    def read(row: Row) -> T:
        value = convert(row)
        name = id_of(value)
        if name in seen:
            raise row.error(f"id {json.dumps(name)} appears more than once in this file; ids must be unique")
        seen.add(name)
        return value

    return read


def convert_or_reject(
    rows: Iterable[Row | Reject], convert: Callable[[Row], T], *, path: str, expected: str
) -> Iterator[T | Reject]:
    """Like `convert_rows`, but also yield the rejects."""
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
    """Return the error for a file that has no usable rows."""
    hint = _hint(expected, first)
    return InputError(f"{path}: no usable rows ({count:,} read); first reject: {first.message}{hint}")


def _hint(expected: str, reject: Reject) -> str:
    needs = "" if expected in reject.reason else f"; each row must contain {expected}"
    fields = _fields(reject)
    has = "" if not fields or fields in reject.reason else f"; the row's fields are {fields}"
    return f"{needs}{has}"


def _fields(reject: Reject) -> str:
    data: object = None
    with suppress(ValueError, RecursionError):
        data = json.loads(reject.raw)
    names = list(data) if isinstance(data, dict) else []
    return ", ".join(names[:_SHOWN_FIELDS]) + (", ..." if len(names) > _SHOWN_FIELDS else "")
