"""What the judge's probabilities are worth against labels: proper scores, that reward saying what one knows.

A label that is a tie takes no part, since neither answer is better and both scores are of one outcome or the other;
how many there were is said. Always answering 0.5 has a Brier score of 0.25 and a log loss of ln 2 = 0.693.

Source: Gneiting and Raftery (2007), Strictly Proper Scoring Rules, Prediction, and Estimation.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from judgelm.metrics.resampling import Estimate, Resampling, estimate
from judgelm.studies.join import JoinedPair


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilityScores:
    """Both scores over n pairs; lower is better.

    Attributes:
        n: pairs with a probability and a label that is no tie; both scores are None where it is 0.
        tied_labels: pairs with a probability left out for their label.
        without: pairs without a probability.
        brier: mean of (p - outcome)^2, in [0, 1].
        log_loss: mean of -ln of the probability given to what happened.
    """

    n: int
    tied_labels: int
    without: int
    brier: Estimate | None
    log_loss: Estimate | None


def score_probabilities(rows: Sequence[JoinedPair], how: Resampling) -> ProbabilityScores | None:
    """Scores of P(first better) as the run recorded it; None where no judgment has one."""
    found = [(row.judgment.probability, row) for row in rows]
    given = [(probability, row) for probability, row in found if probability is not None]
    if not given:
        return None
    decided = [(probability, row) for probability, row in given if row.truth != 0]
    brier = log_loss = None
    if decided:
        losses = proper_losses(
            np.array([row.truth > 0 for _, row in decided]), np.array([probability for probability, _ in decided])
        )
        brier, log_loss = _means(losses, [row.cluster for _, row in decided], how)
    return ProbabilityScores(
        n=len(decided),
        tied_labels=len(given) - len(decided),
        without=len(rows) - len(given),
        brier=brier,
        log_loss=log_loss,
    )


def proper_losses(first_better: NDArray[np.bool_], probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each pair's share of scikit-learn's `brier_score_loss` and `log_loss` (a test compares the means).

    Args:
        first_better: shape (n,), what the labels say.
        probability: shape (n,), P(first better).

    Returns:
        shape (n, 2). A probability of exactly 0 or 1 counts as off by one float64 epsilon in the log loss, as in
        scikit-learn, so that one certain mistake costs 36 instead of infinity.
    """
    told = np.where(first_better, probability, 1 - probability)
    epsilon = np.finfo(np.float64).eps
    return np.column_stack([(1 - told) ** 2, -np.log(np.clip(told, epsilon, 1 - epsilon))])


def _means(losses: NDArray[np.float64], clusters: Sequence[Hashable], how: Resampling) -> list[Estimate]:
    counted = np.column_stack([losses, np.ones(len(losses))])
    return estimate(counted, lambda sums: sums[:, :2] / sums[:, 2:], clusters, how)
