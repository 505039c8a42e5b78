"""Mitigation of self-bias: debiased scores, few human labels, panels of several families."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from judgelm.metrics.ratings import PairedRatings, assess_panel, usual_panels
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.metrics.self_bias import BiasFit, debiased, mean_of
from judgelm.metrics.true_win_rate import FEWEST_STRATUM_LABELS, Stratum, TooFewLabels, stratified_mean
from judgelm.studies.result import Row, Table, columns, table
from judgelm.studies.self_bias.regressions import SelfBiasOptions
from judgelm.studies.self_bias.tables import by_family


def debiased_table(paired: PairedRatings, fit: BiasFit, resampling: Resampling) -> Table:
    """Means of each judge for its own and its family's completions, as rated, debiased, and by the reference."""
    frame = debiased(paired, fit)
    rows: list[Row] = []
    for judge in by_family(paired, paired.judges):
        for column, whose in (("own", "its own"), ("family", "its family's")):
            mine = frame[(frame["judge"] == judge) & (frame[column] != "")]
            if len(mine):
                ranks = _ranks(frame, judge) if column == "own" else (None, None, None)
                means = [mean_of(mine, name, resampling) for name in ("rating", "debiased", "reference")]
                rows.append((judge, whose, *means, *ranks))
    return table(
        rows,
        columns("text", judge="Judge", completions="Completions"),
        columns("number", rated="As rated", debiased="Debiased", reference="Reference"),
        columns("count", rank_as_rated="Rank as rated", rank_debiased="Rank debiased"),
        columns("count", rank_by_the_reference="Rank by the reference"),
        name="debiased",
        title="Scores without the estimated self- and family-bias",
        source="Play Favorites, section 7",
        note="Mean normalised scores. Ranks: place of the judge's own completions among all models' by mean score, 1 "
        "is best. Intervals do not count the uncertainty of the subtracted bias.",
    )


def _ranks(frame: pd.DataFrame, judge: str) -> tuple[int, int, int]:
    """Place of a judge's model among those it rated, by its own, the debiased and the reference scores."""
    means = frame[frame["judge"] == judge].groupby("model")[["rating", "debiased", "reference"]].mean()
    ranks = means.rank(ascending=False, method="min").to_dict("index")[judge]
    return int(ranks["rating"]), int(ranks["debiased"]), int(ranks["reference"])


@dataclass(frozen=True, slots=True, kw_only=True)
class FewLabelMean:
    """Means of the human scores from few labels.

    Attributes:
        classical: from the labels alone, stratified.
        plain: prediction-powered, one stratum.
        stratified: prediction-powered, by dimension and own family.
        truth: the mean over all completions, where all are labelled.
        plain_width: mean width of the plain interval over that of the classical one, over the draws; `width` is that
            of the stratified one.
        covered: share of the draws whose stratified interval holds the truth; None where the truth is not known.
    """

    classical: Estimate
    plain: Estimate
    stratified: Estimate
    truth: float | None
    plain_width: float
    width: float
    covered: Estimate | None


def few_label_table(paired: PairedRatings, options: SelfBiasOptions) -> tuple[Table, list[str]]:
    """Mean human score from few labels and each judge's ratings; and what could not be computed."""
    rows: list[Row] = []
    problems: list[str] = []
    for judge in by_family(paired, paired.judges):
        try:
            mean = few_label_mean(paired, judge, options)
        except TooFewLabels as error:
            problems.append(f"Prediction-powered inference with {judge}: {error}.")
            continue
        ends = (mean.truth, mean.plain_width, mean.width, mean.covered)
        rows.append((judge, mean.classical, mean.plain, mean.stratified, *ends))
    hidden = paired.unreferenced.empty
    sampling = (
        f"All completions are labelled, so {100 * options.label_share:g} % of the labels of each stratum are drawn, "
        f"{options.draws} times; the estimates are those of the first draw."
        if hidden
        else "Labels are those in the file, taken for a random draw within each stratum."
    )
    few_labels = table(
        rows,
        columns("text", judge="Judge"),
        columns("number", classical="Labels alone", powered="Prediction-powered"),
        columns("number", stratified="Prediction-powered, stratified", truth="Mean of all labels"),
        columns("number", plain_width="Width, not stratified / labels alone"),
        columns("number", width="Width, stratified / labels alone"),
        columns("share", covered="Draws that cover the mean"),
        name="few-labels",
        title="Mean reference score from few labels and each judge's ratings",
        source="Play Favorites, section 7; Fisch et al., Stratified Prediction-Powered Inference",
        note="Strata: dimension and whether the model is of the judge's family (itself included); labels alone are "
        f"stratified alike. {sampling} n: labels.",
    )
    return few_labels, problems


def few_label_mean(paired: PairedRatings, judge: str, options: SelfBiasOptions) -> FewLabelMean:
    """The three estimates with one judge's ratings.

    Raises:
        TooFewLabels: a stratum has fewer than two labels.
    """
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
    usual, plain, stratified = (
        float(np.mean([draw[index].high - draw[index].low for draw in draws])) for index in range(3)
    )
    return FewLabelMean(
        classical=draws[0][0],
        plain=draws[0][1],
        stratified=draws[0][2],
        truth=truth,
        plain_width=plain / (usual or float("nan")),
        width=stratified / (usual or float("nan")),
        covered=covered,
    )


def _three(strata: list[Stratum], level: float) -> tuple[Estimate, Estimate, Estimate]:
    """Means from the labels alone, prediction-powered, and prediction-powered by stratum."""
    pooled = Stratum(
        name="all",
        labels=np.concatenate([stratum.labels for stratum in strata]),
        rated=np.concatenate([stratum.rated for stratum in strata]),
        rated_only=np.concatenate([stratum.rated_only for stratum in strata]),
    )
    classical = stratified_mean(strata, level, powered=False)
    return classical, stratified_mean([pooled], level), stratified_mean(strata, level)


def _strata(labelled: pd.DataFrame, rest: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Rows with and without a label of each dimension, apart for the judge's own family and for others."""
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
    """A stratum of which only a random part of the labels is shown, at least two."""
    count = min(len(rows), max(FEWEST_STRATUM_LABELS, round(part * len(rows))))
    shown = np.zeros(len(rows), dtype=bool)
    shown[generator.choice(len(rows), size=count, replace=False)] = True
    return _stratum("drawn", rows[shown], rows[~shown])


def panel_table(paired: PairedRatings, resampling: Resampling) -> Table:
    """Judges alone, families, mixed panels and all judges."""
    rows: list[Row] = []
    for judges in usual_panels(paired):
        panel = assess_panel(paired, judges, resampling)
        if panel is not None:
            sizes = (len(judges), panel.families, panel.completions)
            rows.append((", ".join(judges), *sizes, panel.correlation, panel.unevenness, panel.favour))
    return table(
        rows,
        columns("text", panel="Panel"),
        columns("count", judges="Judges", families="Families", completions="Completions"),
        columns("number", correlation="Spearman", unevenness="Unevenness", favour="Favour"),
        name="panels",
        title="Panels of judges against the reference",
        source="Play Favorites, section 7",
        note="Of a panel's mean score over completions that all members rated. Unevenness: root mean square over "
        "models of how much further than on average it is from the reference (a panel that scores all alike has that "
        "of the reference itself). Favour: the same difference for models of the members' families less that for "
        "others; empty where every model is of a member's family.",
    )
