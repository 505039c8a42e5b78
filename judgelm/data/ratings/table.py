"""Ratings of completions by several judges, in long format: what the study of self-bias reads.

One row per (item, dimension, judge, model), as CSV, TSV, JSON lines, a JSON list or Parquet:

| field | needed | meaning |
|---|---|---|
| `item` | yes | the prompt; every model answers the same items |
| `judge` | yes | the rater; `human` is the reference, `gold` a more expert team that checks the humans |
| `model` | yes | model of the completion; of a judge's own completions `model` is spelled as `judge` |
| `score` | yes | on the dimension's own scale, higher is better |
| `dimension` | no | what was rated; all rows are one dimension without it |
| `task` | no | type of task, to fit each apart |
| `length` | no | length of the completion in tokens, for length control |
| `annotator` | no | one of the human raters: their scores of one completion are averaged into the reference |
| `check` | no | name of an attention check: the row serves that check and nothing else |

An empty score, null, and the rubrics' NA options (`NA: not enough information ...`) are missing values, never numbers:
they are kept without a score and counted. So is a judge's reply that could not be parsed. Other columns are kept where
the caller names them (an indicator of another bias, a data set to fit apart). Wide files of the released Play Favorites
data are recognised and converted, see `judgelm.data.ratings.wide`.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pandas as pd

from judgelm.data.ratings.long_rows import WIDE_FIELDS, WideReader
from judgelm.data.readers.fields import encodable
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rejects import FileUse, reject_row
from judgelm.data.readers.rows import Reject, Row
from judgelm.errors import InputError, RunError

HUMAN = "human"
GOLD = "gold"
ONLY_DIMENSION = "all"
ONLY_TASK = "all"

_MISSING = re.compile(r"(n\.?/?a\b.*|nan|none|null)?", re.IGNORECASE | re.DOTALL)
_KEY = ("item", "dimension", "judge", "model", "annotator", "check")


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingColumns:
    """Field names in the file, and further columns to keep."""

    item: str = "item"
    dimension: str = "dimension"
    judge: str = "judge"
    model: str = "model"
    score: str = "score"
    task: str = "task"
    length: str = "length"
    annotator: str = "annotator"
    check: str = "check"
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingTable:
    """Ratings as a data frame.

    Attributes:
        frame: one row per rating with the columns of the module's table under their own names (`score` and `length`
            are floats with NaN for what is missing, all others text), and the extra columns as they are in the file.
        rejects: rows that could not be used, with reasons.
    """

    frame: pd.DataFrame
    rejects: tuple[Reject, ...] = ()


def read_ratings(
    paths: Iterable[str | Path], columns: RatingColumns | None = None, *, more: Iterable[Row] = ()
) -> RatingTable:
    """Read files of ratings, long or wide, into one table; a row that cannot be used is a reject.

    Args:
        paths: the files.
        columns: their field names.
        more: ratings in long format under its own names, such as those of run files (`judgelm.data.ratings.run_files`).

    Raises:
        InputError: a file cannot be read, a requested column is missing, or no row can be used.
    """
    columns = columns or RatingColumns()
    ratings: list[dict[str, object]] = []
    rejects: list[Reject] = []
    seen: set[tuple[object, ...]] = set()
    read = (row for path in map(str, paths) for row in _read_file(path, columns))
    own = (_long_row(row, RatingColumns(extra=columns.extra)) for row in more)
    for rating in chain(read, own):
        if isinstance(rating, Reject):
            rejects.append(rating)
        elif (key := tuple(rating.data[name] for name in _KEY)) in seen:
            rejects.append(Reject(rating.file, rating.line, f"rated twice: {_said(rating.data)}", _said(rating.data)))
        else:
            seen.add(key)
            ratings.append(rating.data)
    if not ratings:
        why = f"; first: {rejects[0].message}" if rejects else ""
        raise InputError(f"{', '.join(map(str, paths)) or 'ratings'}: no row can be used{why}")
    _check_extra(ratings, columns)
    return RatingTable(frame=pd.DataFrame(ratings), rejects=tuple(rejects))


def write_ratings(frame: pd.DataFrame, path: str | Path) -> None:
    """Write ratings as JSON lines in long format; NaN becomes null.

    Raises:
        RunError: the file cannot be written.
    """
    try:
        frame.to_json(path, orient="records", lines=True, force_ascii=False)
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror or error}; choose another place") from error


def _read_file(path: str, columns: RatingColumns) -> Iterator[Row | Reject]:
    """Long rows of one file, of which at least one must be usable."""
    use = FileUse(path=path, expected=_needs(columns), on_reject=lambda reject: None)
    for row in _long_rows(path, columns):
        if isinstance(row, Reject):
            use.reject(row)
        else:
            use.used += 1
        yield row
    use.require_used()


def _needs(columns: RatingColumns) -> str:
    return ", ".join((columns.item, columns.judge, columns.model, columns.score))


def _long_rows(path: str, columns: RatingColumns) -> Iterator[Row | Reject]:
    """The rows, in long format; the first good one tells whether the file is wide."""
    wide: WideReader | None = None
    first = True
    for row in read_rows(path):
        if isinstance(row, Reject):
            yield row
            continue
        if first:
            first = False
            if row.data.keys() >= WIDE_FIELDS and columns.score not in row.data:
                wide = WideReader(dimension=Path(path).stem, extra=columns.extra)
        if wide is None:
            yield _long_row(row, columns)
            continue
        for long_row in wide.long_rows(row):
            yield long_row if isinstance(long_row, Reject) else _long_row(long_row, RatingColumns(extra=columns.extra))


def _long_row(row: Row, columns: RatingColumns) -> Row | Reject:
    values: dict[str, object] = {}
    for name in ("item", "judge", "model"):
        text = _text(row.data.get(getattr(columns, name)))
        if not text:
            return _reject(row, f'no "{getattr(columns, name)}"; every rating names its item, judge and model')
        values[name] = text
    if columns.score not in row.data:
        return _reject(row, f'no "{columns.score}"; give null where the score is missing')
    for name, usual in (("dimension", ONLY_DIMENSION), ("task", ONLY_TASK), ("annotator", ""), ("check", "")):
        values[name] = _text(row.data.get(getattr(columns, name))) or usual
    for name in ("score", "length"):
        parsed = _number(row.data.get(getattr(columns, name)))
        if parsed is None:
            shown = repr(row.data.get(getattr(columns, name)))[:60]
            return _reject(row, f'"{getattr(columns, name)}": expected a number or NA, got {shown}')
        values[name] = parsed
    if values["judge"] in (HUMAN, GOLD) and not values["annotator"]:
        values["annotator"] = "mean"
    values |= {name: row.data.get(name) for name in columns.extra}
    half = next((name for name, value in values.items() if isinstance(value, str) and not encodable(value)), None)
    if half is not None:
        name = getattr(columns, half, half)
        return _reject(row, f'"{name}": holds half a surrogate pair, which UTF-8 cannot say; remove it')
    return Row(row.file, row.line, values)


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()


def _number(value: object) -> float | None:
    """A finite number, NaN for a missing value, None for anything else."""
    if value is None:
        return math.nan
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and _MISSING.fullmatch(value.strip()):
        return math.nan
    try:
        parsed = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isinf(parsed) else parsed


def _reject(row: Row, reason: str) -> Reject:
    return reject_row(row, InputError(reason))


def _said(values: dict[str, object]) -> str:
    return ", ".join(f"{name} {values[name]!r}" for name in _KEY if values[name])


def _check_extra(ratings: list[dict[str, object]], columns: RatingColumns) -> None:
    for name in columns.extra:
        if all(values[name] in (None, "") for values in ratings):
            raise InputError(f'ratings: no row has a column "{name}"; check its name')
