"""Hash the texts of samples, and verify these hashes when judgments and rows are joined by id.

The hash of a text is the xxh3-64 of its UTF-8 bytes in 16 hex digits; several texts are hashed as a JSON list. A row
without texts or a judgment without hashes is joined by id alone.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from judgelm.data.augmentation import swap_answers
from judgelm.data.labelled_pair import LabelledPair
from judgelm.engines.base import ImageError
from judgelm.engines.images import image_bytes
from judgelm.errors import InputError
from judgelm.modes import shown_fields
from judgelm.prompts.conversation import dialogue_of
from judgelm.records import Judgment, Label, Sample, TextHashes

REORDERED = "the order of the answers"
"""The value of `difference` if the answers are the same but in a different order."""


def text_hashes(sample: Sample) -> TextHashes:
    """Hash a sample's texts and images; images that cannot be read have no hash."""
    metadata = sample.metadata
    turns = metadata.get("turns")
    questions, answers = [sample.question], [[answer] for answer in sample.answers]
    if isinstance(turns, list) and len(turns) > 1:
        with suppress(InputError):  # the turns are not a valid dialogue
            dialogue = dialogue_of(sample)
            questions = [turn.question for turn in dialogue]
            answers = [list(side) for side in zip(*(turn.answers for turn in dialogue), strict=True)]
    shown = {name: metadata[name] for name in shown_fields() if metadata.get(name) is not None} if metadata else {}
    if sample.reference is not None:
        shown["reference"] = sample.reference
    return TextHashes(
        question=_hash(questions),
        answers=tuple(_hash(texts) for texts in answers),
        images=_hash_of_images(sample.images),
        context=_hash([json.dumps(shown, sort_keys=True, default=str)]) if shown else None,
    )


def digest_of(hashes: TextHashes) -> int:
    """Combine all hashes of a sample into one nonzero 64-bit number."""
    parts = (hashes.question, *hashes.answers, str(hashes.images), str(hashes.context))
    return xxh3_64_intdigest(" ".join(parts).encode(errors="surrogatepass")) or 1


def difference(judged: TextHashes, other: TextHashes) -> str:
    """Return the first part that differs from the judged texts, or an empty string.

    Images are compared only if both samples have images. Metadata is never compared.
    """
    if judged.question != other.question:
        return "the question"
    if None not in (judged.images, other.images) and judged.images != other.images:
        return "an image"
    if judged.answers == other.answers:
        return ""
    if len(judged.answers) != len(other.answers):
        return "the number of answers"
    if sorted(judged.answers) == sorted(other.answers):
        return REORDERED
    pairs = zip(judged.answers, other.answers, strict=True)
    return f"answer {next(index for index, (first, second) in enumerate(pairs, 1) if first != second)}"


def _hash(texts: Sequence[str]) -> str:
    text = texts[0] if len(texts) == 1 else json.dumps(list(texts))
    return xxh3_64_hexdigest(text.encode(errors="surrogatepass"))


def _hash_of_images(sources: Sequence[str]) -> str | None:
    hashes = [_hash_of_image(source) for source in sources]
    known = [image for image in hashes if image is not None]
    return _hash(known) if known and len(known) == len(hashes) else None


def _hash_of_image(source: str) -> str | None:
    if source.startswith(("http://", "https://")):
        return _hash([source])
    try:
        if source.startswith("data:"):
            return xxh3_64_hexdigest(image_bytes(source))
        path = Path(source)
        if not path.is_file():
            return None
        state = path.stat()
        return _hash_of_file(source, state.st_mtime_ns, state.st_size)
    except (OSError, ValueError, ImageError):
        return None


@lru_cache(maxsize=256)
def _hash_of_file(source: str, mtime_ns: int, size: int) -> str:
    return xxh3_64_hexdigest(image_bytes(source))


def reordered_label(label: Label, sample: Sample, order: tuple[int, ...]) -> Label:
    """Reorder a label along with its answers; `order` lists the old indices. An ambiguous reason is dropped."""
    if len(order) == 2 and label.winner is not None:
        turned = swap_answers(LabelledPair(sample=sample, plain=label, referenced=None), "drop_reason").pair.plain
        assert turned is not None, "a label stays a label"
        return turned
    scores = label.scores
    return replace(label, scores=None if scores is None else tuple(scores[index] for index in order), reason=None)


def reordered_sample(sample: Sample, order: tuple[int, ...]) -> Sample:
    """Reorder a sample's answers, models, and dialogue turns."""
    metadata = dict(sample.metadata)
    if isinstance(turns := metadata.get("turns"), list) and len(turns) > 1:
        metadata["turns"] = [{**turn, "answers": [turn["answers"][index] for index in order]} for turn in turns]
    sample = replace(sample, metadata=metadata)
    if len(order) == 2:
        return swap_answers(LabelledPair(sample=sample, plain=None, referenced=None)).pair.sample
    answers, models = sample.answers, sample.answer_models
    models = tuple(models[index] for index in order) if models else ()
    return replace(sample, answers=tuple(answers[index] for index in order), answer_models=models)


_SHOWN_TEXT = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TextComparison:
    """Counts of judgments joined by id: with equal texts, with reordered answers, not compared, and without a row."""

    same: int = 0
    turned: int = 0
    not_compared: int = 0
    without_row: int = 0

    def notes(self) -> list[str]:
        """Return notes for the user, or an empty list if all texts are equal."""
        total = self.same + self.turned + self.not_compared
        notes = []
        if self.turned:
            notes.append(f"{self.turned:,} of {total:,} rows have the answers in a different order and were reordered.")
        if self.not_compared:
            missing = "the row or the run contains no texts to compare"
            notes.append(f"{self.not_compared:,} of {total:,} judgments were joined by id alone because {missing}.")
        if self.without_row:
            notes.append(f"{self.without_row:,} of {total + self.without_row:,} judgments have no matching row.")
        return notes


def match_samples(
    judgments: Mapping[str, Judgment], samples: Mapping[str, Sample], *, name: str
) -> tuple[dict[str, Sample], TextComparison]:
    """Return the samples with the answers in the judged order; `name` is the file name used in errors.

    Raises:
        InputError: a judgment and a sample with the same id have different texts, or no ids match.
    """
    orders, comparison = judged_orders(judgments, samples, name)
    return dict(samples) | {key: reordered_sample(samples[key], order) for key, order in orders.items()}, comparison


def check_same_texts(runs: Mapping[str, Mapping[str, Judgment]]) -> None:
    """Raise an InputError unless all runs judged the same texts in the same order for each id."""
    first: dict[str, tuple[str, TextHashes]] = {}
    for name, judgments in runs.items():
        shared, different = 0, []
        for key, judgment in judgments.items():
            if judgment.hashes is None:
                continue
            other, hashes = first.setdefault(key, (name, judgment.hashes))
            shared += other != name
            if other != name and (part := difference(hashes, judgment.hashes)):
                different.append(f"id {_quoted(key)}: {part} is not the same as in {other}")
        if different:
            raise _other_texts(f"{name}: {len(different):,} of {shared:,} judgments", different)


def check_reversed(judgments: Mapping[str, Judgment], reverse: Mapping[str, Judgment]) -> None:
    """Check that a run over reversed pairs judged the same texts."""
    shared, different = 0, []
    for key in judgments.keys() & reverse.keys():
        judged, other = judgments[key].hashes, reverse[key].hashes
        if judged is None or other is None:
            continue
        shared += 1
        if part := difference(replace(judged, answers=judged.answers[::-1]), other):
            same = part == REORDERED
            different.append(f"id {_quoted(key)}: {'the answers are in the same order' if same else f'{part} differs'}")
    if different:
        raise _other_texts(f"reversed judgments: {len(different):,} of {shared:,}", sorted(different))


def _other_texts(counted: str, different: Sequence[str]) -> InputError:
    finding = f"do not match the texts that the other run judged under the same id; for example, {different[0]}"
    return InputError(f"{counted} {finding}; pass runs over the same input")


def judged_orders(
    judgments: Mapping[str, Judgment], samples: Mapping[str, Sample], name: str
) -> tuple[dict[str, tuple[int, ...]], TextComparison]:
    """Return the judged order of the answers, for samples that must be reordered."""
    check_common_ids(judgments, samples, name)
    orders: dict[str, tuple[int, ...]] = {}
    same = not_compared = without_row = 0
    different: list[str] = []
    for key, judgment in judgments.items():
        judged = judgment.hashes
        if key not in samples:
            without_row += 1
            continue
        if judged is None:
            not_compared += 1
            continue
        hashes = text_hashes(samples[key])
        part = difference(judged, hashes)
        if part == REORDERED and len(set(hashes.answers)) == len(hashes.answers):
            orders[key] = tuple(hashes.answers.index(answer) for answer in judged.answers)
        elif part:
            different.append(f"id {_quoted(key)}: {part} differs{_text_of(samples[key], part)}")
        else:
            same += 1
    if different:
        joined = same + not_compared + len(orders) + len(different)
        finding = f"{len(different):,} of {joined:,} rows do not contain the texts that were judged under the same id"
        raise InputError(f"{name}: {finding}; for example, {different[0]}; pass the rows that were judged")
    return orders, TextComparison(same=same, turned=len(orders), not_compared=not_compared, without_row=without_row)


def check_common_ids(judgments: Mapping[str, Judgment], others: Mapping[str, object], name: str) -> None:
    """Raise an InputError if none of the ids was judged."""
    if judgments and others and judgments.keys().isdisjoint(others):
        ids = f"{_quoted(next(iter(others)))} in the file, {_quoted(next(iter(judgments)))} in the judgments"
        raise InputError(
            f"{name}: none of the ids in this file was judged (for example, {ids}); pass the file that was judged"
        )


def _text_of(sample: Sample, part: str) -> str:
    _, _, index = part.partition("answer ")
    if part != "the question" and not index:
        return ""
    text = sample.answers[int(index) - 1] if index else sample.question
    return f": the row contains {_quoted(text[:_SHOWN_TEXT])}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
