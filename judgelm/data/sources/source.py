"""The codes of labels, the record of a source, and functions that the readers of sources share.

A code says what the values of a file's label field mean, and is checked over the whole file. Words such as `model_a`,
`Tie` and `tie (bothbad)` mean the same everywhere. Numbers do not: 0 is the first answer in one file, a tie in a second
and the second answer in a third. So numbers are read by the code that a recognised layout or the user states. Without
one, only 1 and 2 are read, and any other number makes the whole file unreadable.

A reader of a benchmark makes rows of judgelm's plain layout, which batch runs and label readers read.
`judgelm.data.sources.importer` writes them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import ConfigDict, TypeAdapter

from judgelm.data.label_codes import FieldCode, LabelDecoder, Soft, Values
from judgelm.data.plain_rows import plain_row
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import OnReject, Reject, Row, convert_rows, reject_row
from judgelm.data.readers.values import describe
from judgelm.errors import InputError
from judgelm.records import Judgment, Label, Sample
from judgelm.yaml_files import read_yaml

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


def with_stated_fields(source: Source, name: str = "") -> Source:
    """Return the source with the fields that `layouts.yaml` states for it."""
    stated: dict[str, Any] = {"needs": source.needs, "fields": source.fields, "details": source.details}
    stated |= layout_facts().get(name or source.name, {})
    return replace(source, **stated | {"needs": tuple(stated["needs"])})


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
