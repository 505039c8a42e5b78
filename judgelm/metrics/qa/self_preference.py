"""Self-preference: a judge alone calls its own answer correct and the other judges call it incorrect.

Only answers that do not match the gold answer exactly are looked at. At the threshold 100 % all other judges say
incorrect; at 83 % and 67 % at least 5 and at least 4 of six do, so the thresholds are cumulative (the published
figures rise as they fall). Sibling-preference is the same with a judge of the answering model's family in its place.

Source: QA-Judge, section 6.2, Tables 6 and 13. The paper does not say whether the answering model itself is among a
sibling's others; the caller decides.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from judgelm.metrics.resampling import Estimate, Resampling, share

PREFERENCE_THRESHOLDS = (1.0, 5 / 6, 4 / 6)
"""Least share of the other judges that say incorrect: 100 %, 83 %, 67 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Share of answers that one judge alone calls correct.

    Attributes:
        threshold: least share of the others that say incorrect, in (0, 1].
        needed: how many of them that is.
        share: of the answers that do not match exactly; None where there are none.
    """

    threshold: float
    needed: int
    others: int
    share: Estimate | None


def preferences(
    own: NDArray[np.bool_],
    others: NDArray[np.bool_],
    questions: Sequence[Hashable],
    resampling: Resampling,
    thresholds: Sequence[float] = PREFERENCE_THRESHOLDS,
) -> tuple[Preference, ...]:
    """The share of answers that only the own judge calls correct, at each threshold.

    Args:
        own: shape (n,), whether the own judge calls each answer correct; answers without exact match only.
        others: shape (n, k), whether each of k other judges does.
        questions: n keys; answers to one question are resampled together.
        resampling: seed and number of resamples.
        thresholds: each in (0, 1].

    Raises:
        ValueError: shapes do not fit, there is no other judge, or a threshold is no share.
    """
    if own.ndim != 1 or others.ndim != 2 or len(own) != len(others):
        raise ValueError(f"preference: expected shapes (n,) and (n, k), got {own.shape} and {others.shape}")
    k = others.shape[1]
    if k == 0:
        raise ValueError("preference: no other judge to compare with")
    if not all(0 < threshold <= 1 for threshold in thresholds):
        raise ValueError(f"preference: thresholds {tuple(thresholds)}; each is a share above 0 and at most 1")
    against = k - others.sum(axis=1)
    result = []
    for threshold in thresholds:
        needed = math.ceil(threshold * k - 1e-9)  # 5/6 of 6 is 5, though not in floating point
        hits = own & (against >= needed)
        result.append(
            Preference(
                threshold=threshold,
                needed=needed,
                others=k,
                share=share(hits, questions, resampling) if len(hits) else None,
            )
        )
    return tuple(result)
