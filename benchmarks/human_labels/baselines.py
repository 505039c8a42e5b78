"""Baselines that read no word of an answer: a constant, the longer answer, the generator's win rate."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from judgelm.data.labelled_pair import uniform_hash
from judgelm.records import Sample

Pair = tuple[str, str]
FOLDS = 5


def constant(truth: NDArray[np.int_]) -> NDArray[np.float64]:
    """Always the label that is the most frequent here, so the best constant in hindsight.

    Args:
        truth: shape (n,), +1 first better, 0 tie, -1 second better.

    Returns:
        P(first better), shape (n,).
    """
    values, counts = np.unique(truth, return_counts=True)
    return np.full(truth.size, (values[counts.argmax()] + 1) / 2)


def longer(samples: Sequence[Sample]) -> NDArray[np.float64]:
    """P(first better) of preferring the answer with more characters; 0.5 where both have as many."""
    return np.array([(np.sign(len(first) - len(second)) + 1) / 2 for first, second in _answers(samples)])


def length_ratios(samples: Sequence[Sample]) -> NDArray[np.float64]:
    """Characters of the longer answer over those of the shorter, shape (n,); an empty answer counts as one."""
    return np.array([max(len(a), len(b), 1) / max(min(len(a), len(b)), 1) for a, b in _answers(samples)])


def _answers(samples: Sequence[Sample]) -> list[tuple[str, str]]:
    return [(sample.answers[0], sample.answers[1]) for sample in samples]


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRates:
    """Shares of pairs that generators win.

    Attributes:
        against: (a, b) with a < b by name -> share of their pairs that a wins; a tie is half a win.
        overall: generator -> share of all its pairs that it wins.
    """

    against: Mapping[Pair, float]
    overall: Mapping[str, float]

    @classmethod
    def fitted(cls, labels: Iterable[tuple[Sequence[str], float]]) -> "WinRates":
        """Rates of labelled pairs: (the two generators, P(first better)); pairs without two names are passed over."""
        against: dict[Pair, list[float]] = defaultdict(list)
        overall: dict[str, list[float]] = defaultdict(list)
        for models, first_better in labels:
            if len(models) != 2:
                continue
            first, second = models
            against[_key(first, second)].append(first_better if first <= second else 1 - first_better)
            overall[first].append(first_better)
            overall[second].append(1 - first_better)
        return cls(
            against={pair: float(np.mean(wins)) for pair, wins in against.items()},
            overall={name: float(np.mean(wins)) for name, wins in overall.items()},
        )

    @classmethod
    def from_json(cls, record: Mapping[str, Mapping[str, float]]) -> "WinRates":
        """The inverse of `to_json`."""
        against = {(pair.split("\t")[0], pair.split("\t")[1]): rate for pair, rate in record["against"].items()}
        return cls(against=against, overall=record["overall"])

    def to_json(self) -> dict[str, dict[str, float]]:
        """As JSON holds it; a tab parts the names of a pair."""
        return {"against": {"\t".join(pair): rate for pair, rate in self.against.items()}, "overall": {**self.overall}}

    def __call__(self, sample: Sample) -> float | None:
        """P(first better): 1, 0.5 or 0 by the two's rate against each other, else by their overall rates.

        Returns:
            None where a generator is not named or was never seen.
        """
        if len(sample.answer_models) != 2:
            return None
        first, second = sample.answer_models
        rate = self.against.get(_key(first, second))
        if rate is not None:
            lead = (rate - 0.5) * (1 if first <= second else -1)
        elif first in self.overall and second in self.overall:
            lead = self.overall[first] - self.overall[second]
        else:
            return None
        return float((np.sign(lead) + 1) / 2)


def _key(first: str, second: str) -> Pair:
    return (first, second) if first <= second else (second, first)


def generator(samples: Sequence[Sample], rates: WinRates) -> NDArray[np.float64] | None:
    """P(first better) by win rates fitted elsewhere; None where they know fewer than half of the pairs.

    A pair that they do not know is 0.5.
    """
    known = [rates(sample) for sample in samples]
    if sum(value is not None for value in known) < len(samples) / 2:
        return None
    return np.array([0.5 if value is None else value for value in known])


def generator_cross_fitted(samples: Sequence[Sample], truth: NDArray[np.int_], seed: int) -> NDArray[np.float64] | None:
    """P(first better) by win rates fitted on the other questions of the same set, in five folds.

    It uses labels of the set itself, so it says what knowing the authors is worth here; no judge is fitted so.

    Returns:
        None where pairs do not name two generators that differ.
    """
    if not all(len(set(sample.answer_models)) == 2 for sample in samples):
        return None
    fold = np.array([int(FOLDS * uniform_hash(seed, sample.question, "fold")) for sample in samples])
    labels = [(sample.answer_models, (label + 1) / 2) for sample, label in zip(samples, truth.tolist(), strict=True)]
    out = np.full(len(samples), 0.5)
    for index in np.unique(fold):
        rates = WinRates.fitted(label for label, other in zip(labels, fold, strict=True) if other != index)
        for row in np.flatnonzero(fold == index):
            rate = rates(samples[row])
            out[row] = 0.5 if rate is None else rate
    return out
