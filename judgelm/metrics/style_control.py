"""Preferences with the effect of length, and of Markdown, taken out: what a judge would say of answers alike in style.

A logistic regression of the preferences on the differences in style is fitted, as in Length-Controlled AlpacaEval. Each
preference is then moved by what the fitted terms add to it:

    adjusted = preference - (P(at its difference in style) - P(at no difference))

The mean of the adjusted preferences is P(at no difference), AlpacaEval's controlled win rate, since the fit's mean is
that of the preferences.

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
        rate: mean preference at no difference in style, with a 95 % interval by the delta method on the logit scale.
        terms: coefficient of each term, positive where more of it is preferred.
        adjusted: shape (n,), each preference without what style adds; may leave [0, 1].
    """

    rate: Estimate
    terms: Mapping[str, Estimate]
    adjusted: NDArray[np.float64]


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
    preferences: NDArray[np.float64], differences: StyleDifferences, clusters: Sequence[Hashable]
) -> StyleControl | str:
    """Take the effect of style out of preferences.

    Args:
        preferences: shape (n,), in [0, 1], that the first answer is better.
        differences: of the same pairs.
        clusters: n keys; pairs of one question are not independent.

    Returns:
        The adjusted preferences, or why there are none.
    """
    n = len(preferences)
    if n < FEWEST:
        return f"{n} pairs are fewer than {FEWEST}"
    if not differences.terms:
        return f"all pairs differ alike in {', '.join(differences.constant)}"
    design = np.column_stack([np.ones(n), differences.values])
    fit = fit_logit(preferences, design, clusters)
    if isinstance(fit, str):
        return fit
    at_no_difference = float(expit(fit.coefficients[0]))
    return StyleControl(
        rate=_rate(fit, n),
        terms={name: _coefficient(fit, index, n) for index, name in enumerate(differences.terms, start=1)},
        adjusted=preferences - (expit(design @ fit.coefficients) - at_no_difference),
    )


def _rate(fit: FractionalLogit, n: int) -> Estimate:
    constant = _coefficient(fit, 0, n)
    value, low, high = expit([constant.value, constant.low, constant.high])
    return Estimate(value=float(value), low=float(low), high=float(high), n=n)


def _coefficient(fit: FractionalLogit, index: int, n: int) -> Estimate:
    value, error = float(fit.coefficients[index]), float(np.sqrt(fit.covariance[index, index]))
    reach = float(norm.ppf((1 + LEVEL) / 2)) * error
    return Estimate(value=value, low=value - reach, high=value + reach, n=n)
