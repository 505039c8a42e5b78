"""Source definitions, and helpers for readers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import ConfigDict, TypeAdapter

from judgelm.data.label_codes import FieldCode, LabelDecoder, Soft, Values
from judgelm.data.plain_rows import plain_row
from judgelm.data.readers.files import read_converted, read_rows
from judgelm.data.readers.rows import OnReject, Reject, Row, convert_rows, reject_row
from judgelm.data.readers.values import content_id, describe
from judgelm.errors import InputError
from judgelm.records import Judgment, Label, Sample
from judgelm.yaml_files import read_yaml

T = TypeVar("T")


class Entry(NamedTuple):
    """A row to write, and its row for correctness studies (None if there is no ground truth)."""

    row: dict[str, object]
    truth: dict[str, object] | None = None


Load = Callable[[Sequence[str], OnReject], Iterator[Entry]]
"""Loads entries from files and passes unusable rows to the handler. Raises InputError if a file has the wrong
format.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Published files, as listed in `benchmarks.yaml`.

    `unverified` lists facts that were not checked against the published files.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    files: str
    paper: str
    unverified: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol(Publication):
    """A benchmark's files and metric; `judge_with` lists the required `judgelm-batch` options."""

    metric: str
    judge_with: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publications:
    """Contents of `benchmarks.yaml`, keyed by source."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    benchmarks: Mapping[str, Protocol]
    judgments: Mapping[str, Publication]


@cache
def publications() -> Publications:
    """Load `benchmarks.yaml`."""
    return TypeAdapter(Publications).validate_python(read_yaml(Path(__file__).parent / "benchmarks.yaml"))


@cache
def layout_facts() -> dict[str, Any]:
    """Load `layouts.yaml`."""
    stated: dict[str, Any] = read_yaml(Path(__file__).with_name("layouts.yaml"))
    return stated


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedJudgment:
    """A published judgment.

    Attributes:
        judgment: uses the sample id assigned by `judgelm data import`, if the benchmark can be imported.
        fields: the published row, used to build ids.
    """

    judgment: Judgment
    judge: str | None
    fields: Mapping[str, object]
    texts: tuple[str, ...] | None = None
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRuns:
    """The format of a source's published judgments. Set either `read_row` or `read_files`.

    Attributes:
        needs: fields that a row must have.
        mode: mode options for the manifest.
        recognised: an additional condition that a row must meet.
    """

    needs: tuple[str, ...]
    read_row: Callable[[Row], PublishedJudgment] | None = None
    read_files: Callable[[Sequence[str], OnReject], Iterator[PublishedJudgment]] | None = None
    mode: Mapping[str, object] = field(default_factory=lambda: {"name": "pair", "order_rule": "tie"})
    recognised: Callable[[Row], bool] = lambda row: True

    def read(self, files: Sequence[str], on_reject: OnReject) -> Iterator[PublishedJudgment]:
        """Read judgments from published files, rejecting unusable rows."""
        if self.read_files is not None:
            yield from self.read_files(files, on_reject)
            return
        assert self.read_row is not None
        expected = ", ".join(self.needs)
        for path in files:
            yield from read_converted(path, self.read_row, expected=expected, on_reject=on_reject)


def _no_label(row: Row, with_reference: bool) -> Label | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The fields required in each row of a benchmark; `name` is used in error messages."""

    name: str
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One published layout, data set, or benchmark.

    Attributes:
        needs: fields that a file's first row must have; empty for sources that are only selected by name.
        fields: part of a sample -> source field; alternatives are separated by ` / `.
        sample: row -> sample; None if a sample requires several rows.
        label: (row, with_reference) -> label without `sample_id`, or None.
        note: error message for rows that cannot be judged individually.
        single_votes: rows without an id that repeat a pair, in either order, are counted as additional votes.
        task_votes: rows with a repeated id are counted as additional votes on the same task.
        votes: row -> plain row with the votes on its task, which `label` parses.
        shape: format of published rows that have more fields than `needs`.
        entry: row and 1-based number -> entry, or entries and rejects; by default built from `sample` and `label`.
        load: files -> entries, for sources whose entries combine several rows or files.
    """

    name: str
    needs: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    sample: Callable[[Row], Sample] | None = None
    label: Callable[[Row, bool], Label | None] = _no_label
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
        """Return a decoder for one file; the user's code, if `stated`, overrides the source's code."""
        return LabelDecoder(codes=self.code, stated=stated, soft=self.soft)

    def entries(self, files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
        """Read entries from published files."""
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
        """Return the source with `fields` limited to the fields in a row."""
        fields = {}
        for part, alternatives in self.fields.items():
            for names in alternatives.split(" / "):
                if all(name in row.data for name in names.split(", ")):
                    fields[part] = names
                    break
        fields.setdefault("id", "a hash of the content")
        return replace(self, fields=fields)


def with_stated_fields(source: Source, name: str = "") -> Source:
    """Return the source with its fields from `layouts.yaml`."""
    stated = {"needs": source.needs} | layout_facts().get(name or source.name, {})
    return replace(source, **stated | {"needs": tuple(stated["needs"])})


@cache
def known_fields(layout: str) -> frozenset[str]:
    """Return the fields that the layout's reader recognises."""
    return frozenset(layout_facts()["known-fields"][layout])


def sample_of(
    name: str | None,
    question: str,
    answers: Sequence[str],
    reference: str | None = None,
    *,
    models: tuple[str, ...] = (),
    images: tuple[str, ...] = (),
    category: str | None = None,
    metadata: Mapping[str, object],
) -> Sample:
    """Return a sample; if `name` is not set, the id is a hash of the content."""
    return Sample(
        id=name or content_id(question, answers, reference),
        question=question,
        answers=tuple(answers),
        reference=reference,
        answer_models=models,
        images=images,
        category=category,
        metadata=metadata,
    )


def protocol_of(source: Source) -> Protocol:
    """Return a benchmark's protocol."""
    return publications().benchmarks[source.name]


def convert_file(path: str, shape: Shape, make: Callable[[Row, int], T], on_reject: OnReject) -> Iterator[T]:
    """Convert each row of a file together with its 1-based number, rejecting unusable rows."""
    numbers, expected = count(1), ", ".join(shape.needs)
    rows = _rows_of(path, shape)
    return convert_rows(rows, lambda row: make(row, next(numbers)), path=path, expected=expected, on_reject=on_reject)


def _rows_of(path: str, shape: Shape) -> Iterator[Row | Reject]:
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
        error = row.error(f"not a {shape.name} row: missing {', '.join(missing)}; found the fields {fields}")
        if not known:
            raise InputError(f"{error}; pass the published file, or choose a different benchmark")
        yield reject_row(row, error)


def single_file(files: Sequence[str], benchmark: str) -> str:
    """Return the only file."""
    if len(files) != 1:
        raise InputError(f"{benchmark}: expected one file, got {len(files)}: {', '.join(files)}; import one at a time")
    return files[0]


def choice_field(row: Row, name: str, values: Mapping[object, T]) -> T:
    """Look up a field's value in a mapping of known values."""
    value = row.data.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int) or value not in values:
        expected = ", ".join(map(str, values))
        raise row.error(f'field "{name}": expected one of {expected}, got {describe(value)}; correct the row')
    return values[value]


def model_from_filename(path: str) -> str:
    """Return the file name without extensions."""
    name = Path(path).name
    for ending in (".gz", ".jsonl", ".json"):
        name = name.removesuffix(ending)
    return name
