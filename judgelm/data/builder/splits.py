"""Splits of a data set into training, validation and test sets, and nested training subsets for scaling studies.

A hash of the seed and the group key assigns each group of `QuestionGroups` to a side, so a question and its near copies
stay together. The side depends only on the seed and the set of questions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from judgelm.data.duplicates import QuestionGroups
from judgelm.errors import ConfigError

Side = Literal["train", "validation", "test"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSplit:
    """The groups of questions for validation and test; all others are for training."""

    groups: QuestionGroups
    validation: frozenset[str]
    test: frozenset[str] = frozenset()

    def side(self, question: str | bytes) -> Side:
        """Return the side of rows with this question or digest."""
        group = self.groups.group(question)
        return "validation" if group in self.validation else "test" if group in self.test else "train"


def split_questions(groups: QuestionGroups, *, seed: int, validation: float = 0, test: float = 0) -> QuestionSplit:
    """Choose the validation and test questions.

    An amount below 1 is a share: each group is drawn independently, and a question keeps its side when the data grows,
    unless its group joins another. An amount of 1 or more is an exact number of groups.
    """
    drawn = sorted((xxh3_64_intdigest(f"split {seed} {key}".encode()), key) for key in groups.sizes())
    count = len(drawn)
    chosen: dict[str, frozenset[str]] = {}
    for name, amount, hashes in (("validation", validation, drawn), ("test", test, drawn[::-1])):
        if amount < 0 or (amount >= 1 and amount != int(amount)):
            raise ConfigError(f"{name} {amount:g}: expected a share below 1 or a whole number of questions")
        limit = amount * 2**64
        if amount >= 1:
            chosen[name] = frozenset(key for _, key in hashes[: int(amount)])
        elif name == "validation":
            chosen[name] = frozenset(key for hash_value, key in drawn if hash_value < limit)
        else:
            chosen[name] = frozenset(key for hash_value, key in drawn if hash_value >= 2**64 - limit)
        if amount and not chosen[name]:
            raise ConfigError(f"{name} {amount:g} of {count} different questions leaves none for {name}")
    if chosen["validation"] & chosen["test"] or count == len(chosen["validation"]) + len(chosen["test"]):
        request = f"validation {validation:g} and test {test:g}" if test else f"validation {validation:g}"
        raise ConfigError(f"{request} of {count} different questions leaves none for training")
    return QuestionSplit(groups=groups, validation=chosen["validation"], test=chosen["test"])


class SubsetSizes(NamedTuple):
    """Sizes that the data has enough rows for, ascending, and sizes that are too large."""

    sizes: tuple[int, ...]
    too_large: tuple[int, ...]


def subset_sizes(rows: int, requested: Sequence[int]) -> SubsetSizes:
    """Split the requested sizes into possible and too large ones."""
    ascending = tuple(sorted(requested))
    if any(size < 1 for size in ascending):
        raise ConfigError(f"subset size {ascending[0]}: expected at least 1")
    if len(set(ascending)) < len(ascending):
        raise ConfigError(f"subset sizes {', '.join(map(str, ascending))}: repeated size; give each once")
    return SubsetSizes(
        tuple(size for size in ascending if size <= rows), tuple(size for size in ascending if size > rows)
    )


def nested_order(ids: Iterable[str], *, seed: int) -> NDArray[np.intp]:
    """Return the rank of each row, shape (n,), by a hash of its id. Row i is in the subset of size k if rank i < k."""
    hashes = np.array([xxh3_64_intdigest(f"subset {seed} {row_id}".encode()) for row_id in ids], dtype=np.uint64)
    ranks = np.empty(len(hashes), np.intp)
    ranks[np.argsort(hashes, kind="stable")] = np.arange(len(hashes))
    return ranks
