"""The majority among several answers of one judge to the same question.

Agreement is the share of the commonest answer. Two ties need a rule: of several commonest answers the one given first
stands, and a reply that no answer can be extracted from stays among the k but is no answer.

Source: SSR-Judge, section 3.2.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_ROUNDING = 1e-9  # 0.6 and 3 / 5 are not the same double in every spelling


@dataclass(frozen=True, slots=True, kw_only=True)
class Majority:
    """The majority of k answers.

    Attributes:
        answer: the commonest answer; None where no reply has one.
        votes: how many of the replies give it.
        k: replies, those without an answer included.
        tied: whether another answer has as many votes.
    """

    answer: str | None
    votes: int
    k: int
    tied: bool

    @property
    def agreement(self) -> float:
        """Votes by k, in [0, 1] (SSR-Judge, equation 1)."""
        return self.votes / self.k

    def passes(self, tau: float) -> bool:
        """True if the gate is on (SSR-Judge, equation 2); never where there is no answer to show."""
        return self.answer is not None and self.votes >= tau * self.k - _ROUNDING


def majority(answers: Sequence[str | None]) -> Majority:
    """The commonest of k answers, already comparable as texts; of several the one given first.

    Args:
        answers: one per reply, None where none can be extracted.

    Raises:
        ValueError: no reply at all (agreement of nothing is undefined).

    Example:
        >>> found = majority(["42", "41", "42", None, "42"])
        >>> found.answer, found.agreement, found.passes(0.6)
        ('42', 0.6, True)

    Source: SSR-Judge, equation 1. The paper says nothing of ties (2-2-1); no gate above one half is touched by them.
    """
    if not answers:
        raise ValueError("agreement: no self-solves; agreement over none is undefined")
    counts = Counter(answer for answer in answers if answer is not None)  # keeps the order of first appearance
    if not counts:
        return Majority(answer=None, votes=0, k=len(answers), tied=False)
    votes = max(counts.values())
    leading = [answer for answer, count in counts.items() if count == votes]
    return Majority(answer=leading[0], votes=votes, k=len(answers), tied=len(leading) > 1)
