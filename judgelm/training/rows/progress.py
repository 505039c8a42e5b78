"""Progress of the making of rows: on a terminal one line that is written over, elsewhere a line now and then."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import pyarrow.parquet

from judgelm.training.schedule import Progress

_EVERY_S = (0.5, 30.0)
"""Seconds between two lines: on a terminal, elsewhere."""


@contextmanager
def row_progress(
    paths: Sequence[str], stream: TextIO, *, joined: bool = False, clock: Callable[[], float] = time.monotonic
) -> Iterator[Progress]:
    """Show progress while rows are made; nothing for those that an earlier run left.

    Args:
        paths: labelled files.
        stream: where to.
        joined: whether rows come of several files together, so that their number is not known before.
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
    """Labelled answers done, how fast, and how long it will take.

    Args:
        items: labelled answers of which rows were made.
        epochs: how many rows each gave.
        total: of the answers; None where it is not known.
        seconds: since the first.
    """
    share = "" if not total else f" of {total:,} ({min(1, items / total):.0%})"
    rate = items * epochs / seconds
    left = "" if not total or items >= total else f", {(total - items) * seconds / items / 60:.0f} min left"
    return f"making rows: {items:,}{share} in {epochs} epochs, {rate:,.0f} rows/s{left}"


def rows_in(paths: Sequence[str]) -> int | None:
    """How many rows files have, good and bad; None where one of them would have to be parsed for that."""
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
            return None  # reading it for good will say why
    return total
