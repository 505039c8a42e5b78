"""Preferences with the effect of length, and of Markdown, taken out: what a judge would say of answers alike in style.

A logistic regression of the preferences is fitted on the differences in style, with a strength for each model where the
models are known, so that a model that writes much and well is not taken for one that merely writes much. Each
preference is then moved by what the fitted style adds to it:

    adjusted = preference - (P(at its difference in style) - P(at no difference))

Against one baseline, the mean of a model's adjusted preferences is its P(at no difference), AlpacaEval's controlled win
rate, since the fit's mean is that of the preferences. Unlike AlpacaEval, which fits each model alone, a judge has one
coefficient for all models: its taste in style is its own.

Source: Dubois et al. (2024), Length-Controlled AlpacaEval, section 3: tanh of the standardised difference in length.
    Headers, lists and bold text as terms: LMSYS, "Does style matter?" (August 2024), which scales differences by
    their sum and has no tanh.
"""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

from judgelm.metrics.bradley_terry import comparable_models
from judgelm.metrics.fractional_logit import FractionalLogit, fit_logit
from judgelm.metrics.resampling import LEVEL, Estimate

Control = Literal["length", "length,style"]

FEWEST = 10
"""Pairs below which nothing is fitted."""

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
    """Differences in style of n pairs, first minus second.

    Attributes:
        terms: names of the k features that differ in some pair.
        values: shape (n, k), tanh of the difference divided by its standard deviation.
        constant: features that no pair differs in.
    """

    terms: tuple[str, ...]
    values: NDArray[np.float64]
    constant: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StyleControl:
    """Preferences with the effect of style taken out.

    Attributes:
        terms: coefficient of each term, positive where more of it is preferred, with a 95 % interval.
        adjusted: shape (n,), each preference without what style adds; may leave [0, 1].
        neutral: shape (n,), P(first better) of the fit at no difference in style; NaN where it has none.
        unadjusted: pairs that are as they were: of models that always or never win, whose strength is not finite.
    """

    terms: Mapping[str, Estimate]
    adjusted: NDArray[np.float64]
    neutral: NDArray[np.float64]
    unadjusted: int


def style_differences(answers: Sequence[tuple[str, str]], control: Control) -> StyleDifferences:
    """The terms of a control for pairs of answers.

    Raises:
        ValueError: fewer than two pairs.
    """
    if len(answers) < 2:
        raise ValueError(f"style differences: expected at least 2 pairs, got {len(answers)}")
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
    preferences: NDArray[np.float64],
    differences: StyleDifferences,
    clusters: Sequence[Hashable],
    models: Sequence[tuple[str, str]] | None = None,
) -> StyleControl | str:
    """Take the effect of style out of preferences.

    Args:
        preferences: shape (n,), in [0, 1], that the first answer is better.
        differences: of the same pairs.
        clusters: n keys; pairs of one question are not independent.
        models: the models of both answers; None fits one constant in their place.

    Returns:
        The adjusted preferences, or why there are none.
    """
    if not differences.terms:
        return f"no pair differs in {', '.join(differences.constant)}, or all by the same"
    fitted, strengths = _strengths(preferences, models)
    n = int(fitted.sum())
    if n < FEWEST:
        return f"{n} pairs are fewer than {FEWEST}"
    design = np.column_stack([strengths, differences.values[fitted]])
    keys = [cluster for cluster, chosen in zip(clusters, fitted, strict=True) if chosen]
    fit = fit_logit(preferences[fitted], design, keys)
    if isinstance(fit, str):
        return fit
    first_term = strengths.shape[1]
    neutral = np.full(len(preferences), np.nan)
    neutral[fitted] = expit(strengths @ fit.coefficients[:first_term])
    adjusted = preferences.copy()
    adjusted[fitted] -= expit(design @ fit.coefficients) - neutral[fitted]
    return StyleControl(
        terms={name: _coefficient(fit, first_term + index, n) for index, name in enumerate(differences.terms)},
        adjusted=adjusted,
        neutral=neutral,
        unadjusted=len(preferences) - n,
    )


def _strengths(
    preferences: NDArray[np.float64], models: Sequence[tuple[str, str]] | None
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """The pairs that can be fitted, and the columns for the strengths of their models and for the first answer.

    The first answer's constant is left out where it says the same as the models, as where one of two always stands
    first.
    """
    n = len(preferences)
    if models is None:
        return np.ones(n, dtype=np.bool_), np.ones((n, 1))
    verdicts = [(first, second, float(value)) for (first, second), value in zip(models, preferences, strict=True)]
    comparable, _ = comparable_models(verdicts)
    index = {name: column for column, name in enumerate(comparable)}
    fitted = np.array([first in index and second in index for first, second in models])
    columns = np.zeros((int(fitted.sum()), len(index) + 1))
    chosen = (pair for pair, usable in zip(models, fitted, strict=True) if usable)
    for row, (first, second) in zip(columns, chosen, strict=True):
        row[index[first]] += 1
        row[index[second]] -= 1
    columns[:, -1] = 1
    full = columns[:, 1:]
    if len(full) and np.linalg.matrix_rank(full) < full.shape[1]:
        full = full[:, :-1]
    return fitted, full


def _coefficient(fit: FractionalLogit, index: int, n: int) -> Estimate:
    value, error = float(fit.coefficients[index]), float(np.sqrt(fit.covariance[index, index]))
    reach = float(norm.ppf((1 + LEVEL) / 2)) * error
    return Estimate(value=value, low=value - reach, high=value + reach, n=n)
