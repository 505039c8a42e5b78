"""Single fields of a row, each checked once, with errors that name file, line, field, finding and way out."""

import hashlib
import json
import math
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from string import ascii_lowercase

from judgelm.data.readers.rows import Row, field_error, row_error
from judgelm.data.readers.streams import row_suffix
from judgelm.data.readers.values import raw_text
from judgelm.errors import InputError
from judgelm.jsonl import parse_json

ID_FIELDS = ("id", "question_id", "idx", "review_id")

_SHOWN = 60
_URLS = ("data:", "http://", "https://")
_WHOLE = re.compile(r"(-?[1-9]\d*|0)\.0+")
_NUMBERS = re.compile(r"\s*+(?:\[\s*+)?(-?\d+(?:\.\d+)?(?:[\s,]+-?\d+(?:\.\d+)?)*)\s*+(?:\]\s*)?")


def describe(value: object) -> str:
    """A value as errors show it: `the number 42`, `null`, `[NaN, 3]`."""
    if value is None:
        return "null"
    text = raw_text(value)
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"the number {text}" if isinstance(value, int | float) and not isinstance(value, bool) else text


def text_field(row: Row, name: str, needs: str) -> str:
    """A field that must be text; empty text is text.

    Args:
        row: the row.
        name: the field.
        needs: what each row needs, for the error when the field is missing.
    """
    value = row.data.get(name)
    if isinstance(value, str) and (value.isascii() or encodable(value)):
        return value
    raise text_error(row, name, needs)


def text_error(row: Row, name: str, needs: str) -> InputError:
    """The error of a field that is not text."""
    if name not in row.data:
        return row_error(row, f'field "{name}" is missing; each row needs {needs}')
    value = row.data[name]
    if isinstance(value, str):
        return field_error(row, name, "holds half a surrogate pair, which UTF-8 cannot say; remove it")
    if value is None:
        return field_error(row, name, 'expected text, got null or NaN; write an empty text as ""')
    if isinstance(value, list | dict) and row_suffix(row.file) in (".csv", ".tsv"):
        finding = f"expected text, got a list in Python's notation, {describe(value)}"
        return field_error(row, name, f"{finding}; write the text alone, or save the table as JSON lines")
    if isinstance(value, int | float):
        quoted = json.dumps(json.dumps(value))
        return field_error(row, name, f"expected text, got {describe(value)}; write it as {quoted}")
    return field_error(row, name, f"expected text, got {describe(value)}; write it as one text")


def encodable(text: str) -> bool:
    """True if UTF-8 can encode the text: it holds no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def optional_text(row: Row, name: str) -> str | None:
    """Text, or None where the field is missing, null or NaN."""
    return None if row.data.get(name) is None else text_field(row, name, name)


def text_fields(row: Row, *names: str, needs: Sequence[str] = ()) -> tuple[str, ...]:
    """Fields that must be texts; an error names `needs`, by default these fields, as what each row needs."""
    expected = ", ".join(needs or names)
    return tuple(text_field(row, name, expected) for name in names)


def optional_texts(row: Row, *names: str) -> tuple[str, ...]:
    """Texts of several fields; empty where one of them is missing, null or NaN."""
    if any(row.data.get(name) is None for name in names):
        return ()
    return tuple(text_field(row, name, name) for name in names)


def has_value(row: Row, name: str) -> bool:
    """True if the field is there and neither null nor empty text."""
    return row.data.get(name) not in (None, "")


def reference_field(row: Row, name: str = "reference") -> str | None:
    """A reference answer: text, or JudgeLM's `{"text": ...}`. Missing, null and blank all mean there is none."""
    value = row.data.get(name)
    if isinstance(value, dict):
        value = value.get("text")
        row = Row(row.file, row.line, {name: value})
    if value is None:
        return None
    text = text_field(row, name, name)
    return text if text.strip() else None


def texts_field(row: Row, name: str, count: int | None = None) -> tuple[str, ...]:
    """A list of texts, also as the JSON that a table's cell holds: at least one; exactly `count` where given."""
    value = list_value(row.data[name])
    expected = f"{count} texts" if count else "a list of texts"
    if not isinstance(value, list):
        raise field_error(row, name, f'expected {expected}, got {describe(value)}; write it as ["...", "..."]')
    if not value or (count and len(value) != count):
        raise field_error(row, name, f"expected {expected}, got {len(value)}")
    for text in value:
        if not isinstance(text, str) or not encodable(text):
            raise field_error(row, name, f"expected {expected}, got {describe(text)} among them")
    return tuple(value)


def list_value(value: object) -> object:
    """The JSON list that a text holds, as a table's cell does; else the value itself."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError):
            return parse_json(value)
    return value


def images_field(row: Row) -> tuple[str, ...]:
    """Paths or URLs of the row's images, from `images` (a list of texts) or `image` (one text); empty without both.

    A path is taken from the file's own folder; URLs (`data:`, `http:`, `https:`) stay as they are.
    """
    name = "images" if row.data.get("images") else "image"
    value = list_value(row.data.get(name))
    if not value:
        return ()
    return tuple(_image(row, name, image) for image in (value if isinstance(value, list) else [value]))


def _image(row: Row, name: str, image: object) -> str:
    if not isinstance(image, str) or not image or not encodable(image):
        raise field_error(row, name, f"expected the image path as a string, got {describe(image)}; write its path")
    return image if image.startswith(_URLS) else str(Path(row.file).parent / image)


def numbered_fields(row: Row, pattern: str, needs: str) -> tuple[str, ...]:
    """The texts of `pattern` with 1, 2, 3, ... for `{}`: at least two.

    Raises:
        InputError: a text is missing, or a field of the pattern with another number would be left over.
    """
    texts = [text_field(row, pattern.format(1), needs), text_field(row, pattern.format(2), needs)]
    while row.data.get(name := pattern.format(len(texts) + 1)) is not None:
        texts.append(text_field(row, name, needs))
    refuse_left_over(row, pattern, len(texts))
    return tuple(texts)


def refuse_left_over(row: Row, pattern: str, count: int) -> None:
    """Refuse a row with a numbered field that is not read: `answer_0` beside `answer_1`, `answer_4` without `answer_3`.

    Args:
        row: the row.
        pattern: the field's name, with `{}` for its number (or letter, where the fields read end in a and b).
        count: the fields read, from the first on.

    Raises:
        InputError: such a field holds something.
    """
    for name in _left_over(tuple(row.data), pattern, count):
        if (value := row.data[name]) not in (None, ""):
            first, last = (1, count) if pattern.format(1) in row.data else ("a", ascii_lowercase[count - 1])
            read = f"only {pattern.format(first)} to {pattern.format(last)} are"
            finding = f"holds {describe(value)} and is not read, {read}"
            raise field_error(row, name, f"{finding}; number the fields from the first without a gap, or leave it out")


@lru_cache
def _left_over(names: tuple[str, ...], pattern: str, count: int) -> tuple[str, ...]:
    """The names that are a pattern's, without case and blanks around, beyond the first `count` of them."""
    numbers = pattern.format(1) in names
    prefix, _, suffix = pattern.partition("{}")
    index = "[0-9]+" if numbers else "[a-z]"
    similar = re.compile(rf"\s*{re.escape(prefix)}{index}{re.escape(suffix)}\s*", re.IGNORECASE)
    read = {pattern.format(index) for index in (range(1, count + 1) if numbers else ascii_lowercase[:count])}
    return tuple(name for name in names if name not in read and similar.fullmatch(name))


def row_id(row: Row, names: Sequence[str] = ID_FIELDS) -> str | None:
    """The id in the first of these fields that holds one, always as text; None where none does.

    Blanks around it do not count, and `1.0` is `1`: tables write whole numbers so where one of the column is missing.
    """
    for name in names:
        value = row.data.get(name)
        if value is None or value == "":
            continue
        if isinstance(value, str) and encodable(value):
            if text := value.strip():
                return whole_number(text)
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, float) and value.is_integer():
            return str(int(value))
        raise field_error(row, name, f"expected text or a whole number as the id, got {describe(value)}")
    return None


def whole_number(text: str) -> str:
    """The text, `1` for `1.0`."""
    match = _WHOLE.fullmatch(text)
    return text if match is None else match[1]


def required_id(row: Row, name: str, use: str) -> str:
    """The id in a field; `use` tells what it is needed for.

    Raises:
        InputError: the field is missing or holds no id.
    """
    value = row_id(row, (name,))
    if value is None:
        raise row_error(row, f'field "{name}" is missing; {use}')
    return value


def content_id(question: str, answers: Sequence[str], reference: str | None) -> str:
    """An id for a row without one: a hash of what it says, so that it is the same in every file and run."""
    content = json.dumps([question, *answers, reference]).encode()
    return f"c-{hashlib.blake2b(content, digest_size=8).hexdigest()}"


def extra_fields(row: Row, known: Collection[str]) -> dict[str, object]:
    """The row's own `metadata` and every field that the format does not use."""
    extras = {name: value for name, value in row.data.items() if name not in known}
    own = extras.get("metadata")
    if isinstance(own, dict):
        del extras["metadata"]
        return {**own, **extras}
    return extras


def scores_field(row: Row, name: str) -> tuple[float, float]:
    """A pair's two finite numbers on whatever scale: `[8, 6]`, or in a table `8 6`."""
    first, second = numbers_field(row, name, 2)
    return first, second


def numbers_field(row: Row, name: str, count: int) -> tuple[float, ...]:
    """`count` finite numbers: `[8, 6, 5]`, or in a table `8 6 5`; a single number needs no list."""
    value = row.data[name]
    if count == 1 and not isinstance(value, str | list):
        return (number_field(row, name),)
    if isinstance(value, str):
        match = _NUMBERS.fullmatch(value)
        numbers = () if match is None else tuple(float(part) for part in re.split(r"[\s,]+", match[1]))
        if len(numbers) == count:
            return numbers
    elif isinstance(value, list) and len(value) == count and all(_is_finite(score) for score in value):
        return tuple(float(score) for score in value)
    raise field_error(row, name, f"expected {count} finite number{'s' * (count > 1)}, got {describe(value)}")


def _is_finite(value: object) -> bool:
    return math.isfinite(_as_float(value))


def _as_float(value: object) -> float:
    """The value as a float; NaN for other types and for integers beyond the largest float."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan


def number_field(row: Row, name: str) -> float:
    """A finite number, also as text."""
    value = row.data.get(name)
    if isinstance(value, str):
        try:
            parsed = float(value)
        except ValueError:
            parsed = math.nan
    else:
        parsed = _as_float(value)
    if not math.isfinite(parsed):
        raise field_error(row, name, f"expected a finite number, got {describe(value)}")
    return parsed
