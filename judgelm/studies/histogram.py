"""Which scores the judge writes, at which place."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from judgelm.records import Judgment


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreHistogram:
    """How often the judge wrote which score, by the place the answer was shown at.

    `edges` are k + 1 bin edges on the judge's scale; `first` and `second` are k counts each. `not_finite` orders have
    a score without a place among them (`inf 5`, as the original's parser reads it) and are left out.
    """

    edges: tuple[float, ...]
    first: tuple[int, ...]
    second: tuple[int, ...]
    mean_first: float
    mean_second: float
    not_finite: int = 0


def histogram(judgments: Sequence[Judgment]) -> ScoreHistogram | None:
    """Counts over every order shown, None where the judge wrote no finite scores.

    Bins have width 1 and lie around whole scores (a half point counts upwards); a scale wider than 50 gets twenty
    equal ones.
    """
    shown = [order.scores[:2] for judgment in judgments for order in judgment.shown if order.scores is not None]
    written = np.array(shown, dtype=np.float64).reshape(-1, 2)
    scores = written[np.isfinite(written).all(axis=1)]
    if not len(scores):
        return None
    low, high = np.floor(scores.min() + 0.5) - 0.5, np.floor(scores.max() + 0.5) + 0.5
    edges = np.arange(low, high + 1) if high - low <= 50 else np.linspace(low, high, 21)
    first, second = (np.histogram(scores[:, place], bins=edges)[0].tolist() for place in (0, 1))
    mean_first, mean_second = scores.mean(axis=0).tolist()
    return ScoreHistogram(
        edges=tuple(edges.tolist()),
        first=tuple(first),
        second=tuple(second),
        mean_first=mean_first,
        mean_second=mean_second,
        not_finite=len(written) - len(scores),
    )
