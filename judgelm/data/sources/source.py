"""The codes of labels, the record of a source, and functions that the readers of sources share.

A code says what the values of a file's label field mean, and is checked over the whole file. Words such as `model_a`,
`Tie` and `tie (bothbad)` mean the same everywhere. Numbers do not: 0 is the first answer in one file, a tie in a second
and the second answer in a third. So numbers are read by the code that a recognised layout or the user states. Without
one, only 1 and 2 are read, and any other number makes the whole file unreadable.

A reader of a benchmark makes rows of judgelm's plain layout, which batch runs and label readers read.
`judgelm.data.sources.importer` writes them.
"""

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import ConfigDict, TypeAdapter

from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import OnReject, Reject, Row, convert_rows, reject_row
from judgelm.data.readers.values import describe, list_value
from judgelm.errors import ConfigError, InputError, LabelCodeError
from judgelm.records import Judgment, Label, Sample, Winner
from judgelm.yaml_files import read_yaml

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
"""Published spellings of a winner, without case and surrounding blanks.

Source: LMSYS's arena (`model_a`, `tie (bothbad)`, `both_bad`), FastChat (`model_1`, `[[A]]`, `tie (inconsistent)`),
JudgeBench and Arena-Hard (`A>B`, `A>>B`), Label Studio (`left`).
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
        if_alone: the field is a label only in rows without another one, and where its words name winners.
    """

    fields: tuple[str, ...]
    values: Values | None = None
    if_alone: bool = False

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
    _without_winner: str | None = None
    _soft_alone: set[float] = field(default_factory=set)
    _first: Row | None = None
    _unread: dict[str, Counter[str]] = field(default_factory=dict)

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
        raise row.field_error(name, f"{finding}; state what it means, such as {example}")

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
        """Refuse values that two codes explain, and a field that is a label in some rows only.

        To be called at the end of the file.

        Raises:
            LabelCodeError: 0 and 1 alone in `preference` are P(first answer is better), AlpacaEval's tie and first, or
                an index of the better answer (0.5 is not an index); or only some of a field's words name winners.
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
        """The error of a field whose words name no winner, where the file has no other label."""
        self._contradicted = self._without_winner
        return None if self._without_winner is None else self.error()

    def count(self, row: Row) -> None:
        """Count the values of a row that is not decoded any more."""
        for name, value, _ in self._labels(row):
            for each in value if isinstance(value, list) else [value]:
                if not is_missing(each):
                    self._count(name, label_text(each))
        if not is_missing(row.data.get("preference")):
            self._count("preference", label_text(row.data["preference"]))

    def unread_error(self, file: str) -> LabelCodeError | None:
        """The error of a file none of whose labels can be read, with a code filled in as far as it can be guessed."""
        if not self._unread:
            return None
        name, counts = next(iter(self._unread.items()))
        values = ", ".join(f"{_shown(text)} ({n:,} times)" for text, n in counts.most_common(_SHOWN_VALUES))
        more = f" and {len(counts) - _SHOWN_VALUES} more" if len(counts) > _SHOWN_VALUES else ""
        example = shlex.quote(example_code([text for text, _ in counts.most_common(_SHOWN_VALUES)]))
        return LabelCodeError(
            f'{file}: field "{name}" holds the values {values}{more}, which name no winner; state what each means, '
            f"such as --label-code {example} (in a build's configuration label_code); this example is a guess"
        )

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


_FIRST_WORDS = frozenset({"a", "1", "first", "left", "links", "erste", "one", "ours", "win"})
_TIE_WORDS = frozenset({"tie", "draw", "same", "equal", "both", "neither", "gleich", "egal", "unentschieden"})
_SECOND_WORDS = frozenset({"b", "2", "second", "right", "rechts", "zweite", "two", "theirs", "loss"})


def example_code(values: Sequence[str]) -> str:
    """A code that gives each value a meaning: by a word in it, else the next one that no value has; a guess."""
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


def _shown(text: str) -> str:
    return text if _is_number(text) else json.dumps(text, ensure_ascii=False)


T = TypeVar("T")


class Entry(NamedTuple):
    """One row to write.

    `truth` is its line for the studies on correctness (`judgelm study self-reference`, `ssr`); None where the benchmark
    has no objective truth.
    """

    row: dict[str, object]
    truth: dict[str, object] | None = None


Load = Callable[[Sequence[str], OnReject], Iterator[Entry]]
"""Files, a handler of rejects -> entries; raises InputError where a file has another shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Published files, as `benchmarks.yaml` states them.

    Attributes:
        files: the files to give, in words.
        paper: paper or program, and the published file.
        unverified: what was taken from a description and not from the published files; empty where all was read.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    files: str
    paper: str
    unverified: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol(Publication):
    """The files of a benchmark and the definition of its metric.

    Attributes:
        metric: its definition in one sentence; printed, and kept beside the imported rows.
        judge_with: options of `judgelm-batch` that the protocol requires; may be empty.
    """

    metric: str
    judge_with: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publications:
    """Contents of `benchmarks.yaml`: the protocols of benchmarks and the files of judgments, by the source's name."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    benchmarks: Mapping[str, Protocol]
    judgments: Mapping[str, Publication]


@cache
def publications() -> Publications:
    """The protocols of benchmarks, and the files of published judgments."""
    return TypeAdapter(Publications).validate_python(read_yaml(Path(__file__).parent / "benchmarks.yaml"))


@cache
def layout_facts() -> dict[str, Any]:
    """Contents of `layouts.yaml`: needs, fields and details by the source's name."""
    stated: dict[str, Any] = read_yaml(Path(__file__).with_name("layouts.yaml"))
    return stated


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedJudgment:
    """A judgment as it was published.

    Attributes:
        judgment: under the id that `judgelm data import` gives the same sample, where it imports the benchmark.
        judge: the judge's name; None where the files do not say.
        fields: the published row, for ids made of its fields.
        texts: question and answers where the row holds them, to find the sample among other rows.
        location: file and line.
    """

    judgment: Judgment
    judge: str | None
    fields: Mapping[str, object]
    texts: tuple[str, ...] | None = None
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRuns:
    """The published form of judges' outputs on a source.

    Attributes:
        needs: fields by which a row is recognised.
        read_row: row -> judgment, where each row is one.
        read_files: files, a handler of rejects -> judgments, where they are made otherwise.
        mode: the options that the manifest records, as of a mode that judges like this.
        recognised: further condition on a row's fields.
    """

    needs: tuple[str, ...]
    read_row: Callable[[Row], PublishedJudgment] | None = None
    read_files: Callable[[Sequence[str], OnReject], Iterator[PublishedJudgment]] | None = None
    mode: Mapping[str, object] = field(default_factory=lambda: {"name": "pair", "order_rule": "tie"})
    recognised: Callable[[Row], bool] = lambda row: True

    def read(self, files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
        """The judgments of published files; a row that cannot be used is a reject.

        Raises:
            InputError: a file cannot be read or has another shape, or none of its rows can be used.
        """
        if self.read_files is not None:
            yield from self.read_files(files, on_reject)
            return
        assert self.read_row is not None
        expected = ", ".join(self.needs)
        for path in files:
            yield from convert_rows(read_rows(path), self.read_row, path=path, expected=expected, on_reject=on_reject)


def no_label(row: Row, with_reference: bool) -> Label | None:
    """None: rows without a label."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of the rows of a benchmark's file.

    Attributes:
        name: of the benchmark, for errors.
        needs: fields of each row.
    """

    name: str
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One published layout, data set or benchmark: a row of the table in `judgelm.data.sources.registry`.

    Attributes:
        name: on the command line, in manifests and in errors.
        needs: fields by which a file's first row is recognised; empty for a source that is read only by its name.
        fields: source field of each part, for users. As declared, `a / b` names alternatives; `recognise` narrows it
            to the fields that are there.
        sample: row -> Sample; None where one row alone is no sample.
        label: row, whether the label made with a reference is meant -> Label, or None where the row has none. The
            label's `sample_id` is left empty for the caller to fill in. Fields that `code` names are decoded before.
        code: meaning of the values of its label fields.
        soft: meaning of the numbers in its field `preference`.
        note: an error to raise instead of a sample, where such rows alone cannot be judged.
        single_votes: rows without id that repeat a pair, in any order of its answers, are further votes on it.
        task_votes: rows that repeat an id are further votes on its task.
        votes: row -> plain row with the votes of its task, of which `label` is read.
        details: of benchmarks, facts that are kept with the protocol, such as a table of sections.
        shape: of the published rows, where they have more fields than `needs`.
        entry: row, its number from 1 -> entry, or a list of entries and rejects, where that is more than `sample` with
            `label`.
        load: files -> entries, where entries are made of several rows or files.
        runs: how judges' outputs on it are published.
    """

    name: str
    needs: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    sample: Callable[[Row], Sample] | None = None
    label: Callable[[Row, bool], Label | None] = no_label
    code: tuple[FieldCode, ...] = ()
    soft: Soft | None = None
    note: str = ""
    single_votes: bool = False
    task_votes: bool = False
    votes: Callable[[Row], Row] = lambda row: row
    details: Mapping[str, object] = field(default_factory=dict)
    shape: Shape | None = None
    entry: Callable[[Row, int], Entry | list[Entry | Reject]] | None = None
    load: Load | None = None
    runs: PublishedRuns | None = None

    def decoder(self, stated: Values | None = None) -> LabelDecoder:
        """A decoder of the label fields of one file.

        Args:
            stated: the user's code, which replaces the source's.
        """
        return LabelDecoder(codes=self.code, stated=stated, soft=self.soft)

    def entries(self, files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
        """The entries of published files: by `load`, else each row with its label.

        Raises:
            InputError: a file cannot be read or has another shape, or a label contradicts the code.
        """
        if self.load is not None:
            yield from self.load(files, on_reject)
            return
        shape = self.shape or Shape(name=self.name, needs=self.needs)
        for path in files:
            decoder = self.decoder()
            for made in convert_file(path, shape, partial(self._entry, decoder), on_reject):
                for entry in made if isinstance(made, list) else [made]:
                    if isinstance(entry, Reject):
                        on_reject(entry)
                    else:
                        yield entry
            decoder.finish()

    def _entry(self, decoder: LabelDecoder, row: Row, row_number: int) -> Entry | list[Entry | Reject]:
        decoded = decoder.decode(row)
        if self.entry is not None:
            return self.entry(decoded, row_number)
        assert self.sample is not None
        return Entry(plain_row(self.sample(row), self.label(decoded, False)))

    def narrowed(self, row: Row) -> "Source":
        """The source with `fields` narrowed to those of a row."""
        fields = {}
        for part, alternatives in self.fields.items():
            for names in alternatives.split(" / "):
                if all(name in row.data for name in names.split(", ")):
                    fields[part] = names
                    break
        fields.setdefault("id", "a hash of the content")
        return replace(self, fields=fields)


def protocol_of(source: Source) -> Protocol:
    """The protocol of a benchmark."""
    return publications().benchmarks[source.name]


def convert_file(path: str, shape: Shape, make: Callable[[Row, int], T], on_reject: OnReject) -> Iterator[T]:
    """Convert each row of a file, with its number from 1; a row that cannot be used is a reject.

    Raises:
        InputError: the file cannot be read, its first good row lacks a field, or none of its rows can be used.
    """
    numbers = count(1)
    return convert_rows(
        _rows_of(path, shape),
        lambda row: make(row, next(numbers)),
        path=path,
        expected=", ".join(shape.needs),
        on_reject=on_reject,
    )


def _rows_of(path: str, shape: Shape) -> Iterator[Row | Reject]:
    """The rows of a file that have all fields; later rows without one are rejects."""
    known = False
    for row in read_rows(path):
        if isinstance(row, Reject):
            yield row
            continue
        missing = [need for need in shape.needs if need not in row.data]
        if not missing:
            known = True
            yield row
            continue
        fields = ", ".join(row.data) or "none"
        error = row.error(f"no row of {shape.name}: it lacks {', '.join(missing)} and has the fields {fields}")
        if not known:
            raise InputError(f"{error}; give the published file, or name the benchmark that this is")
        yield reject_row(row, error)


def single_file(files: Sequence[str], benchmark: str) -> str:
    """The one file that was given.

    Raises:
        InputError: more than one.
    """
    if len(files) != 1:
        raise InputError(f"{benchmark}: expected one file, got {len(files)}: {', '.join(files)}; import one at a time")
    return files[0]


def json_scores(scores: tuple[float, ...]) -> list[float]:
    """Scores as files hold them: 8, not 8.0, where they are whole."""
    return [int(score) if score.is_integer() else score for score in scores]


def plain_row(sample: Sample, label: Label | None = None) -> dict[str, object]:
    """A sample and its label as a plain row, without the fields that have nothing in them."""
    row: dict[str, object] = {"id": sample.id, "question": sample.question}
    if len(sample.answers) == 2:
        row |= {"answer_1": sample.answers[0], "answer_2": sample.answers[1]}
    elif len(sample.answers) == 1:
        row["answer"] = sample.answers[0]
    elif sample.answers:
        row["answers"] = list(sample.answers)
    if label is not None and label.winner is not None:
        row["winner"] = label.winner
    if label is not None and label.scores is not None:
        row["scores"] = json_scores(label.scores)
    if label is not None and label.preference is not None:
        row["preference"] = label.preference
    more = {
        "votes": list(label.votes) if label is not None else None,
        "reason": None if label is None else label.reason,
        "answer_models": list(sample.answer_models),
        "reference": sample.reference,
        "category": sample.category,
        "metadata": {name: _in_json(value) for name, value in sample.metadata.items()},
    }
    return row | {name: value for name, value in more.items() if value}


def _in_json(value: object) -> object:
    """The value for JSON: NaN (an empty cell of a table) becomes null, a date its text."""
    if isinstance(value, Mapping):
        return {str(name): _in_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


def choice_field(row: Row, name: str, values: Mapping[object, T]) -> T:
    """The meaning of a field's value.

    Raises:
        InputError: it is none of the known values.
    """
    value = row.data.get(name)
    known = value in values if isinstance(value, str | int) and not isinstance(value, bool) else False
    if not known:
        expected = ", ".join(str(key) for key in values)
        raise row.error(f'field "{name}": expected one of {expected}, got {describe(value)}; correct the row')
    return values[value]


def model_from_filename(path: str) -> str:
    """The model of a file of answers: the file's name without its endings."""
    name = Path(path).name
    for ending in (".gz", ".jsonl", ".json"):
        name = name.removesuffix(ending)
    return name
