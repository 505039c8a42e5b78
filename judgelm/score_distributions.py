"""How probable the judge finds each score line, or each score of one answer: the records alone."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDistribution:
    """The judge's probabilities of all score lines for one prompt, in the order shown.

    Attributes:
        expected: mean of each answer's score over the mass that is assigned; NaN (null in a run file), as the next
            two, where none is.
        first_better: P(s1 > s2) + P(s1 = s2) / 2 over the mass that is assigned, in [0, 1].
        tie: P(s1 = s2) over the mass that is assigned, in [0, 1].
        unassigned: probability that the reply begins with no score line of the judge's scale, in [0, 1].
        likeliest: (s1, s2, probability), likeliest first; those of 0.0001 or more.
        approximation: in what this is not exact, in words; empty where it is.
    """

    expected: tuple[float, float]
    first_better: float
    tie: float
    unassigned: float
    likeliest: tuple[tuple[float, float, float], ...]
    approximation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeDistribution:
    """The judge's probabilities of all scores of one answer; `unassigned` and `approximation` as for a pair.

    Attributes:
        expected: mean score over the mass that is assigned; NaN (null in a run file) where none is.
        likeliest: (score, probability), likeliest first; those of 0.0001 or more.
    """

    expected: float
    unassigned: float
    likeliest: tuple[tuple[float, float], ...]
    approximation: str = ""
