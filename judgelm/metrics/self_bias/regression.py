"""Self- and family-bias: what a judge gives its own completions beyond what their quality explains.

The regression of equation 1 through statsmodels: `rating ~ judge + reference:judge + own + family + dimension - 1`, one
intercept and one slope per judge, one self-bias per judge, one family-bias per *family* (another model of the judge's
family; not the judge itself), dimensions relative to the alphabetically first. The design matrix is in
`judgelm.metrics.self_bias.design`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import statsmodels.api as sm
from numpy.typing import NDArray
from scipy import stats

from judgelm.metrics.ratings import PairedRatings
from judgelm.metrics.resampling import Estimate, Resampling, mean
from judgelm.metrics.self_bias.design import BiasModel, Design, TermKind, design_of, redundant, unidentified

__all__ = ["BiasFit", "BiasModel", "Term", "TooFewRatings", "fit_self_bias"]


class TooFewRatings(ValueError):  # noqa: N818 - a finding that callers report, not a fault
    """There are not more rows than coefficients, or no rows at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One coefficient.

    Attributes:
        kind: `judge` and `slope` are delta and beta of equation 1, `self` is gamma, `family` lambda, `dimension` eta.
        level: the judge, family or dimension.
        estimate: None where the data does not tell it; its n is the rows on which the term is not zero.
        error: standard error; as `p`, None where there is no estimate.
        p: of the two-sided Wald test that the coefficient is 0.
    """

    kind: TermKind
    level: str
    estimate: Estimate | None
    error: float | None = None
    p: float | None = None

    @property
    def significant(self) -> bool:
        """True if the interval excludes 0."""
        return self.estimate is not None and not self.estimate.low <= 0 <= self.estimate.high


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasFit:
    """A fitted regression.

    Attributes:
        terms: in the order of the design.
        n: rows.
        unit: of the estimates: `normalised score` or `log-odds`.
        errors: how the standard errors were made, in words.
        r2: share of variance explained, None where the fit has none.
        converged: False where the search for the estimates did not end; then they are not to be used.
        left_out: rows left out of this fit, and why, in words; empty where none were.
    """

    terms: tuple[Term, ...]
    n: int
    unit: str
    errors: str
    r2: float | None = None
    converged: bool = True
    left_out: str = ""

    def of(self, kind: TermKind) -> Iterator[Term]:
        """Terms of one kind."""
        return (term for term in self.terms if term.kind == kind)

    def value(self, kind: TermKind, level: str) -> float:
        """A coefficient, 0 where the fit has none (no such rows, or not identified)."""
        estimates = (term.estimate for term in self.of(kind) if term.level == level)
        return next((estimate.value for estimate in estimates if estimate is not None), 0.0)


def fit_self_bias(paired: PairedRatings, model: BiasModel | None = None) -> BiasFit:
    """Ordinary least squares with robust standard errors and Wald intervals (normal quantiles).

    Coefficients that the data cannot tell apart from others (a judge that never rates itself, a reference without
    spread) have no estimate; all others are what statsmodels gives for the authors' formula.

    Args:
        paired: see `judgelm.metrics.ratings`; with `length_feature` where the model asks for length.
        model: the terms, the standard errors and the interval's level; the authors' when None.

    Raises:
        TooFewRatings: not more rows than coefficients.
        ValueError: the model needs a column that is not there.

    Source: Play Favorites, equation 1 and appendix A; HC1 as in the authors' Python code, White's HC0 as in their R.
    """
    model = model or BiasModel()
    design = design_of(paired.frame, model)
    if len(paired.frame) <= design.matrix.shape[1]:
        raise TooFewRatings(f"self-bias: {len(paired.frame)} ratings for {design.matrix.shape[1]} coefficients")
    gone = redundant(design.matrix)
    identified = design.without(gone)
    fitted: Any = sm.OLS(paired.frame["rating"].to_numpy(), identified.matrix).fit(**_covariance(paired, model))
    known = iter(wald_terms(identified, fitted.params, fitted.bse, unidentified(design.matrix)[~gone], model.level))
    return BiasFit(
        terms=tuple(
            Term(kind=kind, level=level, estimate=None) if gone[i] else next(known)
            for i, (kind, level) in enumerate(design.terms)
        ),
        n=len(paired.frame),
        unit="normalised score",
        errors=_errors_text(model.errors),
        r2=float(fitted.rsquared) if np.isfinite(fitted.rsquared) else None,
    )


def wald_terms(
    design: Design,
    coefficients: NDArray[np.float64],
    errors: NDArray[np.float64],
    unknown: NDArray[np.bool_],
    level: float,
) -> tuple[Term, ...]:
    """The design's terms with Wald intervals and two-sided p-values, both of the normal distribution.

    Args:
        design: the columns.
        coefficients: shape (columns,).
        errors: shape (columns,), standard errors; NaN where there is none.
        unknown: shape (columns,), True where the coefficient is not identified and gets no estimate.
        level: of the intervals.
    """
    reach = float(stats.norm.ppf((1 + level) / 2))
    rows = (design.matrix != 0).sum(axis=0)
    terms: list[Term] = []
    for i, (kind, name) in enumerate(design.terms):
        if unknown[i] or not np.isfinite(errors[i]):
            terms.append(Term(kind=kind, level=name, estimate=None))
            continue
        value, error = float(coefficients[i]), float(errors[i])
        bounds = (value - reach * error, value + reach * error)
        known = Estimate(value=value, low=bounds[0], high=bounds[1], n=int(rows[i]), level=level)
        with np.errstate(divide="ignore", invalid="ignore"):  # a perfect fit has errors of 0
            p_value = float(2 * stats.norm.sf(np.abs(np.divide(value, error))))
        terms.append(Term(kind=kind, level=name, estimate=known, error=error, p=p_value))
    return tuple(terms)


def _covariance(paired: PairedRatings, model: BiasModel) -> dict[str, object]:
    if model.errors != "cluster":
        return {"cov_type": model.errors}
    groups = paired.frame["item"].astype("category").cat.codes.to_numpy()
    return {"cov_type": "cluster", "cov_kwds": {"groups": groups}}


def _errors_text(errors: Literal["HC1", "HC0", "cluster"]) -> str:
    return "clustered by item" if errors == "cluster" else errors


def debiased(paired: PairedRatings, fit: BiasFit) -> pd.DataFrame:
    """The rows with `bias`, `debiased` (both normalised) and `debiased_raw` (on the dimension's own scale).

    The bias of a row is its judge's self-bias where it rates itself and its family's bias where it rates a relative,
    else 0; a bias that the fit has no estimate of counts as 0. Debiased scores may leave the scale: cutting them off
    would bias their means again.

    Args:
        paired: the ratings, not necessarily those that `fit` is from.
        fit: a linear fit (`unit` "normalised score").

    Raises:
        ValueError: the fit is in log-odds, which cannot be subtracted from scores.

    Source: Play Favorites, section 7.
    """
    if fit.unit != "normalised score":
        raise ValueError(f"debiased scores: the fit is in {fit.unit}; use a linear one")
    frame = paired.frame
    own = frame["own"].map({name: fit.value("self", name) for name in frame["own"].unique() if name})
    family = frame["family"].map({name: fit.value("family", name) for name in frame["family"].unique() if name})
    bias = own.astype(float).fillna(0.0) + family.astype(float).fillna(0.0)
    span = frame["dimension"].map({name: scale.span for name, scale in paired.scales.items()})
    return frame.assign(
        bias=bias, debiased=frame["rating"] - bias, debiased_raw=frame["rating_raw"] - bias * span.astype(float)
    )


def mean_of(frame: pd.DataFrame, column: str, resampling: Resampling) -> Estimate:
    """The mean of a column with its interval; rows of one item are drawn together.

    Raises:
        ValueError: no rows.
    """
    return mean(frame[column].to_numpy(float), list(frame["item"]), resampling)
