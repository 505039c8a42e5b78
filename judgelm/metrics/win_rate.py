"""Win rates of a model against a baseline, as they are and with the length of answers held equal.

Source: AlpacaEval (Li et al. 2023); Length-Controlled AlpacaEval (Dubois et al. 2024), section 3 and
tatsu-lab/alpaca_eval, `metrics/winrate.py` and `metrics/glm_winrate.py`.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import norm

from judgelm.metrics.fractional_logit import fit_logit
from judgelm.metrics.resampling import LEVEL, Estimate, Resampling, mean, widened

_FEWEST = 10
_TIE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRate:
    """A mean of preferences.

    Attributes:
        rate: with its bootstrap interval.
        standard_error: of the mean, as AlpacaEval prints it; NaN for a single comparison.
    """

    rate: Estimate
    standard_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthControlled:
    """Regression estimates for answers of equal length.

    Attributes:
        rate: mean probability that the model's answer is preferred at no difference in length.
        standard_error: of it, by the delta method from the regression's robust covariance.
        length: coefficient of tanh of the standardised difference in length, baseline minus model: negative where
            longer answers are preferred.
    """

    rate: Estimate
    standard_error: float
    length: float


def weighted(preferences: NDArray[np.float64], clusters: Sequence[Hashable], resampling: Resampling) -> WinRate:
    """The mean of the preferences, probabilities as they are.

    Args:
        preferences: shape (n,), in [0, 1], probability that the model wins.
        clusters: n instructions, resampled as wholes.
        resampling: seed and number of resamples.

    Raises:
        ValueError: n is 0.
    """
    rate = mean(preferences, clusters, resampling)
    n = len(preferences)
    error = float(np.std(preferences, ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return WinRate(rate=widened(rate, clusters), standard_error=error)


def discrete(preferences: NDArray[np.float64], clusters: Sequence[Hashable], resampling: Resampling) -> WinRate:
    """The share of wins with half of the ties; a preference other than 0.5 is a win or a loss.

    Arguments and errors are those of `weighted`.
    """
    return weighted(np.sign(preferences - _TIE) / 2 + _TIE, clusters, resampling)


def length_controlled(
    preferences: NDArray[np.float64],
    lengths: NDArray[np.float64],
    clusters: Sequence[Hashable],
    difficulty: NDArray[np.float64] | None = None,
) -> LengthControlled | str:
    """The win rate that a logistic regression predicts where both answers are equally long.

    The terms are AlpacaEval's: tanh of the difference in length divided by its standard deviation, a constant for the
    model and, where it is given, the difficulty of each instruction. The published fit is L1-penalised, its strength
    chosen by five-fold cross-validation, and drawn to a verbose and a concise version of its baseline; here there is no
    penalty, so that figures differ from the leaderboard's.

    Args:
        preferences: shape (n,), in [0, 1].
        lengths: shape (n, 2), of the baseline's and of the model's answers.
        clusters: n instructions, whose comparisons are not independent.
        difficulty: shape (n,); None leaves the term out.

    Returns:
        The estimate with a 95 % interval (on the logit scale), or why there is none.
    """
    n = len(preferences)
    if n < _FEWEST:
        return f"{n} comparisons are fewer than {_FEWEST}"
    deltas = lengths[:, 0] - lengths[:, 1]
    spread = float(np.std(deltas, ddof=1))
    if spread == 0:
        return "all answers differ in length by the same"
    constant = [np.ones(n)] if difficulty is None else [np.ones(n), difficulty]
    design = np.column_stack([np.tanh(deltas / spread), *constant])
    fit = fit_logit(preferences, design, clusters)
    return fit if isinstance(fit, str) else _at_equal_length(fit.coefficients, fit.covariance, design)


def _at_equal_length(
    coefficients: NDArray[np.float64], covariance: NDArray[np.float64], design: NDArray[np.float64]
) -> LengthControlled:
    equal = design.copy()
    equal[:, 0] = 0
    predicted = expit(equal @ coefficients)
    rate = float(predicted.mean())
    gradient = (equal * (predicted * (1 - predicted))[:, None]).mean(axis=0)
    error = float(np.sqrt(gradient @ covariance @ gradient))
    half = norm.ppf((1 + LEVEL) / 2) * error / (rate * (1 - rate))
    low, high = expit(logit(rate) + np.array([-half, half]))
    return LengthControlled(
        rate=Estimate(value=rate, low=float(low), high=float(high), n=len(design)),
        standard_error=error,
        length=float(coefficients[0]),
    )
