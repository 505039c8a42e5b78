"""Judgments with parts, such as claims, criteria, or tasks: for the page, the table, and the export."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from judgelm.errors import ConfigError
from judgelm.modes.votes import verdict_text
from judgelm.prompts.passages import read_passages
from judgelm.records import Judgment, Sample, Shown, failure_name
from judgelm.reports.pairs import clipped

_MARKS = re.compile(r"[\s>|*#-]+")
_LEVELS = 5


class PartSummary(NamedTuple):
    """Statistics of P(yes) over the parts of one answer.

    Attributes:
        share: share of parts with at least the threshold.
    """

    minimum: float
    mean: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a judgment. `passage` is the text that supports it best, if known."""

    text: str
    probability: float | None
    score: str
    failure: str
    passage_id: str
    passage: str
    is_met: bool

    @property
    def sign(self) -> str:
        """A sign in addition to the colour."""
        return "?" if self.probability is None else "✓" if self.is_met else "✗"

    @property
    def level(self) -> str:
        """CSS class: 0 (not supported) to 4 (supported)."""
        return "" if self.probability is None else f"p{min(_LEVELS - 1, int(self.probability * _LEVELS))}"


class AnswerPiece(NamedTuple):
    """A piece of an answer, and the part that it is; None for text between parts."""

    text: str
    part: Part | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerParts:
    """The parts of one answer.

    Attributes:
        pieces: the text of the answer, with its parts.
        others: parts that are not in the text, such as criteria.
    """

    number: int
    summary: PartSummary | None
    pieces: tuple[AnswerPiece, ...]
    others: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedParts:
    """A judgment with its parts. Its strings are untrusted, and the template escapes them."""

    sample_id: str
    question: str
    verdict: str
    answers: tuple[AnswerParts, ...]


def part_probability(shown: Shown) -> float | None:
    """Return P(yes), in [0, 1], or None if the reply failed or is no answer to a yes-no question."""
    if shown.scores is None or shown.log_odds is None or len(shown.order) != 1:
        return None
    score = shown.scores[0]
    return score if 0 <= score <= 1 else 1 / (1 + math.exp(-shown.log_odds))


def summarise(shown: Sequence[Shown], threshold: float) -> PartSummary | None:
    """Summarise the parts of one answer; None if a part has no probability."""
    values = [part_probability(each) for each in shown]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    share = sum(value >= threshold for value in known) / len(known)
    return PartSummary(min(known), math.fsum(known) / len(known), share)


def parts_of(judgment: Judgment) -> dict[int, list[Shown]]:
    """Return the parts, keyed by the index of the answer; replies to several answers are left out."""
    parts: dict[int, list[Shown]] = {}
    for shown in judgment.shown:
        if shown.part and len(shown.order) == 1:
            parts.setdefault(shown.order[0], []).append(shown)
    return parts


def list_parts(judgment: Judgment, sample: Sample | None, threshold: float) -> ListedParts:
    """Return a judgment with its parts, in the text of each answer where possible."""
    passages = {} if sample is None else _passages(sample)
    answers = []
    for index, shown in sorted(parts_of(judgment).items()):
        parts = [_part(each, passages, threshold) for each in shown]
        text = "" if sample is None else clipped(sample.answers[index])
        pieces, others = _pieces(text, parts)
        summary = summarise(shown, threshold)
        answers.append(AnswerParts(number=index + 1, summary=summary, pieces=tuple(pieces), others=tuple(others)))
    failure = "" if judgment.failure is None else f"failed: {failure_name(judgment.failure.code)}"
    return ListedParts(
        sample_id=judgment.sample_id,
        question="" if sample is None else sample.question,
        verdict=failure or ("" if judgment.verdict is None else str(verdict_text(judgment.verdict))),
        answers=tuple(answers),
    )


def _passages(sample: Sample) -> Mapping[str, str]:
    texts: dict[str, str] = {}
    for split in (True, False):
        try:
            texts |= {
                passage.id: passage.text for passage in read_passages(sample.metadata.get("context"), split=split)
            }
        except ConfigError:  # the mode has no context
            return {}
    return texts


def _part(shown: Shown, passages: Mapping[str, str], threshold: float) -> Part:
    probability = part_probability(shown)
    score = f"{probability:.2f}" if probability is not None else f"{shown.scores[0]:g}" if shown.scores else "–"
    return Part(
        text=shown.part,
        probability=probability,
        score=score,
        failure="" if shown.failure is None else failure_name(shown.failure.code),
        passage_id=shown.passage,
        passage=clipped(passages.get(shown.passage, "")),
        is_met=probability is not None and probability >= threshold,
    )


def _pieces(text: str, parts: Sequence[Part]) -> tuple[list[AnswerPiece], list[Part]]:
    """Find the parts in a text, in order. White space and Markdown may differ."""
    pieces, others, position = [], [], 0
    for part in parts:
        words = [re.escape(word) for word in _MARKS.split(part.text) if word]
        match = re.compile(r"[\s>|*#-]+".join(words)).search(text, position) if words else None
        if match is None:
            others.append(part)
            continue
        if match.start() > position:
            pieces.append(AnswerPiece(text[position : match.start()], None))
        pieces.append(AnswerPiece(match[0], part))
        position = match.end()
    if text[position:].strip():
        pieces.append(AnswerPiece(text[position:], None))
    return pieces, others
