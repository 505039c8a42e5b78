"""Write row files for `datasets` as JSONL or Parquet. Files are written atomically."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from judgelm.jsonl import check_no_input, encode_line, renamed

_GROUP_ROWS = 4096

FileFormat = Literal["jsonl", "parquet"]


class DatasetFiles:
    """Writes files in a folder under temporary names, and renames them together at the end of the `with` block.

    Overwriting one of the `inputs` is an error. `rows` maps file names to numbers of rows.
    """

    def __init__(self, folder: Path, kind: FileFormat, *, inputs: Iterable[str] = ()) -> None:
        self._folder = folder
        self._inputs = tuple(inputs)
        self._kind = kind
        self._writers: dict[str, _JsonlWriter | _ParquetWriter] = {}
        self.rows: dict[str, int] = {}

    def write(self, name: str, row: Mapping[str, Any]) -> None:
        """Append a row to a set. A suffix in the name (`train-single`) selects a different set of columns."""
        file = f"{name}.{self._kind}"
        if file not in self._writers:
            check_no_input([self._folder / file], self._inputs)
            columns = _FIELDS.get(name.partition("-")[2], _PAIR)
            path = self._partial(file)
            self._writers[file] = _JsonlWriter(path) if self._kind == "jsonl" else _ParquetWriter(path, columns)
            self.rows[file] = 0
        self._writers[file].write(row)
        self.rows[file] += 1

    def _partial(self, file: str) -> Path:
        return self._folder / f"{file}.partial"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            for writer in self._writers.values():
                writer.close()
            if kind is None:
                for file in self._writers:
                    os.replace(self._partial(file), self._folder / file)
        finally:
            for file in self._writers:
                self._partial(file).unlink(missing_ok=True)


class _JsonlWriter:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=1 << 20)

    def write(self, row: Mapping[str, Any]) -> None:
        self._file.write(encode_line(row))

    def close(self) -> None:
        self._file.close()


_PAIR: dict[str, str] = {
    **dict.fromkeys(("question_id", "question_body", "answer1_body", "answer2_body"), "text"),
    **dict.fromkeys(("answer1_model_id", "answer2_model_id"), "text"),
    "score": "scores", "text": "text", "reference": "reference", "score_w_reference": "scores",
    "text_w_reference": "text", "winner": "text", "preference": "score", "votes": "texts", "category": "text",
    "source": "text",
    "swapped": "flag", "epoch": "count",
}  # fmt: skip
_ANSWERS: dict[str, str] = {"answer_models": "texts", "category": "text", "source": "text"}
_SINGLE: dict[str, str] = {**dict.fromkeys(("id", "question", "answer"), "text"), "score": "score", "reference": "text"}
_FIELDS: dict[str, dict[str, str]] = {
    "single": _SINGLE | _ANSWERS,
    "multi": {**dict.fromkeys(("id", "question"), "text"), "answers": "texts", "scores": "scores", **_ANSWERS},
    "chat": {"prompt": "messages", "completion": "messages"},
}
"""Columns of the other sets, keyed by name suffix."""


class _ParquetWriter:
    def __init__(self, path: Path, fields: Mapping[str, str]) -> None:
        import pyarrow
        import pyarrow.parquet

        text, real = pyarrow.string(), pyarrow.float64()
        types = {
            "text": text,
            "texts": pyarrow.list_(text),
            "score": real,
            "scores": pyarrow.list_(real),
            "reference": pyarrow.struct([("text", text)]),
            "messages": pyarrow.list_(pyarrow.struct([("role", text), ("content", text)])),
            "flag": pyarrow.bool_(),
            "count": pyarrow.int64(),
        }
        self._schema = pyarrow.schema([(name, types[kind]) for name, kind in fields.items()])
        self._table = pyarrow.Table.from_pylist
        self._writer = pyarrow.parquet.ParquetWriter(path, self._schema)
        self._rows: list[Mapping[str, Any]] = []

    def write(self, row: Mapping[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) == _GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._table(self._rows, schema=self._schema))
            self._rows = []

    def close(self) -> None:
        self._flush()
        self._writer.close()


def file_sha256(path: str | Path) -> str:
    """Return a file's SHA-256 in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    r"""Write a text file atomically. Lone surrogates are written as `\udXXX`."""
    with renamed(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
