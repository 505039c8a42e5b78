"""Convert judgments to rows of a run file and back."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

from judgelm.jsonl import json_ready
from judgelm.records import (
    AbstainVerdict,
    GradeDistribution,
    GradeVerdict,
    Judgment,
    LabelVerdict,
    PairDistribution,
    PairVerdict,
    RankingVerdict,
    SelfAnswer,
    Shown,
    TextHashes,
    TrajectoryMatch,
    Truncation,
    Unparsed,
    Verdict,
)

Record = TypeVar("Record")

_VERDICTS: Mapping[str, type[Verdict]] = {
    "pair": PairVerdict,
    "ranking": RankingVerdict,
    "grade": GradeVerdict,
    "label": LabelVerdict,
    "abstain": AbstainVerdict,
}
_KINDS = {made: kind for kind, made in _VERDICTS.items()}
_PARTS: Mapping[str, type[Any]] = {
    "shown": Shown,
    "failure": Unparsed,
    "repaired": Unparsed,
    "reason_failure": Unparsed,
    "distribution": PairDistribution,
    "grades": GradeDistribution,
    "truncations": Truncation,
    "self_answers": SelfAnswer,
    "matches": TrajectoryMatch,
    "hashes": TextHashes,
}
"""Fields that contain a record, or several."""
_KEYS = {"sample_id": "id", "sanitized": "neutralised", "self_answers": "solves", "truncations": "cut"}
"""Fields with a different name in a run file."""
_UNDEFINED = frozenset({"expected", "first_better", "tie"})
"""Fields of a distribution that are null in a run file if they are NaN."""
_ALWAYS = frozenset({
    "scores", "consistent", "probability", "failure", "sanitized", "prompt_tokens", "completion_tokens", "provenance",
    "truncations", "answer", "why",
})  # fmt: skip
"""Fields with a default that are written even if they have it."""
_SCALARS = frozenset({str, int, float, bool})
_FIRST = ("id", "mode", "verdict", "scores", "consistent", "probability", "failure", "shown")
"""The order of the keys at the start of a row."""


class _Field(NamedTuple):
    name: str
    key: str
    default: object
    always: bool
    is_plain: bool


@cache
def _fields(kind: type[Any]) -> tuple[_Field, ...]:
    """Return the fields that are always written, then the fields that are written unless they have their default."""
    known = [
        _Field(
            field.name,
            _KEYS.get(field.name, field.name),
            field.default if field.default_factory is MISSING else field.default_factory(),
            field.name in _ALWAYS or (field.default is MISSING and field.default_factory is MISSING),
            field.name not in {*_PARTS, "verdict", "votes"},
        )
        for field in fields(kind)
    ]
    return tuple(sorted(known, key=lambda field: not field.always))


def judgment_row(judgment: Judgment) -> dict[str, Any]:
    """Return a judgment as a row of a run file. Rarely used fields are omitted if they are empty."""
    row = _row(judgment)
    return {key: row[key] for key in _FIRST} | row


def judgment_from_row(row: Mapping[str, Any]) -> Judgment:
    """Return the judgment from a row, which may be from an earlier version."""
    try:
        if not isinstance(row["id"], str):
            raise TypeError(f"id: expected a string, got {row['id']!r}")
        return _record(Judgment, row)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(repr(error)) from error


def hashes_of_row(row: Mapping[str, Any]) -> TextHashes | None:
    """Return the text hashes from a row, or None for a row from an earlier version."""
    hashes = row.get("hashes")
    return None if hashes is None else _record(TextHashes, hashes)


def is_judgment_row(row: Mapping[str, Any]) -> bool:
    """Return True if a row looks like a line of a run file."""
    return {"id", "mode", "verdict", "shown", "failure"} <= row.keys()


def _row(record: Any) -> dict[str, Any]:
    row, kind = {}, cast(Any, type(record))
    for name, key, default, always, is_plain in _fields(kind):
        value = getattr(record, name)
        if always or value != default:
            row[key] = value if is_plain and type(value) in _SCALARS else _json_value(name, value)
    return json_ready(row) if kind in (PairDistribution, GradeDistribution) else row


def _json_value(name: str, value: Any) -> Any:
    if name in _PARTS and value is not None:
        return [_row(part) for part in value] if isinstance(value, tuple) else _row(value)
    if name == "verdict" and value is not None:
        return {"kind": _KINDS[type(value)], **_row(value)}
    return dict(value) if name == "votes" else value


def _record(kind: type[Record], row: Mapping[str, Any]) -> Record:
    values = {}
    for name, key, _, always, is_plain in _fields(cast(Any, kind)):
        if always or key in row:
            value = row[key]
            values[name] = value if is_plain and type(value) in _SCALARS else _value(name, value)
    return kind(**values)


def _value(name: str, value: Any) -> Any:
    if name in _PARTS and value is not None:
        kind = _PARTS[name]
        return tuple([_record(kind, part) for part in value]) if isinstance(value, list) else _record(kind, value)
    if name == "verdict" and value is not None:
        return _record(_VERDICTS[value["kind"]], value)
    return dict(value) if name == "votes" else _tupled(value, null=math.nan if name in _UNDEFINED else None)


def _tupled(value: Any, *, null: float | None) -> Any:
    if isinstance(value, list):
        return tuple([item if type(item) in _SCALARS else _tupled(item, null=null) for item in value])
    return null if value is None else value
