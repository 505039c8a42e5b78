"""Labelled files: what humans or a teacher concluded, with the samples and the groups to split results by."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from judgelm.data.labelled_pair import LabelledPair
from judgelm.data.readers.rejects import FileUse, OnReject, raise_reject
from judgelm.data.samples import AS_WRITTEN, Reading, SampleStream, labelled
from judgelm.errors import InputError
from judgelm.records import Label, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSet:
    """The labels of a file, by sample id.

    Attributes:
        samples: by id, in file order, those without label too; empty for a file of labels alone.
        labels: by id. Scores are on whatever scale the file has.
        groups: group name (`category`, `kind`, `vice`) -> id -> value; a name is there when some row has it.
        unlabelled: rows that carry no label.
        rejected: rows that could not be used.
        read: all rows.
    """

    samples: Mapping[str, Sample]
    labels: Mapping[str, Label]
    groups: Mapping[str, Mapping[str, str]]
    unlabelled: int = 0
    rejected: int = 0
    read: int = 0


def read_labels(
    path: str, *, with_reference: bool = False, on_reject: OnReject = raise_reject, reading: Reading = AS_WRITTEN
) -> LabelledSet:
    """Read the labels of a file, and its samples where it has them.

    Args:
        path: a file of any known format, or of rows with an id and a label.
        with_reference: read the label made with a reference (`score_w_reference`, `text_w_reference`).
        on_reject: called with each row that cannot be used. By default the first one is raised as an error.
        reading: the user's column names and label code.

    Raises:
        InputError: the file cannot be read, none of its rows carries a label, or a label contradicts the code.
    """
    use = FileUse(path=path, expected="an id and a label", on_reject=on_reject)
    stream = SampleStream([path], on_reject=use.reject, label_rows=True, reading=reading)
    samples: dict[str, Sample] = {}
    labels: dict[str, Label] = {}
    unlabelled = 0
    for sample, (label,) in labelled(stream, use, with_reference):
        samples[sample.id] = sample
        if label is None:
            unlabelled += 1
        else:
            labels[sample.id] = replace(label, sample_id=sample.id)
    if not labels:
        raise _no_label_error(path, stream, with_reference)
    return LabelledSet(
        samples={name: sample for name, sample in samples.items() if sample.answers},
        labels=labels,
        groups=groups_of(samples.values()),
        unlabelled=unlabelled,
        rejected=use.rejected,
        read=stream.read,
    )


def _no_label_error(path: str, stream: SampleStream, with_reference: bool) -> InputError:
    expected = "score_w_reference or text_w_reference" if with_reference else "a label"
    label_fields = stream.source.fields.get("label")
    read_as = f"with labels in {label_fields}" if label_fields else "and has no field that holds labels"
    finding = f"none of its {stream.read} rows has {expected} that can be used"
    return InputError(f"{path}: {finding}; it was read as {stream.source.name}, {read_as}")


def read_labelled(
    path: str, *, source: str, on_reject: OnReject = raise_reject, reading: Reading = AS_WRITTEN
) -> Iterator[LabelledPair]:
    """Every pair of a labelled file, in any format that judgelm recognises.

    Args:
        path: the file.
        source: its name in what is built.
        on_reject: gets the rows that hold no pair, or a label that cannot be read.
        reading: the user's column names and label code.

    Raises:
        InputError: the file cannot be read, its format is not recognised, or none of its rows can be used.
    """
    use = FileUse(path=path, expected="a question, two answers and a label", on_reject=on_reject)
    stream = SampleStream([path], on_reject=use.reject, answers=(2, 2), reading=reading)
    for sample, (plain, referenced) in labelled(stream, use, False, True):
        if sample.reference is None:
            referenced = None
        yield LabelledPair(sample=sample, plain=plain, referenced=referenced, source=source)


def groups_of(samples: Iterable[Sample]) -> dict[str, dict[str, str]]:
    """The groups that samples fall into: their category, and their metadata's `kind` and `vices`.

    The vices of the two answers make one group, whichever answer has which: `blunt / wordy`; an answer without
    vice is `none`.
    """
    groups: dict[str, dict[str, str]] = {}
    for sample in samples:
        if sample.category:
            groups.setdefault("category", {})[sample.id] = sample.category
        kind, vices = sample.metadata.get("kind"), sample.metadata.get("vices")
        if kind is not None:
            groups.setdefault("kind", {})[sample.id] = str(kind)
        if isinstance(vices, list | tuple) and vices:
            groups.setdefault("vice", {})[sample.id] = " / ".join(sorted(str(vice or "none") for vice in vices))
    return groups
