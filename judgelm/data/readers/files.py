"""Inputs as streams of bytes, and their rows, one at a time: JSON lines, a JSON list, CSV, TSV or Parquet.

An input is a file, a folder of files, a pattern, a named pipe, or standard input. A compressed file is recognised by
its first bytes: gzip, bzip2, xz and zstd, also on standard input. What is no text and no Parquet is refused by name. A
stream can be read once: what a command reads again is kept on disk meanwhile.

A row that cannot be used becomes a `Reject` and reading continues; where a reader cannot go on, the file is an
`InputError`, after the rows before that place. The fields are interpreted in `judgelm.data.sources.registry`.
"""

import bz2
import codecs
import difflib
import glob
import gzip
import io
import lzma
import os
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, cast

from judgelm.bounds import MAX_ROW_BYTES, MAX_WHOLE_BYTES, megabytes
from judgelm.data.readers.formats import (
    USUAL_COLUMNS,
    is_wrapped,
    read_list,
    read_parquet,
    read_table,
    read_workbook,
    read_wrapped,
    skip_lines,
)
from judgelm.data.readers.rows import COMPRESSED_SUFFIXES, Compression, Reject, Row, row_suffix, too_long, truncate_raw
from judgelm.data.readers.values import RowDecoder, raw_text, strip_model_names
from judgelm.errors import InputError

BUFFER = 1 << 20


_ROW_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".pq", ".xlsx")
_MAGIC: tuple[tuple[bytes, Compression], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
"""Bytes behind `BZh` and a digit: a block, or the end of an empty file."""

_FOREIGN = (
    (b"\x04\x22\x4d\x18", "compressed by lz4; unpack it with lz4 -d"),
    (b"\x1f\x9d", "compressed by compress; unpack it with uncompress"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it first"),
    (b"Rar!\x1a\x07", "a RAR archive; unpack it first"),
    (b"ARROW1\x00\x00", "an Arrow file; save the table as Parquet"),
    (b"\xff\xff\xff\xff", "an Arrow stream; save the table as Parquet"),
    (b"version https://git-lfs", "a Git LFS pointer and not the file itself; run git lfs pull"),
    (b"<!DOCTYPE html", "a web page; download the file itself"),
    (b"<html", "a web page; download the file itself"),
)
_TAR_AT = 257
_HEAD = 512


def input_files(path: str) -> list[str]:
    """The files of one input: the file itself, those of a folder, or those that a pattern such as `part-*` matches.

    A folder means its files of rows, in the order of their names, without hidden ones and those that begin with
    an underscore.

    Raises:
        InputError: there is none, or the folder holds files of several kinds.
    """
    file = Path(path)
    if path == "-" or (file.exists() and not file.is_dir()):
        return [path]
    if file.is_dir():
        return _folder_files(file)
    if glob.has_magic(path):
        files = [name for name in sorted(glob.glob(path, recursive=True)) if not Path(name).is_dir()]
        if files:
            return files
        raise InputError(f"{path}: no file matches this pattern; check it")
    raise _missing(file)


def all_input_files(paths: Sequence[str]) -> list[str]:
    """The files of several inputs.

    Raises:
        InputError: as `input_files`, or a file is given twice.
    """
    files = [file for path in paths for file in input_files(path)]
    seen: dict[object, str] = {}
    for file in files:
        identity = _identity(file)
        if identity in seen:
            also = "" if seen[identity] == file else f", also as {seen[identity]}"
            raise InputError(f"{file}: given twice{also}; give each file once")
        seen[identity] = file
    return files


def _identity(path: str) -> object:
    if path == "-":
        return path
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _folder_files(folder: Path) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for file in sorted(folder.iterdir()):
        suffix = row_suffix(file.name)
        if file.name[0] not in "._" and suffix in _ROW_SUFFIXES and not file.is_dir():
            kinds.setdefault(suffix, []).append(str(file))
    if not kinds:
        raise InputError(f"{folder}: a folder without files of rows ({', '.join(_ROW_SUFFIXES)}); name the files")
    if len(kinds) > 1:
        some = f"{folder}/*{next(iter(kinds))}"
        raise InputError(f"{folder}: a folder with files of several kinds ({', '.join(kinds)}); name some, as {some}")
    return next(iter(kinds.values()))


def _missing(file: Path) -> InputError:
    try:
        names = [entry.name for entry in file.parent.iterdir()]
    except OSError:
        return InputError(f"{file}: no such file, and no folder {file.parent}; check the path")
    close = difflib.get_close_matches(file.name, names, n=3)
    way_out = f"did you mean {' or '.join(close)}?" if close else "check the path"
    return InputError(f"{file}: no such file; {way_out}")


def is_stream(path: str | Path) -> bool:
    """True for standard input (`-`), named pipes and devices, which can be read only once."""
    if str(path) == "-":
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def shown_name(path: str) -> str:
    """The name of an input in errors and rejects."""
    return "<stdin>" if path == "-" else path


@contextmanager
def open_input(path: str, *, once: bool = False) -> Iterator[io.BufferedReader]:
    """The bytes of a file or stream, decompressed, without a byte-order mark.

    Args:
        path: a file, a named pipe, or `-`.
        once: the caller reads all at once and nothing reads it again, so that a stream need not be kept on disk.

    Raises:
        InputError: it cannot be read, is damaged, neither text nor Parquet, or a stream that was read `once` before.
    """
    name = shown_name(path)
    with _as_input_errors(name, None), _opened(path, once=once) as stream:
        compression = _compression(stream.peek(_HEAD)[:_HEAD]) or _compression_by_name(path, stream)
        if compression is None:
            _check_head(name, stream)
            yield stream
            return
        with _as_input_errors(name, compression):
            unpacked = _buffered(_unpacked(stream, compression))
            if inner := _compression(unpacked.peek(_HEAD)[:_HEAD]):
                raise InputError(f"{name}: compressed by {compression} and inside by {inner}; unpack it first")
            _check_head(name, unpacked)
            yield unpacked


def _compression(head: bytes) -> Compression | None:
    for magic, compression in _MAGIC:
        if head.startswith(magic) and (compression != "bzip2" or head[4:10] in _BZIP2_BLOCKS):
            return compression
    return None


def _compression_by_name(path: str, stream: io.BufferedReader) -> Compression | None:
    """The compression that the ending promises; unpacking then says that the content is not of it."""
    return COMPRESSED_SUFFIXES.get(Path(path).suffix.lower()) if stream.peek(1) else None


def _buffered(raw: io.RawIOBase) -> io.BufferedReader:
    return cast(io.BufferedReader, io.BufferedReader(raw, BUFFER))


def _unpacked(stream: io.BufferedReader, compression: Compression) -> io.RawIOBase:
    if compression == "gzip":
        return cast(io.RawIOBase, gzip.GzipFile(fileobj=stream))
    if compression == "zstd":
        import pyarrow  # the standard library has no zstd before Python 3.14; loading takes 0.1 s

        return cast(io.RawIOBase, _Pulled(pyarrow.CompressedInputStream(stream, "zstd").read))
    return _Pulled(_unpacked_blocks(stream, bz2.BZ2Decompressor if compression == "bzip2" else lzma.LZMADecompressor))


class _Pulled(io.RawIOBase):
    """A raw stream over a function that reads at most so many bytes."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _unpacked_blocks(
    source: io.BufferedReader, start: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]
) -> Callable[[int], bytes]:
    """Reads streams of bzip2 or xz one after the other; the library's own files end in silence at a damaged second one.

    Raises:
        EOFError: a stream ends too early.
    """
    decompressor = start()

    def read(size: int) -> bytes:
        nonlocal decompressor
        while True:
            packed = b""
            if decompressor.eof:
                packed = decompressor.unused_data.lstrip(b"\0")  # xz pads streams with zeros
                while not packed and (block := source.read(BUFFER)):
                    packed = block.lstrip(b"\0")
                if not packed:
                    return b""
                decompressor = start()
            elif decompressor.needs_input and not (packed := source.read(BUFFER)):
                raise EOFError("the file ends before the end-of-stream marker was reached")
            if data := decompressor.decompress(packed, size):
                return data

    return read


@contextmanager
def _as_input_errors(name: str, compression: Compression | None) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        if compression is None or (isinstance(error, OSError) and error.errno is not None):
            finding = (isinstance(error, OSError) and error.strerror) or error
            raise InputError(f"{name}: cannot read: {finding}; check its permissions and the disk") from error
        way_out = f"copy or download it again; {compression} -t checks it"
        raise InputError(f"{name}: damaged {compression} file: {error}; {way_out}") from error


def _check_head(name: str, stream: io.BufferedReader) -> None:
    """Skip a byte-order mark, and refuse what is no text, no Parquet and no workbook."""
    head = stream.peek(_HEAD)[:_HEAD]
    if head.startswith(codecs.BOM_UTF8):
        stream.read(len(codecs.BOM_UTF8))
    elif head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{name}: the text is UTF-16; save it as UTF-8")
    elif head.startswith(b"PK\x03") and row_suffix(name) != ".xlsx":
        raise InputError(f"{name}: a zip archive; unpack it first, and give an Excel workbook the ending .xlsx")
    elif head[_TAR_AT:].startswith(b"ustar"):
        raise InputError(f"{name}: a tar archive; unpack it first")
    for magic, finding in _FOREIGN:
        if head.startswith(magic):
            raise InputError(f"{name}: {finding}")


@contextmanager
def _opened(path: str, *, once: bool) -> Iterator[io.BufferedReader]:
    if is_stream(path):
        yield _open_stream(path, once=once)
        return
    with Path(path).open("rb", BUFFER) as file:
        yield cast(io.BufferedReader, file)


class _Spool:
    """The bytes read of a stream, kept in a file without a name, so that every reader begins at the first."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the stream
        self._size = 0

    def reader(self) -> io.BufferedReader:
        """A reader from the first byte."""
        position = 0

        def read(size: int) -> bytes:
            nonlocal position
            data = self._at(position, size)
            position += len(data)
            return data

        return _buffered(_Pulled(read))

    def _at(self, position: int, size: int) -> bytes:
        self._file.seek(position)
        if position == self._size:
            data = self._read(size)
            self._size += self._file.write(data)
            return data
        return self._file.read(min(size, self._size - position))


_STREAMS: dict[object, tuple[io.BufferedReader, _Spool | None]] = {}
"""The streams of this process. They stay open: the number of a closed pipe would be given to another one."""


def _open_stream(path: str, *, once: bool) -> io.BufferedReader:
    key = id(sys.stdin.buffer) if path == "-" else _identity(path)
    if key in _STREAMS:
        _, spool = _STREAMS[key]
        if spool is None:
            raise InputError(f"{shown_name(path)}: a stream can be read only once; save it as a file first")
        return spool.reader()
    source = cast(io.BufferedReader, sys.stdin.buffer if path == "-" else open(path, "rb", BUFFER))  # noqa: SIM115
    spool = None if once else _Spool(source.read1)
    _STREAMS[key] = source, spool
    return source if spool is None else spool.reader()


Kind = Literal["jsonl", "list", "csv", "tsv", "parquet", "workbook"]

_KINDS: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "workbook",
}
_PARQUET_MAGIC = b"PAR1"


def read_rows(
    path: str,
    *,
    columns: Mapping[str, str] | None = None,
    known: Collection[str] = (),
    once: bool = False,
    sheet: str | None = None,
) -> Iterator[Row | Reject]:
    """Stream the rows of an input with bounded memory; several files are read one after the other.

    The format follows the extension; without a telling one, a file that opens with `[` is a JSON list, one with the
    mark of Parquet is that, and any other is JSON lines. One JSON object with its rows in a list (`data`, `rows`,
    `examples`, ...) is read as that list. UTF-8 with or without a byte-order mark, with any line ends; compression is
    recognised by the content. A CSV file uses the separator that its first line states (`sep=;`), or the most frequent
    one of its header: comma, semicolon, tab or bar.

    Args:
        path: a file, a folder, a pattern such as `part-*.jsonl`, a named pipe, or `-` for standard input.
        columns: field that readers look for -> its name in the input.
        known: fields that readers look for; names that differ from them only in case and blanks around are read as
            them.
        once: nothing reads the input again, so that a stream need not be kept on disk.
        sheet: name or number (from 1) of a workbook's sheet; None for its one sheet with cells.

    Raises:
        InputError: a file is missing, unreadable, damaged, broken, or holds no rows at all. What can be known without
            reading is raised by the call, the rest while iterating.
    """
    files = input_files(path)
    names = {name.casefold() for name in (*known, *(columns or {}).values())} | USUAL_COLUMNS
    rows = (row for file in files for row in _not_empty(file, _dispatch(file, names, once=once, sheet=sheet)))
    named = ColumnNames(columns or {}, known).renamed(rows) if columns or known else rows
    return map(_with_model_names, named)


def _with_model_names(row: Row | Reject) -> Row | Reject:
    if isinstance(row, Row):
        strip_model_names(row.data)
    return row


def first_row(path: str, *, sheet: str | None = None) -> Row | None:
    """The input's first good row, None where it has none.

    Raises:
        InputError: as `read_rows`.
    """
    return next((row for row in read_rows(path, sheet=sheet) if isinstance(row, Row)), None)


def read_json(path: str) -> Any:
    """A whole file as one JSON value, also compressed.

    Raises:
        InputError: the file cannot be read or is damaged.
        ValueError: it is larger than `MAX_WHOLE_BYTES`, no JSON text, such as JSON lines of more than one row, or says
            a key twice.
    """
    with open_input(path) as stream:
        content = stream.read(MAX_WHOLE_BYTES + 1)
    if len(content) > MAX_WHOLE_BYTES:
        raise ValueError(f"larger than {megabytes(MAX_WHOLE_BYTES)}, the limit for a file that is one JSON value")
    text = content.decode()
    decoder = RowDecoder()
    try:
        value = decoder.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if problem := decoder.problem_of(value):
        raise ValueError(problem)
    return value


def _not_empty(path: str, rows: Iterator[Row | Reject]) -> Iterator[Row | Reject]:
    any_row = False
    for row in rows:
        any_row = True
        yield row
    if not any_row:
        raise InputError(f"{shown_name(path)}: no rows; the file is empty")


def _dispatch(path: str, known: AbstractSet[str], *, once: bool, sheet: str | None) -> Iterator[Row | Reject]:
    name = shown_name(path)
    with open_input(path, once=once) as stream:
        kind = _kind(path, stream)
        if sheet is not None and kind != "workbook":
            raise InputError(f"{name}: not an Excel workbook, so it has no sheet {sheet}; leave --sheet out")
        if kind in ("parquet", "workbook"):
            with _seekable(stream) as file:
                yield from read_parquet(file, name) if kind == "parquet" else read_workbook(file, name, known, sheet)
        elif kind == "list":
            yield from read_list(stream, name)
        elif kind == "jsonl" and not is_stream(path) and is_wrapped(stream.peek(BUFFER).decode(errors="replace")):
            yield from read_wrapped(stream, name)
        elif kind in ("csv", "tsv"):
            yield from read_table(stream, name, None if kind == "csv" else "\t", known)
        else:
            yield from _read_lines(stream, name)


def _kind(path: str, stream: io.BufferedReader) -> Kind:
    head = stream.peek(BUFFER)
    if head.startswith(_PARQUET_MAGIC):
        return "parquet"
    return _KINDS.get(row_suffix(path)) or ("list" if head.lstrip()[:1] == b"[" else "jsonl")


@contextmanager
def _seekable(stream: io.BufferedReader) -> Iterator[IO[bytes]]:
    """The stream itself where it is a plain file, else a copy of it on disk: Parquet is read from its end."""
    if isinstance(stream.raw, io.FileIO) and stream.seekable():
        yield stream
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(stream, copy, BUFFER)
        copy.seek(0)
        yield copy


_BLANK = re.compile(rb"[ \t\r\n]*+")


def _read_lines(stream: io.BufferedReader, file: str) -> Iterator[Row | Reject]:
    decoder, line_number = RowDecoder(), 0
    for line in iter(partial(stream.readline, MAX_ROW_BYTES + 1), b""):
        line_number += 1
        if len(line) > MAX_ROW_BYTES:
            yield too_long(file, line_number, line[:BUFFER].decode(errors="surrogateescape"))
            while line and not line.endswith(b"\n"):
                line = stream.readline(BUFFER)
            continue
        try:
            data = decoder.decode(line.decode())
        except UnicodeDecodeError as error:
            reason = f"not UTF-8 at byte {error.start + 1} of the line; save the file as UTF-8"
        except RecursionError:
            reason = "not usable JSON: nested too deeply; flatten the row"
        except ValueError as error:
            if not line.strip():
                line_number += skip_lines(stream, _BLANK)
                continue
            torn = "" if line.endswith(b"\n") else " (the file ends here without a line end: a torn last line?)"
            table = "" if row_suffix(file) in _KINDS else ", or give a table the ending .csv or .tsv"
            reason = f"not JSON: {error}{torn}; write one JSON object per line{table}"
        else:
            reason = decoder.problem_of(data)
            if type(data) is dict and not reason:
                yield Row(file, line_number, data)
                continue
            reason = reason or f"expected a JSON object, got {_json_kind(data)}; write one object per line"
        yield Reject(file, line_number, reason, truncate_raw(line.decode(errors="backslashreplace").rstrip("\r\n")))


def _json_kind(value: object) -> str:
    names = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false"}
    return names.get(type(value), "null")


_REMEMBERED = 1000


class ColumnNames:
    """Gives the fields of rows the names that readers look for.

    Args:
        assigned: field -> its name in the input; the input's own column of the field's name is then left out.
        known: fields that readers look for.
    """

    def __init__(self, assigned: Mapping[str, str], known: Collection[str]) -> None:
        self._assigned = dict(assigned)
        self._exact = frozenset(known)
        folded = Counter(map(_folded, known))
        self._known = {_folded(name): name for name in known if folded[_folded(name)] == 1}
        self._names: dict[tuple[str, ...], dict[str, str] | str] = {}

    def renamed(self, rows: Iterable[Row | Reject]) -> Iterator[Row | Reject]:
        """The rows under the fields' names; one that lacks an assigned column or has a field twice is a reject."""
        for row in rows:
            if isinstance(row, Reject):
                yield row
                continue
            names = self._names_of(tuple(row.data))
            if isinstance(names, str):
                yield Reject(row.file, row.line, names, truncate_raw(raw_text(row.data)))
            elif names:
                left_out = self._assigned.keys() - names.keys()
                data = {names.get(name, name): value for name, value in row.data.items() if name not in left_out}
                yield row.with_data(data)
            else:
                yield row

    def _names_of(self, fields: tuple[str, ...]) -> dict[str, str] | str:
        """Name in the input -> field, where they differ; or why there are none."""
        if (names := self._names.get(fields)) is None:
            if len(self._names) > _REMEMBERED:
                self._names.clear()
            names = self._names[fields] = self._find(fields)
        return names

    def _find(self, fields: tuple[str, ...]) -> dict[str, str] | str:
        alike: dict[str, list[str]] = defaultdict(list)
        for name in fields:
            alike[_folded(name)].append(name)
        names: dict[str, str] = {}
        for field, wanted in self._assigned.items():
            columns = [wanted] if wanted in fields else alike.get(_folded(wanted), [])
            if len(columns) != 1:
                finding = f"several columns are called like it: {', '.join(columns)}" if columns else "there is none"
                return f'column "{wanted}", to be read as "{field}": {finding}; the columns are {", ".join(fields)}'
            if columns[0] in names:
                return f'column "{wanted}" is to be read as both "{names[columns[0]]}" and "{field}"; choose one'
            names[columns[0]] = field
        for folded, columns in alike.items():
            field = self._known.get(folded, "")
            columns = [name for name in columns if name not in names and (name == field or name not in self._exact)]
            if not field or field in columns or field in self._assigned:
                continue
            if len(columns) > 1:
                several = " and ".join(f'"{name}"' for name in columns)
                return f'columns {several} could each be the field "{field}"; rename all but one'
            if columns:
                names[columns[0]] = field
        return {name: field for name, field in names.items() if name != field or name in self._assigned}


def _folded(name: str) -> str:
    return name.strip().casefold()
