"""Self- and family-bias: higher ratings for a judge's own or its family's completions than their quality explains.

Equation 1: `rating ~ judge + reference:judge + own + family + dimension - 1`. Each judge has an intercept, a slope, and
a self-bias. Each family has one family-bias, for ratings of other models in the judge's family. Effects of dimensions
are relative to the first dimension in alphabetical order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.linalg
import statsmodels.api as sm
from numpy.typing import NDArray
from scipy import stats
from sklearn.preprocessing import SplineTransformer

from judgelm.metrics.ordered_logit import OrderedLogit, ordered_logit
from judgelm.metrics.ratings import PairedRatings
from judgelm.metrics.resampling import Estimate, Flags, Floats, normal_estimate

TermKind = Literal["judge", "slope", "spline", "self", "family", "dimension", "length", "indicator"]

_KNOTS = 4
_RANK_TOLERANCE = 1e-9
_NULL_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasModel:
    """Terms of the regression; the defaults correspond to the authors' formula.

    Attributes:
        reference: one slope per judge, or an unpenalised cubic spline with four evenly spaced knots.
        length: slope for `length_feature`.
        indicator: name of a 0/1 column, with one coefficient per judge (section 7).
        errors: HC1 (authors' Python code), HC0 (authors' R code), or clustered by item (judgelm only).
    """

    reference: Literal["line", "spline"] = "line"
    length: Literal["none", "per_judge", "shared"] = "none"
    self_bias: bool = True
    family_bias: bool = True
    indicator: str | None = None
    errors: Literal["HC1", "HC0", "cluster"] = "HC1"
    level: float = 0.90


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Columns of the regression; each has a kind and a level."""

    terms: tuple[tuple[TermKind, str], ...]
    matrix: Floats

    def without(self, columns: Flags) -> "Design":
        """Remove the marked columns."""
        terms = tuple(term for term, gone in zip(self.terms, columns, strict=True) if not gone)
        return Design(terms=terms, matrix=self.matrix[:, ~columns])


def design_of(frame: pd.DataFrame, model: BiasModel, *, intercepts: bool = True) -> Design:
    """Build the columns of `model`; models with thresholds omit the first judge's intercept.

    Raises:
        ValueError: there are no rows, a column is missing, or an indicator is not 0 or 1.
    """
    if frame.empty:
        raise ValueError("self-bias: no ratings to fit")
    blocks: list[Design] = []
    judges = _dummies("judge", frame["judge"])
    blocks.append(judges if intercepts else judges.without(np.arange(len(judges.terms)) == 0))
    blocks.append(_reference(frame["reference"].to_numpy(float), judges, model))
    if model.self_bias:
        blocks.append(_flags("self", frame["own"]))
    if model.family_bias:
        blocks.append(_flags("family", frame["family"]))
    dimensions = _dummies("dimension", frame["dimension"])
    blocks.append(dimensions.without(np.arange(len(dimensions.terms)) == 0))
    if model.length != "none":
        values = _column(frame, "length_feature", "add it with with_length")
        blocks.append(_times(judges, values, "length", "all judges" if model.length == "shared" else None))
    if model.indicator is not None:
        blocks.append(_times(judges, _indicator(frame, model.indicator), "indicator", None))
    terms = tuple(term for block in blocks for term in block.terms)
    return Design(terms=terms, matrix=np.concatenate([block.matrix for block in blocks], axis=1))


def unidentified(matrix: Floats) -> Flags:
    """Mark columns that are zero or linearly dependent on other columns."""
    lengths = np.linalg.norm(matrix, axis=0)
    scaled = matrix / np.where(lengths > 0, lengths, 1.0)
    _, sizes, directions = np.linalg.svd(np.linalg.qr(scaled, mode="r"))
    padded = np.zeros(matrix.shape[1])
    padded[: sizes.size] = sizes
    null = directions[padded <= _RANK_TOLERANCE * sizes.max()]
    return np.asarray(np.abs(null).max(axis=0, initial=0.0) > _NULL_TOLERANCE, dtype=np.bool_)


def redundant(matrix: Floats, *, constant: bool = False) -> Flags:
    """Mark columns to omit so that the rest (and a constant, if `constant`) are linearly independent."""
    lengths = np.linalg.norm(matrix, axis=0)
    rest = matrix - matrix.mean(axis=0) if constant else matrix
    scaled = rest / np.where(lengths > 0, lengths, 1.0)
    triangle, order = scipy.linalg.qr(scaled, mode="r", pivoting=True)
    sizes = np.zeros(matrix.shape[1])
    diagonal = np.abs(np.diag(triangle))
    sizes[: diagonal.size] = diagonal
    out = np.zeros(matrix.shape[1], dtype=bool)
    out[order[sizes <= _RANK_TOLERANCE]] = True  # columns have a norm of at most 1
    return out


def _dummies(kind: TermKind, values: "pd.Series[str]") -> Design:
    levels = sorted(values.unique())
    return Design(
        terms=tuple((kind, str(level)) for level in levels),
        matrix=(values.to_numpy(object)[:, None] == np.array(levels, dtype=object)).astype(np.float64),
    )


def _flags(kind: TermKind, values: "pd.Series[str]") -> Design:
    dummies = _dummies(kind, values)
    return dummies.without(np.array([level == "" for _, level in dummies.terms], dtype=np.bool_))


def _reference(values: Floats, judges: Design, model: BiasModel) -> Design:
    if model.reference == "line" or np.ptp(values) == 0:
        return _times(judges, values, "slope", None)
    spline = SplineTransformer(n_knots=_KNOTS, degree=3, knots="uniform", include_bias=False)
    basis = spline.fit_transform(values[:, None])
    pieces = [_times(judges, column, "spline", None) for column in basis.T]
    terms: list[tuple[TermKind, str]] = [
        ("spline", f"{level} {index}") for index, piece in enumerate(pieces, 1) for _, level in piece.terms
    ]
    return Design(terms=tuple(terms), matrix=np.concatenate([piece.matrix for piece in pieces], axis=1))


def _times(judges: Design, values: Floats, kind: TermKind, shared: str | None) -> Design:
    if shared is not None:
        return Design(terms=((kind, shared),), matrix=values[:, None])
    return Design(terms=tuple((kind, level) for _, level in judges.terms), matrix=judges.matrix * values[:, None])


def _indicator(frame: pd.DataFrame, name: str) -> Floats:
    column = _column(frame, name, "choose a column that is kept when you load the ratings")
    known: dict[str, float] = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "false": 0.0, "true": 1.0}
    values: Sequence[float | None] = [known.get(str(value).strip().lower()) for value in column]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        wrong = next(text for text, value in zip(column, values, strict=True) if value is None)
        raise ValueError(f'indicator "{name}": expected 0 or 1 in every row, got {str(wrong)!r}')
    return np.array(numbers)


def _column(frame: pd.DataFrame, name: str, way_out: str) -> Floats:
    if name not in frame:
        raise ValueError(f'self-bias: no column "{name}"; {way_out}')
    return np.asarray(frame[name].to_numpy())


class TooFewRatings(ValueError):  # noqa: N818 - a finding that callers report, not an error
    """There are too few ratings to fit the regression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One coefficient; the estimate is None if it is not identified.

    Attributes:
        kind: `judge` is delta in equation 1, `slope` beta, `self` gamma, `family` lambda, and `dimension` eta.
        estimate: value with interval; n is the number of rows where the term is not zero.
        p: p-value of the two-sided Wald test.
    """

    kind: TermKind
    level: str
    estimate: Estimate | None
    error: float | None = None
    p: float | None = None

    @property
    def significant(self) -> bool:
        """True if the interval does not contain 0."""
        return self.estimate is not None and not self.estimate.low <= 0 <= self.estimate.high


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasFit:
    """A regression fitted to n rows.

    Attributes:
        unit: `normalised score` or `log-odds`.
        converged: if False, the estimates are not valid.
        left_out: description of excluded rows, or empty.
    """

    terms: tuple[Term, ...]
    n: int
    unit: str
    errors: str
    converged: bool = True
    left_out: str = ""

    def of(self, kind: TermKind) -> Iterator[Term]:
        """Return the terms of one kind."""
        return (term for term in self.terms if term.kind == kind)

    def value(self, kind: TermKind, level: str) -> float:
        """Return a coefficient, or 0 if there is no estimate."""
        estimates = (term.estimate for term in self.of(kind) if term.level == level)
        return next((estimate.value for estimate in estimates if estimate is not None), 0.0)


def fit_self_bias(paired: PairedRatings, model: BiasModel | None = None) -> BiasFit:
    """Fit ordinary least squares with robust standard errors and Wald intervals.

    Coefficients that are not identified (because a judge never rates itself, or a reference is constant) have no
    estimate.

    Raises:
        TooFewRatings: there are no more rows than coefficients.

    Source: Play Favorites, equation 1 and appendix A.
    """
    model = model or BiasModel()
    design = design_of(paired.frame, model)
    if len(paired.frame) <= design.matrix.shape[1]:
        raise TooFewRatings(
            f"self-bias: {len(paired.frame)} ratings are too few to fit {design.matrix.shape[1]} coefficients"
        )
    gone = redundant(design.matrix)
    fitted: Any = sm.OLS(paired.frame["rating"].to_numpy(), design.matrix[:, ~gone]).fit(**_covariance(paired, model))
    coefficients, errors = _with_gaps(fitted.params, gone), _with_gaps(fitted.bse, gone)
    return BiasFit(
        terms=_wald_terms(design, coefficients, errors, unidentified(design.matrix), model.level),
        n=len(paired.frame),
        unit="normalised score",
        errors="clustered by item" if model.errors == "cluster" else model.errors,
    )


def _with_gaps(values: Floats, gone: Flags) -> Floats:
    full = np.full(len(gone), np.nan)
    full[~gone] = values
    return full


def _wald_terms(design: Design, coefficients: Floats, errors: Floats, unknown: Flags, level: float) -> tuple[Term, ...]:
    rows = (design.matrix != 0).sum(axis=0)
    terms: list[Term] = []
    for i, (kind, name) in enumerate(design.terms):
        if unknown[i] or not np.isfinite(errors[i]):
            terms.append(Term(kind=kind, level=name, estimate=None))
            continue
        value, error = float(coefficients[i]), float(errors[i])
        known = normal_estimate(value, error, int(rows[i]), level)
        with np.errstate(divide="ignore", invalid="ignore"):  # standard errors are 0 for a perfect fit
            p_value = float(2 * stats.norm.sf(np.abs(np.divide(value, error))))
        terms.append(Term(kind=kind, level=name, estimate=known, error=error, p=p_value))
    return tuple(terms)


def _covariance(paired: PairedRatings, model: BiasModel) -> dict[str, object]:
    if model.errors != "cluster":
        return {"cov_type": model.errors}
    groups = paired.frame["item"].astype("category").cat.codes.to_numpy()
    return {"cov_type": "cluster", "cov_kwds": {"groups": groups}}


def debiased(paired: PairedRatings, fit: BiasFit) -> pd.DataFrame:
    """Add `bias` and `debiased` (both normalised), and `debiased_raw` (on the scale of the dimension).

    Debiased scores are not clipped to the scale, because clipping would bias their means.

    Raises:
        ValueError: the fit is in log-odds.

    Source: Play Favorites, section 7.
    """
    if fit.unit != "normalised score":
        raise ValueError(f"debiased scores: the fit is in {fit.unit}; use a linear fit")
    frame = paired.frame
    own = frame["own"].map({name: fit.value("self", name) for name in frame["own"].unique() if name})
    family = frame["family"].map({name: fit.value("family", name) for name in frame["family"].unique() if name})
    bias = own.astype(float).fillna(0.0) + family.astype(float).fillna(0.0)
    span = frame["dimension"].map({name: scale.span for name, scale in paired.scales.items()})
    return frame.assign(
        bias=bias, debiased=frame["rating"] - bias, debiased_raw=frame["rating_raw"] - bias * span.astype(float)
    )


def fit_ordinal(paired: PairedRatings, model: BiasModel | None = None) -> BiasFit:
    """Fit an ordered logit of the raw rating on the same terms.

    If all rows of a bias have the highest or all have the lowest rating, the bias is infinite. Such a bias has no
    estimate, and its rows are excluded. Standard errors are computed from the likelihood, as in the authors' R code.

    Raises:
        TooFewRatings: there is only one rating level, there are no more rows than coefficients, or no terms are left.
        ValueError: there are several dimensions.

    Source: Play Favorites, section 6.2 (varying the model specification) and Figure 8.
    """
    if len(paired.dimensions) != 1:
        raise ValueError(f"ordinal logit: expected one dimension, got {', '.join(paired.dimensions)}")
    model = model or BiasModel()
    design = design_of(paired.frame, model, intercepts=False)
    values, levels = np.unique(paired.frame["rating_raw"].to_numpy(), return_inverse=True)
    rows = _separated(design, levels, len(values) - 1)
    used = Design(terms=design.terms, matrix=design.matrix[~rows])
    if len(np.unique(levels[~rows])) < 2 or len(used.matrix) <= used.matrix.shape[1]:
        raise TooFewRatings(f"ordinal logit: {len(used.matrix)} ratings with {len(values)} levels are too few")
    gone = redundant(used.matrix, constant=True)
    if gone.all():
        raise TooFewRatings("ordinal logit: all terms are collinear with the thresholds")
    fitted = _maximised(used.without(gone), levels[~rows])
    coefficients, errors = _with_gaps(fitted.coefficients, gone), _with_gaps(fitted.errors, gone)
    hidden = unidentified(np.column_stack([used.matrix, np.ones(len(used.matrix))]))[:-1] | (not fitted.converged)
    return BiasFit(
        terms=_wald_terms(used, coefficients, errors, hidden, model.level),
        n=len(used.matrix),
        unit="log-odds",
        errors="from the likelihood",
        converged=fitted.converged,
        left_out=f"{int(rows.sum())} ratings that are fitted perfectly by a bias" if rows.any() else "",
    )


def _maximised(design: Design, levels: NDArray[np.intp]) -> OrderedLogit:
    present = np.unique(levels, return_inverse=True)[1]
    different, counts = np.unique(np.column_stack([design.matrix, present]), axis=0, return_counts=True)
    return ordered_logit(different[:, -1].astype(int), different[:, :-1], counts)


def _separated(design: Design, levels: NDArray[np.intp], highest: int) -> Flags:
    rows = np.zeros(len(levels), dtype=bool)
    for i, (kind, _) in enumerate(design.terms):
        here = design.matrix[:, i] != 0
        if kind in ("self", "family", "indicator") and here.any() and set(levels[here]) in ({0}, {highest}):
            rows |= here
    return rows
