"""The stream of samples that a run or a training reads: rows checked, ids unique, references settled.

`draw_subset` is a seeded sample of a file's rows: at most so many for each value of a field. A row is drawn by a hash
of its id and the seed, so that the draw depends on neither the file's order nor its other rows, and a larger sample
contains the smaller one. Source: Self-Reference and SSR-Judge (100 questions of each category of MMLU-Pro), QA-Judge,
section 3 (about 1,000 questions of a data set).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Literal

from judgelm.data.label_codes import LabelDecoder, Values
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.inputs import all_input_files
from judgelm.data.readers.rows import (
    FileUse,
    OnReject,
    Reject,
    Row,
    convert_rows,
    no_usable_row,
    raise_reject,
    reject_row,
)
from judgelm.data.sources.alpaca_eval import are_two_outputs, join_outputs
from judgelm.data.sources.layouts import LABELS
from judgelm.data.sources.preferences import PAIR_LABELS
from judgelm.data.sources.registry import SOURCES, recognise
from judgelm.data.sources.source import Source
from judgelm.errors import ConfigError, InputError, LabelCodeError
from judgelm.parsing.scores import parse_pair_original
from judgelm.records import Label, Sample, Unparsed, winner_of

ReferencePolicy = Literal["auto", "use", "ignore"]
"""`auto`: where a row has a reference. `use`: a row without one is a reject. `ignore`: references are dropped."""

_MOST_NUMBERED = 26
_NUMBERED_NEED = re.compile(r"(\D*)(?:1(\D*)|(?<=_)a)")


def _fields(source: Source) -> set[str]:
    """The fields that a layout reads: those that it lists, and the numbered ones among them to 26."""
    listed = {name for names in source.fields.values() for part in names.split(" / ") for name in part.split(", ")}
    numbered = (pattern for name in listed if (pattern := _pattern(name)) and "1" in name)
    return listed | {pattern.format(index) for pattern in numbered for index in range(1, _MOST_NUMBERED + 1)}


def _pattern(name: str) -> str | None:
    """`answer{}_body` for `answer1_body`, `response_{}` for `response_a`; None for a field that is not numbered."""
    match = _NUMBERED_NEED.fullmatch(name)
    return None if match is None else f"{match[1]}{{}}{match[2] or ''}"


def _numbered(source: Source) -> list[str]:
    """The patterns of a layout's numbered fields that count from 1 or a."""
    patterns = [pattern for need in source.needs if (pattern := _pattern(need))]
    return [pattern for pattern in patterns if pattern.format(0) not in source.needs]


KNOWN_FIELDS = frozenset(
    {"winner_tie", "votes", "reason", "turn", "system"}.union(*map(_fields, (*SOURCES.values(), LABELS, PAIR_LABELS)))
)
"""The fields of all layouts, which an input may write in capitals or with blanks around."""

Repeats = Literal["reject", "skip", "votes"]
"""Treatment of a row with the id of an earlier one: it is a reject; or, of rows without id in a format of single votes,
left out and counted; or its sample is yielded under the same id, for readers of labels."""


def allows_count(count: int, answers: tuple[int, int | None]) -> bool:
    """True for a number of answers within the minimum and the maximum."""
    fewest, most = answers
    return fewest <= count and (most is None or count <= most)


def count_range_text(answers: tuple[int, int | None]) -> str:
    """`2 answers`, `1 answer`, `2 answers or more`, `1 to 3 answers`."""
    fewest, most = answers
    if most is None:
        return f"{fewest} answers or more"
    if fewest != most:
        return f"{fewest} to {most} answers"
    return "1 answer" if fewest == 1 else f"{fewest} answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The user's column names, label code and sheet for a file.

    Attributes:
        columns: name that a layout knows -> the file's own name for it.
        label_code: value -> winner; None leaves it to the layout.
        sheet: name or number (from 1) of a workbook's sheet; None for its one sheet with cells.
        as_authors: read a review's `text` as a label by the original JudgeLM parser, as its authors' evaluation does.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    label_code: Values | None = None
    sheet: str | None = None
    as_authors: bool = False


AS_WRITTEN = Reading()


def parse_columns(options: Sequence[str]) -> dict[str, str]:
    """`["question=prompt"]` as the layout's name -> the file's own name.

    Raises:
        ConfigError: an option has another form, or two name one column.
    """
    columns: dict[str, str] = {}
    for option in options:
        known, equals, own = (part.strip() for part in option.partition("="))
        if not equals or not known or not own:
            raise ConfigError(f"--column {option}: expected NAME=COLUMN, such as question=prompt")
        if known in columns or own in columns.values():
            raise ConfigError(f"--column {option}: {known} or {own} is named twice; name each once")
        columns[known] = own
    return columns


@dataclass(kw_only=True, slots=True, eq=False)
class SampleStream:
    """Samples of one or several inputs (or of two joined AlpacaEval output files), read once and lazily.

    Several inputs are read one after the other. The format is recognised when the stream is made, which reads up to the
    first good row; a later file must be of the same. Ids are unique in the stream: a row with a repeated id is a
    reject, unless `repeats` is another. Rows without id are named by a hash of their content; a repeated content gets
    the suffix `-2`, `-3`, ..., in layouts whose rows are single votes none.

    Args:
        paths: files, folders, patterns, named pipes or standard input (`-`); two files of AlpacaEval outputs are
            joined.
        on_reject: called with each row that cannot be used. By default the first one is raised as an error.
        limit: stop after this many samples.
        reference: treatment of references.
        references: a file of id -> reference, which overrides the row's own.
        label_rows: accept rows that are only labels; their samples have no answers.
        answers: fewest and most answers of a sample (None is no limit); a row with others is a reject.
        check: raises an InputError for a sample that cannot be used, whose row is then a reject.
        reading: the user's column names, label code and sheet.
        once: nothing reads a named pipe or standard input again, so that it need not be kept on disk.
        repeats: treatment of rows with the id of an earlier row.

    Attributes:
        source: the layout that was recognised, with the fields to show.
        read: rows read so far, good and bad.
        rejected: rows that went to `on_reject` so far.
        repeated: rows so far left out because they repeat a pair that has no id.
        coerced: cells so far that were converted to text (PandaLM only).
        references_used: samples so far whose reference came from the `references` file.

    Raises:
        InputError: a file cannot be read or is given twice, or its fields are not recognised.
        ConfigError: no path, or a `references` file with `reference` set to ignore.
    """

    paths: Sequence[str] = field(kw_only=False)
    on_reject: OnReject = raise_reject
    limit: int | None = None
    reference: ReferencePolicy = "auto"
    references: str | None = None
    label_rows: bool = False
    answers: tuple[int, int | None] | None = None
    check: Callable[[Sample], None] = lambda sample: None
    reading: Reading = AS_WRITTEN
    once: bool = False
    repeats: Repeats = "reject"
    source: Source = field(init=False)
    read: int = field(init=False, default=0)
    rejected: int = field(init=False, default=0)
    repeated: int = field(init=False, default=0)
    coerced: int = field(init=False, default=0)
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
            raise ConfigError("no input is named; give a file, a folder, or - for standard input")
        if self.references is not None and self.reference == "ignore":
            raise ConfigError(f"references {self.references} contradict reference ignore; leave one of them out")
        self._known_references = {} if self.references is None else read_references(self.references)
        self._rows = self._open()
        self._first = self._first_row()
        self._file = self._first.file
        self.source = recognise(self._first, label_rows=self.label_rows)
        self._patterns = _numbered(self.source)
        if self.source.note and not (self.label_rows and self.source.name == LABELS.name):
            raise self._first.error(self.source.note)
        self._decoder = self.source.decoder(self.reading.label_code)

    def _open(self) -> Iterator[Row | Reject]:
        columns, sheet = self.reading.columns, self.reading.sheet
        if are_two_outputs(self.paths, sheet=sheet):
            return join_outputs(self.paths[0], self.paths[1], sheet=sheet)
        read = partial(read_rows, columns=columns, known=KNOWN_FIELDS, once=self.once, sheet=sheet)
        return (row for file in all_input_files(self.paths) for row in read(file))

    def _first_row(self) -> Row:
        for row in self._rows:
            if isinstance(row, Row):
                return row
            self._refuse(row)
        first = self._refused.message if self._refused else "none"
        raise InputError(f"{', '.join(self.paths)}: none of its {self.read} rows can be used; the first: {first}")

    def _refuse(self, reject: Reject) -> None:
        self._refused = self._refused or reject
        self.read += 1
        self.rejected += 1
        self.on_reject(reject)

    def __iter__(self) -> Iterator[Sample]:
        for _, sample in self.pairs():
            yield sample

    def pairs(self) -> Iterator[tuple[Row, Sample]]:
        """Each sample with the row that it came from.

        Raises:
            InputError: no row can be used, a reader cannot go on, a later file is of another format, or the file of
                references has none of the ids.
        """
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
            raise no_usable_row(", ".join(self.paths), ", ".join(self.source.needs), self.rejected, self._refused)
        self._decoder.finish()

    def labels(self, row: Row, *with_reference: bool) -> list[Label | None]:
        """The labels of one of this stream's rows, one for each entry of `with_reference`.

        Raises:
            LabelCodeError: a value contradicts the code of the file's labels; the file's other values are counted.
            InputError: the row's label cannot be read; other rows' can.
        """
        try:
            decoded = self._decoder.decode(self.source.votes(row))
        except LabelCodeError:
            for other in self._rows:
                if isinstance(other, Row):
                    with suppress(InputError):  # of a task whose votes cannot be read
                        self._decoder.count(self.source.votes(other))
            raise self._decoder.error() from None
        return [self._label(decoded, shown) for shown in with_reference]

    def _label(self, row: Row, with_reference: bool) -> Label | None:
        text = row.data.get("text_w_reference" if with_reference else "text")
        reviewed = isinstance(text, str) and self.source.name in ("judgelm", LABELS.name)
        if not (self.reading.as_authors and reviewed):
            return self.source.label(row, with_reference)
        scores = parse_pair_original(str(text))
        if isinstance(scores, Unparsed) or -1 in scores.values:  # which the authors' evaluation leaves out
            return None
        return Label(sample_id="", winner=winner_of((scores.values[0], scores.values[1])), scores=scores.values)

    def unread_label(self) -> LabelCodeError | None:
        """The error of a label field whose words name no winner in any row so far."""
        return self._decoder.unread()

    def labelled(self, use: FileUse, *with_reference: bool) -> Iterator[tuple[Row, Sample, list[Label | None]]]:
        """Rows with their samples and labels, one label for each entry of `with_reference`.

        Raises:
            InputError: no row of the file can be used; a row whose label cannot be read is a reject.
            LabelCodeError: as `labels`, or all labels are words that name no winner.
        """
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
        """Refuse a file whose labels are words that name no winner, after a look at the rest of its rows.

        Raises:
            LabelCodeError: names the values; nothing is raised where no such word was read.
        """
        for row in rest:
            if isinstance(row, Row):
                with suppress(InputError, LabelCodeError):
                    self._decoder.decode(row)
        if (error := self._decoder.unread_error(self._first.file)) is not None:
            raise error

    def _next_file(self, row: Row) -> None:
        """Refuse a further file whose first good row is of another format."""
        self._file = row.file
        source = recognise(row, label_rows=self.label_rows)
        if source.name != self.source.name:
            finding = f"its rows are of the format {source.name}, those of {self._first.file} of {self.source.name}"
            raise row.error(f"{finding}; give files of one format at a time")

    def _sample(self, row: Row) -> Sample | None:
        """The sample of a row; None for a repeated one that is to be left out."""
        assert self.source.sample is not None
        sample = self.source.sample(row)
        if sample.answers and not sample.images and not sample.question.strip():
            raise row.error("the question is empty; fill it in (a merged cell's text is saved in its first row alone)")
        for pattern in self._patterns:
            if pattern.format(1) in row.data or pattern.format("a") in row.data:
                row.refuse_left_over(pattern, max(2, len(sample.answers)))
        for index, answer in enumerate(sample.answers if "answers" in row.data else (), 1):
            if row.data.get(f"answer_{index}") not in (None, "", answer):
                raise row.field_error(f"answer_{index}", "is another text than that in answers; leave one of them out")
        if self.answers is not None and not allows_count(len(sample.answers), self.answers):
            finding = f"expected {count_range_text(self.answers)}, got {len(sample.answers)}"
            raise row.error(f"{finding}; judgelm judges modes shows which --mode judges how many")
        # Hashes cost about 80 MB per million ids, the ids themselves twice that. Should two ids ever share a 64-bit
        # hash (in a million, one chance in tens of millions), the later row is a reject or gets "-2": seen, not lost.
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
        if sample.id in self._known_references:
            sample = replace(sample, reference=self._known_references[sample.id])
            self.references_used += 1
        if sample.reference is None:
            if self.reference == "use":
                raise row.error("no reference; give one in each row or with --references, or use --reference auto")
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
            raise row.error(f"id {name} appeared before in this input; ids must be unique, joins are by id")
        if self.source.single_votes:
            if self.repeats == "skip":
                return None
            raise row.error("this pair appeared before in this input; keep one row, with one label")
        count = self._copies.get(sample.id, 1) + 1
        self._copies[sample.id] = count
        repeated = replace(sample, id=f"{sample.id}-{count}")
        self._seen.add(hash(repeated.id))
        return repeated


def no_common_id(path: str, read: int) -> InputError:
    """The error for a file joined by id that has none of the ids of `read` rows."""
    return InputError(f"{path}: has none of the {read:,} ids of the input; give the file that belongs to it")


def read_references(path: str) -> dict[str, str]:
    """A file of references: rows of `question_id` (or `id`) and `reference`, a text or `{"text": ...}`.

    Raises:
        InputError: a row is unusable, or an id comes twice.
    """
    references: dict[str, str] = {}

    def read(row: Row) -> tuple[str, str | None]:
        name = row.id(("question_id", "id", "idx", "review_id"))
        if name is None or "reference" not in row.data:
            raise row.error("a row of references needs question_id (or id) and reference")
        if name in references:
            raise row.error(f"id {json.dumps(name)} appeared before in this file; keep one reference")
        return name, row.reference()

    for name, text in convert_rows(read_rows(path), read, path=path, expected="question_id (or id) and reference"):
        if text is not None:
            references[name] = text
    return references
