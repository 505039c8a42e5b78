"""Load ratings of completions by several judges from long files, wide files, or runs.

Source: Play Favorites, section 6.1.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pandas as pd

from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Reject, Row, convert_or_reject, reject_row
from judgelm.data.readers.values import encodable
from judgelm.data.sources.source import layout_facts
from judgelm.errors import InputError, RunError
from judgelm.records import GradeVerdict, Judgment, Sample

HUMAN = "human"
GOLD = "gold"
ONLY_DIMENSION = "all"
ONLY_TASK = "all"

_MISSING = re.compile(r"(n\.?/?a\b.*|nan|none|null)?", re.IGNORECASE | re.DOTALL)
_KEY = ("item", "dimension", "judge", "model", "annotator", "check")


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingColumns:
    """The name of the column with the item, and extra columns to keep."""

    item: str = "item"
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingTable:
    """A data frame with one row per rating, and the unusable rows.

    `score` and `length` are floats, or NaN if missing. Extra columns are not converted; all other columns are strings.
    """

    frame: pd.DataFrame
    rejects: tuple[Reject, ...] = ()


def read_ratings(
    paths: Iterable[str | Path], columns: RatingColumns | None = None, *, more: Iterable[Row] = ()
) -> RatingTable:
    """Read files of ratings, in long or wide format, into one table.

    `more` is for additional ratings in long format, such as ratings from run files (`run_ratings`).
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
            key_text = ", ".join(f"{name} {rating.data[name]!r}" for name in _KEY if rating.data[name])
            rejects.append(Reject(rating.file, rating.line, f"rated more than once: {key_text}", key_text))
        else:
            seen.add(key)
            ratings.append(rating.data)
    if not ratings:
        why = f"; first: {rejects[0].message}" if rejects else ""
        raise InputError(f"{', '.join(map(str, paths)) or 'ratings'}: no usable rows{why}")
    _check_extra(ratings, columns)
    return RatingTable(frame=pd.DataFrame(ratings), rejects=tuple(rejects))


def write_ratings(frame: pd.DataFrame, path: str | Path) -> None:
    """Write ratings as JSON lines in long format; NaN becomes null."""
    try:
        frame.to_json(path, orient="records", lines=True, force_ascii=False)
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror or error}; choose a different location") from error


def _read_file(path: str, columns: RatingColumns) -> Iterator[Row | Reject]:
    needs = f"{columns.item}, judge, model, score"
    return convert_or_reject(_long_rows(path, columns), lambda row: row, path=path, expected=needs)


def _long_rows(path: str, columns: RatingColumns) -> Iterator[Row | Reject]:
    wide: bool | None = None
    human: _HumanRatings = {}
    for row in read_rows(path):
        if isinstance(row, Reject):
            yield row
            continue
        if wide is None:
            wide = row.data.keys() >= _WIDE_FIELDS and "score" not in row.data
        if not wide:
            yield _long_row(row, columns)
            continue
        for long_row in _wide_rows(row, Path(path).stem, columns.extra, human):
            yield long_row if isinstance(long_row, Reject) else _long_row(long_row, RatingColumns(extra=columns.extra))


def _long_row(row: Row, columns: RatingColumns) -> Row | Reject:
    values: dict[str, object] = {}
    for name, column in (("item", columns.item), ("judge", "judge"), ("model", "model")):
        text = _text(row.data.get(column))
        if not text:
            return _reject(row, f'no "{column}"; each rating must have an item, judge, and model')
        values[name] = text
    if "score" not in row.data:
        return _reject(row, 'no "score"; write null for a missing score')
    for name, usual in (("dimension", ONLY_DIMENSION), ("task", ONLY_TASK), ("annotator", ""), ("check", "")):
        values[name] = _text(row.data.get(name)) or usual
    for name in ("score", "length"):
        parsed = _number(row.data.get(name))
        if parsed is None:
            return _reject(row, f'"{name}": expected a number or NA, got {repr(row.data.get(name))[:60]}')
        values[name] = parsed
    if values["judge"] in (HUMAN, GOLD) and not values["annotator"]:
        values["annotator"] = "mean"
    values |= {name: row.data.get(name) for name in columns.extra}
    half = next((name for name, value in values.items() if isinstance(value, str) and not encodable(value)), None)
    if half is not None:
        name = columns.item if half == "item" else half
        return _reject(row, f'"{name}": contains half a surrogate pair, which UTF-8 cannot encode; remove it')
    return row.with_data(values)


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()


def _number(value: object) -> float | None:
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


def _check_extra(ratings: list[dict[str, object]], columns: RatingColumns) -> None:
    for name in columns.extra:
        if all(values[name] in (None, "") for values in ratings):
            raise InputError(f'ratings: column "{name}" not found in any row')


_WIDE_FIELDS = frozenset({"judge", "model", "gt", "prompt_id", "rating"})

_NAMES: Mapping[str, str] = layout_facts()["play-favorites"]["models"]
"""Released identifier -> name in the paper; other identifiers are unchanged."""

_TASKS: Mapping[str, str] = layout_facts()["play-favorites"]["tasks"]
"""Data set -> type of task in the paper (section 6.1); other data sets are their own task."""


_HumanRatings = dict[tuple[str, ...], str]
"""(item, dimension, model) -> human rating."""


def _wide_rows(row: Row, dimension: str, extra: tuple[str, ...], human: _HumanRatings) -> list[Row | Reject]:
    values = row.data
    if missing := ", ".join(sorted(_WIDE_FIELDS - values.keys())):
        return [Reject(row.file, row.line, f"{missing} missing, unlike in earlier rows", str(values)[:1000])]
    data_set = str(values.get("dataset") or "").strip()
    shared = {name: values.get(name) for name in extra} | {
        "item": values["prompt_id"],
        "dimension": str(values.get("dimension") or dimension),
        "model": _display_name(values["model"]),
        "task": _TASKS.get(data_set, data_set),
        "length": values.get("pred_length"),
    }
    rating = row.with_data(shared | {"judge": _display_name(values["judge"]), "score": values["rating"]})
    key, gold = tuple(str(shared[name]) for name in ("item", "dimension", "model")), str(values["gt"])
    if key not in human:
        human[key] = gold
        return [row.with_data(shared | {"judge": HUMAN, "score": values["gt"]}), rating]
    if human[key] != gold:
        reason = f'"gt" is {gold}, but {human[key]} in an earlier row for this completion'
        return [Reject(row.file, row.line, reason, str(values)[:1000])]
    return [rating]


def _display_name(identifier: object) -> str:
    text = _text(identifier)
    return _NAMES.get(text, text)


_SHOWN_TEXT = 80


def count_words(text: str) -> int:
    """Count the words in a text, separated by white space."""
    return len(text.split())


def run_ratings(
    judge: str,
    judgments: Mapping[str, Judgment],
    samples: Mapping[str, Sample],
    *,
    item: str = "item",
    length: Callable[[str], int] = count_words,
) -> Iterator[Row]:
    """Yield a row in long format for each answer and dimension (part of the rubric), with the sample's metadata.

    Failures have no score. `judge` must be the model name used for the judge's own answers. `item` is the metadata
    field that identifies the prompt. `length` computes the length of an answer, in tokens as in the paper, or in words.
    """
    for index, (key, judgment) in enumerate(judgments.items(), 1):
        location = f"run of {judge}: judgment {key}"
        if judgment.verdict is not None and not isinstance(judgment.verdict, GradeVerdict):
            raise InputError(f"{location}: not a grade; pass runs in mode rubric or single")
        sample = samples.get(key)
        if sample is None:
            raise InputError(f"{location}: not found in the rows; pass the rows that were judged")
        if len(sample.answers) != 1 or len(sample.answer_models) != 1:
            counts = f"{len(sample.answers)} answers and {len(sample.answer_models)} models"
            raise InputError(f"{location}: the row has {counts}; expected one answer and one name in answer_models")
        common = dict(sample.metadata) | {
            "item": sample.metadata.get(item) or sample.question,
            "judge": judge,
            "model": sample.answer_models[0],
            "task": sample.category,
            "length": length(sample.answers[0]),
        }
        for dimension, score in _scores(judgment):
            yield Row(location[:_SHOWN_TEXT], index, common | {"dimension": dimension, "score": score})


def _scores(judgment: Judgment) -> Iterator[tuple[str | None, float | None]]:
    """If a part was scored more than once, use the last score."""
    parts = {shown.part: shown for shown in judgment.shown if shown.part}
    if not parts:
        yield None, judgment.verdict.score if isinstance(judgment.verdict, GradeVerdict) else None
    for name, shown in parts.items():
        yield name, None if shown.scores is None or shown.failure is not None else shown.scores[0]
