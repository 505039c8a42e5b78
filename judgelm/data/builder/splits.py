"""Split pairs into training, validation, and test sets, and draw nested training subsets for scaling studies.

Each group in `QuestionGroups` is assigned to a side by a hash of the seed and the group's key, so near duplicates stay
together. The split depends only on the seed and the questions.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from judgelm.data.duplicates import QuestionGroups
from judgelm.errors import ConfigError, InputError
from judgelm.records import Winner

Side = Literal["train", "validation", "test"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSplit:
    """The question groups for validation and test; all other groups are for training."""

    groups: QuestionGroups
    validation: frozenset[str]
    test: frozenset[str] = frozenset()

    def side(self, question: str | bytes) -> Side:
        """Return the side for a question or its digest."""
        group = self.groups.group(question)
        return "validation" if group in self.validation else "test" if group in self.test else "train"


def split_questions(groups: QuestionGroups, *, seed: int, validation: float = 0, test: float = 0) -> QuestionSplit:
    """Choose the validation and test questions.

    An amount below 1 is a share: each group is drawn independently, so the actual share has a standard deviation of
    sqrt(share * (1 - share) / groups). When data is added, a question keeps its side unless its group is merged with
    another group. An amount of 1 or more is an exact number of groups.

    Raises:
        ConfigError: an amount is invalid, or the sets overlap or are empty.
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
            finding = f"{name} {amount:g} of {count} distinct questions (near duplicates count as one)"
            raise ConfigError(f"{finding} leaves no questions for {name}; change the number or add questions")
    if chosen["validation"] & chosen["test"] or count == len(chosen["validation"]) + len(chosen["test"]):
        request = f"validation {validation:g} and test {test:g}" if test else f"validation {validation:g}"
        finding = f"{request} of {count} distinct questions (near duplicates count as one)"
        raise ConfigError(f"{finding} leaves no questions for training; change the number or add questions")
    return QuestionSplit(groups=groups, validation=chosen["validation"], test=chosen["test"])


class SubsetStratum(NamedTuple):
    """A stratum of rows, which has the same share in every subset."""

    category: str | None
    winner: Winner | None
    models: tuple[str, ...]


def stratum(category: str | None, winner: Winner | None, models: Iterable[str]) -> SubsetStratum:
    """Return a row's stratum."""
    return SubsetStratum(category, winner, tuple(sorted(models)))


class SubsetSizes(NamedTuple):
    """The possible subset sizes in ascending order, and the sizes that are too large."""

    sizes: tuple[int, ...]
    too_large: tuple[int, ...]


def subset_sizes(rows: int, requested: Sequence[int]) -> SubsetSizes:
    """Separate the requested sizes into sizes that are possible and sizes that are too large."""
    ascending = tuple(sorted(requested))
    if any(size < 1 for size in ascending):
        raise ConfigError(f"subset size {ascending[0]}: expected at least 1")
    if len(set(ascending)) < len(ascending):
        raise ConfigError(f"subset sizes {', '.join(map(str, ascending))}: repeated size; use each size only once")
    possible = bisect_right(ascending, rows)
    return SubsetSizes(ascending[:possible], ascending[possible:])


def nested_order(rows: Iterable[tuple[str, SubsetStratum]], *, seed: int) -> NDArray[np.intp]:
    """Return each row's rank, shape (n,), in an order in which every prefix is a stratified subset.

    Row i is in the subset of size k if its rank is below k. The ranks do not depend on the row order. Memory: about 60
    bytes per row.
    """
    number_of: dict[SubsetStratum, int] = {}
    of_row = array("L")
    hashes = array("Q")
    for row_id, row_stratum in rows:
        of_row.append(number_of.setdefault(row_stratum, len(number_of)))
        hashes.append(_hash(seed, row_id))
    drawn = np.frombuffer(hashes, np.uint64) if hashes else np.empty(0, np.uint64)
    _refuse_repeated(drawn)
    sort_keys = [(_hash(seed, group[:1]), _hash(seed, group[:2]), _hash(seed, group[:3])) for group in number_of]
    # Reshuffle winners and pairs in each category, since a fixed order would resonate with the van der Corput sequence.
    rank_of_stratum = np.empty(len(sort_keys), np.intp)
    rank_of_stratum[sorted(range(len(sort_keys)), key=sort_keys.__getitem__)] = np.arange(len(sort_keys))
    line = np.lexsort((drawn, rank_of_stratum[np.array(of_row, dtype=np.intp)]))
    ranks = np.empty(len(line), np.intp)
    ranks[line[np.argsort(_reversed_bits(len(line), _hash(seed, "start")))]] = np.arange(len(line))
    return ranks


def _hash(seed: int, value: object) -> int:
    return xxh3_64_intdigest(f"subset {seed} {value!r}".encode())


def _refuse_repeated(hashes: NDArray[np.uint64]) -> None:
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    if len(same):
        first, second = order[same[0]] + 1, order[same[0] + 1] + 1
        raise InputError(f"rows {first} and {second} have the same id; subsets require unique ids")


def _reversed_bits(count: int, start: int) -> NDArray[np.int64]:
    width = max(count - 1, 0).bit_length()
    numbers = np.arange(count) ^ (start % (1 << width))
    reversed_ = np.zeros(count, np.int64)
    for bit in range(width):
        reversed_ |= (numbers >> bit & 1) << (width - 1 - bit)
    return reversed_
