"""Ordered (cumulative) logit by maximum likelihood, with exact derivatives.

statsmodels' `OrderedModel` omits the thresholds from its gradient and stops up to 0.008 log-odds from the maximum. With
untransformed thresholds, the log-likelihood is concave, so it has only one maximum.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.optimize import minimize
from scipy.special import expit

from judgelm.metrics.resampling import Floats, Ints

_GRADIENT_TOLERANCE, _STEP_TOLERANCE = 1e-8, 1e-6
_MAX_STEPS = 100


class OrderedLogit(NamedTuple):
    """A fitted ordered logit.

    Attributes:
        coefficients: log-odds of a higher level per unit of each column.
        errors: standard errors from the inverse observed information; NaN if undefined.
        converged: if False (too few steps, or a column separates the levels), the estimates are not valid.
    """

    coefficients: Floats
    errors: Floats
    thresholds: Floats
    log_likelihood: float
    converged: bool


def ordered_logit(levels: Ints, matrix: Floats, counts: Ints) -> OrderedLogit:
    """Fit P(level <= k) = 1 / (1 + exp(x b - t_k)) to rows with counts.

    The matrix must not contain a constant column, and every level must occur in `levels`.

    Source: McCullagh (1980), Regression models for ordinal data; Pratt (1981), Concavity of the log likelihood.
    """
    often = np.bincount(levels, weights=counts)
    if len(often) < 2 or not often.all():
        raise ValueError(f"ordered logit: expected two or more levels, each with rows, from 0 to {len(often) - 1}")
    likelihood = _Likelihood(levels, matrix, counts, len(often) - 1)
    shares = np.cumsum(often)[:-1] / often.sum()
    start = np.concatenate([np.zeros(matrix.shape[1]), np.log(shares / (1 - shares))])  # start without effects
    fit = minimize(
        lambda parameters: -likelihood.value(parameters),
        start,
        method="trust-exact",
        jac=lambda parameters: -likelihood.derivatives(parameters)[0],
        hess=lambda parameters: likelihood.derivatives(parameters)[1],
        options={"gtol": _GRADIENT_TOLERANCE, "maxiter": _MAX_STEPS},
    )
    gradient, information = likelihood.derivatives(fit.x)
    covariance = _inverse(information)
    columns = matrix.shape[1]
    variances = np.full(len(start), np.nan) if covariance is None else np.diag(covariance)
    return OrderedLogit(
        coefficients=fit.x[:columns],
        errors=np.sqrt(np.where(variances > 0, variances, np.nan))[:columns],
        thresholds=fit.x[columns:],
        log_likelihood=-float(fit.fun),
        # the gradient also vanishes if a column separates the levels, but the next step does not
        converged=covariance is not None and bool(np.abs(covariance @ gradient).max() <= _STEP_TOLERANCE),
    )


class _Likelihood:
    """F(u) - F(l) is computed as F(u) (1 - F(l)) (1 - exp(l - u)), which is accurate in the tails."""

    def __init__(self, levels: Ints, matrix: Floats, counts: Ints, thresholds: int) -> None:
        self._counts = counts.astype(np.float64)
        self._columns = matrix.shape[1]
        numbers = np.arange(thresholds)  # threshold k separates levels k and k + 1
        self._upper = np.concatenate([-matrix, levels[:, None] == numbers], axis=1)
        self._lower = np.concatenate([-matrix, levels[:, None] == numbers + 1], axis=1)
        self._has_upper, self._has_lower = levels < thresholds, levels > 0

    def value(self, parameters: Floats) -> float:
        thresholds = parameters[self._columns :]
        if not np.isfinite(parameters).all() or (np.diff(thresholds) <= 0).any():
            return -np.inf
        upper, lower = self._bounds(parameters)
        logs = -np.logaddexp(0, -upper) - np.logaddexp(0, lower) + np.log(-np.expm1(lower - upper))
        return float(self._counts @ logs)

    def derivatives(self, parameters: Floats) -> tuple[Floats, Floats]:
        upper, lower = self._bounds(parameters)
        above, below = expit(-upper), expit(lower)
        with np.errstate(over="ignore"):
            between = 1 / np.expm1(upper - lower)  # 0 where one bound is infinite
        gradient = self._upper.T @ (self._counts * (above + between)) - self._lower.T @ (
            self._counts * (below + between)
        )
        mixed = between * (1 + between)
        twice = self._upper.T @ (self._weighted(above * (1 - above) + mixed) * self._upper)
        twice += self._lower.T @ (self._weighted(below * (1 - below) + mixed) * self._lower)
        cross = self._upper.T @ (self._weighted(mixed) * self._lower)
        return gradient, twice - cross - cross.T

    def _weighted(self, values: Floats) -> Floats:
        return (self._counts * values)[:, None]

    def _bounds(self, parameters: Floats) -> tuple[Floats, Floats]:
        upper = np.where(self._has_upper, self._upper @ parameters, np.inf)
        return upper, np.where(self._has_lower, self._lower @ parameters, -np.inf)


def _inverse(information: Floats) -> Floats | None:
    try:
        factor = scipy.linalg.cho_factor(information)
    except (scipy.linalg.LinAlgError, ValueError):
        return None
    return np.asarray(scipy.linalg.cho_solve(factor, np.eye(len(information))), dtype=np.float64)
