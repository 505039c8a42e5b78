"""Tables and forest plots of the fitted self- and family-biases."""

from collections.abc import Iterable, Sequence

from judgelm.metrics.ratings import PairedRatings, rank_correlation, with_length
from judgelm.metrics.self_bias import BiasFit, Term
from judgelm.studies.result import Forest, ForestRow, Row, Table, columns, table
from judgelm.studies.self_bias.regressions import LENGTH_BY_PROMPT, LENGTH_OVERALL, Fits, NamedFit

_WHAT = {
    "judge": "judge intercept (delta)",
    "slope": "slope on the reference (beta)",
    "spline": "spline of the reference",
    "self": "self-bias (gamma)",
    "family": "family-bias (lambda)",
    "dimension": "dimension (eta)",
    "length": "length",
    "indicator": "indicator",
}
_TERM_COLUMNS = (
    *columns("text", term="Term", level="Judge, family or dimension"),
    *columns("number", estimate="Estimate", standard_error="Standard error", p="p"),
)
_UNKNOWN = (
    "Empty: the ratings do not tell it (no such rows, or other terms could take it over). n: ratings it rests on."
)


def main_table(fit: BiasFit) -> Table:
    """Every coefficient of the main regression."""
    return table(
        [_term_cells(term) for term in fit.terms],
        _TERM_COLUMNS,
        name="coefficients",
        title="Coefficients of the main regression",
        source="Play Favorites, equation 1 and Figure 3",
        note=f"In normalised score; {fit.n} ratings; standard errors {fit.errors}. {_UNKNOWN}",
    )


def bias_table(name: str, title: str, fits: Sequence[NamedFit], source: str, note: str) -> Table:
    """Self- and family-biases of several fits, one under another; one that failed has a row that says why."""
    rows = [
        ((f"{fit.column}: {fit.name}" if fit.column else fit.name), fit.fit.n if fit.fit else None, *cells)
        for fit in fits
        for cells in _fit_cells(fit)
    ]
    details = [f"{text[:1].upper()}{text[1:]}." for text in dict.fromkeys(fit.detail for fit in fits) if text]
    return table(
        rows,
        columns("text", fit="Fit"),
        columns("count", ratings="Ratings"),
        _TERM_COLUMNS,
        name=name,
        title=title,
        source=source,
        note=" ".join([note, *details, _UNKNOWN]),
    )


def length_table(paired: PairedRatings, fits: Fits) -> Table | None:
    """Each judge's correlation of rating and length, and its slope on length beside the reference."""
    by_prompt, overall = fits.check(LENGTH_BY_PROMPT), fits.check(LENGTH_OVERALL)
    if by_prompt is None or overall is None:
        return None
    frame = with_length(paired, "prompt").frame
    rows: list[Row] = []
    for judge in paired.judges:
        own = frame[frame["judge"] == judge]
        correlation = rank_correlation(own["rating"].to_numpy(), own["length_feature"].to_numpy())
        terms = [check.term("length", judge) for check in (by_prompt, overall)]
        rows.append((judge, correlation, *(term.estimate if term else None for term in terms)))
    return table(
        rows,
        columns("text", judge="Judge"),
        columns("number", correlation="Spearman of rating and length", per_prompt="Coefficient, length per prompt"),
        columns("number", overall="Coefficient, length overall"),
        name="length",
        title="Ratings and the length of completions",
        source="Play Favorites, section 6.2 and Figure 7",
        note="Length is tanh of the z-score, in (-1, 1); coefficients are beside reference, self- and family-bias.",
    )


def forests(paired: PairedRatings, fits: Fits) -> list[Forest]:
    """Self-bias and family-bias: main, by slice, over the checks, and ordinal."""
    main = [NamedFit(name="", fit=fits.main)]
    plots = [
        _forest("self-bias", "Self-bias of each judge", main, "self", paired),
        _forest("family-bias", "Family-bias of each family", main, "family", paired),
    ]
    groups: list[tuple[str, str, Sequence[NamedFit]]] = []
    for column in dict.fromkeys(fit.column for fit in fits.slices):
        chosen = [fit for fit in fits.slices if fit.column == column]
        groups.append((f"by-{_slug(column)}", f" by {column}", chosen))
    for group in dict.fromkeys(fit.group for fit in fits.checks):
        every = [NamedFit(name="main", fit=fits.main), *(fit for fit in fits.checks if fit.group == group)]
        groups.append((_slug(group), f", checks: {group}", every))
    groups.append(("ordinal", " by ordinal logit", fits.ordinal))
    for suffix, title, members in groups:
        for kind in ("self", "family"):
            plots.append(_forest(f"{kind}-bias-{suffix}", f"{kind.capitalize()}-bias{title}", members, kind, paired))
    return [forest for forest in plots if forest.rows]


def _forest(name: str, title: str, fits: Sequence[NamedFit], kind: str, paired: PairedRatings) -> Forest:
    """Rows by judge or family, within each one by fit; the colour is the fit, or the family where there is one fit."""
    usable = [fit for fit in fits if fit.fit is not None]
    terms = [(fit, term) for fit in usable if fit.fit for term in fit.fit.terms if term.kind == kind]
    levels = by_family(paired, {term.level for _, term in terms})
    rows = [
        ForestRow(label=level, estimate=term.estimate, group=fit.name or paired.families.get(level, level))
        for level in levels
        for fit, term in terms
        if term.level == level and term.estimate is not None
    ]
    unit = usable[0].fit.unit if usable and usable[0].fit else "normalised score"
    return Forest(name=name, title=title, x_label=f"{kind}-bias ({unit})", rows=tuple(rows))


def by_family(paired: PairedRatings, names: Iterable[str]) -> list[str]:
    """Judges or models sorted by family, then by name."""
    return sorted(names, key=lambda name: (paired.families.get(name, name), name))


def _fit_cells(named: NamedFit) -> list[Row]:
    """The biases of a fit, or the reason for none."""
    if named.fit is None or named.failure:
        return [(f"no fit: {named.failure}", None, None, None, None)]
    return [_term_cells(term) for term in named.fit.terms if term.kind in ("self", "family", "indicator")]


def _term_cells(term: Term) -> Row:
    return _WHAT[term.kind], term.level, term.estimate, term.error, term.p


def _slug(text: str) -> str:
    return "-".join("".join(letter if letter.isalnum() else " " for letter in text.lower()).split()) or "column"
