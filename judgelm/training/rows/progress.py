"""Progress of building rows: on a terminal one line that is overwritten, elsewhere a line now and then."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import pyarrow.parquet

Progress = Callable[[int, int], None]
"""Called with the number of labelled answers whose rows are built, and of epochs that are built at once."""

_EVERY_S = (0.5, 30.0)
"""Seconds between two lines: on a terminal, elsewhere."""


@contextmanager
def row_progress(
    paths: Sequence[str], stream: TextIO, *, joined: bool = False, clock: Callable[[], float] = time.monotonic
) -> Iterator[Progress]:
    """Show progress while rows are built; nothing for rows of an earlier run.

    Args:
        paths: labelled files.
        stream: receives the lines.
        joined: whether each row needs several files, so that their number is not known in advance.
        clock: seconds.
    """
    terminal = stream.isatty()
    began = shown = clock()
    total = None if joined else rows_in(paths)
    written = False

    def show(items: int, epochs: int) -> None:
        nonlocal shown, written
        now = clock()
        if now - shown < _EVERY_S[not terminal]:
            return
        line = progress_line(items, epochs, total, now - began)
        stream.write(f"\r{line}\x1b[K" if terminal else f"{line}\n")
        stream.flush()
        shown, written = now, True

    try:
        yield show
    finally:
        if terminal and written:
            stream.write("\n")


def progress_line(items: int, epochs: int, total: int | None, seconds: float) -> str:
    """The line: labelled answers done, rows per second, remaining time.

    Args:
        items: labelled answers whose rows are built.
        epochs: rows of each.
        total: of the answers; None where it is unknown.
        seconds: since the first.
    """
    share = "" if not total else f" of {total:,} ({min(1, items / total):.0%})"
    rate = items * epochs / seconds
    left = "" if not total or items >= total else f", {(total - items) * seconds / items / 60:.0f} min left"
    return f"building rows: {items:,}{share} in {epochs} epochs, {rate:,.0f} rows/s{left}"


def rows_in(paths: Sequence[str]) -> int | None:
    """Number of rows in the files, good and bad; None where one would have to be parsed for that."""
    total = 0
    for path in paths:
        try:
            if path.endswith(".jsonl"):
                with open(path, "rb") as file:
                    total += sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
            elif path.endswith(".parquet"):
                total += pyarrow.parquet.read_metadata(path).num_rows
            else:
                return None
        except (OSError, pyarrow.lib.ArrowException):
            return None  # reading it reports the reason
    return total
