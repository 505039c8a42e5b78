"""Inputs as byte streams: a file, a folder, a pattern, a named pipe, or standard input.

gzip and zstd are recognised by their first bytes. A stream that a command reads twice is kept on disk.
"""

import bz2
import codecs
import difflib
import glob
import gzip
import io
import lzma
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from judgelm.data.readers.rows import COMPRESSED_SUFFIXES, Compression, row_suffix
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
"""Bytes after `BZh` and a digit: a block, or the end of an empty file."""

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
    """Return the files of one input: the file itself, the files in a folder, or the matches of a pattern.

    A folder's row files are sorted by name; hidden files and names that begin with an underscore are skipped.
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
    """Return the files of several inputs."""
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
        raise InputError(f"{folder}: no row files ({', '.join(_ROW_SUFFIXES)}) in this folder; name the files")
    if len(kinds) > 1:
        some = f"{folder}/*{next(iter(kinds))}"
        raise InputError(f"{folder}: files of several formats ({', '.join(kinds)}); choose some, such as {some}")
    return next(iter(kinds.values()))


def _missing(file: Path) -> InputError:
    try:
        names = [entry.name for entry in file.parent.iterdir()]
    except OSError:
        return InputError(f"{file}: no such file or folder; check the path")
    close = difflib.get_close_matches(file.name, names, n=3)
    way_out = f"did you mean {' or '.join(close)}?" if close else "check the path"
    return InputError(f"{file}: no such file; {way_out}")


def is_stream(path: str | Path) -> bool:
    """Return True for standard input (`-`), named pipes and devices, which can be read only once."""
    if str(path) == "-":
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def shown_name(path: str) -> str:
    """Return the name of an input for errors and rejects."""
    return "<stdin>" if path == "-" else path


@contextmanager
def open_input(path: str, *, once: bool = False) -> Iterator[io.BufferedReader]:
    """Open a file or stream, decompressed and without a byte-order mark.

    With `once`, streams need no copy on disk.

    Raises:
        InputError: the input is unreadable, damaged, neither text nor Parquet, or a stream already read with `once`.
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
                raise InputError(f"{name}: compressed twice, by {compression} and {inner}; unpack it first")
            _check_head(name, unpacked)
            yield unpacked


def _compression(head: bytes) -> Compression | None:
    for magic, compression in _MAGIC:
        if head.startswith(magic) and (compression != "bzip2" or head[4:10] in _BZIP2_BLOCKS):
            return compression
    return None


def _compression_by_name(path: str, stream: io.BufferedReader) -> Compression | None:
    return COMPRESSED_SUFFIXES.get(Path(path).suffix.lower()) if stream.peek(1) else None


def _buffered(raw: io.RawIOBase) -> io.BufferedReader:
    return cast(io.BufferedReader, io.BufferedReader(raw, BUFFER))


def _unpacked(stream: io.BufferedReader, compression: Compression) -> io.RawIOBase:
    if compression == "gzip":
        return cast(io.RawIOBase, gzip.GzipFile(fileobj=stream))
    if compression == "zstd":
        import pyarrow  # the standard library has no zstd before Python 3.14; the import takes 0.1 s

        return cast(io.RawIOBase, _Pulled(pyarrow.CompressedInputStream(stream, "zstd").read))
    return _Pulled(_unpacked_blocks(stream, bz2.BZ2Decompressor if compression == "bzip2" else lzma.LZMADecompressor))


class _Pulled(io.RawIOBase):
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
    """Read concatenated bzip2 or xz streams. The library's own readers stop silently at a damaged second one."""
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
    head = stream.peek(_HEAD)[:_HEAD]
    if head.startswith(codecs.BOM_UTF8):
        stream.read(len(codecs.BOM_UTF8))
    elif head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{name}: the text is UTF-16; save it as UTF-8")
    elif head.startswith(b"PK\x03") and row_suffix(name) != ".xlsx":
        raise InputError(f"{name}: a zip archive; unpack it first, or name an Excel workbook .xlsx")
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


class _StreamCache:
    """The bytes read from a stream, kept in an unnamed file so that every reader starts at the beginning."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the stream
        self._size = 0

    def reader(self) -> io.BufferedReader:
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


_STREAMS: dict[object, tuple[io.BufferedReader, _StreamCache | None]] = {}
"""The open streams of this process. They stay open, because the identity of a closed pipe could be reused."""


def _open_stream(path: str, *, once: bool) -> io.BufferedReader:
    key = id(sys.stdin.buffer) if path == "-" else _identity(path)
    if key in _STREAMS:
        _, spool = _STREAMS[key]
        if spool is None:
            raise InputError(f"{shown_name(path)}: a stream can be read only once; save it as a file first")
        return spool.reader()
    source = cast(io.BufferedReader, sys.stdin.buffer if path == "-" else open(path, "rb", BUFFER))  # noqa: SIM115
    spool = None if once else _StreamCache(source.read1)
    _STREAMS[key] = source, spool
    return source if spool is None else spool.reader()


@contextmanager
def seekable(stream: io.BufferedReader) -> Iterator[IO[bytes]]:
    """Yield the stream if it is a plain file, else a copy on disk."""
    if isinstance(stream.raw, io.FileIO) and stream.seekable():
        yield stream
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(stream, copy, BUFFER)
        copy.seek(0)
        yield copy
