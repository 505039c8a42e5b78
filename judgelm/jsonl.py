"""Append to, repair, and strictly parse JSON Lines files written by judgelm.

Invalid lines are errors here. `judgelm.data.readers` reads files from other sources, and rejects invalid lines.
"""

import fcntl
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from judgelm.bounds import MAX_ROW_BYTES, megabytes
from judgelm.errors import ConfigError, InputError, RunError

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLOCK = 1 << 16


def encode_line(row: Mapping[str, object]) -> bytes:
    r"""Encode a row as a line of UTF-8 with a newline. Raise ValueError for NaN or infinity.

    U+0085, U+2028, and U+2029, which some readers treat as line endings, and lone surrogates are written as `\uXXXX`.
    """
    text = _ENCODER.encode(row)
    if text.isascii():
        return text.encode("ascii") + b"\n"
    text = text.replace("\x85", "\\u0085").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode() + b"\n"


def json_ready(value: Any) -> Any:
    """Convert non-finite floats to None, tuples to lists, and dataclasses to dicts."""
    if is_dataclass(value):
        return {part.name: json_ready(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, dict):
        ready = {key: json_ready(part) for key, part in value.items()}
        return value if all(ready[key] is part for key, part in value.items()) else ready
    if isinstance(value, list | tuple):
        return [json_ready(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Appender:
    """Appends rows to a file.

    Once `write` returns, the line survives `kill -9`, but it may not survive a power failure because there is no fsync.
    Only one process can append at a time. Opening the file removes an incomplete last line (of `repaired` bytes) or, if
    `overwrite` is set, all lines.
    """

    def __init__(self, path: str | Path, *, overwrite: bool = False) -> None:
        self.path = str(path)
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if overwrite and Path(path).is_file():
                os.ftruncate(self._fd, 0)
            self.repaired = repair_tail(path)
        except BlockingIOError as error:
            os.close(self._fd)
            raise RunError(f"{path}: another process is writing to this file; wait, or choose another file") from error
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def write(self, row: Mapping[str, object]) -> None:
        """Append a row."""
        try:
            line = encode_line(row)
        except ValueError as error:
            raise ValueError(f"{self.path}: {error} (JSON does not support NaN and infinity)") from error
        try:
            written = os.write(self._fd, line)
            while written < len(line):
                written += os.write(self._fd, line[written:])
        except OSError as error:
            with suppress(OSError):  # otherwise the next run repairs the file
                repair_tail(self.path)
            raise _cannot_write(self.path, error) from error

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Appender]:
    """Write to a temporary file, and rename it on success."""
    partial = Path(f"{path}.partial")
    try:
        with Appender(partial, overwrite=True) as file:
            yield file
        try:
            os.replace(partial, path)
        except OSError as error:
            raise _cannot_write(str(path), error) from error
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def renamed(path: Path, way_out: str = "; choose a different folder") -> Iterator[Path]:
    """Yield a temporary path and rename it to `path` on success.

    Raises:
        RunError: the file cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        yield partial
        os.replace(partial, path)
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror or error}{way_out}") from error
    finally:
        with suppress(OSError):  # missing, or not in a folder
            partial.unlink()


def check_no_input(outputs: Iterable[str | Path], inputs: Iterable[str | Path]) -> None:
    """Check that none of the outputs is also an input, by path, symbolic link, hard link, or redirection."""
    read = {key: path for path in inputs for key in _file_keys(path, 0)}
    for output in outputs:
        for written in (output, f"{output}.partial"):
            for key in _file_keys(written, 1):
                if key in read:
                    raise ConfigError(f"{written} would overwrite the input {read[key]}; choose a different path")


def _file_keys(path: str | Path, descriptor: int) -> set[object]:
    keys: set[object] = set()
    try:
        status = os.fstat(descriptor) if str(path) == "-" else os.stat(path)
        if stat.S_ISREG(status.st_mode):
            keys.add((status.st_dev, status.st_ino))
    except (OSError, ValueError):  # missing or not a valid file name
        pass
    if str(path) != "-":
        with suppress(OSError, RuntimeError, ValueError):
            resolved = Path(path).resolve()
            if not resolved.exists() or resolved.is_file():
                keys.add(resolved)
    return keys


def _cannot_write(path: str, error: OSError) -> RunError:
    finding = f"{path}: cannot write: {error.strerror or error}"
    if isinstance(error, FileNotFoundError):
        return RunError(f"{finding}; create the folder {Path(path).parent} first")
    if isinstance(error, IsADirectoryError):
        return RunError(f"{finding}; choose a file in this folder")
    if isinstance(error, PermissionError):
        return RunError(f"{finding}; choose a different path")
    return RunError(f"{finding}; free some space and run the same command again; finished judgments are kept")


def repair_tail(path: str | Path) -> int:
    """Repair an incomplete last line left by a killed process, and return the number of removed bytes.

    If the line is a complete JSON object, a newline is added; otherwise it is removed. Missing and non-regular files
    are not changed.
    """
    if not Path(path).is_file():
        return 0
    with Path(path).open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        tail = b""
        while len(tail) < end and b"\n" not in tail:
            file.seek(-min(end, 2 * len(tail) or _BLOCK), os.SEEK_END)
            tail = file.read()
        tail = tail[tail.rfind(b"\n") + 1 :]
        if not tail:
            return 0
        if _is_object(tail):
            file.write(b"\n")
            return 0
        file.truncate(end - len(tail))
        return len(tail)


def parse_json(text: str) -> Any:
    """Parse a JSON value."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(parse_json(line.decode()), dict)
    except ValueError:
        return False


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the line numbers (starting at 1) and rows of a file written by judgelm. Blank lines are skipped."""
    try:
        with Path(path).open("rb") as file:
            for line_number, line in enumerate(iter(partial(file.readline, MAX_ROW_BYTES + 1), b""), 1):
                if len(line) > MAX_ROW_BYTES:
                    raise InputError(f"{path}:{line_number}: longer than {megabytes(MAX_ROW_BYTES)}; remove it")
                if line.strip():
                    yield line_number, _strict_object(path, line_number, line)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror or error}; check the path") from error


def _strict_object(path: str | Path, line_number: int, line: bytes) -> dict[str, object]:
    try:
        row = parse_json(line.decode())
    except ValueError as error:
        raise InputError(f"{path}:{line_number}: not valid JSON in UTF-8: {error}; remove the line") from error
    if not isinstance(row, dict):
        raise InputError(f"{path}:{line_number}: expected a JSON object, got {line[:40].strip()!r}; remove the line")
    return row
