"""The design matrix of the self-bias regression, and which of its coefficients the data can tell."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import scipy.linalg
from numpy.typing import NDArray
from sklearn.preprocessing import SplineTransformer

TermKind = Literal["judge", "slope", "spline", "self", "family", "dimension", "length", "indicator"]

_KNOTS = 4
_RANK_TOLERANCE = 1e-9
_NULL_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasModel:
    """Terms of the regression; the defaults are the authors' formula.

    Attributes:
        reference: `line` is one slope per judge; `spline` a cubic spline per judge (an additive model without penalty,
            four knots evenly over the reference's range), which relaxes the straight line.
        length: a slope on `length_feature` per judge, one for all judges, or none.
        dimensions: effects of the dimensions, where there are several.
        self_bias: one per judge; `family_bias` one per family.
        indicator: a further column of 0 and 1 (or true and false), one coefficient per judge: any other bias that has
            a control group (section 7).
        errors: standard errors: HC1 (authors' Python), HC0 (White's, authors' R), or clustered by item, which allows
            for ratings of one prompt that hang together (ours).
        level: of the Wald intervals; the paper's is 90 %.
    """

    reference: Literal["line", "spline"] = "line"
    length: Literal["none", "per_judge", "shared"] = "none"
    dimensions: bool = True
    self_bias: bool = True
    family_bias: bool = True
    indicator: str | None = None
    errors: Literal["HC1", "HC0", "cluster"] = "HC1"
    level: float = 0.90


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Columns of the regression.

    Attributes:
        terms: kind and level of each column.
        matrix: shape (rows, columns).
    """

    terms: tuple[tuple[TermKind, str], ...]
    matrix: NDArray[np.float64]

    def without(self, columns: NDArray[np.bool_]) -> "Design":
        """The same without the marked columns."""
        terms = tuple(term for term, gone in zip(self.terms, columns, strict=True) if not gone)
        return Design(terms=terms, matrix=self.matrix[:, ~columns])


def design_of(frame: pd.DataFrame, model: BiasModel, *, intercepts: bool = True) -> Design:
    """The columns that `model` asks for.

    Args:
        frame: of `PairedRatings`.
        model: the terms.
        intercepts: one for each judge; False leaves out the first judge's, for models with thresholds.

    Raises:
        ValueError: no rows, or a column that the model needs is not there or holds more than 0 and 1.
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
    if model.dimensions:
        dimensions = _dummies("dimension", frame["dimension"])
        blocks.append(dimensions.without(np.arange(len(dimensions.terms)) == 0))
    if model.length != "none":
        values = _column(frame, "length_feature", "add it with with_length")
        blocks.append(_times(judges, values, "length", "all judges" if model.length == "shared" else None))
    if model.indicator is not None:
        blocks.append(_times(judges, _indicator(frame, model.indicator), "indicator", None))
    terms = tuple(term for block in blocks for term in block.terms)
    return Design(terms=terms, matrix=np.concatenate([block.matrix for block in blocks], axis=1))


def unidentified(matrix: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Columns whose coefficient other columns can take over without changing the fit.

    Args:
        matrix: shape (rows, columns).

    Returns:
        shape (columns,): True where the column is zero or has a part in a linear dependency.
    """
    lengths = np.linalg.norm(matrix, axis=0)
    scaled = matrix / np.where(lengths > 0, lengths, 1.0)
    _, sizes, directions = np.linalg.svd(np.linalg.qr(scaled, mode="r"))
    padded = np.zeros(matrix.shape[1])
    padded[: sizes.size] = sizes
    null = directions[padded <= _RANK_TOLERANCE * sizes.max()]
    return np.asarray(np.abs(null).max(axis=0, initial=0.0) > _NULL_TOLERANCE, dtype=np.bool_)


def redundant(matrix: NDArray[np.float64], *, constant: bool = False) -> NDArray[np.bool_]:
    """Columns to leave out so that the others are independent; whatever is identified is the same without them.

    Args:
        matrix: shape (rows, columns).
        constant: the others are to be independent of a constant too.
    """
    lengths = np.linalg.norm(matrix, axis=0)
    rest = matrix - matrix.mean(axis=0) if constant else matrix
    scaled = rest / np.where(lengths > 0, lengths, 1.0)
    triangle, order = scipy.linalg.qr(scaled, mode="r", pivoting=True)
    sizes = np.zeros(matrix.shape[1])
    diagonal = np.abs(np.diag(triangle))
    sizes[: diagonal.size] = diagonal
    out = np.zeros(matrix.shape[1], dtype=bool)
    out[order[sizes <= _RANK_TOLERANCE]] = True  # of columns of length 1 at most
    return out


def _dummies(kind: TermKind, values: "pd.Series[str]") -> Design:
    levels = sorted(values.unique())
    return Design(
        terms=tuple((kind, str(level)) for level in levels),
        matrix=(values.to_numpy(object)[:, None] == np.array(levels, dtype=object)).astype(np.float64),
    )


def _flags(kind: TermKind, values: "pd.Series[str]") -> Design:
    """Dummies of all levels but the empty one, which is the control group."""
    dummies = _dummies(kind, values)
    return dummies.without(np.array([level == "" for _, level in dummies.terms], dtype=np.bool_))


def _reference(values: NDArray[np.float64], judges: Design, model: BiasModel) -> Design:
    if model.reference == "line" or np.ptp(values) == 0:
        return _times(judges, values, "slope", None)
    spline = SplineTransformer(n_knots=_KNOTS, degree=3, knots="uniform", include_bias=False)
    basis = spline.fit_transform(values[:, None])
    pieces = [_times(judges, column, "spline", None) for column in basis.T]
    terms: list[tuple[TermKind, str]] = [
        ("spline", f"{level} {index}") for index, piece in enumerate(pieces, 1) for _, level in piece.terms
    ]
    return Design(terms=tuple(terms), matrix=np.concatenate([piece.matrix for piece in pieces], axis=1))


def _times(judges: Design, values: NDArray[np.float64], kind: TermKind, shared: str | None) -> Design:
    """A column of values for each judge, or one for all of them."""
    if shared is not None:
        return Design(terms=((kind, shared),), matrix=values[:, None])
    return Design(terms=tuple((kind, level) for _, level in judges.terms), matrix=judges.matrix * values[:, None])


def _indicator(frame: pd.DataFrame, name: str) -> NDArray[np.float64]:
    column = _column(frame, name, "name a column of the ratings, and keep it when they are read")
    known: dict[str, float] = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "false": 0.0, "true": 1.0}
    values: Sequence[float | None] = [known.get(str(value).strip().lower()) for value in column]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        wrong = next(text for text, value in zip(column, values, strict=True) if value is None)
        raise ValueError(f'indicator "{name}": expected 0 or 1 in every row, got {str(wrong)!r}')
    return np.array(numbers)


def _column(frame: pd.DataFrame, name: str, way_out: str) -> NDArray[np.float64]:
    if name not in frame:
        raise ValueError(f'self-bias: no column "{name}"; {way_out}')
    return np.asarray(frame[name].to_numpy())
