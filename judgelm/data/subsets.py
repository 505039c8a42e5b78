"""Draw seeded samples of a file's rows by a hash of id and seed, so that larger samples contain smaller samples.

Source: Self-Reference and SSR-Judge (100 questions per MMLU-Pro category); QA-Judge, section 3 (about 1,000 questions
per data set).
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from judgelm.data.readers.files import read_converted
from judgelm.data.readers.rows import OnReject, Row, raise_reject, unique
from judgelm.data.readers.values import bytes_in
from judgelm.errors import ConfigError, InputError

_WHOLE_FILE = "the whole file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """The rows drawn and, per field value, the numbers of rows drawn and available."""

    rows: tuple[Mapping[str, object], ...]
    counts: Mapping[str, tuple[int, int]]


def draw_subset(
    path: str, *, field: str | None, size: int, seed: int = 0, on_reject: OnReject = raise_reject
) -> Subset:
    """Draw up to `size` rows per value of `field` (in the row or its `metadata`), or in total if `field` is None."""
    if size < 1:
        raise ConfigError(f"size {size}: must be at least 1")
    read = unique(lambda row: (_id(row), row), lambda named: named[0])
    rows = list(read_converted(path, read, expected="an id", on_reject=on_reject))
    groups: dict[str, list[str]] = defaultdict(list)
    for name, row in rows:
        groups[_WHOLE_FILE if field is None else _value(row, field)].append(name)
    drawn = {name for names in groups.values() for name in sorted(names, key=lambda name: _rank(seed, name))[:size]}
    counts = {value: (min(size, len(names)), len(names)) for value, names in sorted(groups.items())}
    return Subset(rows=tuple(row.data for name, row in rows if name in drawn), counts=counts)


def _id(row: Row) -> str:
    name = row.id(("id", "question_id", "_id", "idx"))
    if name is None:
        raise row.error("no id; add an id to each row, because rows are drawn by id")
    if problem := bytes_in(row.data):
        raise row.error(problem)
    return name


def _value(row: Row, field: str) -> str:
    metadata = row.data.get("metadata")
    value = row.data.get(field, metadata.get(field) if isinstance(metadata, dict) else None)
    if value is None:
        raise InputError(
            f"{row.file}:{row.line}: field {field!r} not found in the row or its metadata; choose a different --per"
        )
    return str(value)


def _rank(seed: int, name: str) -> bytes:
    return hashlib.blake2b(f"{seed}:{name}".encode(errors="surrogatepass"), digest_size=16).digest()
