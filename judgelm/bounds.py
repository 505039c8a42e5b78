"""Size limits for rows and for files read into memory, because small compressed files can expand to any size."""

import errno
from pathlib import Path

MAX_ROW_BYTES = 64_000_000
"""In tables and JSON lists, this limit counts characters instead of bytes."""
MAX_ROW_LINES = 1_000_000
"""Maximum number of lines in a table row with quoted cells."""
MAX_WHOLE_BYTES = 256_000_000
"""Maximum size of a single JSON value."""


def megabytes(size: int) -> str:
    """Format a limit for messages."""
    return f"{size // 1_000_000} MB"


def read_text(path: str | Path, max_bytes: int = MAX_ROW_BYTES, errors: str = "strict") -> str:
    """Read a whole UTF-8 file."""
    with Path(path).open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(
            errno.EFBIG, f"the file is larger than {megabytes(max_bytes)}, the limit for this type of file", str(path)
        )
    return content.decode(errors=errors)
