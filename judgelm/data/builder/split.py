"""Train and validation sides by question, so that no question, nor a near copy of it, stands on both.

Rows are not split here, questions are: each group of `QuestionGroups` goes to one side by a hash of the seed and its
key. So the side of a row depends on nothing but the seed and the set of questions: not on the order of files, on the
number of workers, or on how many answers a question has.
"""

from dataclasses import dataclass
from typing import Literal

from xxhash import xxh3_64_intdigest

from judgelm.data.duplicates import QuestionGroups
from judgelm.errors import ConfigError

Side = Literal["train", "validation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Which groups of questions are for validation; all others are for training."""

    groups: QuestionGroups
    validation: frozenset[str]

    def side(self, question: str | bytes) -> Side:
        """Where every row with this question, or with the question of this digest, goes.

        Raises:
            ValueError: the question was not added to the groups.
        """
        return "validation" if self.groups.group(question) in self.validation else "train"


def split_questions(
    groups: QuestionGroups, *, seed: int, fraction: float | None = None, questions: int | None = None
) -> Split:
    """Choose the validation questions.

    Args:
        groups: all questions of the data, added.
        seed: another seed draws other questions.
        fraction: share of groups for validation, in (0, 1). Each group is drawn by itself, so that the share is met
            up to a standard deviation of sqrt(fraction * (1 - fraction) / groups), and a question keeps its side
            when the data grows, unless its group joins another.
        questions: how many groups for validation, exactly; a question and its near copies count as one.

    Raises:
        ConfigError: not exactly one of `fraction` and `questions`, one out of its range, or nothing left on a side.
    """
    if (fraction is None) == (questions is None):
        raise ConfigError("give either a fraction or a number of validation questions")
    drawn = sorted((xxh3_64_intdigest(f"split {seed} {key}".encode()), key) for key in groups.sizes())
    if fraction is not None:
        if not 0 < fraction < 1:
            raise ConfigError(f"validation fraction {fraction:g}: expected more than 0 and less than 1")
        limit = fraction * 2**64
        validation = frozenset(key for hash_value, key in drawn if hash_value < limit)
        request = f"a fraction of {fraction:g}"
    else:
        assert questions is not None
        if questions < 1:
            raise ConfigError(f"{questions} validation questions: expected at least 1")
        validation = frozenset(key for _, key in drawn[:questions])
        request = f"{questions} questions"
    if not validation or len(validation) == len(drawn):
        side = "training" if validation else "validation"
        finding = f"{request} for validation, of {len(drawn)} different questions (near copies count as one)"
        raise ConfigError(f"{finding}, leaves none for {side}; ask for another number, or give more questions")
    return Split(groups=groups, validation=validation)
