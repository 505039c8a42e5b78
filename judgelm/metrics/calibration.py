"""Do a judge's probabilities mean what they say, and one or two numbers that make them mean it?

A judge is calibrated when of all pairs that it gives a probability of 0.8 eight in ten come out so. Whether it is says
nothing of how much it knows: always answering the base rate is calibrated too. Read beside the proper scores.

Sources: Guo, Pleiss, Sun, Weinberger (2017), On Calibration of Modern Neural Networks (expected calibration error,
temperature); Platt (1999), Probabilistic Outputs for Support Vector Machines (slope and intercept).
"""

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from judgelm.metrics.resampling import LEVEL, MOST_UNDEFINED, Estimate, Flags, Floats, Ints, Resampling, estimate, share

Binning = Literal["uniform", "quantile"]

CERTAIN = 1e-6
"""Probabilities nearer to 0 or 1 count as this near where log-odds are taken."""

TEMPERATURES = (0.02, 50.0)
"""Where a temperature is looked for; a best one at either end is none."""

_CHANCE_DRAWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Pairs whose probability lies above `low` and up to `high` (the first bin includes 0), as scikit-learn bins them.

    Attributes:
        mean: of the probabilities.
        hits: share of the pairs that came out so.
    """

    low: float
    high: float
    mean: float
    hits: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationError:
    """Expected calibration error, in [0, 1].

    Attributes:
        error: mean over pairs of the distance, in their bin, between mean probability and share of hits. It is never
            negative, so chance alone lifts it; its percentile interval is lifted further.
        by_chance: what a perfectly calibrated judge with these probabilities and as many pairs would have on average.
    """

    error: Estimate
    by_chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """p becomes sigmoid(slope * logit(p) + intercept); a temperature T is slope 1 / T without intercept.

    Attributes:
        intercept: None for a temperature. Anything but 0 prefers one answer whatever it says, so that exchanging the
            answers does not give 1 - p.
        temperature: 1 / slope; None of a Platt scaling. Above 1 the judge was too sure of itself.
    """

    slope: Estimate
    intercept: Estimate | None
    temperature: Estimate | None

    def __call__(self, probability: Floats) -> Floats:
        """Probabilities after scaling, shape (n,)."""
        shift = 0.0 if self.intercept is None else self.intercept.value
        return np.asarray(expit(self.slope.value * log_odds(probability) + shift), dtype=np.float64)


def bin_edges(probability: Floats, bins: int, binning: Binning) -> Floats:
    """Edges from 0 to 1: of equal width, or with as many pairs in each (fewer bins where probabilities repeat).

    Raises:
        ValueError: no bin, or no pair.
    """
    if bins < 1 or probability.size == 0:
        raise ValueError(f"calibration: {bins} bins over {probability.size} pairs; at least one of each is needed")
    if binning == "uniform":
        return np.linspace(0, 1, bins + 1)
    inner = np.quantile(probability, np.linspace(0, 1, bins + 1)[1:-1])
    return np.unique(np.concatenate([[0.0], inner, [1.0]]))


def reliability(
    outcome: Flags, probability: Floats, edges: Floats, clusters: Sequence[Hashable], resampling: Resampling
) -> tuple[Bin, ...]:
    """The reliability curve, as scikit-learn's `calibration_curve` has it, with n and an interval for each bin.

    Args:
        outcome: shape (n,), what came out.
        probability: shape (n,), in [0, 1], given to that.
        edges: of `bin_edges`.
        clusters: n keys, as in `resampling.bootstrap_sums`.
        resampling: seed and number of resamples.

    Returns:
        The bins that hold pairs, lowest first.

    Raises:
        ValueError: shapes differ, n is 0, or a probability lies outside of [0, 1].
    """
    _check(outcome, probability)
    indices = _bin_indices(probability, edges)
    filled = []
    for bin_index in np.unique(indices):
        inside = indices == bin_index
        members = [clusters[index] for index in np.flatnonzero(inside)]
        filled.append(
            Bin(
                low=float(edges[bin_index]),
                high=float(edges[bin_index + 1]),
                mean=float(probability[inside].mean()),
                hits=share(outcome[inside], members, resampling),
            )
        )
    return tuple(filled)


def calibration_error(
    outcome: Flags, probability: Floats, edges: Floats, clusters: Sequence[Hashable], resampling: Resampling
) -> CalibrationError:
    """The expected calibration error over fixed bins; arguments and errors as `reliability`.

    Source: Guo et al. (2017), equation 3, over P(outcome) instead of the winner's probability.
    """
    _check(outcome, probability)
    cells = error_cells(outcome, probability, edges)
    [error] = estimate(cells, lambda sums: errors_of_sums(sums)[:, None], clusters, resampling)
    rng, indices = np.random.default_rng(resampling.seed), _bin_indices(probability, edges)
    drawn = [
        np.abs(np.bincount(indices, (rng.random(outcome.size) < probability) - probability)).sum()
        for _ in range(_CHANCE_DRAWS)
    ]
    return CalibrationError(error=error, by_chance=float(np.mean(drawn)) / outcome.size)


def error_cells(outcome: Flags, probability: Floats, edges: Floats) -> Floats:
    """Cells for resampling: shape (n, bins + 1), outcome minus probability in its bin's column, and a 1."""
    cells = np.zeros((outcome.size, len(edges)))
    cells[np.arange(outcome.size), _bin_indices(probability, edges)] = outcome - probability
    cells[:, -1] = 1
    return cells


def errors_of_sums(sums: Floats) -> Floats:
    """Expected calibration errors, shape (m,), of column sums of `error_cells`, shape (m, bins + 1)."""
    return np.asarray(np.abs(sums[:, :-1]).sum(axis=1) / sums[:, -1], dtype=np.float64)


def log_odds(probability: Floats) -> Floats:
    """ln(p / (1 - p)), with p held `CERTAIN` away from 0 and 1."""
    return np.asarray(logit(np.clip(probability, CERTAIN, 1 - CERTAIN)), dtype=np.float64)


def fit_temperature(
    outcome: Flags, probability: Floats, clusters: Sequence[Hashable], resampling: Resampling
) -> Scaling | None:
    """The temperature of the least log loss.

    Args:
        outcome: shape (n,), what came out.
        probability: shape (n,), in [0, 1], given to that.
        clusters: n keys; the interval comes from resampling these.
        resampling: seed and number of resamples.

    Returns:
        None where none within `TEMPERATURES` is best: the probabilities are all on the right side (the colder the
        better), or know no more than a coin (the hotter the better). Resamples in which that happens count as the end
        of that range.

    Raises:
        ValueError: as `reliability`.
    """
    _check(outcome, probability)
    lead = np.where(outcome, 1.0, -1.0) * log_odds(probability)
    low, high = np.log(TEMPERATURES)

    def best(weights: Floats) -> Floats:
        loss = minimize_scalar(
            lambda cold: float(weights @ np.logaddexp(0, -lead * np.exp(-cold))), bounds=(low, high), method="bounded"
        )
        return np.array([loss.x])

    observed = float(best(np.ones(outcome.size))[0])
    if min(observed - low, high - observed) < 1e-3:
        return None
    [(lower, upper)] = _bounds(best, clusters, resampling)
    temperature = Estimate(
        value=float(np.exp(observed)), low=float(np.exp(lower)), high=float(np.exp(upper)), n=outcome.size
    )
    slope = Estimate(value=1 / temperature.value, low=1 / temperature.high, high=1 / temperature.low, n=outcome.size)
    return Scaling(slope=slope, intercept=None, temperature=temperature)


def fit_platt(
    outcome: Flags, probability: Floats, clusters: Sequence[Hashable], resampling: Resampling
) -> Scaling | None:
    """Slope and intercept of the least log loss: a logistic regression on the log-odds, without penalty.

    Platt's own targets, slightly inside of 0 and 1, are not used: with the hundreds of labels that this needs anyway
    they change nothing to speak of.

    Returns:
        None where a threshold on the probability separates the outcomes, so that no finite slope is best; arguments
        and errors as `fit_temperature`.
    """
    _check(outcome, probability)
    odds = log_odds(probability)

    def best(weights: Floats) -> Floats:
        drawn = weights > 0
        if _separated(odds[drawn], outcome[drawn]):
            return np.array([np.nan, np.nan])
        model = LogisticRegression(C=np.inf, solver="newton-cholesky")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nearly separated resamples end at the most steps, which is near enough
            model.fit(odds[drawn, None], outcome[drawn], sample_weight=weights[drawn])
        return np.array([model.coef_[0, 0], model.intercept_[0]])

    slope, intercept = best(np.ones(outcome.size))
    if not np.isfinite(slope):
        return None
    (slope_low, slope_high), (low, high) = _bounds(best, clusters, resampling)
    n = outcome.size
    return Scaling(
        slope=Estimate(value=float(slope), low=slope_low, high=slope_high, n=n),
        intercept=Estimate(value=float(intercept), low=low, high=high, n=n),
        temperature=None,
    )


def _bounds(
    fit: Callable[[Floats], Floats], clusters: Sequence[Hashable], resampling: Resampling
) -> list[tuple[float, float]]:
    """Percentile intervals of a fit's parameters over resampled clusters; NaN where over 5 % have no fit."""
    index_of = {key: index for index, key in enumerate(dict.fromkeys(clusters))}
    member = np.array([index_of[key] for key in clusters])
    rng = np.random.default_rng(resampling.seed)
    units = np.full(len(index_of), 1 / len(index_of))
    draws = (rng.multinomial(len(index_of), units) for _ in range(resampling.resamples))
    fits = np.array([fit(counts[member].astype(np.float64)) for counts in draws])
    if np.isnan(fits).any(axis=1).mean() > MOST_UNDEFINED:
        return [(float("nan"), float("nan"))] * fits.shape[1]
    ends = np.nanquantile(fits, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return [(float(low), float(high)) for low, high in ends.T]


def _separated(odds: Floats, outcome: Flags) -> bool:
    yes, no = odds[outcome], odds[~outcome]
    return yes.size == 0 or no.size == 0 or bool(yes.min() >= no.max() or no.min() >= yes.max())


def _bin_indices(probability: Floats, edges: Floats) -> Ints:
    return np.searchsorted(edges[1:-1], probability)


def _check(outcome: Flags, probability: Floats) -> None:
    if outcome.shape != probability.shape or outcome.ndim != 1:
        raise ValueError(f"calibration: expected two arrays (n,), got {outcome.shape} and {probability.shape}")
    if outcome.size == 0:
        raise ValueError("calibration: no pair; the calibration of nothing is undefined")
    if not ((probability >= 0) & (probability <= 1)).all():
        raise ValueError("calibration: a probability lies outside of [0, 1]")
