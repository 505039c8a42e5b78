"""Self-bias by ordinal logit, one dimension at a time: no distance between the levels of a scale is assumed."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from judgelm.metrics.ratings import PairedRatings
from judgelm.metrics.self_bias.design import BiasModel, Design, design_of, redundant, unidentified
from judgelm.metrics.self_bias.ordered_logit import OrderedLogit, ordered_logit
from judgelm.metrics.self_bias.regression import BiasFit, Term, TooFewRatings, wald_terms

_MOST_STEPS = 100


def fit_ordinal(paired: PairedRatings, model: BiasModel | None = None) -> BiasFit:
    """Ordered logit of the raw rating on the same terms; with two levels it is the logistic regression.

    The first judge's intercept is absorbed by the thresholds. A bias whose rows all have the highest or all the lowest
    rating would be infinite: it has no estimate, and its rows, which it would fit perfectly, are left out of the fit.
    Standard errors are the likelihood's, as in the authors' R code.

    Raises:
        TooFewRatings: one level of rating only, not more rows than coefficients, or no term but an intercept.
        ValueError: several dimensions.

    Source: Play Favorites, section 6.2 (varying the model specification) and Figure 8.
    """
    if len(paired.dimensions) != 1:
        raise ValueError(f"ordinal logit: one dimension at a time, got {', '.join(paired.dimensions)}")
    model = model or BiasModel()
    design = design_of(paired.frame, model, intercepts=False)
    values, levels = np.unique(paired.frame["rating_raw"].to_numpy(), return_inverse=True)
    rows = _separated(design, levels, len(values) - 1)
    used = Design(terms=design.terms, matrix=design.matrix[~rows])
    if len(np.unique(levels[~rows])) < 2 or len(used.matrix) <= used.matrix.shape[1]:
        raise TooFewRatings(f"ordinal logit: {len(used.matrix)} ratings of {len(values)} levels are too few")
    gone = redundant(used.matrix, constant=True)
    if gone.all():
        raise TooFewRatings("ordinal logit: no term that the thresholds do not take over")
    design = used.without(gone)
    fitted = _maximised(design, levels[~rows])
    known = np.zeros(len(design.terms), dtype=bool)
    known_terms = iter(wald_terms(design, fitted.coefficients, fitted.errors, known, model.level))
    hidden = unidentified(np.column_stack([used.matrix, np.ones(len(used.matrix))]))[:-1]
    terms = [
        Term(kind=kind, level=level, estimate=None) if gone[i] else next(known_terms)
        for i, (kind, level) in enumerate(used.terms)
    ]
    return BiasFit(
        terms=tuple(_honest(term, bool(hidden[i]), fitted.converged) for i, term in enumerate(terms)),
        n=len(used.matrix),
        unit="log-odds",
        errors="from the likelihood",
        converged=fitted.converged,
        left_out=f"{int(rows.sum())} ratings that a bias fits perfectly" if rows.any() else "",
    )


def _maximised(design: Design, levels: NDArray[np.intp]) -> OrderedLogit:
    """The fit over the different rows, each with its count.

    Ratings and reference scores have few values, so tens of thousands of rows are a few hundred different ones; the
    likelihood is the same, and a fit takes milliseconds.
    """
    present = np.unique(levels, return_inverse=True)[1]
    different, counts = np.unique(np.column_stack([design.matrix, present]), axis=0, return_counts=True)
    return ordered_logit(different[:, -1].astype(int), different[:, :-1], counts, max_steps=_MOST_STEPS)


def _separated(design: Design, levels: NDArray[np.intp], highest: int) -> NDArray[np.bool_]:
    """Rows of the biases whose rows all have one extreme rating; without them such a bias' column is empty."""
    rows = np.zeros(len(levels), dtype=bool)
    for i, (kind, _) in enumerate(design.terms):
        here = design.matrix[:, i] != 0
        if kind in ("self", "family", "indicator") and here.any() and set(levels[here]) in ({0}, {highest}):
            rows |= here
    return rows


def _honest(term: Term, hidden: bool, converged: bool) -> Term:
    """The term, without its estimate where that is only one of many, or where the search did not end."""
    if hidden or not converged:
        return replace(term, estimate=None, error=None, p=None)
    return term
