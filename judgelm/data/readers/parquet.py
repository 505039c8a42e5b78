"""Read Parquet files."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, groupby, repeat
from typing import IO, Any

from judgelm.bounds import MAX_ROW_BYTES
from judgelm.data.readers.rows import Reject, Row, too_long
from judgelm.data.readers.values import infinite_number, plain_value, raw_text
from judgelm.errors import InputError

_BATCH_ROWS = 1024
_VALUE_BYTES = 8
"""Minimum memory used by a value, in bytes."""


def read_parquet(source: str | IO[bytes], file: str) -> Iterator[Row | Reject]:
    """Stream the rows of a Parquet file, given as an open file or a path."""
    import pyarrow.parquet  # importing it takes 0.3 s

    rows = 0
    try:
        with pyarrow.parquet.ParquetFile(source) as parquet:
            _refuse_doubled(file, list(parquet.schema_arrow), "")
            texts = [path for path in _text_paths(parquet.metadata) if "key_value" not in path]
            compact = pyarrow.parquet.ParquetFile(source, metadata=parquet.metadata, read_dictionary=texts)
            for values in _parquet_values(parquet, compact):
                rows += 1
                if values is None:
                    yield too_long(file, rows, "")
                    continue
                data = {name: plain_value(value) for name, value in values.items()}
                problem = infinite_number(data)
                yield Reject(file, rows, problem, raw_text(data)) if problem else Row(file, rows, data)
    except pyarrow.ArrowMemoryError as error:
        way_out = "write it with smaller pages (data_page_size) or smaller row groups"
        raise InputError(f"{file}: the page after row {rows} does not fit into memory: {error}; {way_out}") from error
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        finding = str(error).splitlines()[0] if str(error) else type(error).__name__
        finding = f"damaged, or not a Parquet file (after {rows} rows): {finding}"
        raise InputError(f"{file}: {finding}; copy or download it again") from error


def _text_paths(metadata: Any) -> list[str]:
    columns = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def _parquet_values(parquet: Any, compact: Any) -> Iterator[dict[str, Any] | None]:
    """Yield the values of each row, or None if the row exceeds `MAX_ROW_BYTES`.

    `compact` is the same file opened with dictionary-encoded strings, which take 1.5 times as long to read.
    """
    metadata = parquet.metadata
    for (size, reader), indices in groupby(
        range(metadata.num_row_groups), lambda index: _batch_rows(index, parquet, compact)
    ):
        groups = list(indices)
        if not size:
            yield from repeat(None, sum(metadata.row_group(index).num_rows for index in groups))
            continue
        for batch in reader.iter_batches(batch_size=size, row_groups=groups):
            yield from _batch_values(batch)


def _batch_rows(index: int, parquet: Any, compact: Any) -> tuple[int, Any]:
    """Return the batch size in rows (0 if the average row is too large) and the file to read from."""
    group = parquet.metadata.row_group(index)
    columns, rows = [group.column(place) for place in range(group.num_columns)], max(group.num_rows, 1)
    row_bytes = max(group.total_byte_size, _VALUE_BYTES * sum(column.num_values for column in columns), 1) / rows
    size = min(_BATCH_ROWS, int(MAX_ROW_BYTES / row_bytes))
    texts = [
        column
        for column in columns
        if column.has_dictionary_page
        and column.physical_type == "BYTE_ARRAY"
        and column.num_values / rows * size * column.total_uncompressed_size > MAX_ROW_BYTES
    ]
    if not size or not texts:
        return size, parquet
    first = next(compact.iter_batches(batch_size=1, row_groups=[index], columns=[c.path_in_schema for c in texts]))
    longest = sum(map(_longest_text, first.columns))
    return size, compact if longest * size * max(c.num_values for c in texts) / rows > MAX_ROW_BYTES else parquet


def _longest_text(array: Any) -> int:
    from pyarrow import compute, types

    if types.is_dictionary(array.type):
        return compute.max(compute.binary_length(array.dictionary)).as_py() or 0
    if types.is_struct(array.type):
        return sum(map(_longest_text, array.flatten()))
    return _longest_text(array.values) if types.is_nested(array.type) else 0


def _batch_values(batch: Any) -> Iterator[dict[str, Any] | None]:
    if _unpacked_bytes(batch.to_struct_array()) <= MAX_ROW_BYTES:
        yield from batch.to_pylist()
    elif batch.num_rows == 1:
        yield None
    else:
        half = batch.num_rows // 2
        yield from chain(_batch_values(batch.slice(0, half)), _batch_values(batch.slice(half)))


def _unpacked_bytes(array: Any) -> int:
    from pyarrow import compute, types

    if types.is_dictionary(array.type) and not types.is_primitive(array.type.value_type):
        return int(compute.sum(compute.binary_length(array.dictionary).take(array.indices)).as_py() or 0)
    if types.is_struct(array.type):
        return sum(map(_unpacked_bytes, array.flatten()))
    if types.is_nested(array.type):
        start, end = (array.offsets[0].as_py(), array.offsets[-1].as_py()) if hasattr(array, "offsets") else (0, None)
        return _unpacked_bytes(array.values[start:end])
    return max(int(array.nbytes), _VALUE_BYTES * len(array))


def _refuse_doubled(file: str, fields: list[Any], inside: str) -> None:
    for name, count in Counter(field.name for field in fields).items():
        if count > 1:
            raise InputError(f'{file}: column "{inside}{name}" appears {count} times; rename or remove all but one')
    for field in fields:
        nested = [field.type.field(index) for index in range(field.type.num_fields)]
        _refuse_doubled(file, nested, f"{inside}{field.name}.")
