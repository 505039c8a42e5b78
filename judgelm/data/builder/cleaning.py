"""Checks of labelled pairs before training: each finding is counted, and repaired or the reason to drop the pair.

Pairs are checked one at a time; `judgelm.data.duplicates` finds duplicates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from judgelm.data.labelled_pair import LabelledPair
from judgelm.data.sources.layouts import split_review
from judgelm.modes.pairwise import winner_of
from judgelm.records import Label

OutOfScale = Literal["drop", "clip"]

DropReason = Literal[
    "no judgment",
    "winner without scores",
    "scores outside the scale",
    "score line and scores differ",
    "empty question",
    "equal answers judged unequal",
    "too long",
    "exact duplicate",
    "near duplicate",
    "question of an excluded file",
    "over max_per_question",
    "left out for balance",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningOptions:
    """Requirements of a judgment for training.

    Attributes:
        scale: lowest and highest score.
        out_of_scale: `drop` such judgments, or `clip` their scores to the scale.
        winner_scores: scores of winner, loser and of both in a tie, for labels that name a winner alone; such labels
            are dropped where it is None. Labels with a preference and without scores stay as they are: trainers
            make scores of them (`judgelm.data.labelled_pair`).
    """

    scale: tuple[float, float] = (1, 10)
    out_of_scale: OutOfScale = "drop"
    winner_scores: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """A clean pair, or the reason to drop it.

    Attributes:
        pair: None where no judgment was left.
        dropped: the first finding; None where a judgment was left.
        repaired: repairs, and judgments that were left out, one entry each.
    """

    pair: LabelledPair | None
    dropped: DropReason | None = None
    repaired: tuple[str, ...] = ()


def clean(pair: LabelledPair, options: CleaningOptions) -> Cleaned:
    """Check both judgments of a pair; drop those that cannot be used, and the pair when none is left."""
    if not pair.sample.question.strip():
        return Cleaned(pair=None, dropped="empty question")
    checked = [_checked(label, pair.sample.answers, options) for label in (pair.plain, pair.referenced)]
    labels = [label for label, _, _ in checked]
    problems: list[DropReason] = [problem for _, problem, _ in checked if problem is not None]
    if not any(labels):
        return Cleaned(pair=None, dropped=problems[0] if problems else "no judgment")
    repaired = [note for _, _, notes in checked for note in notes]
    for name, (label, problem, _) in zip(("without", "with"), checked, strict=True):
        if label is None and problem is not None:
            repaired.append(f"the judgment {name} reference left out: {problem}")
    return Cleaned(pair=replace(pair, plain=labels[0], referenced=labels[1]), repaired=tuple(repaired))


def _checked(
    label: Label | None, answers: Sequence[str], options: CleaningOptions
) -> tuple[Label | None, DropReason | None, list[str]]:
    """The repaired judgment, or the reason to drop it, and the repairs."""
    if label is None:
        return None, None, []
    notes = []
    if label.scores is None:
        if options.winner_scores is not None:
            label = replace(label, scores=_scores_for(label, options.winner_scores))
            notes.append("scores made from the winner")
        elif label.preference is None:
            return None, "winner without scores", []
    low, high = options.scale
    if label.scores is not None and not all(low <= score <= high for score in label.scores):
        if options.out_of_scale == "drop":
            return None, "scores outside the scale", []
        first, second = (min(max(score, low), high) for score in label.scores)
        label = replace(label, scores=(first, second), winner=winner_of((first, second)))
        notes.append("scores clipped to the scale")
    if label.reason is not None and label.scores is not None:
        written, reason = split_review(label.reason)
        if written is not None and written != label.scores:
            return None, "score line and scores differ", []
        label = replace(label, reason=reason.strip() or None)
    if answers[0] == answers[1] and label.winner != "tie":
        return None, "equal answers judged unequal", []
    return label, None, notes


def _scores_for(label: Label, winner_scores: tuple[float, float, float]) -> tuple[float, float]:
    win, lose, tie = winner_scores
    return {1: (win, lose), 2: (lose, win), "tie": (tie, tie)}[label.winner]
