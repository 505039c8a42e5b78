"""Scores without the estimated self- and family-bias, and mean scores before and after."""

import numpy as np
import pandas as pd

from judgelm.metrics.resampling import Estimate, Resampling, estimate
from judgelm.metrics.self_bias.regression import BiasFit
from judgelm.metrics.self_bias.rows import PairedRatings


def debiased(paired: PairedRatings, fit: BiasFit) -> pd.DataFrame:
    """The rows with `bias`, `debiased` (both normalised) and `debiased_raw` (on the dimension's own scale).

    The bias of a row is its judge's self-bias where it rates itself and its family's bias where it rates a relative,
    else 0; a bias that the fit has no estimate of counts as 0. Debiased scores may leave the scale: cutting them off
    would bias their means again.

    Args:
        paired: the ratings, not necessarily those that `fit` is from.
        fit: a linear fit (`unit` "normalised score").

    Raises:
        ValueError: the fit is in log-odds, which cannot be subtracted from scores.

    Source: Play Favorites, section 7.
    """
    if fit.unit != "normalised score":
        raise ValueError(f"debiased scores: the fit is in {fit.unit}; use a linear one")
    frame = paired.frame
    own = frame["own"].map({name: fit.value("self", name) for name in frame["own"].unique() if name})
    family = frame["family"].map({name: fit.value("family", name) for name in frame["family"].unique() if name})
    bias = own.astype(float).fillna(0.0) + family.astype(float).fillna(0.0)
    span = frame["dimension"].map({name: scale.span for name, scale in paired.scales.items()})
    return frame.assign(
        bias=bias, debiased=frame["rating"] - bias, debiased_raw=frame["rating_raw"] - bias * span.astype(float)
    )


def mean_of(frame: pd.DataFrame, column: str, how: Resampling) -> Estimate:
    """The mean of a column with its interval; rows of one item are drawn together.

    Raises:
        ValueError: no rows.
    """
    values = np.column_stack([frame[column].to_numpy(float), np.ones(len(frame))])
    [found] = estimate(values, lambda sums: sums[:, :1] / sums[:, 1:], list(frame["item"]), how)
    return found
