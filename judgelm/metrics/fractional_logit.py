"""Logistic regression of preferences in [0, 1], with a covariance for clusters, or the reason why there is none.

Source: Papke and Wooldridge (1996), Econometric Methods for Fractional Response Variables.
"""

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from statsmodels.genmod.families import Binomial
from statsmodels.genmod.generalized_linear_model import GLM
from statsmodels.tools.sm_exceptions import PerfectSeparationWarning

from judgelm.metrics.bradley_terry import FARTHEST


@dataclass(frozen=True, slots=True, kw_only=True)
class FractionalLogit:
    """A fit; `coefficients` has shape (k,), their cluster-robust `covariance` (k, k)."""

    coefficients: NDArray[np.float64]
    covariance: NDArray[np.float64]


def fit_logit(
    preferences: NDArray[np.float64], design: NDArray[np.float64], clusters: Sequence[Hashable]
) -> FractionalLogit | str:
    """Fit P = expit(design @ coefficients), without penalty.

    Args:
        preferences: shape (n,), in [0, 1].
        design: shape (n, k), with a constant where it is wanted.
        clusters: n keys; rows of one key are not independent.
    """
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return "the terms of the regression depend on each other"
    groups = np.unique([str(cluster) for cluster in clusters], return_inverse=True)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # statsmodels warns of each exact prediction, also of probabilities; divergence shows in the predictor
        warnings.simplefilter("ignore", PerfectSeparationWarning)
        try:
            fit = GLM(preferences, design, family=Binomial()).fit(
                tol=1e-10, maxiter=100, cov_type="cluster", cov_kwds={"groups": groups}
            )
        except (Warning, np.linalg.LinAlgError, FloatingPointError) as problem:
            return f"the regression has no finite solution ({problem})"
    if not fit.converged:
        return "the regression did not converge"
    coefficients, covariance = np.asarray(fit.params), np.asarray(fit.cov_params())
    if not np.isfinite(covariance).all() or np.abs(design @ coefficients).max() > FARTHEST:
        return "the regression has no finite solution (its terms separate the preferences)"
    return FractionalLogit(coefficients=coefficients, covariance=covariance)
