"""The largest row, and the largest file that is read whole: what a small compressed file unpacks to has no end."""

import errno
from pathlib import Path

MAX_ROW_BYTES = 64_000_000
"""In tables and JSON lists characters instead of bytes."""
MAX_ROW_LINES = 1_000_000
"""Of a table's row, in quoted cells."""
MAX_WHOLE_BYTES = 256_000_000
"""JSON that is one value and not a list of rows."""


def megabytes(size: int) -> str:
    """A limit as messages show it."""
    return f"{size // 1_000_000} MB"


def read_text(path: str | Path, most: int = MAX_ROW_BYTES, errors: str = "strict") -> str:
    """A whole file of UTF-8.

    Raises:
        OSError: it cannot be read, or is larger than `most` bytes.
        UnicodeDecodeError: it is not UTF-8.
    """
    with Path(path).open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {megabytes(most)}, the limit for a file of this kind", str(path))
    return content.decode(errors=errors)
