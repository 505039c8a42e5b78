"""Measure self- and family-bias in the ratings of several judges, with the regressions in `self_bias_fits`.

Source: Play Favorites: A Statistical Method to Measure Self-Bias in LLM-as-a-Judge (2025).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from judgelm.data.readers.rows import RejectCounts
from judgelm.data.sources.rating_tables import GOLD, HUMAN, RatingTable
from judgelm.errors import InputError
from judgelm.metrics import ratings as rating_metrics
from judgelm.metrics.ratings import COMPLETION, PairedRatings, attention_accuracy, pair_with_reference
from judgelm.metrics.resampling import Estimate, Resampling, mean, share
from judgelm.metrics.self_bias import BiasFit, debiased
from judgelm.metrics.true_win_rate import MIN_STRATUM_LABELS, Stratum, TooFewLabels, stratified_mean
from judgelm.studies import self_bias_fits
from judgelm.studies.result import Cell, HeatMap, Layouts, Row, StudyResult, Table, columns
from judgelm.studies.self_bias_fits import Fits, Progress, SelfBiasOptions, by_family

LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))


def study_self_bias(
    ratings: RatingTable, options: SelfBiasOptions | None = None, *, progress: Progress = lambda step: None
) -> StudyResult:
    """Estimate self- and family-bias, including all checks; `progress` is called with the name of each step.

    Raises:
        InputError: no score has a reference, there are too few ratings for the coefficients, or a column in the options
            is missing or has the wrong type.
    """
    options = options or SelfBiasOptions()
    paired = _paired_ratings(ratings, options)
    try:
        fits = self_bias_fits.fit_everything(paired, options, progress)
    except ValueError as error:
        raise InputError(f"ratings: {error}") from error
    progress(f"estimating means from few labels: {options.draws} draws per judge")
    powered, problems = _few_label_table(paired, options)
    progress("computing tables and intervals")
    tables = [
        self_bias_fits.main_table(fits.main),
        self_bias_fits.bias_table("slices", fits.slices),
        self_bias_fits.bias_table("checks", fits.checks),
        self_bias_fits.bias_table("ordinal", fits.ordinal),
        self_bias_fits.length_table(paired, fits),
        _debiased_table(paired, fits.main, options.resampling),
        powered,
        _correlation_table(paired, options.reference),
        _agreement_table(ratings.frame, options.resampling),
        _attention_table(ratings.frame, options.resampling),
        _coverage_table(ratings.frame, paired, options.reference),
    ]
    return StudyResult(
        study="self-bias",
        title="Self- and family-bias of judges",
        protocol=_protocol(fits.main, options),
        findings=tuple(self_bias_fits.findings(fits, powered)),
        counts=_counts(ratings, paired, options.reference) | {"fits that failed": len(fits.failed)},
        tables=tuple(table for table in tables if table is not None and table.rows),
        figures=(*self_bias_fits.forests(paired, fits), *_heat_maps(paired, options.reference)),
        warnings=tuple(_warnings(ratings, paired, fits, problems)),
    )


def debiased_ratings(ratings: RatingTable, options: SelfBiasOptions | None = None) -> pd.DataFrame:
    """Return the scores that have a reference, with and without the estimated bias.

    The columns are item, dimension, task, judge, model, `score` (as rated), `bias` (normalised), `debiased` (on the
    scale of the dimension, possibly outside its limits), and `reference`.
    """
    options = options or SelfBiasOptions()
    paired = _paired_ratings(ratings, options)
    try:
        frame = debiased(paired, self_bias_fits.fit_main(paired, options))
    except ValueError as error:
        raise InputError(f"ratings: {error}") from error
    names = {"rating_raw": "score", "reference_raw": "reference", "debiased_raw": "debiased"}
    columns = ["item", "dimension", "task", "judge", "model", "rating_raw", "bias", "debiased_raw", "reference_raw"]
    return frame[columns].rename(columns=names)


def _paired_ratings(ratings: RatingTable, options: SelfBiasOptions) -> PairedRatings:
    try:
        given = options.families
        family_of = rating_metrics.family_by_name if given is None else rating_metrics.families_given(given)
        return pair_with_reference(ratings.frame, family_of, reference=options.reference, scaling=options.scaling)
    except ValueError as error:
        raise InputError(str(error)) from error


def _protocol(fit: BiasFit, options: SelfBiasOptions) -> str:
    model = options.model
    scaling = "divided by the dimension's maximum" if options.scaling == "maximum" else "scaled to [0, 1] by dimension"
    terms = ["judge", "reference:judge" if model.reference == "line" else "spline(reference):judge"]
    terms += ["own"] * model.self_bias + ["family"] * model.family_bias + ["dimension"]
    terms += [] if model.length == "none" else ["length:judge" if model.length == "per_judge" else "length"]
    terms += [f"{model.indicator}:judge"] if model.indicator else []
    return (
        f"Ratings are regressed on {' + '.join(terms)} by ordinary least squares without a common intercept. "
        f"The reference is {options.reference}, and scores are {scaling}. Standard errors: {fit.errors}. Coefficients "
        f"and means from few labels have {100 * model.level:g} % Wald intervals; all other figures have 95 % intervals."
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
        yield f"{len(ratings.rejects):,} rows were rejected: {'; '.join(RejectCounts(ratings.rejects).lines())}"
    if alone := sorted({*paired.judges, *paired.models} - paired.families.keys()):
        yield f"Unknown family: {', '.join(alone)}. These models are treated as unrelated; set families to change this."
    if strangers := sorted(set(paired.judges) - set(paired.models)):
        yield f"{', '.join(strangers)} did not rate their own completions, so their self-bias is unknown."
    for fit in fits.failed:
        slice_name = f"{fit.column} {fit.name}".strip()
        yield f"No fit for {slice_name}: {fit.failure}."
    yield from problems


def _debiased_table(paired: PairedRatings, fit: BiasFit, resampling: Resampling) -> Table:
    frame = debiased(paired, fit)
    rows: list[Row] = []
    for judge in by_family(paired, paired.judges):
        for column, whose in (("own", "its own"), ("family", "its family's")):
            mine = frame[(frame["judge"] == judge) & (frame[column] != "")]
            if len(mine):
                ranks = _ranks(frame, judge) if column == "own" else (None, None, None)
                items = list(mine["item"])
                scores = (mine[name].to_numpy(float) for name in ("rating", "debiased", "reference"))
                means = [mean(score, items, resampling) for score in scores]
                rows.append((judge, whose, *means, *ranks))
    return LAYOUTS.table("debiased", rows)


def _ranks(frame: pd.DataFrame, judge: str) -> tuple[int, int, int]:
    means = frame[frame["judge"] == judge].groupby("model")[["rating", "debiased", "reference"]].mean()
    ranks = means.rank(ascending=False, method="min").to_dict("index")[judge]
    return int(ranks["rating"]), int(ranks["debiased"]), int(ranks["reference"])


def _few_label_table(paired: PairedRatings, options: SelfBiasOptions) -> tuple[Table, list[str]]:
    rows: list[Row] = []
    problems: list[str] = []
    for judge in by_family(paired, paired.judges):
        try:
            rows.append((judge, *_few_label_means(paired, judge, options)))
        except TooFewLabels as error:
            problems.append(f"Prediction-powered inference is not possible with {judge}: {error}.")
    hidden = paired.unreferenced.empty
    sampling = (
        f"All completions are labelled, so {100 * options.label_share:g} % of the labels in each stratum are drawn at "
        f"random, {options.draws} times. The estimates are from the first draw."
        if hidden
        else "Within each stratum, the labels in the file are treated as a random sample."
    )
    few_labels = LAYOUTS.table("few-labels", rows, sampling=sampling)
    return few_labels, problems


def _few_label_means(paired: PairedRatings, judge: str, options: SelfBiasOptions) -> Row:
    labelled = paired.frame[paired.frame["judge"] == judge]
    rest = paired.unreferenced[paired.unreferenced["judge"] == judge]
    strata = list(_strata(labelled, rest))
    level, truth, covered = options.model.level, None, None
    if len(rest):
        draws = [_three([_stratum(*parts) for parts in strata], level)]
    else:
        truth, generator = float(labelled["reference"].mean()), np.random.default_rng(options.resampling.seed)
        draws = [
            _three([_drawn(rows, options.label_share, generator) for _, rows, _ in strata], level)
            for _ in range(options.draws)
        ]
        hits = np.array([stratified.low <= truth <= stratified.high for _, _, stratified in draws])
        covered = share(hits, None, options.resampling)
    usual, *widths = (float(np.mean([draw[index].high - draw[index].low for draw in draws])) for index in range(3))
    return (*draws[0], truth, *(width / (usual or float("nan")) for width in widths), covered)


def _three(strata: list[Stratum], level: float) -> tuple[Estimate, Estimate, Estimate]:
    pooled = Stratum(
        name="all",
        labels=np.concatenate([stratum.labels for stratum in strata]),
        rated=np.concatenate([stratum.rated for stratum in strata]),
        rated_only=np.concatenate([stratum.rated_only for stratum in strata]),
    )
    classical = stratified_mean(strata, level, powered=False)
    return classical, stratified_mean([pooled], level), stratified_mean(strata, level)


def _strata(labelled: pd.DataFrame, rest: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    for dimension in sorted({*labelled["dimension"], *rest["dimension"]}):
        for kin in (True, False):
            both = [
                rows[(rows["dimension"] == dimension) & (((rows["own"] != "") | (rows["family"] != "")) == kin)]
                for rows in (labelled, rest)
            ]
            if len(both[0]) + len(both[1]):
                yield f"{dimension}, {'own family' if kin else 'other families'}", both[0], both[1]


def _stratum(name: str, labelled: pd.DataFrame, rest: pd.DataFrame) -> Stratum:
    return Stratum(
        name=name,
        labels=labelled["reference"].to_numpy(float),
        rated=labelled["rating"].to_numpy(float),
        rated_only=rest["rating"].to_numpy(float),
    )


def _drawn(rows: pd.DataFrame, part: float, generator: np.random.Generator) -> Stratum:
    count = min(len(rows), max(MIN_STRATUM_LABELS, round(part * len(rows))))
    shown = np.zeros(len(rows), dtype=bool)
    shown[generator.choice(len(rows), size=count, replace=False)] = True
    return _stratum("drawn", rows[shown], rows[~shown])


def _heat_maps(paired: PairedRatings, reference: str) -> list[HeatMap]:
    maps = [_heat_map(paired, paired.frame, "mean-scores", "Mean score by judge and model", reference)]
    if len(paired.dimensions) > 1:
        for index, name in enumerate(paired.dimensions, 1):
            rows = paired.frame[paired.frame["dimension"] == name]
            maps.append(_heat_map(paired, rows, f"mean-scores-{index}", f"Mean scores: {name}", reference))
    return maps


def _heat_map(paired: PairedRatings, frame: pd.DataFrame, name: str, title: str, reference: str) -> HeatMap:
    models = by_family(paired, frame["model"].unique())
    judges = by_family(paired, frame["judge"].unique())
    means = frame.groupby(["judge", "model"])["rating"].mean()
    people = frame.drop_duplicates(COMPLETION).groupby("model")["reference"].mean()
    by_judge = [tuple(_known(means.get((judge, model))) for model in models) for judge in judges]
    return HeatMap(
        name=name,
        title=title,
        x_label="model",
        y_label="judge",
        value_label="mean normalised score",
        rows=(reference, *judges),
        columns=tuple(models),
        values=(tuple(_known(people.get(model)) for model in models), *by_judge),
        marked=frozenset((judges.index(model) + 1, i) for i, model in enumerate(models) if model in judges),
    )


def _coverage_table(ratings: pd.DataFrame, paired: PairedRatings, reference: str) -> Table:
    judged = ratings[(ratings["check"] == "") & ~ratings["judge"].isin([reference, GOLD])]
    rows: list[Row] = []
    for judge in by_family(paired, judged["judge"].unique()):
        mine, used = judged[judged["judge"] == judge], paired.frame[paired.frame["judge"] == judge]
        missing = int(mine["score"].isna().sum())
        own, family = int((used["own"] != "").sum()), int((used["family"] != "").sum())
        counts = (len(mine), missing, len(mine) - missing - len(used), len(used), own, family)
        rows.append((judge, paired.families.get(judge), *counts))
    return LAYOUTS.table("coverage", rows)


def _correlation_table(paired: PairedRatings, reference: str) -> Table:
    by_judge_and_dimension = {
        (judge, dimension): rating_metrics.rank_correlation(rows["rating"].to_numpy(), rows["reference"].to_numpy())
        for (judge, dimension), rows in paired.frame.groupby(["judge", "dimension"])
    }
    rows = [
        (judge, *(by_judge_and_dimension.get((judge, name)) for name in paired.dimensions))
        for judge in by_family(paired, paired.judges)
    ]
    dimensions = columns("number", [(name, name) for name in paired.dimensions])
    return LAYOUTS.table("correlations", rows, *dimensions, reference=reference)


def _agreement_table(ratings: pd.DataFrame, resampling: Resampling) -> Table | None:
    people = ratings[(ratings["check"] == "") & (ratings["judge"] == HUMAN)]
    gold = ratings[(ratings["check"] == "") & (ratings["judge"] == GOLD)]
    if people["annotator"].nunique() < 2 and gold.empty:
        return None
    names = sorted(people["dimension"].unique())
    return LAYOUTS.table(
        "annotators",
        [(name, *_agreement(people[people["dimension"] == name], gold, name, resampling)) for name in names],
    )


def _agreement(people: pd.DataFrame, gold: pd.DataFrame, dimension: str, resampling: Resampling) -> Iterator[Cell]:
    matrix = people.pivot_table(index=["item", "model"], columns="annotator", values="score").to_numpy(float)
    if ((~np.isnan(matrix)).sum(axis=1) >= 2).any():
        agreement = rating_metrics.annotator_agreement(matrix, resampling)
        yield from (agreement.alpha, agreement.observed)
    else:
        yield from (None, None)
    experts = gold[gold["dimension"] == dimension]
    yield rating_metrics.gold_accuracy(people, experts, resampling)
    means = [rows.groupby(["item", "model"])["score"].mean() for rows in (people, experts)]
    both = pd.concat(means, axis=1, join="inner").dropna()
    yield rating_metrics.rank_correlation(both.iloc[:, 0].to_numpy(), both.iloc[:, 1].to_numpy())


def _attention_table(ratings: pd.DataFrame, resampling: Resampling) -> Table | None:
    checks = ratings[ratings["check"] != ""]
    if checks.empty:
        return None
    rest = ratings[ratings["check"] == ""].groupby("dimension")["score"].agg(["min", "max"]).mean(axis=1)
    rows: list[Row] = []
    for (judge, check, dimension), mine in checks.groupby(["judge", "check", "dimension"]):
        middle = rest.get(dimension)
        passed = None if middle is None or np.isnan(middle) else attention_accuracy(mine, float(middle), resampling)
        rows.append((str(judge), str(check), str(dimension), int(mine["score"].isna().sum()), passed))
    return LAYOUTS.table("attention-checks", rows)


def _known(value: object) -> float | None:
    return float(value) if isinstance(value, int | float | np.floating) and not np.isnan(value) else None
