"""Joins of judgments with rows by id, in which the texts are compared.

A row with the same answers as judged, in another order, is turned round; other texts are refused. Rows without texts
and judgments without hashes join by id alone, and are counted.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from judgelm.data.labelled_set import LabelledSet, turned_label, turned_sample
from judgelm.data.readers.rows import Row
from judgelm.data.sources.registry import recognise
from judgelm.data.text_hashes import EXCHANGED, difference, text_hashes
from judgelm.errors import InputError
from judgelm.records import Judgment, Label, Sample, TextHashes

_SHOWN_TEXT = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TextComparison:
    """Judgments that join a row by id: of the same texts, of a row turned round, without comparison of texts."""

    same: int = 0
    turned: int = 0
    not_compared: int = 0

    def notes(self) -> list[str]:
        """Notes on the comparison, in sentences; none where all texts are the same."""
        total = self.same + self.turned + self.not_compared
        notes = []
        if self.turned:
            notes.append(
                f"{self.turned:,} of {total:,} rows have the answers in another order than judged; they are turned "
                "round."
            )
        if self.not_compared:
            notes.append(
                f"{self.not_compared:,} of {total:,} judgments join by id alone: the row or the run has no texts to "
                "compare."
            )
        return notes


def match_samples(
    judgments: Mapping[str, Judgment], samples: Mapping[str, Sample], *, name: str
) -> tuple[dict[str, Sample], TextComparison]:
    """The samples with their answers in the order that was judged.

    Args:
        judgments: by sample id.
        samples: by id; those without a judgment stay as they are.
        name: of the samples' file, for errors.

    Raises:
        InputError: a judgment is of other texts than the sample of its id.
    """
    orders, comparison = _orders(judgments, samples, name)
    matched = dict(samples) | {key: turned_sample(samples[key], order) for key, order in orders.items()}
    return matched, comparison


def match_labels(
    judgments: Mapping[str, Judgment], labelled: LabelledSet, *, name: str
) -> tuple[LabelledSet, TextComparison]:
    """The labels and samples with their answers in the order that was judged; as `match_samples`.

    Raises:
        InputError: a judgment is of other texts than the row of its id.
    """
    orders, comparison = _orders(judgments, labelled.samples, name)
    samples, labels, split = dict(labelled.samples), dict(labelled.labels), dict(labelled.split)
    for key, order in orders.items():
        if key in labels:
            labels[key] = turned_label(labels[key], samples[key], order)
        if key in split:
            votes = Label(sample_id=key, winner="tie", votes=split[key])
            split[key] = turned_label(votes, samples[key], order).votes
        samples[key] = turned_sample(samples[key], order)
    matched = replace(labelled, samples=samples, labels=labels, split=split)
    without_texts = len((judgments.keys() & labelled.labels.keys()) - labelled.samples.keys())
    return matched, replace(comparison, not_compared=comparison.not_compared + without_texts)


def match_labels_of_runs(
    runs: Mapping[str, Mapping[str, Judgment]], labelled: LabelledSet, *, name: str
) -> tuple[LabelledSet, TextComparison]:
    """As `match_labels`, for several runs over the same input.

    Raises:
        InputError: as there, or the runs judged other texts under one id.
    """
    check_same_texts(runs)
    together: dict[str, Judgment] = {}
    for judgments in runs.values():
        for key, judgment in judgments.items():
            if key not in together or together[key].hashes is None:
                together[key] = judgment
    return match_labels(together, labelled, name=name)


def check_same_texts(runs: Mapping[str, Mapping[str, Judgment]]) -> None:
    """Refuse runs that judged other texts, or the answers in another order, under the same ids.

    Args:
        runs: judgments by sample id, by the name of the run; those without hashes are not compared.

    Raises:
        InputError: names both runs, the number of such ids and one of them.
    """
    first: dict[str, tuple[str, TextHashes]] = {}
    for name, judgments in runs.items():
        shared, different = 0, []
        for key, judgment in judgments.items():
            if judgment.hashes is None:
                continue
            other, hashes = first.setdefault(key, (name, judgment.hashes))
            shared += other != name
            if other != name and (part := difference(hashes, judgment.hashes)):
                different.append(f"id {_quoted(key)}: {part} differs from {other}'s")
        if different:
            raise _other_texts(f"{name}: {len(different):,} of {shared:,} judgments", different)


def check_reversed(judgments: Mapping[str, Judgment], reverse: Mapping[str, Judgment]) -> None:
    """Refuse a run of reversed pairs that is not one: of other texts, or of the answers in the same order.

    Raises:
        InputError: names the number of such ids and one of them.
    """
    shared, different = 0, []
    for key in judgments.keys() & reverse.keys():
        judged, other = judgments[key].hashes, reverse[key].hashes
        if judged is None or other is None:
            continue
        shared += 1
        if part := difference(replace(judged, answers=judged.answers[::-1]), other):
            same = part == EXCHANGED
            different.append(f"id {_quoted(key)}: {'the answers have the same order' if same else f'{part} differs'}")
    if different:
        raise _other_texts(f"reversed judgments: {len(different):,} of {shared:,}", sorted(different))


def _other_texts(counted: str, different: Sequence[str]) -> InputError:
    return InputError(
        f"{counted} are not of the texts that the other run judged under the same id; for example, {different[0]}; "
        "give runs over the same input"
    )


def _orders(
    judgments: Mapping[str, Judgment], samples: Mapping[str, Sample], name: str
) -> tuple[dict[str, tuple[int, ...]], TextComparison]:
    """For each sample to turn, the indices of its answers in the order judged."""
    orders: dict[str, tuple[int, ...]] = {}
    same = not_compared = 0
    different: list[str] = []
    for key, judgment in judgments.items():
        judged = judgment.hashes
        if key not in samples:
            continue
        if judged is None:
            not_compared += 1
            continue
        hashes = text_hashes(samples[key])
        part = difference(judged, hashes)
        if part == EXCHANGED and len(set(hashes.answers)) == len(hashes.answers):
            orders[key] = tuple(hashes.answers.index(answer) for answer in judged.answers)
        elif part:
            different.append(f"id {_quoted(key)}: {part} differs{_text_of(samples[key], part)}")
        else:
            same += 1
    if different:
        joined = same + not_compared + len(orders) + len(different)
        raise InputError(
            f"{name}: {len(different):,} of {joined:,} rows have other texts than those judged under the same id; for "
            f"example, {different[0]}; give the rows that were judged, or judge these"
        )
    return orders, TextComparison(same=same, turned=len(orders), not_compared=not_compared)


def _text_of(sample: Sample, part: str) -> str:
    """The row's text of the part that differs."""
    _, _, index = part.partition("answer ")
    if part != "the question" and not index:
        return ""
    text = sample.answers[int(index) - 1] if index else sample.question
    return f", here {_quoted(text[:_SHOWN_TEXT])}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def hashes_in_row(row: Row) -> TextHashes | None:
    """Of the texts judged, where a row of results holds them."""
    with suppress(InputError):
        source = recognise(row, label_rows=True)
        sample = None if source.sample is None else source.sample(row)
        return text_hashes(sample) if sample is not None and sample.answers else None
    return None
