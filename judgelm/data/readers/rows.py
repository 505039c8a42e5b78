"""Rows of files with access to their fields, and rejects: rows that a reader cannot use, with their reasons.

Every reader of foreign files uses `convert_rows` or, where its rows come from a `SampleStream`, `FileUse`. A file
without usable rows is an error.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Literal, TypeVar

from judgelm.bounds import MAX_ROW_BYTES, megabytes
from judgelm.data.readers.values import (
    ID_FIELDS,
    as_float,
    describe,
    encodable,
    left_over_names,
    list_value,
    raw_text,
    whole_number,
)
from judgelm.errors import InputError

Compression = Literal["gzip", "bzip2", "xz", "zstd"]

COMPRESSED_SUFFIXES: dict[str, Compression] = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}

_RAW_KEPT_WHOLE = 1_000_000
_RAW_SHOWN = 10_000
_PARTICULARS = re.compile(r'(id|opens|question than) "[^"]*"')
_BAD_BYTE = re.compile("[\udc80-\udcff]")
_URLS = ("data:", "http://", "https://")
_NUMBERS = re.compile(r"\s*+(?:\[\s*+)?(-?\d+(?:\.\d+)?(?:[\s,]+-?\d+(?:\.\d+)?)*)\s*+(?:\]\s*)?")


def row_suffix(name: str) -> str:
    """The ending that tells the kind of a file, in lower case: `.csv` of `a.CSV.gz`; may be empty."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@dataclass(frozen=True, slots=True)
class Row:
    """One good row, and its fields, each checked once; errors name file, line, field, finding and way out.

    `line` counts from 1; in Parquet it is the row's number, in a JSON list where the row begins.
    """

    file: str
    line: int
    data: dict[str, object]

    def error(self, finding: str) -> InputError:
        """The finding with the row's place before it."""
        return InputError(f"{self.file}:{self.line}: {finding}")

    def field_error(self, name: str, finding: str) -> InputError:
        """The finding with the row's place and the field's name before it."""
        return self.error(f'field "{name}": {finding}')

    def with_data(self, data: dict[str, object]) -> "Row":
        """Other fields in the row's place."""
        return Row(self.file, self.line, data)

    def text(self, name: str, needs: str) -> str:
        """A field that must be text; empty text is text.

        Args:
            name: the field.
            needs: what each row needs, for the error when the field is missing.
        """
        value = self.data.get(name)
        if isinstance(value, str) and (value.isascii() or encodable(value)):
            return value
        raise self.text_error(name, needs)

    def text_error(self, name: str, needs: str) -> InputError:
        """The error of a field that is not text."""
        if name not in self.data:
            return self.error(f'field "{name}" is missing; each row needs {needs}')
        value = self.data[name]
        if isinstance(value, str):
            return self.field_error(name, "holds half a surrogate pair, which UTF-8 cannot say; remove it")
        if value is None:
            return self.field_error(name, 'expected text, got null or NaN; write an empty text as ""')
        if isinstance(value, list | dict) and row_suffix(self.file) in (".csv", ".tsv"):
            finding = f"expected text, got a list in Python's notation, {describe(value)}"
            return self.field_error(name, f"{finding}; write the text alone, or save the table as JSON lines")
        if isinstance(value, int | float):
            quoted = json.dumps(json.dumps(value))
            return self.field_error(name, f"expected text, got {describe(value)}; write it as {quoted}")
        return self.field_error(name, f"expected text, got {describe(value)}; write it as one text")

    def optional_text(self, name: str) -> str | None:
        """Text, or None where the field is missing, null or NaN."""
        return None if self.data.get(name) is None else self.text(name, name)

    def texts(self, *names: str, needs: Sequence[str] = ()) -> tuple[str, ...]:
        """Fields that must be texts; an error names `needs`, by default these fields, as what each row needs."""
        expected = ", ".join(needs or names)
        return tuple(self.text(name, expected) for name in names)

    def optional_texts(self, *names: str) -> tuple[str, ...]:
        """Texts of several fields; empty where one of them is missing, null or NaN."""
        if any(self.data.get(name) is None for name in names):
            return ()
        return tuple(self.text(name, name) for name in names)

    def has(self, name: str) -> bool:
        """True if the field is there and neither null nor empty text."""
        return self.data.get(name) not in (None, "")

    def text_list(self, name: str, count: int | None = None) -> tuple[str, ...]:
        """A list of texts, also as the JSON that a table's cell holds: at least one; exactly `count` where given."""
        value = list_value(self.data[name])
        expected = f"{count} texts" if count else "a list of texts"
        if not isinstance(value, list):
            raise self.field_error(name, f'expected {expected}, got {describe(value)}; write it as ["...", "..."]')
        if not value or (count and len(value) != count):
            raise self.field_error(name, f"expected {expected}, got {len(value)}")
        for text in value:
            if not isinstance(text, str) or not encodable(text):
                raise self.field_error(name, f"expected {expected}, got {describe(text)} among them")
        return tuple(value)

    def numbered_texts(self, pattern: str, needs: str) -> tuple[str, ...]:
        """The texts of `pattern` with 1, 2, 3, ... for `{}`: at least two.

        Raises:
            InputError: a text is missing, or a field of the pattern with another number would be left over.
        """
        texts = [self.text(pattern.format(1), needs), self.text(pattern.format(2), needs)]
        while self.data.get(name := pattern.format(len(texts) + 1)) is not None:
            texts.append(self.text(name, needs))
        self.refuse_left_over(pattern, len(texts))
        return tuple(texts)

    def refuse_left_over(self, pattern: str, count: int) -> None:
        """Refuse a numbered field that is not read: `answer_0` beside `answer_1`, `answer_4` without `answer_3`.

        Args:
            pattern: the field's name, with `{}` for its number (or letter, where the fields read end in a and b).
            count: the fields read, from the first on.

        Raises:
            InputError: such a field holds something.
        """
        for name in left_over_names(tuple(self.data), pattern, count):
            if (value := self.data[name]) not in (None, ""):
                first, last = (1, count) if pattern.format(1) in self.data else ("a", ascii_lowercase[count - 1])
                read = f"only {pattern.format(first)} to {pattern.format(last)} are"
                finding = f"holds {describe(value)} and is not read, {read}"
                way_out = "number the fields from the first without a gap, or leave it out"
                raise self.field_error(name, f"{finding}; {way_out}")

    def reference(self, name: str = "reference") -> str | None:
        """A reference answer: text, or JudgeLM's `{"text": ...}`. Missing, null and blank all mean there is none."""
        value = self.data.get(name)
        row = self.with_data({name: value.get("text")}) if isinstance(value, dict) else self
        text = row.optional_text(name)
        return text if text and text.strip() else None

    def images(self) -> tuple[str, ...]:
        """Paths or URLs of the row's images, from `images` (a list of texts) or `image` (one text); empty without both.

        A path is taken from the file's own folder; URLs (`data:`, `http:`, `https:`) stay as they are.
        """
        name = "images" if self.data.get("images") else "image"
        value = list_value(self.data.get(name))
        if not value:
            return ()
        return tuple(self.image(name, image) for image in (value if isinstance(value, list) else [value]))

    def image(self, name: str, image: object) -> str:
        """A path or URL of an image that a field holds, see `images`."""
        if not isinstance(image, str) or not image or not encodable(image):
            raise self.field_error(name, f"expected the image path as a string, got {describe(image)}; write its path")
        return image if image.startswith(_URLS) else str(Path(self.file).parent / image)

    def id(self, names: Sequence[str] = ID_FIELDS) -> str | None:
        """The id in the first of these fields that holds one, always as text; None where none does.

        Blanks around it do not count, and `1.0` is `1`: tables write whole numbers so where one of a column is missing.
        """
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
            raise self.field_error(name, f"expected text or a whole number as the id, got {describe(value)}")
        return None

    def required_id(self, name: str, use: str) -> str:
        """The id in a field; `use` tells what it is needed for.

        Raises:
            InputError: the field is missing or holds no id.
        """
        value = self.id((name,))
        if value is None:
            raise self.error(f'field "{name}" is missing; {use}')
        return value

    def extras(self, known: Collection[str]) -> dict[str, object]:
        """The row's own `metadata` and every field that the format does not use."""
        extras = {name: value for name, value in self.data.items() if name not in known}
        own = extras.get("metadata")
        if isinstance(own, dict):
            del extras["metadata"]
            return {**own, **extras}
        return extras

    def number(self, name: str) -> float:
        """A finite number, also as text."""
        value = self.data.get(name)
        if isinstance(value, str):
            try:
                parsed = float(value)
            except ValueError:
                parsed = math.nan
        else:
            parsed = as_float(value)
        if not math.isfinite(parsed):
            raise self.field_error(name, f"expected a finite number, got {describe(value)}")
        return parsed

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """`count` finite numbers: `[8, 6, 5]`, or in a table `8 6 5`; a single number needs no list."""
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
        """A pair's two finite numbers on whatever scale: `[8, 6]`, or in a table `8 6`."""
        first, second = self.numbers(name, 2)
        return first, second


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
        return re.sub(r"\d++(?:\.\d+)?+(?! MB)", "N", _PARTICULARS.sub(r"\1 ...", self.reason))


def truncate_raw(raw: str) -> str:
    """The text to keep of a rejected row: whole up to a million characters, else its start and full length."""
    return raw if len(raw) <= _RAW_KEPT_WHOLE else f"{raw[:_RAW_SHOWN]} [... {len(raw)} characters in all]"


def too_long(file: str, line: int, start: str) -> Reject:
    """The reject of a row beyond the largest; `start` is its beginning, of which some is kept."""
    limit = f"{megabytes(MAX_ROW_BYTES)} and a million lines"
    reason = f"the row is longer than the limit for a row ({limit}); shorten or split it"
    return Reject(file, line, reason, f"{escape_bad_bytes(start[:_RAW_SHOWN])} [... cut here]")


def escape_bad_bytes(text: str) -> str:
    r"""Text decoded with `surrogateescape`, its undecodable bytes shown as `\xNN`."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def has_bad_bytes(text: str) -> bool:
    """True if text decoded with `surrogateescape` holds bytes that are not UTF-8."""
    return not text.isascii() and _BAD_BYTE.search(text) is not None


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
            raise row.error(f"id {json.dumps(name)} appeared before in this file; ids must be unique")
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
