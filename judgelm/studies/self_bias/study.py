"""The study of self- and family-bias: ratings by several judges in, tables and figures out.

Source: Play Favorites: A Statistical Method to Measure Self-Bias in LLM-as-a-Judge (2025). The regressions are in
`judgelm.studies.self_bias.regressions`, the summary of the ratings in `rating_summary`, the mitigation of the
bias in `mitigation`.
"""

from collections.abc import Iterator

import pandas as pd

from judgelm.data.readers.rejects import RejectCounts
from judgelm.data.sources.rating_tables import RatingTable
from judgelm.errors import InputError
from judgelm.metrics.ratings import PairedRatings, families_given, family_by_name, pair_with_reference
from judgelm.metrics.self_bias import BiasFit, debiased
from judgelm.studies.result import StudyResult, Table
from judgelm.studies.self_bias.findings import findings
from judgelm.studies.self_bias.mitigation import debiased_table, few_label_table, panel_table
from judgelm.studies.self_bias.rating_summary import (
    agreement_table,
    attention_table,
    correlations,
    coverage_table,
    heat_maps,
)
from judgelm.studies.self_bias.regressions import Fits, Progress, SelfBiasOptions, fit_everything, fit_main
from judgelm.studies.self_bias.tables import bias_table, forests, length_table, main_table

__all__ = ["SelfBiasOptions", "debiased_ratings", "paired_ratings", "study_self_bias"]


def study_self_bias(
    ratings: RatingTable, options: SelfBiasOptions | None = None, *, progress: Progress = lambda step: None
) -> StudyResult:
    """Estimate self- and family-bias with all checks, and what follows from them.

    Args:
        ratings: of the judges and of the reference.
        options: the defaults when None.
        progress: called with each step in words, as it begins.

    Raises:
        InputError: no judge's score has a reference, there are not more ratings than coefficients, or a column that
            an option names is not there or not of its kind.
    """
    options = options or SelfBiasOptions()
    paired = paired_ratings(ratings, options)
    try:
        fits = fit_everything(paired, options, progress)
    except ValueError as error:
        raise InputError(f"ratings: {error}") from error
    progress(f"means from few labels, {options.draws} draws for each judge")
    powered, problems = few_label_table(paired, options)
    progress("tables and their intervals")
    scores, bars = correlations(paired, options.reference)
    tables = [
        *_fit_tables(paired, fits),
        debiased_table(paired, fits.main, options.resampling),
        powered,
        panel_table(paired, options.resampling),
        scores,
        agreement_table(ratings.frame, options.resampling),
        attention_table(ratings.frame, options.resampling),
        coverage_table(ratings.frame, paired, options.reference),
    ]
    return StudyResult(
        study="self-bias",
        title="Self- and family-bias of judges",
        protocol=_protocol(fits.main, options),
        findings=tuple(findings(fits, powered)),
        counts=_counts(ratings, paired, options.reference) | {"fits that failed": len(fits.failed)},
        tables=tuple(table for table in tables if table is not None and table.rows),
        figures=(*forests(paired, fits), *heat_maps(paired, options.reference), bars),
        warnings=tuple(_warnings(ratings, paired, fits, problems)),
    )


def debiased_ratings(ratings: RatingTable, options: SelfBiasOptions | None = None) -> pd.DataFrame:
    """Every judge's score that has a reference, without the bias that the main regression estimates.

    Returns:
        Columns item, dimension, task, judge, model, `score` (as rated), `bias` (normalised), `debiased` (on the
        dimension's own scale, which it may leave) and `reference`.

    Raises:
        InputError: as `study_self_bias`.
    """
    options = options or SelfBiasOptions()
    paired = paired_ratings(ratings, options)
    try:
        frame = debiased(paired, fit_main(paired, options))
    except ValueError as error:
        raise InputError(f"ratings: {error}") from error
    names = {"rating_raw": "score", "reference_raw": "reference", "debiased_raw": "debiased"}
    columns = ["item", "dimension", "task", "judge", "model", "rating_raw", "bias", "debiased_raw", "reference_raw"]
    return frame[columns].rename(columns=names)


def paired_ratings(ratings: RatingTable, options: SelfBiasOptions) -> PairedRatings:
    """The ratings beside their reference scores, with families as the options say.

    Raises:
        InputError: no judge's score has a reference, or a model is in two families.
    """
    try:
        family_of = family_by_name if options.families is None else families_given(options.families)
        return pair_with_reference(ratings.frame, family_of, reference=options.reference, scaling=options.scaling)
    except ValueError as error:
        raise InputError(str(error)) from error


def _fit_tables(paired: PairedRatings, fits: Fits) -> Iterator[Table | None]:
    yield main_table(fits.main)
    yield bias_table(
        "slices",
        "Self- and family-bias by dimension, task and other slices",
        fits.slices,
        "Play Favorites, Figure 4",
        "Each slice is fitted by itself, in normalised score.",
    )
    yield bias_table(
        "checks",
        "Self- and family-bias under each robustness check",
        fits.checks,
        "Play Favorites, section 6.2, Figures 7, 9 and 10",
        "In normalised score. Each check changes one thing of the main regression; a reference is a family's judges.",
    )
    yield bias_table(
        "ordinal",
        "Self- and family-bias by ordinal logit, each dimension by itself",
        fits.ordinal,
        "Play Favorites, Figure 8",
        "In log-odds of a higher rating; empty too where all such ratings are the highest or all the lowest.",
    )
    yield length_table(paired, fits)


def _protocol(fit: BiasFit, options: SelfBiasOptions) -> str:
    model = options.model
    scaling = "divided by the dimension's highest" if options.scaling == "maximum" else "scaled to [0, 1] by dimension"
    terms = ["judge", "reference:judge" if model.reference == "line" else "spline(reference):judge"]
    terms += ["own"] * model.self_bias + ["family"] * model.family_bias + ["dimension"] * model.dimensions
    terms += [] if model.length == "none" else ["length:judge" if model.length == "per_judge" else "length"]
    terms += [f"{model.indicator}:judge"] if model.indicator else []
    return (
        f"Ordinary least squares of rating on {' + '.join(terms)} without a common intercept; the reference is "
        f"{options.reference}, scores are {scaling}; standard errors {fit.errors}; {100 * model.level:g} % Wald "
        "intervals of coefficients and of means from few labels, 95 % intervals of all else."
    )


def _counts(ratings: RatingTable, paired: PairedRatings, reference: str) -> dict[str, int]:
    frame = ratings.frame
    return {
        "rows read": len(frame),
        "rows rejected": len(ratings.rejects),
        "reference rows": int((frame["judge"] == reference).sum()),
        "attention-check rows": int((frame["check"] != "").sum()),
        "judges": len(paired.judges),
        "models": len(paired.models),
        "dimensions": len(paired.dimensions),
        "items": int(paired.frame["item"].nunique()),
        "ratings used": len(paired.frame),
        "ratings without a score": paired.unscored,
        "ratings without a reference": len(paired.unreferenced),
    }


def _warnings(ratings: RatingTable, paired: PairedRatings, fits: Fits, problems: list[str]) -> Iterator[str]:
    if ratings.rejects:
        yield f"{len(ratings.rejects):,} rows could not be used: {'; '.join(RejectCounts(ratings.rejects).lines())}"
    if alone := sorted({*paired.judges, *paired.models} - paired.families.keys()):
        yield f"No family is known of {', '.join(alone)}; they count as unrelated. Give families to change it."
    if strangers := sorted(set(paired.judges) - set(paired.models)):
        yield f"{', '.join(strangers)} rated no completion of their own, so their self-bias is unknown."
    for fit in fits.failed:
        slice_name = f"{fit.column} {fit.name}".strip()
        yield f"No fit for {slice_name}: {fit.failure}."
    yield from problems
