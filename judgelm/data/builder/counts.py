"""Counts of pairs and rows in a build."""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any, Self

from judgelm.data.labelled_pair import LabelledPair


@dataclass(slots=True)
class SetCounts:
    """Counts of pairs at one stage; `scores` is keyed by (position, score), and `models` by (model 1, model 2)."""

    pairs: int = 0
    winners: Counter[str] = field(default_factory=Counter)
    scores: Counter[tuple[int, float]] = field(default_factory=Counter)
    models: Counter[tuple[str, str]] = field(default_factory=Counter)
    with_reference: int = 0
    with_reason: int = 0

    def add(self, pair: LabelledPair) -> None:
        """Count a pair."""
        self.pairs += 1
        sample = pair.sample
        if pair.label is not None:
            self.winners[str(pair.label.winner)] += 1
        self.with_reference += pair.referenced is not None
        if sample.answer_models:
            self.models[sample.answer_models[0], sample.answer_models[1]] += 1
        for label in (pair.plain, pair.referenced):
            if label is None:
                continue
            for position, score in enumerate(label.scores or (), 1):
                self.scores[position, score] += 1
            self.with_reason += bool(label.reason)

    def __iadd__(self, other: Self) -> Self:
        _merge(self, other)
        return self


@dataclass(slots=True)
class BuildCounts:
    """The counts of a build or of a worker's part of it.

    `rejected`, `dropped`, and `repaired` are keyed by (source, reason). `before` counts the clean pairs in all sets.
    """

    read: Counter[str] = field(default_factory=Counter)
    rejected: Counter[tuple[str, str]] = field(default_factory=Counter)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    repaired: Counter[tuple[str, str]] = field(default_factory=Counter)
    references: Counter[str] = field(default_factory=Counter)
    swapped: Counter[str] = field(default_factory=Counter)
    ambiguous: Counter[str] = field(default_factory=Counter)
    before: SetCounts = field(default_factory=SetCounts)
    train: SetCounts = field(default_factory=SetCounts)
    validation: SetCounts = field(default_factory=SetCounts)
    test: SetCounts = field(default_factory=SetCounts)

    def add_clean(self, pair: LabelledPair) -> None:
        """Count a clean pair, and whether its reference changed the judgment."""
        self.before.add(pair)
        self.accepted[pair.source] += 1
        plain, referenced = pair.plain, pair.referenced
        if plain is not None and referenced is not None:
            self.references["both judgments"] += 1
            self.references["score changed"] += plain.scores != referenced.scores
            self.references["winner changed"] += plain.winner != referenced.winner

    def __iadd__(self, other: Self) -> Self:
        _merge(self, other)
        return self


def _merge(target: Any, other: Any) -> None:
    for part in fields(target):
        mine, its = getattr(target, part.name), getattr(other, part.name)
        if isinstance(mine, Counter):
            mine.update(its)
        elif isinstance(mine, SetCounts):
            _merge(mine, its)
        elif isinstance(mine, int):
            setattr(target, part.name, mine + its)
