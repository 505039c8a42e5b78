"""Samples to be judged, and the labels that they have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Winner = Literal[1, 2, "tie"]
"""The better answer of a pair, in the order of the *sample*, not in the order shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One question, the images that it is about (paths or URLs, which engines read), and the answers to be judged."""

    id: str
    question: str
    answers: tuple[str, ...]
    reference: str | None = None
    answer_models: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    category: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The verdict of a person or teacher on a pair, one answer, or three and more; in sample order.

    `winner` is the label of a pair that metrics compare with, and None where there are not two answers: what is known
    of those is their `scores`, one each. Of a pair `scores` and `reason` are there where the source has them (a GPT-4
    review), `votes` where several annotators voted (PandaLM), `preference` where the source has one: P(first is
    better), 0 and 1 for hard labels, 0.5 for a tie, anything between from a judge that gave probabilities (AlpacaEval's
    weighted annotators). Without scores the winner is the first above 0.5, the second below, a tie at 0.5.
    """

    sample_id: str
    winner: Winner | None
    scores: tuple[float, ...] | None = None
    reason: str | None = None
    votes: tuple[Winner, ...] = ()
    preference: float | None = None
