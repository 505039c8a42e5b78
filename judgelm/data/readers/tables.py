"""Rows of tables: CSV or TSV text, and Parquet files batch by batch."""

import csv
import io
from collections import Counter
from collections.abc import Iterator

from judgelm.data.readers.rows import Reject, Row, escape_bad_bytes, has_bad_bytes, truncate_raw
from judgelm.errors import InputError

_CELL_LIMIT = 1 << 30
_BATCH_ROWS = 1024


def read_parquet(path: str) -> Iterator[dict[str, object]]:
    """Stream the rows as dicts; a null cell is None.

    Raises:
        InputError: the file is not Parquet, or is damaged.
    """
    import pyarrow.parquet  # takes 0.3 s, and most files are no Parquet

    rows = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for row in batch.to_pylist():
                    rows += 1
                    yield row
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        finding = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{path}: damaged or not Parquet, after {rows} rows: {finding}; copy or download it again"
        ) from error


def read_table(stream: io.BufferedReader, file: str, delimiter: str) -> Iterator[Row | Reject]:
    """Stream the rows of a CSV or TSV file below its header; a row that cannot be used is a reject.

    Raises:
        InputError: a column appears twice in the header, or no row follows it.
    """
    # The limit is the csv module's, for the whole process, and only ever raised here.
    csv.field_size_limit(max(csv.field_size_limit(), _CELL_LIMIT))
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in stream:
            taken.append(line.decode(errors="surrogateescape"))
            yield taken[-1]

    # Strict: an unclosed quote would otherwise swallow the rest of the file as one cell.
    table = csv.reader(lines(), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    any_row = False
    while True:
        taken.clear()
        start = table.line_num + 1
        try:
            cells = next(table, None)
        except csv.Error as error:
            reason = f"not a table row: {error}; check its quotes"
        else:
            if cells is None:
                if header is not None and not any_row:
                    raise InputError(f"{file}: no rows below the header")
                return
            if not cells:
                continue
            if header is None:
                header = _header(file, start, cells)
                continue
            any_row = True
            problem = _row_problem(header, cells, "".join(taken))
            if problem is None:
                yield Row(file, start, dict(zip(header, cells, strict=True)))
                continue
            reason = problem
        yield Reject(file, start, reason, truncate_raw(escape_bad_bytes("".join(taken)).rstrip("\r\n")))


def _header(file: str, line: int, cells: list[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InputError(f'{file}:{line}: column "{twice[0]}" appears twice in the header; rename one')
    return names


def _row_problem(header: list[str], cells: list[str], raw: str) -> str | None:
    if len(cells) != len(header):
        return f"expected {len(header)} cells as in the header, got {len(cells)}; quote cells that hold separators"
    if has_bad_bytes(raw):
        return "not UTF-8; save the file as UTF-8 (in Excel: CSV UTF-8), or run: iconv -f WINDOWS-1252 -t UTF-8"
    return None
