"""Summary of the ratings before any bias is estimated: means, coverage, agreement with and among people."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from judgelm.data.sources.rating_tables import GOLD, HUMAN
from judgelm.metrics.ratings import (
    COMPLETION,
    PairedRatings,
    annotator_agreement,
    attention_accuracy,
    gold_accuracy,
    rank_correlation,
)
from judgelm.metrics.resampling import Resampling
from judgelm.studies.result import Bars, Cell, HeatMap, Row, Table, bars, columns, table
from judgelm.studies.self_bias.tables import by_family


def heat_maps(paired: PairedRatings, reference: str) -> list[HeatMap]:
    """Mean normalised score of each judge for each model, over all dimensions and in each of several."""
    maps = [_heat_map(paired, paired.frame, "mean-scores", "Mean score of each judge for each model", reference)]
    if len(paired.dimensions) > 1:
        for index, name in enumerate(paired.dimensions, 1):
            rows = paired.frame[paired.frame["dimension"] == name]
            maps.append(_heat_map(paired, rows, f"mean-scores-{index}", f"Mean scores: {name}", reference))
    return maps


def _heat_map(paired: PairedRatings, frame: pd.DataFrame, name: str, title: str, reference: str) -> HeatMap:
    """The reference's row is over completions, each once; the judges' own completions are marked."""
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


def coverage_table(ratings: pd.DataFrame, paired: PairedRatings, reference: str) -> Table:
    """Of each judge: rows, how many have no score, and how many the regression uses."""
    judged = ratings[(ratings["check"] == "") & ~ratings["judge"].isin([reference, GOLD])]
    rows: list[Row] = []
    for judge in by_family(paired, judged["judge"].unique()):
        mine, used = judged[judged["judge"] == judge], paired.frame[paired.frame["judge"] == judge]
        missing = int(mine["score"].isna().sum())
        own, family = int((used["own"] != "").sum()), int((used["family"] != "").sum())
        counts = (len(mine), missing, len(mine) - missing - len(used), len(used), own, family)
        rows.append((judge, paired.families.get(judge), *counts))
    return table(
        rows,
        columns("text", judge="Judge", family="Family"),
        columns("count", ratings="Ratings", unscored="No score", unreferenced="No reference"),
        columns("count", used="Used", own="Of its own", family_completions="Of its family"),
        name="coverage",
        title="Ratings of each judge",
        note="No score: NA, or a reply that could not be read; never taken for a number. No family: no relatives.",
    )


def correlations(paired: PairedRatings, reference: str) -> tuple[Table, Bars]:
    """Tie-corrected Spearman of each judge with the reference, per dimension."""
    judges = by_family(paired, paired.judges)
    by_judge_and_dimension = {
        (judge, dimension): rank_correlation(rows["rating"].to_numpy(), rows["reference"].to_numpy())
        for (judge, dimension), rows in paired.frame.groupby(["judge", "dimension"])
    }
    correlation_table = table(
        [(judge, *(by_judge_and_dimension.get((judge, name)) for name in paired.dimensions)) for judge in judges],
        columns("text", judge="Judge"),
        columns("number", ((name, name) for name in paired.dimensions)),
        name="correlations",
        title=f"Spearman's correlation of each judge with {reference}",
        source="Play Favorites, Figure 5",
        note="Ties have their mean rank. Empty: fewer than four ratings, or one side is constant.",
    )
    figure = bars(
        {name: [by_judge_and_dimension.get((judge, name)) for judge in judges] for name in paired.dimensions},
        judges,
        name="correlations-figure",
        title=correlation_table.title,
        x_label="judge",
        y_label="Spearman's correlation",
    )
    return correlation_table, figure


def agreement_table(ratings: pd.DataFrame, resampling: Resampling) -> Table | None:
    """Agreement of the human annotators and of them with the gold ones; None where there is one score each."""
    people = ratings[(ratings["check"] == "") & (ratings["judge"] == HUMAN)]
    gold = ratings[(ratings["check"] == "") & (ratings["judge"] == GOLD)]
    if people["annotator"].nunique() < 2 and gold.empty:
        return None
    names = sorted(people["dimension"].unique())
    return table(
        [(name, *_agreement(people[people["dimension"] == name], gold, name, resampling)) for name in names],
        columns("text", dimension="Dimension"),
        columns("number", alpha="Krippendorff's alpha"),
        columns("share", observed="All agree", gold_accuracy="In gold range"),
        columns("number", gold_correlation="Spearman with gold"),
        name="annotators",
        title="Agreement of the annotators",
        source="Play Favorites, Table 4",
        note="Alpha with ordinal distances. Empty: no completion has two ratings or a gold range, or all are alike.",
    )


def _agreement(people: pd.DataFrame, gold: pd.DataFrame, dimension: str, resampling: Resampling) -> Iterator[Cell]:
    matrix = people.pivot_table(index=["item", "model"], columns="annotator", values="score").to_numpy(float)
    if ((~np.isnan(matrix)).sum(axis=1) >= 2).any():
        agreement = annotator_agreement(matrix, resampling)
        yield from (agreement.alpha, agreement.observed)
    else:
        yield from (None, None)
    experts = gold[gold["dimension"] == dimension]
    yield gold_accuracy(people, experts, resampling)
    means = [rows.groupby(["item", "model"])["score"].mean() for rows in (people, experts)]
    both = pd.concat(means, axis=1, join="inner").dropna()
    yield rank_correlation(both.iloc[:, 0].to_numpy(), both.iloc[:, 1].to_numpy())


def attention_table(ratings: pd.DataFrame, resampling: Resampling) -> Table | None:
    """Share of attention checks that each rater scored low; None without checks."""
    checks = ratings[ratings["check"] != ""]
    if checks.empty:
        return None
    rest = ratings[ratings["check"] == ""].groupby("dimension")["score"].agg(["min", "max"]).mean(axis=1)
    rows: list[Row] = []
    for (judge, check, dimension), mine in checks.groupby(["judge", "check", "dimension"]):
        middle = rest.get(dimension)
        passed = None if middle is None or np.isnan(middle) else attention_accuracy(mine, float(middle), resampling)
        rows.append((str(judge), str(check), str(dimension), int(mine["score"].isna().sum()), passed))
    return table(
        rows,
        columns("text", judge="Rater", check="Check", dimension="Dimension"),
        columns("count", unscored="No score"),
        columns("share", passed="Rated low"),
        name="attention-checks",
        title="Attention checks",
        source="Play Favorites, section 4.3 and appendix B",
        note="Rated low: below the middle between the lowest and highest score that the dimension has elsewhere.",
    )


def _known(value: object) -> float | None:
    return float(value) if isinstance(value, int | float | np.floating) and not np.isnan(value) else None
