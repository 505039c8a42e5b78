"""GSM-Symbolic, P1 and P2: GSM8K's problems as templates with other names and numbers, P1 and P2 with further clauses.

Rows are questions without answers, for an answering run. The rows of all three files have the same ids, and no field
says which file they are from: its name does.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from judgelm.data.readers.fields import describe, text_field
from judgelm.data.readers.files import first_row
from judgelm.data.readers.rows import OnReject, Row, field_error
from judgelm.data.sources.source import Entry, Shape, convert_file, plain_row
from judgelm.errors import InputError
from judgelm.parsing.final_answers import canonical
from judgelm.records import Sample

_NAME = "GSM-Symbolic"
_NEEDS = ("id", "instance", "question", "answer", "original_id")
_VARIANT = re.compile(r"(?<![a-z0-9])p[12](?![a-z0-9])", re.IGNORECASE)
_MAIN_FILE, _MAIN_FOLDER = re.compile(r"symbolic|main", re.IGNORECASE), "main"


def load_gsm_symbolic(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    """The questions of GSM-Symbolic's files."""
    for path in files:
        first = first_row(path)
        known = first is not None and first.data.keys() >= set(_NEEDS)  # else the shape is what is wrong
        make = partial(_entry, data_set=_data_set(path) if known else _NAME)
        yield from convert_file(path, Shape(name=_NAME, needs=_NEEDS), make, on_reject)


def _data_set(path: str) -> str:
    """`GSM-Symbolic`, `GSM-Symbolic-P1` or `GSM-Symbolic-P2`, by the name of the file or of its folder.

    Raises:
        InputError: the names say neither, or two.
    """
    name, folder = Path(path).name, Path(path).absolute().parent.name
    variants = {found.upper() for text in (name, folder) for found in _VARIANT.findall(text)}
    if len(variants) == 1:
        return f"{_NAME}-{variants.pop()}"
    if not variants and (_MAIN_FILE.search(name) or folder.lower() == _MAIN_FOLDER):
        return _NAME
    found = " and ".join(sorted(variants)) or "none of them"
    raise InputError(
        f"{path}: its rows do not say which of GSM-Symbolic, P1 and P2 they are, and its name and folder say {found}; "
        "name it as published: GSM_symbolic.jsonl, GSM_p1.jsonl or GSM_p2.jsonl"
    )


def _entry(row: Row, row_number: int, data_set: str) -> Entry:
    template, instance = (_number(row, name) for name in ("id", "instance"))
    worked = text_field(row, "answer", ", ".join(_NEEDS))
    gold = canonical(worked, "number") if "####" in worked else None
    if gold is None:
        raise field_error(row, "answer", 'no final number behind "####"; this is no row of GSM-Symbolic')
    metadata = {
        "data_set": data_set,
        "solution": worked,
        "template": template,
        "original_id": _number(row, "original_id"),
    }
    if isinstance(row.data.get("canary"), str):
        metadata["canary"] = row.data["canary"]
    sample = Sample(
        id=f"{data_set.lower()}-{template}-{instance}",
        question=text_field(row, "question", ", ".join(_NEEDS)),
        answers=(),
        reference=gold,
        metadata=metadata,
    )
    return Entry(plain_row(sample))


def _number(row: Row, name: str) -> int:
    value = row.data.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise field_error(row, name, f"expected a number from 0, got {describe(value)}")
    return value
