"""Label codes define the meanings of values in a file's label fields, and are validated over the whole file.

Words such as `model_a` are unambiguous. Numbers are ambiguous: 0 can mean the first answer, a tie, or the second
answer. If neither the layout nor the user defines a code, numbers other than 1 and 2 are errors.
"""

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from judgelm.data.readers.rows import Row
from judgelm.data.readers.values import describe, list_value
from judgelm.errors import ConfigError, LabelCodeError
from judgelm.records import Winner

Values = Mapping[str, Winner | None]
"""Label value (normalised by `label_text`) -> winner, or None for no label."""

FROM_ONE: Values = {"1": 1, "2": 2}
ZERO_IS_TIE: Values = {"0": "tie", "1": 1, "2": 2}
FROM_ZERO: Values = {"0": 1, "1": 2}

Soft = Literal["probability", "alpaca_eval"]
"""Either P(first answer is better) in [0, 1], or AlpacaEval's scale: 1 (first) to 2 (second), or 0 for a tie."""

_NAMES: Mapping[str, Winner | None] = {"first": 1, "second": 2, "tie": "tie", "none": None}
_MEANINGS: Mapping[Winner | None, str] = {winner: name for name, winner in _NAMES.items()}
_SCORE_FIELDS = ("score", "scores", "score_1", "score_2", "score_a", "score_b", "text")
_OTHER_LABELS = ("winner", "votes", "preference", "annotator1", *_SCORE_FIELDS[:-1])
_SIDES = (("model_a", "model_b"), ("model_1", "model_2"))
_SHOWN_VALUES = 12
_KNOWN = '"0=first,1=second", "0=first,1=tie,2=second", "0=tie,1=first,2=second" or "1=first,2=second,3=tie"'


WORDS: Mapping[str, Winner] = {
    **dict.fromkeys(("a", "model_a", "model_1", "model a", "model 1", "[[a]]", "a>b", "a>>b", "first", "left"), 1),
    **dict.fromkeys(("response_a", "response_1", "answer_a", "answer_1", "output_1", "assistant a", "assistant_a"), 1),
    **dict.fromkeys(("response a", "answer a"), 1),
    **dict.fromkeys(("b", "model_b", "model_2", "model b", "model 2", "[[b]]", "b>a", "b>>a", "second", "right"), 2),
    **dict.fromkeys(("response_b", "response_2", "answer_b", "answer_2", "output_2", "assistant b", "assistant_b"), 2),
    **dict.fromkeys(("response b", "answer b"), 2),
    **dict.fromkeys(("tie", "tie (bothbad)", "tie (inconsistent)", "both_bad", "a=b", "[[c]]", "draw"), "tie"),
}
"""The spellings of winners in published files, in lower case.

Source: LMSYS's arena (`model_a`, `tie (bothbad)`, `both_bad`), FastChat (`model_1`, `[[A]]`, `tie (inconsistent)`),
JudgeBench and Arena-Hard (`A>B`, `A>>B`), Label Studio (`left`).
"""


def label_text(value: object) -> str:
    """Convert a label value to lower case with single spaces, and `1.0` to `1`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(str(value).split()).casefold()
    return str(int(float(text))) if _is_number(text) and float(text).is_integer() else text


def is_missing(value: object) -> bool:
    """Return True for null, NaN, and blank strings."""
    return value is None or (isinstance(value, str) and not value.strip()) or value != value


def winner_field(row: Row, name: str = "winner") -> Winner:
    """Parse a winner: 1, 2, or a published spelling."""
    value = row.data[name]
    text = label_text(value)
    winner = FROM_ONE.get(text) or WORDS.get(text)
    if winner is None:
        raise row.field_error(name, f'expected 1, 2 or "tie", got {describe(value)}')
    check_side(row, name, value, winner)
    return winner


def majority(votes: tuple[Winner, ...]) -> Winner | None:
    """Return the winner with more than half of the votes, or None."""
    winner, count = Counter(votes).most_common(1)[0] if votes else (None, 0)
    return winner if 2 * count > len(votes) else None


def check_side(row: Row, name: str, value: object, winner: Winner) -> None:
    """Reject a label that names one side but is also the model name of the other side."""
    others = [row.data.get(side[1 if winner == 1 else 0]) for side in _SIDES]
    if isinstance(value, str) and winner != "tie" and value in others:
        raise row.field_error(
            name, f"{describe(value)} is ambiguous: it is also the name of the other side's model; use 1 or 2"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldCode:
    """The code of one or more label fields.

    Attributes:
        fields: field names; a final `*` matches any number (`annotator1`).
        values: meanings of numbers; by default, only 1 and 2 are valid.
        if_alone: use the field only if the row has no other label; words that are not winners are then ignored.
    """

    fields: tuple[str, ...]
    values: Values | None = None
    if_alone: bool = False

    def names(self, row: Row) -> Iterator[str]:
        """Yield the names of the row's fields that use this code."""
        for name in self.fields:
            if name.endswith("*"):
                yield from (known for known in row.data if re.fullmatch(rf"{re.escape(name[:-1])}\d+", known))
            elif name in row.data:
                yield name


WINNER_CODE = (FieldCode(fields=("winner", "votes")),)
"""For layouts that do not define a code."""

PAIR_CODE = (
    *WINNER_CODE,
    FieldCode(fields=("label",), if_alone=True),
    FieldCode(fields=("annotator*",), values=ZERO_IS_TIE),
)
"""For layouts that allow any documented label field."""

LLMBAR_CODE = (FieldCode(fields=("label",), values=FROM_ONE),)


def parse_label_code(text: str) -> Values:
    """Parse a `--label-code` option such as `0=first,1=tie,2=second`."""
    values: dict[str, Winner | None] = {}
    for part in text.split(","):
        value, equals, name = (piece.strip() for piece in part.rpartition("="))
        meaning = name.casefold()
        if not equals or not value or meaning not in _NAMES:
            finding = f'--label-code "{text}": expected VALUE=first, VALUE=second, VALUE=tie or VALUE=none'
            raise ConfigError(f'{finding}, separated by commas, such as 0=first,1=tie,2=second; got "{part.strip()}"')
        if values.setdefault(label_text(value), _NAMES[meaning]) != _NAMES[meaning]:
            raise ConfigError(f'--label-code "{text}": "{value}" has two meanings; keep only one')
    return values


@dataclass(slots=True, kw_only=True)
class LabelDecoder:
    """Decodes the label fields of one file; raises an error if a value contradicts the code.

    Attributes:
        codes: the layout's codes; overridden by the user's code (`stated`).
        soft: scale of `preference`, if the layout defines it.
    """

    codes: Sequence[FieldCode]
    stated: Values | None = None
    soft: Soft | None = None
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    _contradicted: str | None = None
    _without_winner: str | None = None
    _soft_alone: set[float] = field(default_factory=set)
    _first: Row | None = None
    _unread: dict[str, Counter[str]] = field(default_factory=dict)

    def decode(self, row: Row) -> Row:
        """Return the row with its label values converted to 1, 2, and "tie".

        Raises:
            LabelCodeError: a number is not in the code. Call `count` for the remaining rows, then raise `error()`.
            InputError: a word is not a winner; other rows may still be valid.
        """
        decoded: dict[str, object] = {}
        for name, value, code in self._labels(row):
            if isinstance(value, list):
                decoded[name] = [self._winner(row, name, vote, code) for vote in value]
            else:
                decoded[name] = None if is_missing(value) else self._winner(row, name, value, code)
        if not is_missing(row.data.get("preference")):
            decoded |= self._soft(row, decoded)
        return row.with_data({**row.data, **decoded}) if decoded else row

    def _labels(self, row: Row) -> Iterator[tuple[str, object, FieldCode]]:
        for code in self.codes:
            if code.if_alone and any(not is_missing(row.data.get(name)) for name in _OTHER_LABELS):
                continue
            for name in code.names(row):
                yield name, list_value(row.data[name]), code

    def _winner(self, row: Row, name: str, value: object, code: FieldCode) -> Winner | None:
        text = label_text(value)
        self._count(name, text)
        if self.stated is not None:
            if text in self.stated:
                return self.stated[text]
        elif text in (values := code.values or FROM_ONE):
            return values[text]
        if text in WORDS:
            check_side(row, name, value, WORDS[text])
            return WORDS[text]
        if _is_number(text):
            self._contradicted, self._first = name, row
            raise self.error()
        if code.if_alone and self.stated is None:
            self._without_winner = self._without_winner or name
            self._first = self._first or row
            return None
        self._unread.setdefault(name, Counter())[text] += 1
        example = f"--label-code {shlex.quote(example_code([text]))}"
        finding = f"expected {self._expected(code)}, got {describe(value)}"
        raise row.field_error(name, f"{finding}; define its meaning, for example with {example}")

    def _soft(self, row: Row, decoded: Mapping[str, object]) -> dict[str, object]:
        text = label_text(row.data["preference"])
        if self.stated is not None and text in self.stated:
            winner = self.stated[text]
            return {"preference": None, **({} if winner is None else {"winner": winner})}
        self._count("preference", text)
        if not decoded.get("winner") and all(is_missing(row.data.get(name)) for name in _SCORE_FIELDS):
            if _is_number(text):
                self._soft_alone.add(float(text))
            self._first = self._first or row
        return {}

    def finish(self) -> None:
        """Check, at the end of the file, that the label values were unambiguous.

        Raises:
            LabelCodeError: all values of `preference` are 0 or 1, or only some words in a field are winners.
        """
        field = self._without_winner
        if field is not None and any(text in WORDS or text in FROM_ONE for text in self.counts[field]):
            self._contradicted = field
            raise self.error()
        numbers = self._soft_alone
        if self.stated is not None or not numbers:
            return
        hard = numbers == {0.0, 1.0}
        mixed = 0.0 in numbers or min(numbers) < 1 < max(numbers)
        if mixed if self.soft is None else hard:
            self._contradicted = "preference"
            raise self.error()

    def unread(self) -> LabelCodeError | None:
        """Return the error for a label field in which no word is a winner, if it is the file's only label field."""
        self._contradicted = self._without_winner
        return None if self._without_winner is None else self.error()

    def count(self, row: Row) -> None:
        """Count the values in a row without decoding it."""
        for name, value, _ in self._labels(row):
            for each in value if isinstance(value, list) else [value]:
                if not is_missing(each):
                    self._count(name, label_text(each))
        if not is_missing(row.data.get("preference")):
            self._count("preference", label_text(row.data["preference"]))

    def unread_error(self, file: str) -> LabelCodeError | None:
        """Return the error for a file with no parseable labels, including a guess at the code."""
        if not self._unread:
            return None
        name, counts = next(iter(self._unread.items()))
        example = shlex.quote(example_code([text for text, _ in counts.most_common(_SHOWN_VALUES)]))
        return LabelCodeError(
            f'{file}: field "{name}" has the values {_counted(counts)}, which are not known winners; define their '
            f"meaning with --label-code (label_code in a build configuration). A guess: --label-code {example}"
        )

    def _count(self, name: str, text: str) -> None:
        counts = self.counts.setdefault(name, Counter())
        counts[text if text in counts or len(counts) < 1000 else "..."] += 1

    def error(self) -> LabelCodeError:
        """Return the error for a file with contradictory or undefined values."""
        name, row = self._contradicted or "", self._first
        stated = self._code(name) if self.stated is None else f"--label-code is {_in_words(self.stated)}"
        location = "" if row is None else f"{row.file}:{row.line}: "
        return LabelCodeError(
            f'{location}field "{name}" has the values {_counted(self.counts[name])}, but {stated}. Define the '
            f"meaning of each value with --label-code (label_code in a build configuration), such as {_KNOWN}"
        )

    def _code(self, name: str) -> str:
        if name == "preference":
            return "they could be P(first answer is better) or the index of the better answer"
        names = {name, f"{name.rstrip('0123456789')}*"}
        code = next((code for code in self.codes if not names.isdisjoint(code.fields)), None)
        if code is not None and code.values is not None:
            return f"this layout uses {_in_words(code.values)}"
        return "if no code is defined, only 1=first, 2=second and words such as model_a and tie are allowed"

    def _expected(self, code: FieldCode) -> str:
        if self.stated is not None:
            return f"a value in --label-code ({_in_words(self.stated)}), a side such as model_a, or tie"
        return f"{_in_words(code.values or FROM_ONE)}, a side such as model_a, or tie"


_FIRST_WORDS = frozenset({"a", "1", "first", "left", "links", "erste", "one", "ours", "win"})
_TIE_WORDS = frozenset({"tie", "draw", "same", "equal", "both", "neither", "gleich", "egal", "unentschieden"})
_SECOND_WORDS = frozenset({"b", "2", "second", "right", "rechts", "zweite", "two", "theirs", "loss"})


def example_code(values: Sequence[str]) -> str:
    """Guess a code from the words in the values, or else from their order."""
    meanings: dict[str, str] = {}
    for value in values:
        words = set(re.findall(r"\w+", value.casefold()))
        if words & _FIRST_WORDS and not words & _SECOND_WORDS:
            meanings[value] = "first"
        elif words & _SECOND_WORDS and not words & _FIRST_WORDS:
            meanings[value] = "second"
        elif words & _TIE_WORDS:
            meanings[value] = "tie"
    for value in values:
        free = (name for name in ("first", "second", "tie") if name not in meanings.values())
        meanings.setdefault(value, next(free, "none"))
    return ",".join(f"{value}={meanings[value]}" for value in values)


def _in_words(values: Values) -> str:
    return ", ".join(f"{value}={_MEANINGS[winner]}" for value, winner in values.items())


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _counted(counts: Counter[str]) -> str:
    values = ", ".join(f"{_shown(text)} ({n:,} times)" for text, n in counts.most_common(_SHOWN_VALUES))
    return f"{values} and {len(counts) - _SHOWN_VALUES} more" if len(counts) > _SHOWN_VALUES else values


def _shown(text: str) -> str:
    return text if _is_number(text) else json.dumps(text, ensure_ascii=False)
