"""Rows of a file the user gave, one at a time: JSON lines, a JSON list, CSV, TSV or Parquet, the texts also gzipped.

A line that cannot be used becomes a `Reject` and reading continues; a file that cannot be used is an `InputError`. The
fields are interpreted in `judgelm.data.sources.registry`.
"""

import codecs
import difflib
import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, cast

from judgelm.data.readers.json_list import is_wrapped, read_list, read_wrapped
from judgelm.data.readers.rows import Reject, Row, truncate_raw
from judgelm.data.readers.tables import read_parquet, read_table
from judgelm.errors import InputError
from judgelm.jsonl import parse_json

_BUFFER = 1 << 20
_DELIMITERS = ",;\t|"

Kind = Literal["jsonl", "list", "csv", "tsv", "parquet"]

_KINDS: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def read_rows(path: str) -> Iterator[Row | Reject]:
    """Stream the rows of a file, or of standard input (`-`, JSON lines), with bounded memory.

    The format follows the extension; without a telling one, a file that opens with `[` is a JSON list and any other
    is JSON lines. One JSON object with its rows in a list (`data`, `rows`, `examples`, ...) is read as that list.
    UTF-8 with or without a byte-order mark, with any line ends. A CSV file uses the most frequent separator of its
    first line: comma, semicolon, tab or bar.

    Raises:
        InputError: the file is missing, a folder, unreadable, damaged, or holds no rows at all. What can be known
            without reading is raised by the call, the rest while iterating.
    """
    if path != "-":
        _check_file(path)
    return _not_empty(path, _dispatch(path))


def first_row(path: str) -> Row | None:
    """The file's first good row, None where it has none.

    Raises:
        InputError: as `read_rows`.
    """
    return next((row for row in read_rows(path) if isinstance(row, Row)), None)


def read_json(path: str) -> object:
    """A whole file as one JSON value, also gzipped.

    Raises:
        OSError, EOFError, zlib.error: the file cannot be read.
        ValueError: it is no JSON text, such as JSON lines of more than one row.
    """
    raw = Path(path).read_bytes()
    return parse_json((gzip.decompress(raw) if path.lower().endswith(".gz") else raw).decode("utf-8-sig"))


def _check_file(path: str) -> None:
    file = Path(path)
    if file.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    if file.exists():
        return
    try:
        names = [entry.name for entry in file.parent.iterdir()]
    except OSError:
        raise InputError(f"{path}: no such file, and no folder {file.parent}; check the path") from None
    close = difflib.get_close_matches(file.name, names, n=3)
    way_out = f"did you mean {' or '.join(close)}?" if close else "check the path"
    raise InputError(f"{path}: no such file; {way_out}")


def _not_empty(path: str, rows: Iterator[Row | Reject]) -> Iterator[Row | Reject]:
    any_row = False
    for row in rows:
        any_row = True
        yield row
    if not any_row:
        raise InputError(f"{_shown_name(path)}: no rows; the file is empty")


def _shown_name(path: str) -> str:
    return "<stdin>" if path == "-" else path


def _dispatch(path: str) -> Iterator[Row | Reject]:
    name = _shown_name(path)
    if _kind_by_name(path) == "parquet":
        yield from (Row(name, row_number, data) for row_number, data in enumerate(read_parquet(path), 1))
        return
    with _as_input_errors(name), _open_bytes(path) as stream:
        _skip_mark(name, stream)
        kind = "jsonl" if path == "-" else _kind_by_name(path) or _sniff(stream)
        if kind == "list":
            yield from read_list(stream, name)
        elif kind == "jsonl" and path != "-" and _is_wrapped(stream):
            yield from read_wrapped(stream, name)
        elif kind in ("csv", "tsv"):
            yield from read_table(stream, name, _delimiter(stream) if kind == "csv" else "\t")
        else:
            yield from _read_lines(stream, name)


def _delimiter(stream: io.BufferedReader) -> str:
    """The most frequent separator of the first line; spreadsheets write `;` where decimals have a comma."""
    head = stream.peek(_BUFFER).lstrip(b"\r\n").splitlines()[:1]
    unquoted = b"".join(head).decode(errors="replace").split('"')[::2]
    return max(_DELIMITERS, key="".join(unquoted).count)


def _kind_by_name(path: str) -> Kind | None:
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return _KINDS.get(suffixes[-1]) if suffixes else None


def _is_wrapped(stream: io.BufferedReader) -> bool:
    return is_wrapped(stream.peek(_BUFFER).decode(errors="replace"))


def _sniff(stream: io.BufferedReader) -> Kind:
    return "list" if stream.peek(_BUFFER).lstrip()[:1] == b"[" else "jsonl"


@contextmanager
def _open_bytes(path: str) -> Iterator[io.BufferedReader]:
    if path == "-":
        yield cast(io.BufferedReader, sys.stdin.buffer)
        return
    with Path(path).open("rb", _BUFFER) as file:
        if path.lower().endswith(".gz"):
            with gzip.GzipFile(fileobj=file) as unzipped:
                yield io.BufferedReader(cast(io.RawIOBase, unzipped), _BUFFER)
        else:
            yield cast(io.BufferedReader, file)


@contextmanager
def _as_input_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{name}: damaged gzip file: {error}; copy or download it again") from error
    except OSError as error:
        raise InputError(
            f"{name}: cannot read: {error.strerror or error}; check its permissions and the disk"
        ) from error


def _skip_mark(name: str, stream: io.BufferedReader) -> None:
    head = stream.peek(3)[:3]
    if head == codecs.BOM_UTF8:
        stream.read(3)
    elif head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise InputError(f"{name}: the text is UTF-16; save it as UTF-8")
    elif head == b"PK\x03":
        if name.lower().endswith(".zip"):
            raise InputError(f"{name}: a zip archive; unpack it first")
        raise InputError(f"{name}: a zip archive, as Excel's workbooks are; save the sheet as CSV UTF-8")


def _read_lines(stream: io.BufferedReader, file: str) -> Iterator[Row | Reject]:
    decode = json.JSONDecoder().decode
    for line_number, line in enumerate(stream, 1):
        try:
            data = decode(line.decode())
        except UnicodeDecodeError as error:
            reason = f"not UTF-8 at byte {error.start + 1} of the line; save the file as UTF-8"
        except RecursionError:
            reason = "not usable JSON: nested too deeply; flatten the row"
        except ValueError as error:
            if not line.strip():
                continue
            torn = "" if line.endswith(b"\n") else " (the file ends here without a line end: a torn last line?)"
            table = "" if _kind_by_name(file) else ", or give a table the ending .csv or .tsv"
            reason = f"not JSON: {error}{torn}; write one JSON object per line{table}"
        else:
            if type(data) is dict:
                yield Row(file, line_number, data)
                continue
            reason = f"expected a JSON object, got {_json_kind(data)}; write one object per line"
        yield Reject(file, line_number, reason, truncate_raw(line.decode(errors="backslashreplace").rstrip("\r\n")))


def _json_kind(value: object) -> str:
    names = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false"}
    return names.get(type(value), "null")
