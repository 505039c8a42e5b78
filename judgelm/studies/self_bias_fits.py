"""Regressions for the self-bias study (main, slices, and robustness checks), with tables and findings."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from judgelm.metrics import ratings
from judgelm.metrics.ratings import PAPERS_WEAK_MODELS, PAPERS_WEAK_MODELS_FIGURE_10, PairedRatings, Scaling
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.metrics.self_bias import BiasFit, BiasModel, Term, TermKind, TooFewRatings, fit_ordinal, fit_self_bias
from judgelm.studies.result import Forest, Layouts, Row, Table, forest
from judgelm.studies.sentences import file_slug

LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfBiasOptions:
    """Options for the study; the defaults follow the authors.

    Attributes:
        families: family -> names; None derives families from model names.
        reference: judge whose scores are the reference.
        by: columns to slice by, in addition to dimension and task.
        weak: weak models to exclude in one check; None uses the two sets from the paper.
        other_reference: whether the alternative reference follows the paper, the original code, or both.
        label_share: share of human labels used for prediction-powered inference, if all completions are labelled.
        draws: number of random draws of these labels.
    """

    families: Mapping[str, Sequence[str]] | None = None
    reference: str = "human"
    scaling: Scaling = "maximum"
    model: BiasModel = field(default_factory=BiasModel)
    by: tuple[str, ...] = ()
    weak: tuple[str, ...] | None = None
    other_reference: Literal["paper", "authors", "both"] = "paper"
    checks: bool = True
    label_share: float = 0.1
    draws: int = 100
    resampling: Resampling = field(default_factory=Resampling)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFit:
    """A regression.

    Attributes:
        name: name of the check, or value of the slice.
        fit: None if there are too few ratings; `why` is the reason.
        column: column of the slice; empty for checks.
        group: heading for checks that are shown together.
    """

    name: str
    fit: BiasFit | None
    why: str = ""
    column: str = ""
    group: str = ""
    detail: str = ""

    @property
    def failure(self) -> str:
        """Reason why there are no estimates, or an empty string."""
        if self.fit is None:
            return self.why
        return "" if self.fit.converged else "the fit did not converge"

    def term(self, kind: TermKind, level: str) -> Term | None:
        """Return a coefficient, or None if it is not in the fit."""
        terms = self.fit.of(kind) if self.fit else ()
        return next((term for term in terms if term.level == level), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """All regressions."""

    main: BiasFit
    slices: tuple[NamedFit, ...]
    checks: tuple[NamedFit, ...]
    ordinal: tuple[NamedFit, ...]

    def check(self, name: str) -> NamedFit | None:
        """Return a check by name."""
        return next((candidate for candidate in self.checks if candidate.name == name), None)

    @property
    def failed(self) -> tuple[NamedFit, ...]:
        """Fits without estimates."""
        return tuple(fit for fit in (*self.slices, *self.checks, *self.ordinal) if fit.failure)


LENGTH_BY_PROMPT = "length within the prompt"
LENGTH_OVERALL = "length over all rows"
LENGTH_SHARED = "length, one slope for all"


def fit_everything(paired: PairedRatings, options: SelfBiasOptions, progress: Progress = lambda step: None) -> Fits:
    """Fit the main regression, the slices, and, if enabled, the checks.

    Raises:
        TooFewRatings: there are too few ratings for the main regression.
        ValueError: a requested column is missing.
    """
    progress("main regression")
    return Fits(
        main=fit_main(paired, options),
        slices=tuple(_counted("slices", _slices(paired, options), progress)),
        checks=tuple(_counted("robustness checks", _checks(paired, options), progress)) if options.checks else (),
        ordinal=tuple(_counted("ordinal regressions", _ordinal(paired, options), progress)) if options.checks else (),
    )


def _counted(stage: str, fits: Iterator[NamedFit], progress: Progress) -> Iterator[NamedFit]:
    progress(stage)
    for done, fit in enumerate(fits, 1):
        progress(f"{stage}: {done} done, most recently {fit.name}")
        yield fit


def fit_main(paired: PairedRatings, options: SelfBiasOptions) -> BiasFit:
    """Fit the main regression."""
    return fit_self_bias(_prepared(paired, options), options.model)


def _prepared(paired: PairedRatings, options: SelfBiasOptions) -> PairedRatings:
    return paired if options.model.length == "none" else ratings.with_length(paired, "prompt")


def _slices(paired: PairedRatings, options: SelfBiasOptions) -> Iterator[NamedFit]:
    prepared = _prepared(paired, options)
    for column in ("dimension", "task", *options.by):
        values = list(ratings.slices(prepared, column))
        if len(values) > 1:
            yield from (_named(value, rows, options.model, column=column) for value, rows in values)


def _checks(paired: PairedRatings, options: SelfBiasOptions) -> Iterator[NamedFit]:
    model = options.model
    if paired.frame["length"].notna().any():
        per_judge, shared = replace(model, length="per_judge"), replace(model, length="shared")
        within, overall = ratings.with_length(paired, "prompt"), ratings.with_length(paired, "overall")
        yield _named(LENGTH_BY_PROMPT, within, per_judge, group="length")
        yield _named(LENGTH_OVERALL, overall, per_judge, group="length")
        yield _named(LENGTH_SHARED, within, shared, group="length")
    prepared = _prepared(paired, options)
    yield _named("cubic spline of reference", prepared, replace(model, reference="spline"), group="specification")
    yield _named("errors clustered by item", prepared, replace(model, errors="cluster"), group="specification")
    yield from _other_references(prepared, options)
    yield from _without_weak(prepared, options)


def _other_references(paired: PairedRatings, options: SelfBiasOptions) -> Iterator[NamedFit]:
    families = sorted({paired.families[judge] for judge in paired.judges if judge in paired.families})
    ways = {"paper": [True], "authors": [False], "both": [True, False]}[options.other_reference]
    for completions_too in ways if len(families) > 1 else ():
        note = "" if completions_too else " (authors')"
        detail = "" if completions_too else "(authors'): includes the family's completions, as in the original code"
        for family in families:
            replaced = ratings.family_as_reference(paired, family, completions_too=completions_too)
            yield _named(f"reference: {family}{note}", replaced, options.model, group="reference", detail=detail)


def _without_weak(paired: PairedRatings, options: SelfBiasOptions) -> Iterator[NamedFit]:
    sets = (PAPERS_WEAK_MODELS, PAPERS_WEAK_MODELS_FIGURE_10) if options.weak is None else (options.weak,)
    for weak in sets:
        present = sorted(set(weak) & {*paired.models, *paired.judges})
        if len(present) < len(weak) or not weak:
            continue
        detail = f"{len(present)} weak models: {', '.join(present)}"
        for judges_too, suffix in ((False, ""), (True, ", judges too")):
            rest = ratings.without_models(paired, present, judges_too=judges_too)
            name = f"without {len(present)} weak{suffix}"
            yield _named(name, rest, options.model, group="weak models", detail=detail)


def _ordinal(paired: PairedRatings, options: SelfBiasOptions) -> Iterator[NamedFit]:
    for value, rows in ratings.slices(_prepared(paired, options), "dimension"):
        yield _named(value, rows, options.model, fit=fit_ordinal, column="dimension")


def _named(
    name: str,
    paired: PairedRatings,
    model: BiasModel,
    *,
    fit: Callable[[PairedRatings, BiasModel], BiasFit] = fit_self_bias,
    **labels: str,
) -> NamedFit:
    try:
        return NamedFit(name=name, fit=fit(paired, model), **labels)
    except TooFewRatings as error:
        return NamedFit(name=name, fit=None, why=str(error), **labels)


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
_UNKNOWN = "Estimates are empty for terms that have no rows or are collinear with others. n is the number of ratings."


def main_table(fit: BiasFit) -> Table:
    """Build the table of all coefficients of the main regression."""
    rows = [_term_cells(term) for term in fit.terms]
    return LAYOUTS.table("coefficients", rows, n=fit.n, errors=fit.errors, unknown=_UNKNOWN)


def bias_table(name: str, fits: Sequence[NamedFit]) -> Table:
    """Build the table of self- and family-biases of several fits; the row of a failed fit contains the reason."""
    rows = [
        ((f"{fit.column}: {fit.name}" if fit.column else fit.name), fit.fit.n if fit.fit else None, *cells)
        for fit in fits
        for cells in _fit_cells(fit)
    ]
    details = [f"{text[:1].upper()}{text[1:]}." for text in dict.fromkeys(fit.detail for fit in fits) if text]
    return LAYOUTS.table(name, rows, unknown=" ".join([*details, _UNKNOWN]))


def length_table(paired: PairedRatings, fits: Fits) -> Table | None:
    """Build the table of each judge's correlation between rating and length, and its length coefficients."""
    by_prompt, overall = fits.check(LENGTH_BY_PROMPT), fits.check(LENGTH_OVERALL)
    if by_prompt is None or overall is None:
        return None
    frame = ratings.with_length(paired, "prompt").frame
    rows: list[Row] = []
    for judge in paired.judges:
        own = frame[frame["judge"] == judge]
        correlation = ratings.rank_correlation(own["rating"].to_numpy(), own["length_feature"].to_numpy())
        terms = [check.term("length", judge) for check in (by_prompt, overall)]
        rows.append((judge, correlation, *(term.estimate if term else None for term in terms)))
    return LAYOUTS.table("length", rows)


def forests(paired: PairedRatings, fits: Fits) -> list[Forest]:
    """Build forest plots of self- and family-bias: main, by slice, by check, and ordinal."""
    main = [NamedFit(name="", fit=fits.main)]
    plots = [
        _forest("self-bias", "Self-bias of each judge", main, "self", paired),
        _forest("family-bias", "Family-bias of each family", main, "family", paired),
    ]
    groups: list[tuple[str, str, Sequence[NamedFit]]] = []
    for column in dict.fromkeys(fit.column for fit in fits.slices):
        chosen = [fit for fit in fits.slices if fit.column == column]
        groups.append((f"by-{file_slug(column)}", f" by {column}", chosen))
    for group in dict.fromkeys(fit.group for fit in fits.checks):
        every = [NamedFit(name="main", fit=fits.main), *(fit for fit in fits.checks if fit.group == group)]
        groups.append((file_slug(group), f", checks: {group}", every))
    groups.append(("ordinal", " by ordinal logit", fits.ordinal))
    for suffix, title, members in groups:
        for kind in ("self", "family"):
            plots.append(_forest(f"{kind}-bias-{suffix}", f"{kind.capitalize()}-bias{title}", members, kind, paired))
    return [plot for plot in plots if plot.rows]


def _forest(name: str, title: str, fits: Sequence[NamedFit], kind: str, paired: PairedRatings) -> Forest:
    usable = [fit for fit in fits if fit.fit is not None]
    terms = [(fit, term) for fit in usable if fit.fit for term in fit.fit.terms if term.kind == kind]
    levels = by_family(paired, {term.level for _, term in terms})
    rows = [
        (level, term.estimate, fit.name or paired.families.get(level, level))
        for level in levels
        for fit, term in terms
        if term.level == level
    ]
    unit = usable[0].fit.unit if usable and usable[0].fit else "normalised score"
    return forest(rows, name=name, title=title, x_label=f"{kind}-bias ({unit})")


def by_family(paired: PairedRatings, names: Iterable[str]) -> list[str]:
    """Sort judges or models by family, then by name."""
    return sorted(names, key=lambda name: (paired.families.get(name, name), name))


def _fit_cells(named: NamedFit) -> list[Row]:
    if named.fit is None or named.failure:
        return [(f"no fit: {named.failure}", None, None, None, None)]
    return [_term_cells(term) for term in named.fit.terms if term.kind in ("self", "family", "indicator")]


def _term_cells(term: Term) -> Row:
    return _WHAT[term.kind], term.level, term.estimate, term.error, term.p


_KINDS: tuple[tuple[TermKind, str], ...] = (("self", "Self-bias"), ("family", "Family-bias"))


def findings(fits: Fits, powered: Table) -> Iterator[str]:
    """Summarise the main results, slices, robustness checks, and savings in labels."""
    for kind, title in _KINDS:
        yield from _signs(fits.main, kind, title, "")
    if any(fits.main.of("indicator")):
        yield from _signs(fits.main, "indicator", "The indicator's effect", "")
    for fit in fits.slices:
        if fit.fit is not None:
            yield from _signs(fit.fit, "self", "Self-bias", f" in {fit.column} {fit.name}")
    for kind, title in _KINDS:
        yield from _agreeing(fits, kind, title)
    yield from _length(fits)
    yield from _widths(powered)


def _signs(fit: BiasFit, kind: TermKind, title: str, where_suffix: str) -> Iterator[str]:
    known = [term for term in fit.of(kind) if term.estimate is not None]
    if not known:
        return
    above = [term for term in known if term.significant and _value(term) > 0]
    below = [term for term in known if term.significant and _value(term) < 0]
    rest = [term.level for term in known if not term.significant]
    parts = []
    if above:
        parts.append(f"positive for {_listed(sorted(above, key=_value, reverse=True))}")
    if below:
        parts.append(f"negative for {_listed(sorted(below, key=_value))}")
    if rest:
        parts.append(f"not significant for {', '.join(rest)}")
    level = f"{100 * _estimate(known[0]).level:g} % intervals"
    yield f"{title}{where_suffix} is {'; '.join(parts)} ({level}, {fit.n:,} ratings)."


def _agreeing(fits: Fits, kind: TermKind, title: str) -> Iterator[str]:
    agreements = []
    for term in fits.main.of(kind):
        if not fits.checks or not term.significant:
            continue
        others = [
            other for check in fits.checks if (other := check.term(kind, term.level)) and other.estimate is not None
        ]
        same = [other for other in others if _value(other) * _value(term) > 0]
        strong = sum(other.significant for other in same)
        agreements.append(f"{term.level} {len(same)} of {len(others)} ({strong} significant)")
    if agreements:
        yield f"Number of robustness checks in which the {title.lower()} has the same sign: {', '.join(agreements)}."


def _length(fits: Fits) -> Iterator[str]:
    check = fits.check(LENGTH_BY_PROMPT)
    if check is None or check.fit is None:
        return
    known = [term for term in check.fit.of("length") if term.estimate is not None]
    if known:
        low, high = min(known, key=_value), max(known, key=_value)
        yield (
            f"For the same reference score, ratings change by {_value(low):+.3f} ({low.level}) to {_value(high):+.3f} "
            f"({high.level}) per unit of tanh(z) of the length."
        )


def _widths(powered: Table) -> Iterator[str]:
    widths = zip(powered.column("width"), powered.column("judge"), strict=True)
    known = sorted((width, str(judge)) for width, judge in widths if isinstance(width, float) and width == width)
    if known:
        yield (
            "With few human labels, stratified prediction-powered intervals are "
            f"{known[0][0]:.2f} ({known[0][1]}) to {known[-1][0]:.2f} ({known[-1][1]}) times as wide as intervals from "
            "labels alone."
        )


def _listed(terms: list[Term]) -> str:
    estimates = [(term.level, _estimate(term)) for term in terms]
    return ", ".join(f"{name} {each.value:+.3f} [{each.low:+.3f}, {each.high:+.3f}]" for name, each in estimates)


def _estimate(term: Term) -> Estimate:
    assert term.estimate is not None
    return term.estimate


def _value(term: Term) -> float:
    return _estimate(term).value
