"""Stratified prediction-powered inference: mean reference scores from few human labels and many judge ratings.

The estimate and its variance within a stratum come from the package `ppi-python` (PPI++ with its tuned weight); strata
are put together by their share of the completions. Scores are normalised.
"""

import warnings
from collections.abc import Callable
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
    alpha = 0.1
    low, high = _interval_of_mean()(stratum.labels, stratum.rated, stratum.rated_only, alpha=alpha)
    reach = (high[0] - low[0]) / 2
    return float((low[0] + high[0]) / 2), float(reach / stats.norm.ppf(1 - alpha / 2))


def _interval_of_mean() -> Callable[..., tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """The package's function, imported where it is needed.

    It loads numba, after which vLLM 0.32's CPU build can load no model in the same process, and it turns off every
    warning of the process, which is undone here.
    """
    with warnings.catch_warnings():
        from ppi_py import ppi_mean_ci  # type: ignore[import-untyped]
    estimates: Callable[..., tuple[NDArray[np.float64], NDArray[np.float64]]] = ppi_mean_ci
    return estimates
