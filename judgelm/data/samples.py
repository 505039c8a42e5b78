"""The stream of samples that a run or a training reads: rows checked, ids unique, references settled."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Literal

from judgelm.data.formats.catalog import LABELS, Format, detect_format
from judgelm.data.readers.fields import describe, reference_field, row_error, row_id
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rejects import FileUse, OnReject, convert_rows, raise_reject, reject_row
from judgelm.data.readers.rows import Reject, Row
from judgelm.errors import ConfigError, InputError
from judgelm.records import Label, Sample

ReferencePolicy = Literal["auto", "use", "ignore"]
"""`auto`: where a row has a reference. `use`: a row without one is a reject. `ignore`: references are dropped."""

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


class SampleStream:
    """Samples of one file (or of two joined AlpacaEval output files), read once and lazily.

    The format is recognised when the stream is made, which reads up to the first good row. Ids are unique in the
    stream, unless `repeats` is `votes`: a row with a repeated id is a reject. Rows without id are named by a hash of
    their content; a repeated content gets the suffix `-2`, `-3`, ..., in formats whose rows are single votes none.

    Attributes:
        format: what was recognised, with the mapping to show.
        read: rows read so far, good and bad.
        rejected: rows that went to `on_reject` so far.
        repeated: rows so far left out because they repeat a pair that has no id.
        coerced: cells so far that were converted to text (PandaLM only).
        references_used: samples so far whose reference came from the `references` file.
    """

    format: Format

    def __init__(
        self,
        paths: Sequence[str],
        *,
        on_reject: OnReject = raise_reject,
        limit: int | None = None,
        reference: ReferencePolicy = "auto",
        references: str | None = None,
        label_rows: bool = False,
        answers: tuple[int, int | None] | None = None,
        check: Callable[[Sample], None] = lambda sample: None,
        repeats: Repeats = "reject",
    ) -> None:
        """Open the input and recognise its format.

        Args:
            paths: one path (`-` is standard input), or two files of AlpacaEval outputs.
            on_reject: called with each row that cannot be used. By default the first one is raised as an error.
            limit: stop after this many samples.
            reference: treatment of references.
            references: a file of id -> reference, which overrides the row's own.
            label_rows: accept rows that are only labels; their samples have no answers.
            answers: fewest and most answers of a sample (None is no limit); a row with others is a reject.
            check: raises an InputError for a sample that cannot be used, whose row is then a reject.
            repeats: treatment of rows with the id of an earlier row.

        Raises:
            InputError: a file cannot be read, or its fields are not recognised.
            ConfigError: more than two paths, or a `references` file with `reference` set to ignore.
        """
        if len(paths) not in (1, 2):
            raise ConfigError(f"expected one input file, or two of AlpacaEval outputs, got {len(paths)}")
        if references is not None and reference == "ignore":
            raise ConfigError(f"references {references} contradict reference ignore; leave one of them out")
        self.read = self.rejected = self.repeated = self.coerced = self.references_used = 0
        self._on_reject = on_reject
        self._limit = limit
        self._answers = answers
        self._check = check
        self._reference = reference
        self._repeats = repeats
        self._references = None if references is None else read_references(references)
        self._seen: set[int] = set()
        self._copies: dict[str, int] = {}
        self._rows = read_rows(paths[0]) if len(paths) == 1 else join_outputs(paths[0], paths[1])
        self._first = self._first_row(" and ".join(paths))
        self.format = detect_format(self._first, label_rows=label_rows)
        if self.format.note and not (label_rows and self.format.name == LABELS.name):
            raise row_error(self._first, self.format.note)

    def _first_row(self, name: str) -> Row:
        first_reject: Reject | None = None
        for row in self._rows:
            if isinstance(row, Row):
                return row
            first_reject = first_reject or row
            self._refuse(row)
        finding = f"none of its {self.read} rows can be used"
        raise InputError(f"{name}: {finding}; the first: {first_reject.message if first_reject else 'none'}")

    def _refuse(self, reject: Reject) -> None:
        self.read += 1
        self.rejected += 1
        self._on_reject(reject)

    def __iter__(self) -> Iterator[Sample]:
        for _, sample in self.pairs():
            yield sample

    def pairs(self) -> Iterator[tuple[Row, Sample]]:
        """Each sample with the row that it came from."""
        yielded = 0
        if self._limit is not None and self._limit <= 0:
            return
        for row in chain([self._first], self._rows):
            if isinstance(row, Reject):
                self._refuse(row)
                continue
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
            if yielded == self._limit:
                return

    def _sample(self, row: Row) -> Sample | None:
        """The sample of a row; None for a repeated one that is to be left out."""
        sample = self.format.sample(row)
        if self._answers is not None and not allows_count(len(sample.answers), self._answers):
            finding = f"expected {count_range_text(self._answers)}, got {len(sample.answers)}"
            raise row_error(row, f"{finding}; judgelm modes shows which --mode judges how many")
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
        if sample.metadata and "coerced" in sample.metadata and self.format.name.startswith("pandalm"):
            coerced = sample.metadata["coerced"]
            self.coerced += len(coerced) if isinstance(coerced, list) else 0
        if self._references is not None and sample.id in self._references:
            sample = replace(sample, reference=self._references[sample.id])
            self.references_used += 1
        if sample.reference is None:
            if self._reference == "use":
                raise row_error(row, "no reference; give one in each row or with --references, or use --reference auto")
        elif self._reference == "ignore":
            sample = replace(sample, reference=None)
        self._check(sample)
        return sample

    def _repeated(self, row: Row, sample: Sample) -> Sample | None:
        if self._repeats == "votes":
            return sample
        if row_id(row) is not None:
            name = json.dumps(sample.id, ensure_ascii=False)
            raise row_error(row, f"id {name} appeared before in this input; ids must be unique, joins are by id")
        if self.format.single_votes:
            if self._repeats == "skip":
                return None
            raise row_error(row, "this pair appeared before in this input; keep one row, with one label")
        count = self._copies.get(sample.id, 1) + 1
        self._copies[sample.id] = count
        repeated = replace(sample, id=f"{sample.id}-{count}")
        self._seen.add(hash(repeated.id))
        return repeated


def labelled(stream: SampleStream, use: FileUse, *with_reference: bool) -> Iterator[tuple[Sample, list[Label | None]]]:
    """Samples of a stream with their labels, one label for each entry of `with_reference`.

    Raises:
        InputError: no row of the file can be used; a row whose label cannot be read is a reject.
    """
    for row, sample in stream.pairs():
        try:
            labels = [stream.format.label(row, shown) for shown in with_reference]
        except InputError as error:
            use.reject(reject_row(row, error))
            continue
        use.used += 1
        yield sample, labels
    use.require_used()


def read_references(path: str) -> dict[str, str]:
    """A file of references: rows of `question_id` (or `id`) and `reference`, a text or `{"text": ...}`.

    Raises:
        InputError: a row is unusable, or an id comes twice.
    """
    references: dict[str, str] = {}

    def read(row: Row) -> tuple[str, str | None]:
        name = row_id(row, ("question_id", "id", "idx", "review_id"))
        if name is None or "reference" not in row.data:
            raise row_error(row, "a row of references needs question_id (or id) and reference")
        if name in references:
            raise row_error(row, f"id {json.dumps(name)} appeared before in this file; keep one reference")
        return name, reference_field(row)

    for name, text in convert_rows(read_rows(path), read, path=path, expected="question_id (or id) and reference"):
        if text is not None:
            references[name] = text
    return references


def join_outputs(first_path: str, second_path: str) -> Iterator[Row | Reject]:
    """AlpacaEval outputs of two models, joined by instruction; the second file is held in memory.

    A row without partner, or with a repeated instruction, is a reject.

    Raises:
        InputError: one of the files cannot be read, or does not hold AlpacaEval outputs.
    """
    partners: dict[str, Row] = {}
    for second in _outputs(second_path):
        instruction = second.data["instruction"] if isinstance(second, Row) else None
        if isinstance(second, Row) and isinstance(instruction, str):
            partners[instruction] = second
        elif isinstance(second, Reject):
            yield second
    for first in _outputs(first_path):
        if isinstance(first, Reject):
            yield first
            continue
        partner = partners.pop(str(first.data["instruction"]), None)
        if partner is None:
            yield reject_row(first, InputError(f"no row of {second_path} has this instruction"))
        else:
            yield Row(first.file, first.line, _joined(first.data, partner.data))
    for partner in partners.values():
        yield reject_row(partner, InputError(f"no row of {first_path} has this instruction"))


def _joined(first: dict[str, object], second: dict[str, object]) -> dict[str, object]:
    joined = {name: value for name, value in first.items() if name not in ("output", "generator")}
    joined |= {"output_1": first["output"], "output_2": second["output"]}
    return joined | {"generator_1": first.get("generator"), "generator_2": second.get("generator")}


def _outputs(path: str) -> Iterator[Row | Reject]:
    """Rows with a new instruction; the others as rejects."""
    seen: set[str] = set()
    any_good = False
    for row in read_rows(path):
        if isinstance(row, Reject):
            yield row
            continue
        instruction = row.data.get("instruction")
        if not isinstance(instruction, str) or "output" not in row.data:
            if not any_good:
                finding = "two input files are joined only where both hold AlpacaEval outputs (instruction, output)"
                raise row_error(row, f"{finding}; found the fields {', '.join(row.data) or 'none'}")
            yield reject_row(row, InputError(f'field "instruction": expected text, got {describe(instruction)}'))
        elif instruction in seen:
            yield reject_row(row, InputError("this instruction appeared before in this file; keep one output"))
        else:
            any_good = True
            seen.add(instruction)
            yield row
