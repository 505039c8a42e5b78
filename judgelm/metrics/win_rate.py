"""Win rates against a baseline, and preferences controlled for length and Markdown.

Style control is a logistic regression of preferences on differences in style, with a strength for each known model:

    adjusted = preference - (P(at its difference in style) - P(at no difference))

AlpacaEval fits each model separately; judgelm fits one coefficient for all models.

Source: AlpacaEval (Li et al. 2023); Length-Controlled AlpacaEval (Dubois et al. 2024), section 3 and
tatsu-lab/alpaca_eval, `metrics/winrate.py` and `metrics/glm_winrate.py`. Headers, lists, and bold text as terms: LMSYS,
"Does style matter?" (August 2024). Fractional logit: Papke and Wooldridge (1996).
"""

import re
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm
from statsmodels.genmod.families import Binomial
from statsmodels.genmod.generalized_linear_model import GLM
from statsmodels.tools.sm_exceptions import PerfectSeparationWarning

from judgelm.metrics.bradley_terry import MAX_LOGIT, comparable_models
from judgelm.metrics.resampling import LEVEL, Estimate, Flags, Floats, Resampling, mean, normal_estimate, widened


class _FractionalLogit(NamedTuple):
    coefficients: Floats
    covariance: Floats


def _fit_logit(preferences: Floats, design: Floats, clusters: Sequence[Hashable]) -> _FractionalLogit | str:
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return "the terms of the regression are linearly dependent"
    groups = np.unique([str(cluster) for cluster in clusters], return_inverse=True)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # statsmodels warns even if only one prediction is exact; divergence is checked below
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
    if not np.isfinite(covariance).all() or np.abs(design @ coefficients).max() > MAX_LOGIT:
        return "the regression has no finite solution (its terms separate the preferences)"
    return _FractionalLogit(coefficients=coefficients, covariance=covariance)


MIN_PAIRS = 10
_TIE = 0.5


class WinRate(NamedTuple):
    """Mean preference, with its standard error as in AlpacaEval."""

    rate: Estimate
    standard_error: float


class LengthControlled(NamedTuple):
    """Win rate at equal length, with its standard error from the delta method.

    `length` is the coefficient of the length difference (baseline minus model). It is negative if longer answers are
    preferred.
    """

    rate: Estimate
    standard_error: float
    length: float


def weighted(preferences: Floats, clusters: Sequence[Hashable], resampling: Resampling) -> WinRate:
    """Return the mean of P(the model wins)."""
    rate = mean(preferences, clusters, resampling)
    n = len(preferences)
    error = float(np.std(preferences, ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return WinRate(rate=widened(rate, clusters), standard_error=error)


def discrete(preferences: Floats, clusters: Sequence[Hashable], resampling: Resampling) -> WinRate:
    """Return the share of wins, with ties counting as half a win."""
    return weighted(np.sign(preferences - _TIE) / 2 + _TIE, clusters, resampling)


def length_controlled(preferences: Floats, lengths: Floats, clusters: Sequence[Hashable]) -> LengthControlled | str:
    """Estimate the win rate at equal length by logistic regression, or return the reason why it is not possible.

    As in AlpacaEval, the terms are tanh of the standardised length difference and a constant. Unlike in AlpacaEval,
    the difficulty of the instruction is not a term, and the regression is not penalised. Each row of `lengths` is
    (baseline, model).
    """
    n = len(preferences)
    if n < MIN_PAIRS:
        return f"{n} comparisons are too few (minimum: {MIN_PAIRS})"
    deltas = lengths[:, 0] - lengths[:, 1]
    spread = float(np.std(deltas, ddof=1))
    if spread == 0:
        return "the difference in length is the same for all pairs"
    design = np.column_stack([np.tanh(deltas / spread), np.ones(n)])
    fit = _fit_logit(preferences, design, clusters)
    if isinstance(fit, str):
        return fit
    coefficients, covariance = fit
    equal = design.copy()
    equal[:, 0] = 0
    predicted = expit(equal @ coefficients)
    rate = float(predicted.mean())
    gradient = (equal * (predicted * (1 - predicted))[:, None]).mean(axis=0)
    error = float(np.sqrt(gradient @ covariance @ gradient))
    half = norm.ppf((1 + LEVEL) / 2) * error / (rate * (1 - rate))
    low, high = expit(logit(rate) + np.array([-half, half]))
    return LengthControlled(
        rate=Estimate(value=rate, low=float(low), high=float(high), n=n),
        standard_error=error,
        length=float(coefficients[0]),
    )


Control = Literal["length", "length,style"]

_HEADER = re.compile(r"^ {0,3}#{1,6}\s", re.MULTILINE)
_LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,3}[.)])\s", re.MULTILINE)
_BOLD = re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__")

_FEATURES: Mapping[str, Callable[[str], int]] = {
    "length": len,
    "headers": lambda text: len(_HEADER.findall(text)),
    "list items": lambda text: len(_LIST_ITEM.findall(text)),
    "bold": lambda text: len(_BOLD.findall(text)),
}
_TERMS: Mapping[Control, tuple[str, ...]] = {"length": ("length",), "length,style": tuple(_FEATURES)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StyleDifferences:
    """Differences in style for n pairs, first answer minus second.

    Attributes:
        terms: names of the k features whose difference varies.
        values: shape (n, k), tanh of the difference divided by its standard deviation.
        constant: names of the other features.
    """

    terms: tuple[str, ...]
    values: Floats
    constant: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StyleControl:
    """Preferences adjusted for style.

    Attributes:
        terms: coefficients; positive if more of the feature is preferred.
        adjusted: adjusted preferences, shape (n,); can be outside [0, 1].
        unadjusted: number of pairs left unchanged because a model always or never wins.
    """

    terms: Mapping[str, Estimate]
    adjusted: Floats
    unadjusted: int


def style_differences(answers: Sequence[tuple[str, str]], control: Control) -> StyleDifferences:
    """Compute the differences in style for at least two pairs of answers."""
    if len(answers) < 2:
        raise ValueError(f"style differences: expected at least two pairs, got {len(answers)}")
    deltas = {
        name: np.array([_FEATURES[name](first) - _FEATURES[name](second) for first, second in answers], dtype=float)
        for name in _TERMS[control]
    }
    spreads = {name: float(np.std(values, ddof=1)) for name, values in deltas.items()}
    terms = tuple(name for name in deltas if spreads[name] > 0)
    values = [np.tanh(deltas[name] / spreads[name]) for name in terms]
    return StyleDifferences(
        terms=terms,
        values=np.column_stack(values) if terms else np.empty((len(answers), 0)),
        constant=tuple(name for name in deltas if spreads[name] == 0),
    )


def control_style(
    preferences: Floats,
    differences: StyleDifferences,
    clusters: Sequence[Hashable],
    models: Sequence[tuple[str, str]] | None = None,
) -> StyleControl | str:
    """Remove the effect of style from preferences, or return the reason why it is not possible.

    If `models` is None, a constant is used instead of the models' strengths.
    """
    if not differences.terms:
        return f"no pair differs in {', '.join(differences.constant)}, or all pairs differ by the same amount"
    fitted, strengths = _strengths(preferences, models)
    n = int(fitted.sum())
    if n < MIN_PAIRS:
        return f"{n} pairs are too few (minimum: {MIN_PAIRS})"
    design = np.column_stack([strengths, differences.values[fitted]])
    keys = list(compress(clusters, fitted))
    fit = _fit_logit(preferences[fitted], design, keys)
    if isinstance(fit, str):
        return fit
    first_term = strengths.shape[1]
    adjusted = preferences.copy()
    adjusted[fitted] -= expit(design @ fit.coefficients) - expit(strengths @ fit.coefficients[:first_term])
    return StyleControl(
        terms={
            name: normal_estimate(float(fit.coefficients[index]), float(np.sqrt(fit.covariance[index, index])), n)
            for index, name in enumerate(differences.terms, first_term)
        },
        adjusted=adjusted,
        unadjusted=len(preferences) - n,
    )


def _strengths(preferences: Floats, models: Sequence[tuple[str, str]] | None) -> tuple[Flags, Floats]:
    n = len(preferences)
    if models is None:
        return np.ones(n, dtype=np.bool_), np.ones((n, 1))
    verdicts = [(first, second, float(value)) for (first, second), value in zip(models, preferences, strict=True)]
    comparable, _ = comparable_models(verdicts)
    index = {name: column for column, name in enumerate(comparable)}
    fitted = np.array([first in index and second in index for first, second in models])
    columns = np.zeros((int(fitted.sum()), len(index) + 1))
    for row, (first, second) in zip(columns, compress(models, fitted), strict=True):
        row[index[first]] += 1
        row[index[second]] -= 1
    columns[:, -1] = 1
    full = columns[:, 1:]
    if len(full) and np.linalg.matrix_rank(full) < full.shape[1]:
        full = full[:, :-1]
    return fitted, full
