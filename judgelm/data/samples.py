"""Load samples for runs and training: validate rows, make ids unique, and resolve references."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Literal

from judgelm.data.label_codes import LabelDecoder, Values
from judgelm.data.readers.files import read_converted, read_rows
from judgelm.data.readers.inputs import all_input_files
from judgelm.data.readers.rows import FileUse, OnReject, Reject, Row, no_usable_row, raise_reject, reject_row
from judgelm.data.sources.alpaca_eval import are_two_outputs, join_outputs
from judgelm.data.sources.layouts import LABELS
from judgelm.data.sources.preferences import PAIR_LABELS
from judgelm.data.sources.registry import SOURCES, recognise
from judgelm.data.sources.source import Source
from judgelm.errors import ConfigError, InputError, LabelCodeError
from judgelm.parsing.scores import parse_pair_original
from judgelm.prompts.judge_prompt import FIELDS, JudgePrompt
from judgelm.records import Label, Sample, Unparsed, winner_of

ReferencePolicy = Literal["auto", "use", "ignore"]
"""`auto`: use a reference if the row has one. `use`: reject rows without one. `ignore`: drop references."""

_MAX_NUMBERED = 26
_NUMBERED_NEED = re.compile(r"(\D*)(?:1(\D*)|(?<=_)a)")


def _fields(source: Source) -> set[str]:
    listed = {name for names in source.fields.values() for part in names.split(" / ") for name in part.split(", ")}
    numbered = (pattern for name in listed if (pattern := _pattern(name)) and "1" in name)
    return listed | {pattern.format(index) for pattern in numbered for index in range(1, _MAX_NUMBERED + 1)}


def _pattern(name: str) -> str | None:
    """Return `answer{}_body` for `answer1_body`, `response_{}` for `response_a`, and None for unnumbered fields."""
    match = _NUMBERED_NEED.fullmatch(name)
    return None if match is None else f"{match[1]}{{}}{match[2] or ''}"


def _numbered(source: Source) -> list[str]:
    patterns = [pattern for need in source.needs if (pattern := _pattern(need))]
    return [pattern for pattern in patterns if pattern.format(0) not in source.needs]


KNOWN_FIELDS = frozenset(
    {"winner_tie", "votes", "reason", "turn", "system"}.union(*map(_fields, (*SOURCES.values(), LABELS, PAIR_LABELS)))
)
"""The fields of all layouts; case and surrounding spaces are ignored when matching input columns."""

Repeats = Literal["reject", "skip", "votes"]
"""How to treat a row with a repeated id: `reject` it, `skip` it (only rows without an id in single-vote formats), or
yield it as an additional vote (`votes`).
"""


def allows_count(count: int, answers: tuple[int, int | None]) -> bool:
    """Return True if `count` is within the minimum and maximum number of answers."""
    fewest, most = answers
    return fewest <= count and (most is None or count <= most)


def count_range_text(answers: tuple[int, int | None]) -> str:
    """Return `2 answers`, `1 answer`, `at least 2 answers`, or `1 to 3 answers`."""
    fewest, most = answers
    if most is None:
        return f"at least {fewest} answers"
    if fewest != most:
        return f"{fewest} to {most} answers"
    return "1 answer" if fewest == 1 else f"{fewest} answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """User options for reading a file.

    Attributes:
        columns: field -> column.
        label_code: overrides the layout's code.
        sheet: name or 1-based number.
        as_authors: parse labels from a review's `text` with the original JudgeLM parser.
        requires_question: reject rows without a question; prompt files may not show one.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    label_code: Values | None = None
    sheet: str | None = None
    as_authors: bool = False
    requires_question: bool = True


AS_WRITTEN = Reading()


def parse_columns(options: Sequence[str]) -> dict[str, str]:
    """Parse options such as `question=prompt` into field name -> column name."""
    columns: dict[str, str] = {}
    for option in options:
        known, equals, own = (part.strip() for part in option.partition("="))
        if not equals or not known or not own:
            raise ConfigError(f"--column {option}: expected NAME=COLUMN, such as question=prompt")
        if known in columns or own in columns.values():
            raise ConfigError(f"--column {option}: {known} or {own} is used twice; use each name once")
        columns[known] = own
    return columns


def _with_question(row: Row | Reject) -> Row | Reject:
    has_answers = isinstance(row, Row) and not {"answer", "answer_1", "answers"}.isdisjoint(row.data)
    if isinstance(row, Row) and has_answers and "question" not in row.data:
        return row.with_data({"question": "", **row.data})
    return row


@dataclass(kw_only=True, slots=True, eq=False)
class SampleStream:
    """Stream samples from input files, or from two AlpacaEval output files joined by instruction. Iterate only once.

    The constructor detects the format from the first usable row; all files must have the same format. Rows with
    repeated ids are rejected by default (see `repeats`). If a row has no id, its id is a hash of its content; repeated
    content gets the suffix `-2`, `-3`, ... (except in single-vote layouts).

    Args:
        paths: inputs, in the same form as for `read_rows`.
        on_reject: called for each unusable row; by default it raises an error.
        references: file of references, keyed by id; overrides the references in the rows.
        label_rows: accept rows that contain only a label; their samples have no answers.
        answers: minimum and maximum number of answers, where None means no maximum.
        check: called for each sample; raise an InputError to reject it.
        prompt: the judge's prompt file; samples keep the fields that it shows, and need no question if it shows none.
        given: rows that are already in memory, to use instead of the contents of `paths`.
        once: the input is read only once, so streams are not copied to disk.

    Attributes:
        source: the detected layout, limited to the fields in the first row.
        read: number of rows read so far, including rejects.
        repeated: number of repeated pairs without an id that were skipped so far.
        coerced: number of cells converted to text (PandaLM only).
        empty_slots: number of rows with an empty field that the prompt shows.

    Raises:
        InputError: a file cannot be read or is given twice, or its fields are not recognised.
        ConfigError: `paths` is empty, or `references` is set and `reference` is `ignore`.
    """

    paths: Sequence[str] = field(kw_only=False)
    on_reject: OnReject = raise_reject
    limit: int | None = None
    reference: ReferencePolicy = "auto"
    references: str | None = None
    label_rows: bool = False
    answers: tuple[int, int | None] | None = None
    check: Callable[[Sample], None] = lambda sample: None
    prompt: JudgePrompt | None = None
    reading: Reading = AS_WRITTEN
    once: bool = False
    given: Iterator[Row] | None = None
    repeats: Repeats = "reject"
    source: Source = field(init=False)
    read: int = field(init=False, default=0)
    rejected: int = field(init=False, default=0)
    repeated: int = field(init=False, default=0)
    coerced: int = field(init=False, default=0)
    empty_slots: int = field(init=False, default=0)
    references_used: int = field(init=False, default=0)
    _refused: Reject | None = field(init=False, default=None)
    _known_references: Mapping[str, str] = field(init=False)
    _seen: set[int] = field(init=False, default_factory=set)
    _copies: dict[str, int] = field(init=False, default_factory=dict)
    _rows: Iterator[Row | Reject] = field(init=False)
    _first: Row = field(init=False)
    _file: str = field(init=False)
    _patterns: list[str] = field(init=False)
    _decoder: LabelDecoder = field(init=False)

    def __post_init__(self) -> None:
        if not self.paths:
            raise ConfigError("no input; pass a file, a folder, or - for standard input")
        if self.references is not None and self.reference == "ignore":
            raise ConfigError(f"references {self.references}: cannot be combined with reference ignore; remove one")
        self._known_references = {} if self.references is None else read_references(self.references)
        self._rows = self._open()
        self._first = self._first_row()
        self._file = self._first.file
        others: tuple[str, ...] = ()
        one = self.answers == (1, 1)
        if self.prompt is not None:
            self.prompt.check_literals(self._first.data)
            others, one = self.prompt.fields, one or (self.answers is None and len(self.prompt.answers) == 1)
        self.source = recognise(self._first, label_rows=self.label_rows, one_answer=one, others=others)
        self._patterns = _numbered(self.source)
        if self.source.note and not (self.label_rows and self.source.name == LABELS.name):
            raise self._first.error(self.source.note)
        self._decoder = self.source.decoder(self.reading.label_code)

    def _open(self) -> Iterator[Row | Reject]:
        columns, sheet = self.reading.columns, self.reading.sheet
        if self.given is not None:
            return self.given if self._needs_question else map(_with_question, self.given)
        if are_two_outputs(self.paths, sheet=sheet):
            return join_outputs(self.paths[0], self.paths[1], sheet=sheet)
        read = partial(read_rows, columns=columns, known=KNOWN_FIELDS, once=self.once, sheet=sheet)
        rows = (row for file in all_input_files(self.paths) for row in read(file))
        return rows if self._needs_question else map(_with_question, rows)

    @property
    def _needs_question(self) -> bool:
        return self.reading.requires_question and (self.prompt is None or "question" in self.prompt.slots)

    def _first_row(self) -> Row:
        for row in self._rows:
            if isinstance(row, Row):
                return row
            self._refuse(row)
        first = self._refused.message if self._refused else "none"
        raise InputError(f"{', '.join(self.paths)}: none of the {self.read} rows is usable; first reject: {first}")

    def _refuse(self, reject: Reject) -> None:
        self._refused = self._refused or reject
        self.read += 1
        self.rejected += 1
        self.on_reject(reject)

    def __iter__(self) -> Iterator[Sample]:
        for _, sample in self.pairs():
            yield sample

    def pairs(self) -> Iterator[tuple[Row, Sample]]:
        """Yield each row with its sample."""
        yielded = 0
        if self.limit is not None and self.limit <= 0:
            return
        for row in chain([self._first], self._rows):
            if isinstance(row, Reject):
                self._refuse(row)
                continue
            if row.file != self._file:
                self._next_file(row)
            try:
                sample = self._sample(row)
            except InputError as error:
                self._refuse(reject_row(row, error))
                continue
            self.read += 1
            if sample is None:
                self.repeated += 1
                continue
            yield row, sample
            yielded += 1
            if yielded == self.limit:
                break
        if yielded and self.references is not None and not self.references_used:
            raise no_common_id(self.references, self.read)
        if yielded == self.limit:
            return
        if not yielded and self._refused is not None:
            shown = self.prompt if self.source.name == "plain" else None
            needs = self.source.needs if shown is None else shown.slots
            raise no_usable_row(", ".join(self.paths), ", ".join(needs), self.rejected, self._refused)
        self._decoder.finish()

    def labels(self, row: Row, *with_reference: bool) -> list[Label | None]:
        """Return the labels of a row, one per value in `with_reference`."""
        try:
            decoded = self._decoder.decode(self.source.votes(row))
        except LabelCodeError:
            for other in self._rows:
                if isinstance(other, Row):
                    with suppress(InputError):  # the task's votes cannot be parsed
                        self._decoder.count(self.source.votes(other))
            raise self._decoder.error() from None
        return [self._label(decoded, shown) for shown in with_reference]

    def _label(self, row: Row, with_reference: bool) -> Label | None:
        text = row.data.get("text_w_reference" if with_reference else "text")
        reviewed = isinstance(text, str) and self.source.name in ("judgelm", LABELS.name)
        if not (self.reading.as_authors and reviewed):
            return self.source.label(row, with_reference)
        scores = parse_pair_original(str(text))
        if isinstance(scores, Unparsed) or -1 in scores.values:  # excluded from the authors' evaluation
            return None
        return Label(sample_id="", winner=winner_of((scores.values[0], scores.values[1])), scores=scores.values)

    def unread_label(self) -> LabelCodeError | None:
        """Return the error if no value of a label field is a winner, else None."""
        return self._decoder.unread()

    def labelled(self, use: FileUse, *with_reference: bool) -> Iterator[tuple[Row, Sample, list[Label | None]]]:
        """Yield rows with their samples and labels, rejecting rows whose labels cannot be parsed."""
        for row, sample in self.pairs():
            try:
                labels = self.labels(row, *with_reference)
            except InputError as error:
                if not use.used and use.on_reject is raise_reject:
                    self._refuse_labels(self._rows)
                use.reject(reject_row(row, error))
                continue
            use.used += 1
            yield row, sample, labels
        if not use.used:
            self._refuse_labels()
        use.require_used()

    def _refuse_labels(self, rest: Iterable[Row | Reject] = ()) -> None:
        for row in rest:
            if isinstance(row, Row):
                with suppress(InputError, LabelCodeError):
                    self._decoder.decode(row)
        if (error := self._decoder.unread_error(self._first.file)) is not None:
            raise error

    def _next_file(self, row: Row) -> None:
        self._file = row.file
        source = recognise(row, label_rows=self.label_rows)
        if source.name != self.source.name:
            finding = f"this file is in {source.name} format, but {self._first.file} is in {self.source.name} format"
            raise row.error(f"{finding}; process files of different formats separately")

    def _sample(self, row: Row) -> Sample | None:
        assert self.source.sample is not None
        if self.prompt is not None:
            self.prompt.check_literals(row.data)
        sample = self.source.sample(row)
        if sample.answers and not sample.images and not sample.question.strip() and self._needs_question:
            raise row.error("the question is empty; fill it in (in merged cells, only the first row has the text)")
        for pattern in self._patterns:
            if pattern.format(1) in row.data or pattern.format("a") in row.data:
                row.refuse_left_over(pattern, max(2, len(sample.answers)))
        for index, answer in enumerate(sample.answers if "answers" in row.data else (), 1):
            if row.data.get(f"answer_{index}") not in (None, "", answer):
                raise row.field_error(f"answer_{index}", "differs from the text in answers; remove one of them")
        if self.answers is not None and not allows_count(len(sample.answers), self.answers):
            finding = f"expected {count_range_text(self.answers)}, got {len(sample.answers)}"
            raise row.error(f"{finding}; run `judgelm judges modes` to see the number of answers for each --mode")
        # A million hashes take about 80 MB, half as much as the ids themselves. If two ids share a 64-bit hash, the
        # later row is rejected or gets "-2", so no row is lost silently.
        id_hash = hash(sample.id)
        if id_hash in self._seen:
            repeated = self._repeated(row, sample)
            if repeated is None:
                return None
            sample = repeated
        else:
            self._seen.add(id_hash)
        if sample.metadata and "coerced" in sample.metadata and self.source.name.startswith("pandalm"):
            coerced = sample.metadata["coerced"]
            self.coerced += len(coerced) if isinstance(coerced, list) else 0
        if self.prompt is not None:
            values = {name: row.data.get(name, sample.metadata.get(name)) for name in self.prompt.fields}
            shown = {name: value for name, value in values.items() if value is not None}
            self.empty_slots += "" in shown.values()
            sample = replace(sample, metadata={**sample.metadata, FIELDS: shown} if shown else sample.metadata)
        if sample.id in self._known_references:
            sample = replace(sample, reference=self._known_references[sample.id])
            self.references_used += 1
        if sample.reference is None:
            if self.reference == "use":
                raise row.error("no reference; add one to the row or with --references, or use --reference auto")
        elif self.reference == "ignore":
            sample = replace(sample, reference=None)
        self.check(sample)
        return sample

    def _repeated(self, row: Row, sample: Sample) -> Sample | None:
        if self.repeats == "votes":
            return sample
        if self.source.task_votes:
            return None
        if row.id() is not None:
            name = json.dumps(sample.id, ensure_ascii=False)
            raise row.error(f"id {name} appears more than once in the input; ids must be unique")
        if self.source.single_votes:
            if self.repeats == "skip":
                return None
            raise row.error("this pair appears more than once in the input; keep one row with one label")
        count = self._copies.get(sample.id, 1) + 1
        self._copies[sample.id] = count
        repeated = replace(sample, id=f"{sample.id}-{count}")
        self._seen.add(hash(repeated.id))
        return repeated


def no_common_id(path: str, read: int) -> InputError:
    """Return the error for a file that does not contain any of the input's ids."""
    return InputError(f"{path}: contains none of the {read:,} ids in the input; pass the matching file")


def read_references(path: str) -> dict[str, str]:
    """Read rows with `question_id` (or `id`) and `reference` (a string or `{"text": ...}`)."""
    references: dict[str, str] = {}

    def read(row: Row) -> tuple[str, str | None]:
        name = row.id(("question_id", "id", "idx", "review_id"))
        if name is None or "reference" not in row.data:
            raise row.error("a reference row must contain question_id (or id) and reference")
        if name in references:
            raise row.error(f"id {json.dumps(name)} appears more than once in this file; keep one reference per id")
        return name, row.reference()

    for name, text in read_converted(path, read, expected="question_id (or id) and reference"):
        if text is not None:
            references[name] = text
    return references
