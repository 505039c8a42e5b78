"""Values of single fields: as errors show them, as ids, as lists and numbers in a table's cell."""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from string import ascii_lowercase

from judgelm.data.readers.values import raw_text
from judgelm.jsonl import parse_json

ID_FIELDS = ("id", "question_id", "idx", "review_id")

_SHOWN = 60
_WHOLE = re.compile(r"(-?[1-9]\d*|0)\.0+")


def describe(value: object) -> str:
    """A value as errors show it: `the number 42`, `null`, `[NaN, 3]`."""
    if value is None:
        return "null"
    text = raw_text(value)
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"the number {text}" if isinstance(value, int | float) and not isinstance(value, bool) else text


def encodable(text: str) -> bool:
    """True if UTF-8 can encode the text: it holds no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def list_value(value: object) -> object:
    """The JSON list that a text holds, as a table's cell does; else the value itself."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError):
            return parse_json(value)
    return value


@lru_cache
def left_over_names(names: tuple[str, ...], pattern: str, count: int) -> tuple[str, ...]:
    """The names that are a pattern's, without case and blanks around, beyond the first `count` of them."""
    numbers = pattern.format(1) in names
    prefix, _, suffix = pattern.partition("{}")
    index = "[0-9]+" if numbers else "[a-z]"
    similar = re.compile(rf"\s*{re.escape(prefix)}{index}{re.escape(suffix)}\s*", re.IGNORECASE)
    read = {pattern.format(index) for index in (range(1, count + 1) if numbers else ascii_lowercase[:count])}
    return tuple(name for name in names if name not in read and similar.fullmatch(name))


def whole_number(text: str) -> str:
    """The text, `1` for `1.0`."""
    match = _WHOLE.fullmatch(text)
    return text if match is None else match[1]


def content_id(question: str, answers: Sequence[str], reference: str | None) -> str:
    """An id for a row without one: a hash of what it says, so that it is the same in every file and run."""
    content = json.dumps([question, *answers, reference]).encode()
    return f"c-{hashlib.blake2b(content, digest_size=8).hexdigest()}"


def as_float(value: object) -> float:
    """The value as a float; NaN for other types and for integers beyond the largest float."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan
