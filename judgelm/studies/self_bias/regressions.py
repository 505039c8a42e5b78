"""All regressions of the self-bias study: the main one, by slice, and the robustness checks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from judgelm.metrics.ratings import (
    PAPERS_WEAK_MODELS,
    PAPERS_WEAK_MODELS_FIGURE_10,
    PairedRatings,
    Scaling,
    family_as_reference,
    slices,
    with_length,
    without_models,
)
from judgelm.metrics.resampling import Resampling
from judgelm.metrics.self_bias import BiasFit, BiasModel, Term, TermKind, TooFewRatings, fit_ordinal, fit_self_bias

Progress = Callable[[str], None]
LengthOver = Literal["prompt", "overall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfBiasOptions:
    """Options of the study; the defaults are the authors'.

    Attributes:
        families: family -> names; None tells families by the models' names.
        reference: the judge whose scores are the reference.
        scaling: how scores are normalised.
        model: terms, standard errors and level of the main regression.
        length_over: lengths are compared within a prompt or over all rows, where `model.length` asks for length.
        by: columns to fit apart, besides dimension and task.
        weak: models that the check without weak models leaves out; None takes the paper's two sets.
        other_reference: the paper's alternative reference, the authors' code's, or both.
        checks: run the robustness checks.
        label_share: share of human labels that prediction-powered inference is shown, in (0, 1), where all are there.
        draws: how often these labels are drawn.
        resampling: of all bootstrap intervals.
    """

    families: Mapping[str, Sequence[str]] | None = None
    reference: str = "human"
    scaling: Scaling = "maximum"
    model: BiasModel = field(default_factory=BiasModel)
    length_over: LengthOver = "prompt"
    by: tuple[str, ...] = ()
    weak: tuple[str, ...] | None = None
    other_reference: Literal["paper", "authors", "both"] = "paper"
    checks: bool = True
    label_share: float = 0.1
    draws: int = 100
    resampling: Resampling = field(default_factory=Resampling)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFit:
    """One regression.

    Attributes:
        name: of the check or the slice's value.
        fit: None where there are too few ratings.
        why: the reason then.
        column: the slice's column, empty for checks.
        group: checks that are shown together.
        detail: what a short name leaves out.
    """

    name: str
    fit: BiasFit | None
    why: str = ""
    column: str = ""
    group: str = ""
    detail: str = ""

    @property
    def failure(self) -> str:
        """Reason for missing estimates; empty where there are estimates."""
        if self.fit is None:
            return self.why
        return "" if self.fit.converged else "the search for the estimates did not converge"

    def term(self, kind: TermKind, level: str) -> Term | None:
        """The coefficient; None where the fit has no such term."""
        return (
            next((candidate for candidate in self.fit.of(kind) if candidate.level == level), None) if self.fit else None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """Everything fitted."""

    main: BiasFit
    slices: tuple[NamedFit, ...]
    checks: tuple[NamedFit, ...]
    ordinal: tuple[NamedFit, ...]

    def check(self, name: str) -> NamedFit | None:
        """A check by its name."""
        return next((candidate for candidate in self.checks if candidate.name == name), None)

    @property
    def failed(self) -> tuple[NamedFit, ...]:
        """Fits without estimates."""
        return tuple(fit for fit in (*self.slices, *self.checks, *self.ordinal) if fit.failure)


LENGTH_BY_PROMPT = "length within the prompt"
LENGTH_OVERALL = "length over all rows"
LENGTH_SHARED = "length, one slope for all"


def fit_everything(paired: PairedRatings, options: SelfBiasOptions, progress: Progress = lambda step: None) -> Fits:
    """The main regression, the slices and, where asked for, the checks.

    Args:
        paired: the ratings beside their reference scores.
        options: of the study.
        progress: called with each step in words.

    Raises:
        TooFewRatings: the main regression has not more ratings than coefficients.
        ValueError: a column that was asked for is not there.
    """
    progress("main regression")
    return Fits(
        main=fit_main(paired, options),
        slices=tuple(_counted("slices", _slices(paired, options), progress)),
        checks=tuple(_counted("robustness checks", _checks(paired, options), progress)) if options.checks else (),
        ordinal=tuple(_counted("ordinal regressions", _ordinal(paired, options), progress)) if options.checks else (),
    )


def _counted(stage: str, fits: Iterator[NamedFit], progress: Progress) -> Iterator[NamedFit]:
    """The fits as they come; before each, how many of its stage are done."""
    progress(stage)
    for done, fit in enumerate(fits, 1):
        progress(f"{stage}: {done} done, the last {fit.name}")
        yield fit


def fit_main(paired: PairedRatings, options: SelfBiasOptions) -> BiasFit:
    """The main regression.

    Raises:
        TooFewRatings: not more ratings than coefficients.
        ValueError: a column that was asked for is not there.
    """
    return fit_self_bias(_prepared(paired, options), options.model)


def _prepared(paired: PairedRatings, options: SelfBiasOptions) -> PairedRatings:
    return paired if options.model.length == "none" else with_length(paired, options.length_over)


def _slices(paired: PairedRatings, options: SelfBiasOptions) -> Iterator[NamedFit]:
    """A fit for each value of each column that has several."""
    prepared = _prepared(paired, options)
    for column in ("dimension", "task", *options.by):
        values = list(slices(prepared, column))
        if len(values) > 1:
            yield from (_named(value, rows, options.model, column=column) for value, rows in values)


def _checks(paired: PairedRatings, options: SelfBiasOptions) -> Iterator[NamedFit]:
    model = options.model
    if paired.frame["length"].notna().any():
        per_judge, shared = replace(model, length="per_judge"), replace(model, length="shared")
        within, overall = with_length(paired, "prompt"), with_length(paired, "overall")
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
        detail = "" if completions_too else "(authors'): the family's completions are kept, as in the authors' code"
        for family in families:
            replaced = family_as_reference(paired, family, completions_too=completions_too)
            yield _named(f"reference: {family}{note}", replaced, options.model, group="reference", detail=detail)


def _without_weak(paired: PairedRatings, options: SelfBiasOptions) -> Iterator[NamedFit]:
    sets = (PAPERS_WEAK_MODELS, PAPERS_WEAK_MODELS_FIGURE_10) if options.weak is None else (options.weak,)
    for weak in sets:
        present = sorted(set(weak) & {*paired.models, *paired.judges})
        if len(present) < len(weak) or not weak:
            continue
        detail = f"{len(present)} weak models: {', '.join(present)}"
        for judges_too, suffix in ((False, ""), (True, ", judges too")):
            rest = without_models(paired, present, judges_too=judges_too)
            name = f"without {len(present)} weak{suffix}"
            yield _named(name, rest, options.model, group="weak models", detail=detail)


def _ordinal(paired: PairedRatings, options: SelfBiasOptions) -> Iterator[NamedFit]:
    for value, rows in slices(_prepared(paired, options), "dimension"):
        yield _named(value, rows, options.model, fit=fit_ordinal, column="dimension")


def _named(
    name: str,
    paired: PairedRatings,
    model: BiasModel,
    *,
    fit: Callable[[PairedRatings, BiasModel], BiasFit] = fit_self_bias,
    **labels: str,
) -> NamedFit:
    """A fit under its name and other `labels` (column, group, detail)."""
    try:
        return NamedFit(name=name, fit=fit(paired, model), **labels)
    except TooFewRatings as error:
        return NamedFit(name=name, fit=None, why=str(error), **labels)
