"""Open inputs as byte streams: files, folders, patterns, named pipes, and standard input.

Compression is detected from the first bytes. Standard input and pipes are copied to disk if they are read twice.
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
"""The bytes that follow `BZh` and a digit: a block, or the end of an empty file."""

_FOREIGN = (
    (b"\x04\x22\x4d\x18", "compressed with lz4; decompress it with lz4 -d"),
    (b"\x1f\x9d", "compressed with compress; decompress it with uncompress"),
    (b"7z\xbc\xaf\x27\x1c", "is a 7-Zip archive; extract it first"),
    (b"Rar!\x1a\x07", "is a RAR archive; extract it first"),
    (b"ARROW1\x00\x00", "is an Arrow file; save the table as Parquet"),
    (b"\xff\xff\xff\xff", "is an Arrow stream; save the table as Parquet"),
    (b"version https://git-lfs", "is a Git LFS pointer, not the file itself; run git lfs pull"),
    (b"<!DOCTYPE html", "is a web page; download the file itself"),
    (b"<html", "is a web page; download the file itself"),
)
_TAR_AT = 257
_HEAD = 512


def input_files(path: str) -> list[str]:
    """Return the files for one input: the file itself, the row files in a folder, or the files that match a pattern.

    Files are sorted by name. In folders, names that begin with a dot or an underscore are skipped.
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
        raise InputError(f"{path}: no files match this pattern")
    raise _missing(file)


def all_input_files(paths: Sequence[str]) -> list[str]:
    """Return the files for all inputs, or raise an InputError if a file is repeated."""
    files = [file for path in paths for file in input_files(path)]
    seen: dict[object, str] = {}
    for file in files:
        identity = _identity(file)
        if identity in seen:
            also = "" if seen[identity] == file else f", also as {seen[identity]}"
            raise InputError(f"{file}: passed twice{also}; pass each file only once")
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
        raise InputError(f"{folder}: no row files ({', '.join(_ROW_SUFFIXES)}) here; pass the files themselves")
    if len(kinds) > 1:
        some = f"{folder}/*{next(iter(kinds))}"
        raise InputError(
            f"{folder}: the files have different formats ({', '.join(kinds)}); choose one format with a "
            f"pattern such as {some}"
        )
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
    """Return True if the input can be read only once: standard input (`-`), named pipes, and devices."""
    if str(path) == "-":
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def shown_name(path: str) -> str:
    """Return an input's name for errors and rejects."""
    return "<stdin>" if path == "-" else path


@contextmanager
def open_input(path: str, *, once: bool = False) -> Iterator[io.BufferedReader]:
    """Open a file or stream; decompress it and strip its byte-order mark.

    Pass `once` to avoid copying streams to disk.

    Raises:
        InputError: the input is unreadable, damaged, in an unsupported format, or a stream that was already read with
            `once`.
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
                raise InputError(f"{name}: compressed twice, with {compression} and {inner}; decompress it first")
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
        import pyarrow  # Python before 3.14 does not include zstd; importing pyarrow takes 0.1 s

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
    """Read concatenated bzip2 or xz streams. The standard readers stop silently if the second stream is damaged."""
    decompressor = start()

    def read(size: int) -> bytes:
        nonlocal decompressor
        while True:
            packed = b""
            if decompressor.eof:
                packed = decompressor.unused_data.lstrip(b"\0")  # xz streams may be padded with zeros
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
            raise InputError(f"{name}: cannot read: {finding}; check the file permissions and the disk") from error
        way_out = f"copy or download it again; to check it, run {compression} -t"
        raise InputError(f"{name}: damaged {compression} file: {error}; {way_out}") from error


def _check_head(name: str, stream: io.BufferedReader) -> None:
    head = stream.peek(_HEAD)[:_HEAD]
    if head.startswith(codecs.BOM_UTF8):
        stream.read(len(codecs.BOM_UTF8))
    elif head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{name}: encoded as UTF-16; save it as UTF-8")
    elif head.startswith(b"PK\x03") and row_suffix(name) != ".xlsx":
        raise InputError(f"{name}: is a zip archive; extract it first (Excel workbooks must have the extension .xlsx)")
    elif head[_TAR_AT:].startswith(b"ustar"):
        raise InputError(f"{name}: is a tar archive; extract it first")
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
    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - stays open as long as the stream
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
"""The streams opened by this process. They are never closed, because a new pipe could reuse a closed pipe's
identity.
"""


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
    """Yield the stream itself if it is a seekable file, else a copy on disk."""
    if isinstance(stream.raw, io.FileIO) and stream.seekable():
        yield stream
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(stream, copy, BUFFER)
        copy.seek(0)
        yield copy
