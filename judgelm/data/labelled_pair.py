"""Labelled pairs, their conversion to JudgeLM's training format, and preferences as training targets.

A preference is P(first answer is better) in [0, 1]: 1 for the first answer, 0 for the second, and 0.5 for a tie.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from judgelm.data.plain_rows import json_scores
from judgelm.records import Label, Sample, Winner


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPair:
    """A question and two answers, labelled by a teacher or by humans.

    Attributes:
        plain: the judgment made without the reference.
        referenced: the judgment made with the reference.
        swapped: whether the answers are in the opposite order in the source.
        epoch: 0-based pass over the data.
    """

    sample: Sample
    plain: Label | None
    referenced: Label | None
    source: str = ""
    swapped: bool = False
    epoch: int = 0

    def with_id(self, pair_id: str) -> "LabelledPair":
        """Return the pair with a different id."""
        return replace(self, sample=replace(self.sample, id=pair_id))

    def without_reference(self) -> "LabelledPair":
        """Return the pair with the reference, and the judgment made with it, removed."""
        return replace(self, sample=replace(self.sample, reference=None), referenced=None)

    @property
    def label(self) -> Label | None:
        """The judgment made without the reference, if any, else the judgment made with it."""
        return self.plain or self.referenced

    @property
    def winner(self) -> Winner | None:
        """The winner of `label`."""
        return None if self.label is None else self.label.winner


def uniform_hash(seed: int, sample_id: str, purpose: str, epoch: int = 0) -> float:
    """Hash the arguments to a number in [0, 1)."""
    text = f"{seed}:{purpose}:{epoch}:{sample_id}" if epoch else f"{seed}:{purpose}:{sample_id}"
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def judgelm_row(pair: LabelledPair) -> dict[str, Any]:
    """Return the pair as a JudgeLM training row, with null for missing fields.

    Score lines are rebuilt from the scores. A judgment without scores is written as `winner`, `votes`, and
    `preference`.
    """
    sample = pair.sample
    winner_only = pair.plain is not None and pair.plain.scores is None
    return {
        **pair_fields(sample),
        "score": _score(pair.plain),
        "text": _text(pair.plain),
        "reference": None if sample.reference is None else {"text": sample.reference},
        "score_w_reference": _score(pair.referenced),
        "text_w_reference": _text(pair.referenced),
        "winner": None if pair.plain is None or not winner_only else str(pair.plain.winner),
        "preference": None if pair.plain is None else pair.plain.preference,
        "votes": [str(vote) for vote in pair.plain.votes] if pair.plain is not None and pair.plain.votes else None,
        "category": sample.category,
        "source": pair.source,
        "swapped": pair.swapped,
        "epoch": pair.epoch,
    }


def pair_fields(sample: Sample) -> dict[str, Any]:
    """Return the id, question, answers, and models in JudgeLM's fields."""
    models = sample.answer_models if len(sample.answer_models) == 2 else (None, None)
    return {
        "question_id": sample.id,
        "question_body": sample.question,
        "answer1_body": sample.answers[0],
        "answer2_body": sample.answers[1],
        "answer1_model_id": models[0],
        "answer2_model_id": models[1],
    }


def score_line(scores: tuple[float, ...]) -> str:
    """Format a score line such as `8 6`; whole numbers have no decimal point."""
    return " ".join(f"{score:g}" for score in scores)


def _score(label: Label | None) -> list[float] | None:
    return None if label is None or label.scores is None else json_scores(label.scores)


def _text(label: Label | None) -> str | None:
    if label is None:
        return None
    if label.scores is None:
        return label.reason
    return f"{score_line(label.scores)}\n{label.reason}" if label.reason else score_line(label.scores)


def scores_of_winner(winner: Winner | None, scores: Sequence[float]) -> tuple[float, float]:
    """Return a pair's scores, given the scores for a winner, a loser, and a tie."""
    win, lose, tie = scores
    assert winner is not None, "a pair's label has a winner"
    return {1: (win, lose), 2: (lose, win), "tie": (tie, tie)}[winner]


_SHARE_OF_SCALE = 2 / 3
_DECIMALS = 9
_HARD: dict[Winner, float] = {1: 1.0, 2: 0.0, "tie": 0.5}


def swapped_preference(preference: float) -> float:
    """Return 1 - p, rounded to nine decimals so that swapping twice returns p."""
    return rounded_preference(1 - preference)


def rounded_preference(preference: float) -> float:
    """Round a preference to nine decimals."""
    return round(preference, _DECIMALS)


def winner_by_preference(preference: float) -> Winner:
    """Return 1 above 0.5, 2 below 0.5, and "tie" at exactly 0.5."""
    return "tie" if preference == 0.5 else 1 if preference > 0.5 else 2


def preference_of(label: Label) -> float | None:
    """Return the label's preference, or else 1, 0, or 0.5 depending on its winner."""
    if label.preference is not None or label.winner is None:
        return label.preference
    return _HARD[label.winner]


def scores_by_preference(
    preference: float, scale: tuple[float, float] = (1, 10), step: float = 1
) -> tuple[float, float]:
    """Convert a preference p to scores; on a scale from 1 to 10: 0 -> 3 9, 0.5 -> 6 6, and 1 -> 9 3.

    The scores are centred on the scale, and their difference is proportional to |2 p - 1|, rounded to whole steps. The
    difference is at most two thirds of the scale's width, and at least one step unless p = 0.5.
    """
    low, high = scale
    steps = round((high - low) / step)
    sure = max(1, round(steps * _SHARE_OF_SCALE))
    lead = abs(2 * preference - 1)
    difference = 0 if lead == 0 else max(1, math.floor(lead * sure + 0.5))
    better = math.ceil((steps + difference) / 2)
    best, worst = low + better * step, low + (better - difference) * step
    return (best, worst) if preference >= 0.5 else (worst, best)


def training_scores(label: Label, scale: tuple[float, float] = (1, 10), step: float = 1) -> tuple[float, ...] | None:
    """Return the scores to train on: the label's scores, or else scores computed from its preference."""
    if label.scores is not None or label.preference is None:
        return label.scores
    return scores_by_preference(label.preference, scale, step)
