"""Quality of ratings: agreement of annotators, with experts, on attention checks, and of judges with people."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from judgelm.metrics.resampling import LEVEL, Estimate, Resampling, interval, share
from judgelm.metrics.self_bias.rows import COMPLETION

Measurement = Literal["nominal", "ordinal", "interval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorAgreement:
    """Agreement of several annotators on one dimension.

    Attributes:
        alpha: Krippendorff's, at most 1; None where all ratings are alike or no completion has two.
        observed: share of completions on which all annotators agree.
        completions: with at least two ratings.
        ratings: of those completions.
    """

    alpha: Estimate | None
    observed: Estimate
    completions: int
    ratings: int


def annotator_agreement(
    ratings: NDArray[np.float64], resampling: Resampling, *, measurement: Measurement = "ordinal"
) -> AnnotatorAgreement:
    """Krippendorff's alpha and the share of completions on which all agree.

    Args:
        ratings: shape (completions, annotators), NaN where one did not rate; rows with fewer than two ratings say
            nothing about agreement and are left out.
        resampling: completions are resampled for both intervals.
        measurement: the distance between levels. The paper does not say which it used; its scales are ordinal.

    Raises:
        ValueError: no completion has two ratings.

    The package `krippendorff` computes the same under the GPL, so that it serves the tests alone.

    Source: Play Favorites, appendix B and Table 4; Krippendorff, Computing Krippendorff's Alpha-Reliability (2011).
    """
    shared = ratings[(~np.isnan(ratings)).sum(axis=1) >= 2]
    if not len(shared):
        raise ValueError("annotators: no completion has two ratings; agreement is undefined")
    values = np.unique(shared[~np.isnan(shared)])
    counts = np.stack([(shared == value).sum(axis=1) for value in values], axis=1)
    agree = (counts > 0).sum(axis=1) == 1
    return AnnotatorAgreement(
        alpha=_alpha(counts, values, measurement, resampling) if len(values) > 1 else None,
        observed=share(agree, None, resampling),
        completions=len(shared),
        ratings=int(counts.sum()),
    )


def _alpha(
    counts: NDArray[np.int_], values: NDArray[np.float64], measurement: Measurement, resampling: Resampling
) -> Estimate:
    """Alpha over units that are alike drawn by how often they occur."""
    kinds, often = np.unique(counts, axis=0, return_counts=True)
    pairs = np.einsum("ui,uj->uij", kinds, kinds) - np.einsum("ui,ij->uij", kinds, np.eye(len(values)))
    coincidences = pairs / (kinds.sum(axis=1) - 1)[:, None, None]
    draws = np.random.default_rng(resampling.seed).multinomial(
        len(counts), often / often.sum(), size=resampling.resamples
    )
    differing = draws[((draws @ kinds) > 0).sum(axis=1) > 1]
    samples = _alphas(np.tensordot(differing, coincidences, axes=1), values, measurement)
    low, high = interval(samples) if samples.size else (np.nan, np.nan)
    [value] = _alphas(np.tensordot(often[None], coincidences, axes=1), values, measurement)
    return Estimate(value=float(value), low=low, high=high, n=len(counts))


def _alphas(
    coincidences: NDArray[np.float64], values: NDArray[np.float64], measurement: Measurement
) -> NDArray[np.float64]:
    """Krippendorff's alpha of many coincidence matrices at once.

    Args:
        coincidences: shape (m, v, v), at least two of the values in each.
        values: shape (v,), ascending.
        measurement: the distance between values; between ordinal ones it is how many ratings lie between them.

    Returns:
        shape (m,).
    """
    totals = coincidences.sum(axis=2)
    if measurement == "nominal":
        distance = 1 - np.eye(len(values))[None]
    else:
        places = totals.cumsum(axis=1) - totals / 2 if measurement == "ordinal" else values[None]
        distance = (places[:, :, None] - places[:, None, :]) ** 2
    observed = (coincidences * distance).sum(axis=(1, 2))
    expected = (totals[:, :, None] * totals[:, None, :] * distance).sum(axis=(1, 2)) / (totals.sum(axis=1) - 1)
    return np.asarray(1 - observed / expected, dtype=np.float64)


def gold_accuracy(ratings: pd.DataFrame, gold: pd.DataFrame, resampling: Resampling) -> Estimate | None:
    """Share of ratings between the lowest and the highest gold score of their completion, both included.

    Args:
        ratings: annotators' rows, in long format; those without a score or a gold range do not count.
        gold: the experts' rows.
        resampling: ratings of one item are resampled together.

    Returns:
        None where no rating has a gold range.

    Source: Play Favorites, appendix B (human agreement on the gold dataset).
    """
    spans = gold[gold["score"].notna()].groupby(COMPLETION)["score"].agg(["min", "max"]).reset_index()
    both = ratings[ratings["score"].notna()].merge(spans, on=COMPLETION, how="inner")
    if both.empty:
        return None
    return share(both["score"].between(both["min"], both["max"]).to_numpy(), list(both["item"]), resampling)


def attention_accuracy(checks: pd.DataFrame, middle: float, resampling: Resampling) -> Estimate | None:
    """Share of attention checks rated below the middle of the scale; those without a score do not count.

    The paper does not say which ratings pass; below the middle is ours.

    Args:
        checks: rows of one rater and dimension, in long format.
        middle: of the dimension's scale, on which 'neutral' stands.
        resampling: checks of one item are resampled together.

    Returns:
        None where nothing is scored.
    """
    scored = checks[checks["score"].notna()]
    if scored.empty:
        return None
    return share((scored["score"] < middle).to_numpy(), list(scored["item"]), resampling)


def rank_correlation(judged: NDArray[np.float64], reference: NDArray[np.float64]) -> Estimate | None:
    """Spearman's correlation with ties given their mean rank, and its 95 % interval.

    The interval is by Fisher's z with Bonett and Wright's standard error sqrt((1 + r^2 / 2) / (n - 3)).

    Args:
        judged: shape (n,).
        reference: shape (n,).

    Returns:
        None where fewer than four rows are left or one side is constant: a correlation with a constant is undefined.

    Source: Play Favorites, Figure 5; Bonett and Wright, Sample size requirements for correlations (2000).
    """
    n = len(judged)
    if n < 4 or np.ptp(judged) == 0 or np.ptp(reference) == 0:
        return None
    value = float(stats.spearmanr(judged, reference).statistic)
    if abs(value) >= 1 - 1e-12:
        return Estimate(value=round(value), low=round(value), high=round(value), n=n)
    reach = stats.norm.ppf((1 + LEVEL) / 2) * np.sqrt((1 + value**2 / 2) / (n - 3))
    low, high = np.tanh(np.arctanh(value) + np.array([-reach, reach]))
    return Estimate(value=value, low=float(low), high=float(high), n=n)
