"""Rows of a Parquet file, batch by batch. The one file of this room that imports pyarrow."""

from collections.abc import Iterator

import pyarrow
import pyarrow.parquet

from judgelm.errors import InputError

_BATCH_ROWS = 1024


def read_parquet(path: str) -> Iterator[dict[str, object]]:
    """Stream the rows as dicts; a null cell is None.

    Raises:
        InputError: the file is not Parquet, or is damaged.
    """
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
