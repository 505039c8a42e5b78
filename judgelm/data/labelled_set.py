"""Load labels, samples, and groups from labelled files. Rows with the same id are counted as votes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean

from judgelm.data.judged_texts import (
    REORDERED,
    TextComparison,
    check_same_texts,
    difference,
    judged_orders,
    reordered_label,
    reordered_sample,
    text_hashes,
)
from judgelm.data.label_codes import majority
from judgelm.data.labelled_pair import LabelledPair, rounded_preference, winner_by_preference
from judgelm.data.readers.rows import FileUse, OnReject, Row, raise_reject
from judgelm.data.readers.values import similar_names_notes
from judgelm.data.samples import AS_WRITTEN, Reading, SampleStream
from judgelm.data.shelf import Shelf
from judgelm.data.sources.registry import recognise
from judgelm.errors import InputError, LabelCodeError
from judgelm.prompts.judge_prompt import JudgePrompt
from judgelm.prompts.prompt_template import field_check
from judgelm.records import Judgment, Label, Sample, TextHashes, Winner, winner_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSet:
    """The labels in a file, keyed by sample id.

    Attributes:
        samples: in file order; empty if the file contains only labels.
        labels: the scores are on the file's scale.
        groups: group name (`category`, `kind`, `vice`) -> id -> value.
        voted: number of ids with labels in several rows.
        split: votes for ids that have no label because there is no majority.
    """

    samples: Mapping[str, Sample]
    labels: Mapping[str, Label]
    groups: Mapping[str, Mapping[str, str]]
    unlabelled: int = 0
    rejected: int = 0
    read: int = 0
    voted: int = 0
    split: Mapping[str, tuple[Winner, ...]] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Return notes about similar model names and about ids with several labels."""
        names = similar_names_notes(name for sample in self.samples.values() for name in sample.answer_models)
        if not self.voted:
            return names
        ids = "1 id has" if self.voted == 1 else f"{self.voted:,} ids have"
        split = f"; {len(self.split):,} with no majority have no label" if self.split else ""
        return [*names, f"{ids} labels in several rows; the majority vote is used{split}."]


def read_labels(
    path: str, *, with_reference: bool = False, on_reject: OnReject = raise_reject, reading: Reading = AS_WRITTEN
) -> LabelledSet:
    """Read a file's labels and, if it contains them, samples; see `read_labelled_set`.

    Raises:
        InputError: no row has a usable label.
    """
    labelled, stream = _read(path, with_reference, on_reject, reading)
    if not labelled.labels and not labelled.split:
        raise _no_label_error(path, stream, with_reference)
    return labelled


def read_labelled_set(
    path: str, *, with_reference: bool = False, on_reject: OnReject = raise_reject, reading: Reading = AS_WRITTEN
) -> LabelledSet:
    """Read labelled samples in any supported format, or rows with an id and a label.

    `with_reference` selects the labels made with a reference (`score_w_reference`, `text_w_reference`).

    Raises:
        InputError: there are no usable rows, rows with the same id have different texts, or a label contradicts the
            code.
    """
    return _read(path, with_reference, on_reject, reading)[0]


def _read(path: str, with_reference: bool, on_reject: OnReject, reading: Reading) -> tuple[LabelledSet, SampleStream]:
    use = FileUse(path=path, expected="an id and a label", on_reject=on_reject)
    stream = SampleStream([path], on_reject=use.reject, label_rows=True, reading=reading, repeats="votes")
    samples: Shelf[Sample] = Shelf()
    labels: dict[str, Label] = {}
    votes: dict[str, list[Label]] = {}  # for ids with several labels
    unlabelled = 0
    for row, sample, (label,) in stream.labelled(use, with_reference):
        first = samples.get(sample.id)
        label, kept = _as_in_first_row(row, sample, first, label)
        if kept is not first:
            samples[sample.id] = kept
        if label is None:
            unlabelled += 1
        elif kept.id in labels:
            votes.setdefault(kept.id, [labels[kept.id]]).append(label)
        else:
            labels[kept.id] = replace(label, sample_id=kept.id)
    for name, several in votes.items():
        labels[name] = replace(majority_label(several), sample_id=name)
    split = {name: labels.pop(name).votes for name in votes if labels[name].votes and labels[name].winner is None}
    groups = groups_of(samples)
    for name in [name for name, sample in samples.items() if not sample.answers]:
        del samples[name]
    labelled = LabelledSet(
        samples=samples,
        labels=labels,
        groups=groups,
        unlabelled=unlabelled,
        rejected=use.rejected,
        read=stream.read,
        voted=len(votes),
        split=split,
    )
    return labelled, stream


def _as_in_first_row(
    row: Row, sample: Sample, first: Sample | None, label: Label | None
) -> tuple[Label | None, Sample]:
    if first is None or not sample.answers:
        return label, first or sample
    if not first.answers:
        return label, sample
    hashes, own = text_hashes(first), text_hashes(sample)
    part = difference(hashes, own)
    if not part:
        return label, first
    if part != REORDERED or len(set(own.answers)) < len(own.answers):
        name = json.dumps(sample.id, ensure_ascii=False)
        finding = f"{part} differs from an earlier row with id {name}"
        raise row.error(f"{finding}; rows with the same id must be votes on the same texts; use different ids")
    order = tuple(own.answers.index(answer) for answer in hashes.answers)
    return None if label is None else reordered_label(label, sample, order), first


def majority_label(labels: Sequence[Label]) -> Label:
    """Combine the labels of one sample; each label is a vote.

    The winner must have more than half of the votes. Scores and preferences are averaged, or dropped if any label lacks
    them or they contradict the winner.
    """
    votes = tuple(label.winner for label in labels if label.winner is not None)
    winner = majority(votes)
    scores = _mean_scores(labels)
    known = [label.preference for label in labels if label.preference is not None]
    preference = rounded_preference(fmean(known)) if len(known) == len(labels) else None
    if votes and scores is not None and winner_of((scores[0], scores[1])) != winner:
        scores = None
    if preference is not None and winner_by_preference(preference) != winner:
        preference = None
    return Label(sample_id="", winner=winner, scores=scores, votes=votes, preference=preference)


def _mean_scores(labels: Sequence[Label]) -> tuple[float, ...] | None:
    scores = [label.scores for label in labels if label.scores is not None]
    if len(scores) < len(labels) or len({len(each) for each in scores}) > 1:
        return None
    return tuple(round(fmean(column), 9) for column in zip(*scores, strict=True))


def _no_label_error(path: str, stream: SampleStream, with_reference: bool) -> InputError | LabelCodeError:
    if error := stream.unread_label():
        return error
    expected = "score_w_reference or text_w_reference" if with_reference else "label"
    label_fields = stream.source.fields.get("label")
    read_as = f"with labels in {label_fields}" if label_fields else "a format with no label field"
    finding = f"none of the {stream.read} rows has a usable {expected}"
    return InputError(f"{path}: {finding}; the file was recognised as {stream.source.name}, {read_as}")


def read_labelled(
    path: str,
    *,
    source: str,
    on_reject: OnReject = raise_reject,
    reading: Reading = AS_WRITTEN,
    prompt: JudgePrompt | None = None,
) -> Iterator[LabelledPair]:
    """Yield the pairs in a labelled file, with the fields that the prompt file shows.

    `source` is the file's name in training rows.
    """
    use = FileUse(path=path, expected="a question, two answers and a label", on_reject=on_reject)
    stream = SampleStream(
        [path], on_reject=use.reject, answers=(2, 2), reading=reading, prompt=prompt, check=field_check(prompt)
    )
    for _, sample, (plain, referenced) in stream.labelled(use, False, True):
        if sample.reference is None:
            referenced = None
        yield LabelledPair(sample=sample, plain=plain, referenced=referenced, source=source)


def groups_of(samples: Mapping[str, Sample]) -> dict[str, dict[str, str]]:
    """Group samples by category and by `kind` and `vices` in the metadata.

    The vices of two answers are combined into one group, regardless of order, such as `blunt / wordy`.
    """
    groups: dict[str, dict[str, str]] = {}
    known: dict[str, str] = {}  # share one string object per value
    for key, sample in samples.items():
        kind, vices = sample.metadata.get("kind"), sample.metadata.get("vices")
        values = {"category": sample.category or None, "kind": None if kind is None else str(kind)}
        if isinstance(vices, list | tuple) and vices:
            values["vice"] = " / ".join(sorted(str(vice or "none") for vice in vices))
        for name, value in values.items():
            if value is not None:
                groups.setdefault(name, {})[key] = known.setdefault(value, value)
    return groups


class Turned(Mapping[str, Sample]):
    """A mapping of samples that are reordered on look-up; for `orders`, see `judged_orders`."""

    def __init__(self, samples: Mapping[str, Sample], orders: Mapping[str, tuple[int, ...]]) -> None:
        self._samples, self._orders = samples, orders

    def __getitem__(self, key: str) -> Sample:
        sample = self._samples[key]
        return reordered_sample(sample, self._orders[key]) if key in self._orders else sample

    def __contains__(self, key: object) -> bool:
        return key in self._samples

    def __iter__(self) -> Iterator[str]:
        return iter(self._samples)

    def __len__(self) -> int:
        return len(self._samples)


def match_labels(
    judgments: Mapping[str, Judgment], labelled: LabelledSet, *, name: str
) -> tuple[LabelledSet, TextComparison]:
    """Return labels and samples with the answers in the judged order; see `match_samples`."""
    orders, comparison = judged_orders(judgments, labelled.samples, name)
    samples, labels, split = Turned(labelled.samples, orders), dict(labelled.labels), dict(labelled.split)
    for key, order in orders.items():
        if key in labels:
            labels[key] = reordered_label(labels[key], labelled.samples[key], order)
        if key in split:
            votes = Label(sample_id=key, winner="tie", votes=split[key])
            split[key] = reordered_label(votes, labelled.samples[key], order).votes
    matched = replace(labelled, samples=samples, labels=labels, split=split)
    without_texts = len((judgments.keys() & labelled.labels.keys()) - labelled.samples.keys())
    return matched, replace(comparison, not_compared=comparison.not_compared + without_texts, without_row=0)


def match_labels_of_runs(
    runs: Mapping[str, Mapping[str, Judgment]], labelled: LabelledSet, *, name: str
) -> tuple[LabelledSet, TextComparison]:
    """Match labels to several runs over the same input; see `match_labels`."""
    check_same_texts(runs)
    together: dict[str, Judgment] = {}
    for judgments in runs.values():
        for key, judgment in judgments.items():
            if key not in together or together[key].hashes is None:
                together[key] = judgment
    return match_labels(together, labelled, name=name)


def hashes_in_row(row: Row) -> TextHashes | None:
    """Hash the texts in a result row, or return None if there are no texts."""
    with suppress(InputError):
        source = recognise(row, label_rows=True)
        sample = None if source.sample is None else source.sample(row)
        return text_hashes(sample) if sample is not None and sample.answers else None
    return None
