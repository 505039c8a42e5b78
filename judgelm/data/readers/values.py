"""Decode row values, convert them, and format them for error messages."""

import ast
import hashlib
import io
import json
import math
import re
import tokenize
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import pairwise

from judgelm.jsonl import parse_json

_MAX_LITERAL = 1_000_000
_MAX_LITERAL_DEPTH = 30
_OPENING = ("[", "(", "{")
_LIKE_PYTHON = re.compile(r"[\[{][\[({\s]*+(?:(?:None|nan|True|False|[-\d.]++)[,\s]++)*+'.*[\]}]", re.DOTALL)
_QUOTED_TUPLE = re.compile(r"\(\s*+[\[{]*+\s*+['\"]")
_OTHER_FILE = "save the table as JSON lines or Parquet"
_NAN_CELLS = frozenset({"NaN", "nan"})


class RowDecoder:
    """Decodes JSON and detects duplicate keys and infinite numbers. NaN becomes None."""

    def __init__(self) -> None:
        self._problem = ""
        self._infinite = False
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object, parse_constant=self._constant, parse_float=self._number
        )

    def decode(self, text: str) -> object:
        """Decode JSON, or raise a ValueError or RecursionError."""
        self._problem, self._infinite = "", False
        return self._decoder.decode(text)

    def raw_decode(self, text: str, position: int) -> tuple[object, int]:
        """Decode the value at a position; return it and its end position."""
        self._problem, self._infinite = "", False
        return self._decoder.raw_decode(text, position)

    def problem_of(self, value: object) -> str:
        """Return an error message for the last decoded value, or an empty string."""
        return self._problem or (infinite_number(value) if self._infinite else "")

    def _object(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        data = dict(pairs)
        if len(data) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            self._problem = f"key {json.dumps(twice, ensure_ascii=False)} appears twice in the same object; keep one"
        return data

    def _constant(self, name: str) -> float | None:
        return None if name == "NaN" else self._number(name)

    def _number(self, text: str) -> float:
        number = float(text)
        self._infinite = self._infinite or math.isinf(number)
        return number


def infinite_number(value: object) -> str:
    """Return an error message if a row contains an infinite number, else an empty string."""
    field = _found(value, lambda leaf: isinstance(leaf, float) and math.isinf(leaf))
    if field is None:
        return ""
    return f'field "{field[0]}": expected a finite number, got {raw_text(field[1])}; write null for a missing value'


def bytes_in(value: object) -> str:
    """Return an error message if a row contains bytes, else an empty string."""
    field = _found(value, lambda leaf: isinstance(leaf, bytes))
    return "" if field is None else f'field "{field[0]}": contains bytes, which JSON cannot encode; drop the column'


def _found(value: object, unwanted: Callable[[object], bool]) -> tuple[str, object] | None:
    pending = [("", value)]
    while pending:
        path, item = pending.pop()
        if isinstance(item, dict):
            pending += [(f"{path}.{name}" if path else str(name), part) for name, part in reversed(item.items())]
        elif isinstance(item, list):
            pending += [(f"{path}[{index}]", part) for index, part in reversed(list(enumerate(item)))]
        elif unwanted(item):
            return path, item
    return None


def plain_value(value: object) -> object:
    """Convert a Parquet value to JSON types: NaN to None, and dates to strings. Bytes are not converted."""
    if value is None or isinstance(value, str | bool | int | bytes):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, dict):
        return {str(name): plain_value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(part) for part in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)


def raw_text(value: object) -> str:
    """Format a value as JSON for errors and rejects."""
    return json.dumps(value, ensure_ascii=False, default=_shown)


def _shown(value: object) -> str:
    return f"<{len(value)} bytes>" if isinstance(value, bytes) else str(value)


def cell_value(cell: str) -> object:
    """Parse a table cell: NaN as None, and lists and dicts written by pandas as Python literals.

    JSON stays text, because an answer may be JSON.

    Raises:
        ValueError: the cell looks like a Python literal but cannot be parsed.
    """
    if cell in _NAN_CELLS:
        return None
    if cell.lstrip()[:1] not in _OPENING or is_json(text := cell.strip()):
        return cell
    if text[0] == "(" and not _QUOTED_TUPLE.match(text):
        return cell
    try:
        value = _literal(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        if not _LIKE_PYTHON.fullmatch(text):
            return cell
        finding = f"looks like a Python list but cannot be parsed: {_reason(error)}"
        raise ValueError(f"{finding}; {_OTHER_FILE}") from error
    if _strings_in_a_row(text):
        raise ValueError(f"is a numpy list with no commas between the strings: {text[:40]!r}; {_OTHER_FILE}")
    return value


def _reason(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return "not a list of literals"
    return re.sub(r" on line 1|: <ast.*", "", str(error)) or type(error).__name__


def is_json(text: str) -> bool:
    """Return True if the text is JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _literal(text: str) -> list[object] | dict[str, object]:
    if len(text) > _MAX_LITERAL:
        raise ValueError(f"longer than {_MAX_LITERAL:,} characters")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escape sequences
        value = _of_literal(ast.literal_eval(text), depth=0)
    if not isinstance(value, list | dict):
        raise ValueError("not a list")
    return value


def _of_literal(value: object, depth: int) -> object:
    if depth > _MAX_LITERAL_DEPTH:
        raise ValueError(f"nested more than {_MAX_LITERAL_DEPTH} levels deep")
    if isinstance(value, list | tuple):
        return [_of_literal(part, depth + 1) for part in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: _of_literal(part, depth + 1) for name, part in value.items()}
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"contains a value of type {type(value).__name__}, not JSON-serializable: {str(value)[:40]}")


def _strings_in_a_row(text: str) -> bool:
    """Return True if two string literals are adjacent, as in numpy's `['a' 'b']`."""
    tokens = (token.type for token in tokenize.generate_tokens(io.StringIO(text).readline))
    real = [token for token in tokens if token not in (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT)]
    return any(pair == (tokenize.STRING, tokenize.STRING) for pair in pairwise(real))


ID_FIELDS = ("id", "question_id", "idx", "review_id")
MODEL_FIELDS = frozenset(
    {"model", "model_id", "model_a", "model_b", "model_1", "model_2", "answer_models", "chosen_model", "rejected_model"}
    | {"generator", "generator_1", "generator_2", "response_model"}
    | {f"answer{index}_model_id" for index in range(1, 27)}
)
"""Fields that contain model names."""

_SHOWN = 60
_WHOLE = re.compile(r"(-?[1-9]\d*|0)\.0+")


def describe(value: object) -> str:
    """Format a value for an error: `the number 42`, `null`, `[NaN, 3]`."""
    if value is None:
        return "null"
    text = raw_text(value)
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"the number {text}" if isinstance(value, int | float) and not isinstance(value, bool) else text


def encodable(text: str) -> bool:
    """Return True if the text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def list_value(value: object) -> object:
    """Parse a string with a JSON list; return other values unchanged."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError):
            return parse_json(value)
    return value


_OUTER_BLANKS = re.compile(r"\A[\s\u200b-\u200f\u2060\ufeff]+|[\s\u200b-\u200f\u2060\ufeff]+\Z")
_BLANKS = re.compile(r"[\s\u200b-\u200f\u2060\ufeff]+")


def model_name(name: str) -> str:
    """Strip spaces from a model name, including zero-width spaces."""
    return name if name[:1].isalnum() and name[-1:].isalnum() else _OUTER_BLANKS.sub("", name)


def strip_model_names(data: dict[str, object]) -> None:
    """Strip the model names of a row in place."""
    for name in MODEL_FIELDS.intersection(data):
        value = list_value(data[name])
        if isinstance(value, str):
            data[name] = model_name(value)
        elif isinstance(value, list):
            data[name] = [model_name(each) if isinstance(each, str) else each for each in value]


def similar_names_notes(names: Iterable[str]) -> list[str]:
    """Return a warning for each group of model names that differ only in case or spaces."""
    groups: dict[str, dict[str, None]] = {}
    for name in names:
        groups.setdefault(_BLANKS.sub("", name).casefold(), {})[name] = None
    return [
        f"The models {' and '.join(json.dumps(name, ensure_ascii=False) for name in group)} differ only in case or "
        "spaces and are counted separately; use one name if they are the same model."
        for group in groups.values()
        if len(group) > 1
    ]


def whole_number(text: str) -> str:
    """Return `1` for `1.0`; other strings are unchanged."""
    match = _WHOLE.fullmatch(text)
    return text if match is None else match[1]


def content_id(question: str, answers: Sequence[str], reference: str | None) -> str:
    """Return a hash of a row's content, used as the id if the row has no id."""
    content = json.dumps([question, *answers, reference]).encode()
    return f"c-{hashlib.blake2b(content, digest_size=8).hexdigest()}"


def as_float(value: object) -> float:
    """Convert to float, or return NaN if the value is not a number or is too large."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan
