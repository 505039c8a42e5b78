"""Stream JSON lists one row at a time."""

import codecs
import io
import json
import re
from collections.abc import Callable, Iterator

from judgelm.bounds import MAX_ROW_BYTES, megabytes
from judgelm.data.readers.rows import Reject, Row, escape_bad_bytes, has_bad_bytes, too_long
from judgelm.data.readers.values import RowDecoder, is_json
from judgelm.errors import InputError

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
"""An error this close to the end of the buffer may be caused by a truncated literal or escape."""

WRAPPERS = ("data", "rows", "examples", "instances", "samples", "items", "records")
"""Names of fields that may contain a file's list of rows."""


class _Source:
    """Buffers the rest of the file; invalid UTF-8 bytes become lone surrogates."""

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
        """Read more. The buffer at least doubles, so parsing long rows takes linear time."""
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
        while True:
            self.advance(_WHITE.match(self.text, self.position).end())  # type: ignore[union-attr]
            if self.position < len(self.text) or self.ended:
                return self.text[self.position : self.position + 1]
            self.more()

    def skip_value(self) -> None:
        depth, in_text = 0, False
        while True:
            pattern = _IN_TEXT if in_text else _OUTSIDE
            end = pattern.match(self.text, self.position).end()  # type: ignore[union-attr]
            self.advance(end)
            if end >= len(self.text) - in_text and not self.ended:  # keep a final backslash for the next chunk
                self.more()
                continue
            sign = self.text[end : end + 1]
            if not sign or (in_text and sign != '"'):
                raise _BrokenListError("broken JSON list: the file ends within a row")
            self.advance(end + 1)
            if sign == '"':
                in_text = not in_text
            else:
                depth += 1 if sign in "[{" else -1
            if depth == 0 and not in_text:
                return


class _ValueTooLongError(Exception):
    """The value exceeds `MAX_ROW_BYTES`."""


class _BrokenListError(Exception):
    """The list is unreadable from the current position onwards."""


def read_list(stream: io.BufferedReader, file: str, chunk: int = _CHUNK) -> Iterator[Row | Reject]:
    """Stream the rows of a JSON list of objects; `stream` must not have a byte-order mark.

    If the list is broken, an InputError is raised after the readable rows.
    """
    yield from _until_broken(_Source(stream, chunk), file, _elements)


def read_wrapped(stream: io.BufferedReader, file: str, chunk: int = _CHUNK) -> Iterator[Row | Reject]:
    """Like `read_list`, for a JSON object with the list in one of the fields `WRAPPERS`; other fields are skipped."""
    yield from _until_broken(_Source(stream, chunk), file, _fields)


def is_wrapped(head: str) -> bool:
    """Return True if a file is a JSON object that contains the rows in a list, and not JSON lines."""
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
            raise _BrokenListError("found text after the end of the JSON list")
    except (_BrokenListError, _ValueTooLongError) as broken:
        way_out = "fix the file at this point, or write one JSON object per line"
        raise InputError(f"{file}:{source.line}: {broken}; {way_out}") from broken


def _fields(source: _Source, file: str) -> Iterator[Row | Reject]:
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
                raise _BrokenListError(f'found two lists of rows, "{wrapper}" and "{name}"; keep only one')
            wrapper = str(name)
            yield from _elements(source, file)
        else:
            try:
                source.advance(_decode(source)[1])
            except _ValueTooLongError:
                source.skip_value()
        if _separator(source, ",}", "a field") == "}":
            return


def _separator(source: _Source, expected: str, after: str) -> str:
    separator = source.next_character()
    if not separator or separator not in expected:
        names = " or ".join(f'"{character}"' for character in expected)
        finding = f'got "{separator}"' if separator else "but the file ends"
        raise _BrokenListError(f"broken JSON list: expected {names} after {after}, {finding}")
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
    except _ValueTooLongError:
        reject = too_long(file, source.line, source.text[source.position : source.position + _CHUNK])
        source.skip_value()
        return reject
    line = source.line
    problem = source.decoder.problem_of(value)
    raw = source.text[source.position : end] if source.dirty or problem or type(value) is not dict else ""
    source.advance(end)
    if source.dirty and has_bad_bytes(raw):
        problem = "not valid UTF-8; save the file as UTF-8"
    if type(value) is dict and not problem:
        return Row(file, line, value)
    reason = problem or "expected a JSON object in the list; write one object per row"
    return Reject(file, line, reason, escape_bad_bytes(raw))


def _decode(source: _Source) -> tuple[object, int]:
    while True:
        try:
            value, end = source.decoder.raw_decode(source.text, source.position)
            # A number at the end of the buffer may be continued in the next chunk.
            if (end < len(source.text) or source.ended) and end - source.position <= MAX_ROW_BYTES:
                return value, end
        except json.JSONDecodeError as error:
            cut = error.msg.startswith("Unterminated string") or error.pos > len(source.text) - _CUT_TOKEN
            if source.ended or not cut:
                raise _BrokenListError(_finding(source, error)) from error
        except (RecursionError, ValueError) as error:
            raise _BrokenListError(f"invalid JSON: {error}") from error
        if len(source.text) - source.position > MAX_ROW_BYTES:
            finding = f"longer than {megabytes(MAX_ROW_BYTES)}"
            if source.text[source.position] not in '"[{':
                raise _BrokenListError(f"a number is {finding}")
            raise _ValueTooLongError(f"a field's name is {finding}")
        source.more()


def _finding(source: _Source, error: json.JSONDecodeError) -> str:
    if error.pos >= len(source.text):
        return "broken JSON list: the file ends within a row"
    line = source.line + source.text.count("\n", source.position, error.pos)
    return f"broken JSON list: {error.msg} at line {line}, character {source.dropped + error.pos + 1} of the file"
