"""Aggregation of the verdicts of several judges on one sample.

`vote` counts verdicts: the winner of a pair, or the label, that more judges gave than any other. Without such a winner
a pair is a `tie`, and a label is undecided. Rankings are combined by Borda's count: an answer gets a point for each
answer that a judge ranks below it, and half a point for each tie. `mean` compares the mean scores. Failures are left
out: they are neither ties nor zeros.

Source: Play Favorites, section 7 (panels of judges from several families).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from judgelm.modes.multi import ranking
from judgelm.modes.pairwise import winner_of
from judgelm.records import GradeVerdict, LabelVerdict, PairVerdict, RankingVerdict, Unparsed, Verdict, Winner

Rule = Literal["vote", "mean"]

Vote = TypeVar("Vote", str, Winner)

_SAME_SCORE = 9
"""Decimals to which means are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """The conclusion of a judge, a family of judges or the panel; scores and probability where it has them."""

    verdict: Verdict
    scores: tuple[float, ...] | None = None
    probability: float | None = None


def combine(opinions: Sequence[Opinion], rule: Rule, *, comparable: bool) -> Opinion | Unparsed:
    """Combine opinions of one kind of verdict.

    Args:
        opinions: at least one; under `mean` all with scores.
        rule: `vote` or `mean`.
        comparable: True where all scores are on one scale; only then the result has their means.

    Returns:
        The opinion with mean scores and mean probability where all have them; `undecided` where a vote is split.

    Raises:
        ValueError: no opinions, kinds that differ, numbers of scores that differ, or a vote on grades.
    """
    verdicts = [opinion.verdict for opinion in opinions]
    if len({type(opinion) for opinion in verdicts}) != 1:
        raise ValueError("verdicts of no judge, or of different kinds, cannot be combined")
    if len({_answers(opinion) for opinion in opinions} - {0}) > 1:
        raise ValueError("the judges saw different numbers of answers")
    scores = _mean_scores(opinions) if comparable else None
    verdict = _voted(verdicts) if rule == "vote" else _by_scores(verdicts[0], scores)
    if isinstance(verdict, Unparsed):
        return verdict
    known = [opinion.probability for opinion in opinions if opinion.probability is not None]
    probability = math.fsum(known) / len(known) if len(known) == len(opinions) else None
    return Opinion(verdict=verdict, scores=scores, probability=probability)


def verdict_text(verdict: Verdict) -> str:
    """A verdict in a word: `1`, `tie`, `correct`, `7.5`, `2>1=3` (answers counted from 1)."""
    match verdict:
        case PairVerdict():
            return str(verdict.winner)
        case LabelVerdict():
            return verdict.label
        case GradeVerdict():
            return f"{verdict.score:g}"
        case RankingVerdict():
            return ">".join("=".join(str(index + 1) for index in tied) for tied in verdict.order)


def _answers(opinion: Opinion) -> int:
    """The number of answers judged; 0 where it is not known."""
    if isinstance(opinion.verdict, RankingVerdict):
        return sum(len(tied) for tied in opinion.verdict.order)
    return 0 if opinion.scores is None else len(opinion.scores)


def _mean_scores(opinions: Sequence[Opinion]) -> tuple[float, ...] | None:
    scores = [opinion.scores for opinion in opinions if opinion.scores is not None]
    if len(scores) < len(opinions):
        return None
    return tuple(round(math.fsum(column) / len(scores), _SAME_SCORE) for column in zip(*scores, strict=True))


def _by_scores(kind: Verdict, scores: tuple[float, ...] | None) -> Verdict:
    if scores is None:
        raise ValueError("judges without comparable scores have no mean")
    match kind:
        case PairVerdict():
            first, second = scores
            return PairVerdict(winner=winner_of((first, second)))
        case RankingVerdict():
            return RankingVerdict(order=ranking(scores))
        case GradeVerdict():
            return GradeVerdict(score=scores[0])
        case LabelVerdict():
            raise ValueError("labels have no mean")


def _voted(verdicts: Sequence[Verdict]) -> Verdict | Unparsed:
    winners = [verdict.winner for verdict in verdicts if isinstance(verdict, PairVerdict)]
    labels = [verdict.label for verdict in verdicts if isinstance(verdict, LabelVerdict)]
    orders = [verdict.order for verdict in verdicts if isinstance(verdict, RankingVerdict)]
    if winners:
        chosen: Winner | None = _most(winners)
        return PairVerdict(winner="tie" if chosen is None else chosen)
    if labels:
        label = _most(labels)
        votes = ", ".join(f"{name} {count}" for name, count in Counter(labels).most_common())
        return Unparsed("undecided", "", f"a split vote: {votes}") if label is None else LabelVerdict(label=label)
    if orders:
        return RankingVerdict(order=ranking(_points(orders)))
    raise ValueError("grades are numbers and have no vote")


def _most(votes: Sequence[Vote]) -> Vote | None:
    """The most frequent vote; None where two are equally frequent."""
    (first, count), *rest = Counter(votes).most_common(2)
    return None if rest and rest[0][1] == count else first


def _points(orders: Sequence[tuple[tuple[int, ...], ...]]) -> list[float]:
    """Borda's count of each answer over all rankings."""
    answers = sum(len(tied) for tied in orders[0])
    points = [0.0] * answers
    for order in orders:
        below = answers
        for tied in order:
            below -= len(tied)
            for index in tied:
                points[index] += below + (len(tied) - 1) / 2
    return points
