"""Stratified prediction-powered inference: mean reference scores from few human labels and many judge ratings.

The estimate and its variance within a stratum are those of PPI++ with its tuned weight, equal to the package
`ppi-python`; strata are put together by their share of the completions. Scores are normalised.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from judgelm.metrics.resampling import Estimate

FEWEST_LABELS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """Completions that are treated alike.

    Attributes:
        name: what they share.
        labels: shape (n,), human scores of the labelled completions.
        rated: shape (n,), the judge's scores of the same completions.
        rated_only: shape (m,), its scores of completions without a human score; may be empty.
    """

    name: str
    labels: NDArray[np.float64]
    rated: NDArray[np.float64]
    rated_only: NDArray[np.float64]

    @property
    def size(self) -> int:
        """Completions, labelled or not."""
        return len(self.labels) + len(self.rated_only)


class TooFewLabels(ValueError):  # noqa: N818 - a finding that callers report, not a fault
    """A stratum has not the labels that a variance needs."""


def stratified_mean(strata: list[Stratum], level: float, *, powered: bool = True) -> Estimate:
    """The mean human score of all completions of the strata.

    Each stratum's estimate is weighted with its share of the completions and the variances add up; labels are taken
    to be a random draw within each stratum. One stratum gives the unstratified estimate.

    Args:
        strata: at least one.
        level: of the interval, which is normal.
        powered: with the judge's ratings; False is the classical estimate from the labels alone.

    Returns:
        The estimate; its n is the number of labels.

    Raises:
        TooFewLabels: a stratum has fewer than two labels.

    Source: Fisch et al., Stratified Prediction-Powered Inference (2024), equation 6, with Angelopoulos et al., PPI++
        (2023) within strata; Play Favorites, section 7.
    """
    total = sum(stratum.size for stratum in strata)
    estimates = [_within(stratum, powered) for stratum in strata]
    shares = np.array([stratum.size / total for stratum in strata])
    value = float(shares @ np.array([mean for mean, _ in estimates]))
    error = float(np.sqrt(shares**2 @ np.array([error**2 for _, error in estimates])))
    reach = float(stats.norm.ppf((1 + level) / 2)) * error
    n = sum(len(stratum.labels) for stratum in strata)
    return Estimate(value=value, low=value - reach, high=value + reach, n=n, level=level)


def _within(stratum: Stratum, powered: bool) -> tuple[float, float]:
    """Mean and standard error within one stratum.

    A stratum whose completions are all labelled, or whose judge gives one score only, has nothing to gain from
    ratings: there the weight of the ratings is 0, which is the classical estimate.
    """
    if len(stratum.labels) < FEWEST_LABELS:
        raise TooFewLabels(f"stratum {stratum.name}: {len(stratum.labels)} labels; a variance needs {FEWEST_LABELS}")
    useful = powered and len(stratum.rated_only) > 0 and np.ptp(np.r_[stratum.rated, stratum.rated_only]) > 0
    if not useful:
        n = len(stratum.labels)
        return float(stratum.labels.mean()), float(stratum.labels.std() / np.sqrt(n))
    weight = power_tuned_weight(stratum.labels, stratum.rated, stratum.rated_only)
    rectified, imputed = stratum.labels - weight * stratum.rated, weight * stratum.rated_only
    error = np.sqrt(rectified.var() / len(rectified) + imputed.var() / len(imputed))
    return float(rectified.mean() + imputed.mean()), float(error)


def power_tuned_weight(
    labels: NDArray[np.float64], rated: NDArray[np.float64], rated_only: NDArray[np.float64]
) -> float:
    """The weight of a judge's ratings with which the estimate of a mean varies least, held in [0, 1].

    Args:
        labels: shape (n,), human scores.
        rated: shape (n,), the judge's scores of the same items.
        rated_only: shape (m,), its scores of other items, not empty; not all ratings are equal.

    Source: PPI++ (2023), section 6, in the form of the package `ppi-python` 0.2.3: the covariance divides by n, and the
        variance is that of all ratings and divides by n + m - 1.
    """
    n, m = len(labels), len(rated_only)
    spread = np.var(np.concatenate([rated, rated_only]), ddof=1)
    covariance = np.cov(labels, rated, ddof=0)[0, 1]
    return float(np.clip(covariance / ((1 + n / m) * spread), 0, 1))
