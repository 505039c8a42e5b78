"""Codes of labels: what the values of a file's label field mean, checked over the whole file.

Words such as `model_a`, `Tie` and `tie (bothbad)` mean the same everywhere. Numbers do not: 0 is the first answer in
one file, a tie in a second and the second answer in a third. So numbers are read by the code that a recognised layout
or the user states. Without one, only 1 and 2 are read, and any other number makes the whole file unreadable.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from judgelm.data.readers.rows import Row
from judgelm.data.readers.values import describe, list_value
from judgelm.errors import ConfigError, LabelCodeError
from judgelm.records import Winner

Values = Mapping[str, Winner | None]
"""Value of a label field, as `label_text` writes it -> winner; None where it says that there is no label."""

FROM_ONE: Values = {"1": 1, "2": 2}
ZERO_IS_TIE: Values = {"0": "tie", "1": 1, "2": 2}
FROM_ZERO: Values = {"0": 1, "1": 2}

Soft = Literal["probability", "alpaca_eval"]
"""P(first answer is better), 0 to 1; or AlpacaEval's 1 (first) to 2 (second), and 0 for a tie."""

_NAMES: Mapping[str, Winner | None] = {"first": 1, "second": 2, "tie": "tie", "none": None}
_MEANINGS: Mapping[Winner | None, str] = {winner: name for name, winner in _NAMES.items()}
_SCORE_FIELDS = ("score", "scores", "score_1", "score_2", "score_a", "score_b", "text")
_SIDES = (("model_a", "model_b"), ("model_1", "model_2"))
_SHOWN_VALUES = 12
_KNOWN = '"0=first,1=second", "0=first,1=tie,2=second", "0=tie,1=first,2=second" or "1=first,2=second,3=tie"'


WORDS: Mapping[str, Winner] = {
    **dict.fromkeys(("a", "model_a", "model_1", "model a", "model 1", "[[a]]", "a>b", "a>>b", "first"), 1),
    **dict.fromkeys(("response_a", "response_1", "answer_a", "answer_1", "output_1", "assistant a", "assistant_a"), 1),
    **dict.fromkeys(("b", "model_b", "model_2", "model b", "model 2", "[[b]]", "b>a", "b>>a", "second"), 2),
    **dict.fromkeys(("response_b", "response_2", "answer_b", "answer_2", "output_2", "assistant b", "assistant_b"), 2),
    **dict.fromkeys(("tie", "tie (bothbad)", "tie (inconsistent)", "both_bad", "a=b", "[[c]]", "draw"), "tie"),
}
"""Published spellings of a winner, without case and surrounding blanks.

Source: LMSYS's arena (`model_a`, `tie (bothbad)`, `both_bad`), FastChat (`model_1`, `[[A]]`, `tie (inconsistent)`),
JudgeBench and Arena-Hard (`A>B`, `A>>B`).
"""


def label_text(value: object) -> str:
    """A label value as codes are written: text without case and surrounding blanks, 1.0 as 1."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(str(value).split()).casefold()
    return str(int(float(text))) if _is_number(text) and float(text).is_integer() else text


def is_missing(value: object) -> bool:
    """True for null, NaN and blank text."""
    return value is None or (isinstance(value, str) and not value.strip()) or value != value


def winner_field(row: Row, name: str = "winner") -> Winner:
    """The winner that a field names by 1, 2 or a published spelling, as all layouts read it whose code is not stated.

    Raises:
        InputError: another value, or the name of the other side's model.
    """
    value = row.data[name]
    text = label_text(value)
    winner = FROM_ONE.get(text) or WORDS.get(text)
    if winner is None:
        raise row.field_error(name, f'expected 1, 2 or "tie", got {describe(value)}')
    check_side(row, name, value, winner)
    return winner


def majority(votes: tuple[Winner, ...]) -> Winner | None:
    """The strict majority of the votes, or None."""
    winner, count = Counter(votes).most_common(1)[0] if votes else (None, 0)
    return winner if 2 * count > len(votes) else None


def check_side(row: Row, name: str, value: object, winner: Winner) -> None:
    """Refuse a side's name that is also the name of the other side's model.

    Raises:
        InputError: it is.
    """
    others = [row.data.get(side[1 if winner == 1 else 0]) for side in _SIDES]
    if isinstance(value, str) and winner != "tie" and value in others:
        raise row.field_error(name, f"{describe(value)} names one side and the other side's model; write 1 or 2")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldCode:
    """The code of one or more label fields.

    Attributes:
        fields: names; one that ends in `*` matches any number in its place (`annotator1`).
        values: of its numbers; None where the layout does not state them, so that only 1 and 2 are read.
    """

    fields: tuple[str, ...]
    values: Values | None = None

    def names(self, row: Row) -> Iterator[str]:
        """The row's fields of this code."""
        for name in self.fields:
            if not name.endswith("*"):
                if name in row.data:
                    yield name
                continue
            yield from (known for known in row.data if re.fullmatch(rf"{re.escape(name[:-1])}\d+", known))


def parse_label_code(text: str) -> Values:
    """The code in an option such as `0=first,1=tie,2=second`.

    Raises:
        ConfigError: the option is not of this form, or gives a value two meanings.
    """
    values: dict[str, Winner | None] = {}
    for part in text.split(","):
        value, equals, name = (piece.strip() for piece in part.rpartition("="))
        meaning = name.casefold()
        if not equals or not value or meaning not in _NAMES:
            finding = f'--label-code "{text}": expected VALUE=first, VALUE=second, VALUE=tie or VALUE=none'
            raise ConfigError(f'{finding}, separated by commas, got "{part.strip()}"; such as 0=first,1=tie,2=second')
        if values.setdefault(label_text(value), _NAMES[meaning]) != _NAMES[meaning]:
            raise ConfigError(f'--label-code "{text}": gives "{value}" two meanings; keep one')
    return values


@dataclass(slots=True, kw_only=True)
class LabelDecoder:
    """Decodes the label fields of one file's rows, and refuses the file where a value contradicts their code.

    Attributes:
        codes: of the layout.
        stated: the user's code, which replaces the layout's; None without one.
        soft: meaning of numbers in `preference`; None where the layout does not state it.
        counts: values so far by field.
    """

    codes: Sequence[FieldCode]
    stated: Values | None = None
    soft: Soft | None = None
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    _contradicted: str | None = None
    _soft_alone: set[float] = field(default_factory=set)
    _first: Row | None = None

    def decode(self, row: Row) -> Row:
        """The row with 1, 2 and "tie" in its label fields.

        Raises:
            LabelCodeError: a number that the code does not explain. Count the file's other rows, then raise `error`.
            InputError: a word that means no winner; other rows can be read.
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
        """The row's label fields, with their values and codes."""
        for code in self.codes:
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
        raise row.field_error(name, f"expected {self._expected(code)}, got {describe(value)}")

    def _soft(self, row: Row, decoded: Mapping[str, object]) -> dict[str, object]:
        """A stated code applied to `preference`; values of rows without another label are kept for `finish`."""
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
        """Refuse numbers in `preference` that two codes explain; to be called at the end of the file.

        Raises:
            LabelCodeError: 0 and 1 alone (with ties) are P(first answer is better), AlpacaEval's tie and first, or an
                index of the better answer.
        """
        numbers = self._soft_alone
        if self.stated is not None or not numbers:
            return
        hard = numbers <= {0.0, 0.5, 1.0} and {0.0, 1.0} <= numbers
        mixed = 0.0 in numbers or min(numbers) < 1 < max(numbers)
        if mixed if self.soft is None else hard:
            self._contradicted = "preference"
            raise self.error()

    def count(self, row: Row) -> None:
        """Count the values of a row that is not decoded any more."""
        for name, value, _ in self._labels(row):
            for each in value if isinstance(value, list) else [value]:
                if not is_missing(each):
                    self._count(name, label_text(each))
        if not is_missing(row.data.get("preference")):
            self._count("preference", label_text(row.data["preference"]))

    def _count(self, name: str, text: str) -> None:
        counts = self.counts.setdefault(name, Counter())
        counts[text if text in counts or len(counts) < 1000 else "..."] += 1

    def error(self) -> LabelCodeError:
        """The error of the file, with its values so far and the ways out."""
        name, row = self._contradicted or "", self._first
        counts = self.counts[name]
        values = ", ".join(f"{_shown(text)} ({n:,} times)" for text, n in counts.most_common(_SHOWN_VALUES))
        more = f" and {len(counts) - _SHOWN_VALUES} more" if len(counts) > _SHOWN_VALUES else ""
        code = self._code(name)
        stated = f"--label-code says {_in_words(self.stated)}" if self.stated is not None else code
        location = "" if row is None else f"{row.file}:{row.line}: "
        return LabelCodeError(
            f'{location}field "{name}" holds the values {values}{more}, and {stated}; no row is read by guess. State '
            f"what each value means with --label-code (in a build's configuration label_code), such as {_KNOWN}"
        )

    def _code(self, name: str) -> str:
        if name == "preference":
            return "two codes explain these: P(first answer is better), and an index of the better answer"
        code = next(
            (code for code in self.codes if name in code.fields or name.rstrip("0123456789") + "*" in code.fields), None
        )
        if code is not None and code.values is not None:
            return f"this layout's code is {_in_words(code.values)}"
        return "without a stated code only 1=first, 2=second and words such as model_a and tie are read"

    def _expected(self, code: FieldCode) -> str:
        if self.stated is not None:
            return f"the values of --label-code ({_in_words(self.stated)}), a side such as model_a, or tie"
        return f"{_in_words(code.values or FROM_ONE)}, a side such as model_a, or tie"


def _in_words(values: Values) -> str:
    return ", ".join(f"{value}={_MEANINGS[winner]}" for value, winner in values.items())


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _shown(text: str) -> str:
    return text if _is_number(text) else json.dumps(text, ensure_ascii=False)
