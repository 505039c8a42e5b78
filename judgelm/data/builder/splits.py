"""Splits of a data set (training, validation, test, nested subsets for scaling studies), and the balance of each set.

**Balance.** A judge trained on pairs learns the cheapest rule that predicts the winner: the position, the model that
wrote an answer, or its length. Each set is balanced by itself, so that none of them predicts it:

- **models and length**: pairs of the same two models in which the same one wrote the longer answer, by a difference in
  the same stratum, form a group. In each group either model wins as often as the other: of the outcome that is more
  frequent, the pairs with the highest hashes are left out. With `models` alone groups have no strata; with `length`
  alone, and for pairs whose models are unknown or equal, groups are strata, in which the longer answer wins as often as
  the shorter.
- **position**: in the order of hashes, the better answer stands first and second in turn; where it does not, the
  answers are swapped.

Length is the number of characters of an answer. Ties, and pairs that no group holds, stay. Hashes depend on the seed
and a pair's id alone.

**Sides.** Questions are split, not rows, so that no question, nor a near copy of it, is on two sides: a hash of
the seed and the key decides the side of each group of `QuestionGroups`. So the side of a row depends on nothing but the
seed and the set of questions: not on the order of files, the number of workers, or the number of answers.

**Subsets.** Each subset holds the smaller ones, and all look like the whole. All rows are put into one order of which
every beginning is a stratified sample: rows are laid in a line, category by category, in it winner by winner, in it
model pair by model pair, in it at random, and are then taken from the line in the order of the van der Corput sequence,
which spreads the first n points of any n evenly. So every stretch of the line gets its share of every subset, up to a
few rows, a category as well as a category's ties. A model pair's stretches are many and short, and their roundings add
up: over all categories it is met about as well as by independent draws within each stratum. (Interleaving strata by
(rank + 0.5) / size does worse than no stratification where strata are small: a stratum of one row waits for half of all
rows. Measured: 154 rows off in a category at 3,500 of 100,000, against 2 here and 26 at random.)

Source: van der Corput, Verteilungsfunktionen (1935); systematic sampling from a sorted list, Cochran, Sampling
Techniques (1977), chapter 8.
"""

from array import array
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
    """The groups of questions for validation and for testing; all others are for training."""

    groups: QuestionGroups
    validation: frozenset[str]
    test: frozenset[str] = frozenset()

    def side(self, question: str | bytes) -> Side:
        """The side of every row with this question, or with the question of this digest.

        Raises:
            ValueError: the question was not added to the groups.
        """
        group = self.groups.group(question)
        return "validation" if group in self.validation else "test" if group in self.test else "train"


def split_questions(groups: QuestionGroups, *, seed: int, validation: float = 0, test: float = 0) -> QuestionSplit:
    """Choose the validation questions and the test questions.

    An amount below 1 is a share of the groups: each group is drawn by itself, so that the share is met up to a standard
    deviation of sqrt(share * (1 - share) / groups), and a question keeps its side when the data grows, unless its group
    joins another. An amount from 1 on is an exact number of groups; a question and its near copies count as one.

    Args:
        groups: all questions of the data, added.
        seed: another seed draws other questions.
        validation: amount for validation; 0 for none.
        test: amount for testing; 0 for none.

    Raises:
        ConfigError: an amount is negative or no whole number from 1 on, a question would be for both, or nothing is
            left on a side.
    """
    drawn = sorted((xxh3_64_intdigest(f"split {seed} {key}".encode()), key) for key in groups.sizes())
    count = len(drawn)
    chosen: dict[str, frozenset[str]] = {}
    for name, amount, hashes in (("validation", validation, drawn), ("test", test, drawn[::-1])):
        if amount < 0 or (amount >= 1 and amount != int(amount)):
            raise ConfigError(f"{name} {amount:g}: expected a share below 1, or a whole number of questions")
        limit = amount * 2**64
        if amount >= 1:
            chosen[name] = frozenset(key for _, key in hashes[: int(amount)])
        elif name == "validation":
            chosen[name] = frozenset(key for hash_value, key in drawn if hash_value < limit)
        else:
            chosen[name] = frozenset(key for hash_value, key in drawn if hash_value >= 2**64 - limit)
        if amount and not chosen[name]:
            finding = f"{name} {amount:g}, of {count} different questions (near copies count as one)"
            raise ConfigError(f"{finding}, leaves none for {name}; change the number, or give more questions")
    if chosen["validation"] & chosen["test"] or count == len(chosen["validation"]) + len(chosen["test"]):
        request = f"validation {validation:g} and test {test:g}" if test else f"validation {validation:g}"
        finding = f"{request}, of {count} different questions (near copies count as one)"
        raise ConfigError(f"{finding}, leaves none for training; change the number, or give more questions")
    return QuestionSplit(groups=groups, validation=chosen["validation"], test=chosen["test"])


class SubsetStratum(NamedTuple):
    """A group of rows whose share is the same in every subset."""

    category: str | None
    winner: Winner | None
    models: tuple[str, ...]


def stratum(category: str | None, winner: Winner | None, models: Iterable[str]) -> SubsetStratum:
    """The stratum of a row; the order of the models does not matter."""
    return SubsetStratum(category, winner, tuple(sorted(models)))


class SubsetSizes(NamedTuple):
    """Subset sizes that the data has rows for, ascending, and sizes that are too large."""

    sizes: tuple[int, ...]
    too_large: tuple[int, ...]


def subset_sizes(rows: int, requested: Sequence[int]) -> SubsetSizes:
    """Split the requested sizes into those that the rows suffice for and larger ones.

    Raises:
        ConfigError: a size is less than 1, or comes twice.
    """
    ascending = tuple(sorted(requested))
    if any(size < 1 for size in ascending):
        raise ConfigError(f"subset size {ascending[0]}: expected at least 1")
    if len(set(ascending)) < len(ascending):
        raise ConfigError(f"subset sizes {', '.join(map(str, ascending))}: a size appears twice; give each once")
    return SubsetSizes(
        tuple(size for size in ascending if size <= rows), tuple(size for size in ascending if size > rows)
    )


def nested_order(rows: Iterable[tuple[str, SubsetStratum]], *, seed: int) -> NDArray[np.intp]:
    """Each row's rank in an order of which every beginning is a stratified subset.

    The rank depends on the seed and on the set of rows, not on their order. Memory: about 60 bytes per row.

    Args:
        rows: id and stratum of each row; ids are unique.
        seed: another seed draws other subsets.

    Returns:
        Shape (n,), the numbers 0 to n - 1: row i is in the subset of size k if its rank is below k.

    Raises:
        InputError: two rows have the same id.
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
    # Winners and pairs are shuffled anew in each category and winner: a fixed order would fall in step with the taking.
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
        raise InputError(f"rows {first} and {second} have the same id; ids must be unique, subsets are drawn by id")


def _reversed_bits(count: int, start: int) -> NDArray[np.int64]:
    """The numbers 0 to count - 1, each with its bits reversed, after a digital shift by the low bits of `start`."""
    width = max(count - 1, 0).bit_length()
    numbers = np.arange(count) ^ (start % (1 << width))
    reversed_ = np.zeros(count, np.int64)
    for bit in range(width):
        reversed_ |= (numbers >> bit & 1) << (width - 1 - bit)
    return reversed_
