"""Calibration of probabilities, and temperature scaling.

`outcome` and its `probability` have shape (n,). Functions raise `ValueError` for invalid input.

Source: Guo, Pleiss, Sun, Weinberger (2017), On Calibration of Modern Neural Networks.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

from judgelm.metrics.resampling import Estimate, Flags, Floats, Ints, Resampling, estimate, interval, share

CERTAIN = 1e-6
"""Probabilities are clipped to at least this distance from 0 and 1."""

TEMPERATURES = (0.02, 50.0)
"""Search range for the temperature; an optimum at either end is rejected."""

_CHANCE_DRAWS = 200


class Bin(NamedTuple):
    """Pairs with a probability in (low, high]; the first bin includes 0, as in scikit-learn.

    `mean` is the mean probability, and `hits` the share of positive outcomes.
    """

    low: float
    high: float
    mean: float
    hits: Estimate


class CalibrationError(NamedTuple):
    """Expected calibration error: the distance between mean probability and hit rate per bin, averaged over pairs.

    `by_chance` is the expected error for a perfectly calibrated judge with the same probabilities.
    """

    error: Estimate
    by_chance: float


def scale(probability: Floats, temperature: float) -> Floats:
    """Return sigmoid(logit(p) / temperature)."""
    return np.asarray(expit(log_odds(probability) / temperature), dtype=np.float64)


def bin_edges(bins: int) -> Floats:
    """Return the edges of equal-width bins from 0 to 1."""
    return np.linspace(0, 1, bins + 1)


def reliability(
    outcome: Flags, probability: Floats, edges: Floats, clusters: Sequence[Hashable], resampling: Resampling
) -> tuple[Bin, ...]:
    """Compute the reliability curve over non-empty bins; the values are the same as in scikit-learn."""
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
    """Compute the expected calibration error over fixed bins.

    Source: Guo et al. (2017), equation 3, with P(outcome) instead of the winner's probability.
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
    """Return outcome minus probability in the column of its bin, and 1 in the last column; shape (n, bins + 1)."""
    cells = np.zeros((outcome.size, len(edges)))
    cells[np.arange(outcome.size), _bin_indices(probability, edges)] = outcome - probability
    cells[:, -1] = 1
    return cells


def errors_of_sums(sums: Floats) -> Floats:
    """Return expected calibration errors from column sums of `error_cells`, shape (m, bins + 1)."""
    return np.asarray(np.abs(sums[:, :-1]).sum(axis=1) / sums[:, -1], dtype=np.float64)


def log_odds(probability: Floats) -> Floats:
    """Return ln(p / (1 - p)), with p clipped to [`CERTAIN`, 1 - `CERTAIN`]."""
    return np.asarray(logit(np.clip(probability, CERTAIN, 1 - CERTAIN)), dtype=np.float64)


def fit_temperature(
    outcome: Flags, probability: Floats, clusters: Sequence[Hashable], resampling: Resampling
) -> Estimate | None:
    """Fit the temperature with the lowest log loss; above 1, the judge is overconfident.

    Returns None if there is no optimum inside `TEMPERATURES`. For resamples without an optimum, the nearer end of
    `TEMPERATURES` is used.
    """
    _check(outcome, probability)
    lead = np.where(outcome, 1.0, -1.0) * log_odds(probability)
    low, high = np.log(TEMPERATURES)

    def best(weights: Floats) -> float:
        loss = minimize_scalar(
            lambda cold: float(weights @ np.logaddexp(0, -lead * np.exp(-cold))), bounds=(low, high), method="bounded"
        )
        return float(loss.x)

    observed = best(np.ones(outcome.size))
    if min(observed - low, high - observed) < 1e-3:
        return None
    low, high = _bounds(best, clusters, resampling)
    return Estimate(value=float(np.exp(observed)), low=float(np.exp(low)), high=float(np.exp(high)), n=outcome.size)


def _bounds(
    fit: Callable[[Floats], float], clusters: Sequence[Hashable], resampling: Resampling
) -> tuple[float, float]:
    index_of = {key: index for index, key in enumerate(dict.fromkeys(clusters))}
    member = np.array([index_of[key] for key in clusters])
    rng = np.random.default_rng(resampling.seed)
    units = np.full(len(index_of), 1 / len(index_of))
    draws = (rng.multinomial(len(index_of), units) for _ in range(resampling.resamples))
    return interval(np.array([fit(counts[member].astype(np.float64)) for counts in draws]))


def _bin_indices(probability: Floats, edges: Floats) -> Ints:
    return np.searchsorted(edges[1:-1], probability)


def _check(outcome: Flags, probability: Floats) -> None:
    if outcome.shape != probability.shape or outcome.ndim != 1:
        raise ValueError(f"calibration: expected two arrays of shape (n,), got {outcome.shape} and {probability.shape}")
    if outcome.size == 0:
        raise ValueError("calibration: expected at least one pair")
    if not ((probability >= 0) & (probability <= 1)).all():
        raise ValueError("calibration: a probability is outside [0, 1]")
