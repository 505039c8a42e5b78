"""Judges' ratings with the reference score of the same completion, their quality, and panels of judges.

Families of models come from their names or from the user. Robustness checks change the rows: another reference, weak
models removed, one slice at a time.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats

from judgelm.metrics.resampling import LEVEL, Estimate, Flags, Floats, Ints, Resampling, estimate, interval, share
from judgelm.yaml_files import read_yaml

Scaling = Literal["maximum", "unit"]
"""`maximum`: scores divided by the dimension's highest, as the authors do. `unit`: lowest 0 and highest 1."""

COMPLETION = ["item", "dimension", "model"]

FamilyOf = Callable[[str], str | None]
"""Name of a judge or model -> its family; None where it has no relatives that are known."""

_PATTERNS: dict[str, str] = read_yaml(Path(__file__).with_name("families.yaml"))

PAPERS_WEAK_MODELS = ("Mistral 7B", "Llama 3 8B")
"""Removed in section 6.2; Figure 10's caption names Claude v2 as well."""

PAPERS_WEAK_MODELS_FIGURE_10 = ("Claude v2", *PAPERS_WEAK_MODELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingScale:
    """Normalisation of a dimension's scores: `(score - low) / span`."""

    low: float
    span: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRatings:
    """One row per judge's score that has a reference.

    Attributes:
        frame: columns `item`, `dimension`, `task`, `judge`, `model`, `length`; `rating` and `reference` normalised;
            `rating_raw` and `reference_raw` as given; `own` the judge's name where it rates itself, else empty;
            `family` the family's name where it rates another model of its family, else empty; and extra columns.
        scales: per dimension.
        families: family of every judge and model that has one.
        unreferenced: judges' rows with a score whose completions have no reference, with the same columns but for the
            reference's.
        unscored: judges' rows without a score.
    """

    frame: pd.DataFrame
    scales: Mapping[str, RatingScale]
    families: Mapping[str, str]
    unreferenced: pd.DataFrame
    unscored: int = 0

    def keep(self, rows: "pd.Series[bool]") -> "PairedRatings":
        """The same with fewer rows; scales stay those of all rows."""
        return replace(self, frame=self.frame[rows].reset_index(drop=True))

    @property
    def judges(self) -> list[str]:
        """Judges, by name."""
        return sorted(self.frame["judge"].unique())

    @property
    def models(self) -> list[str]:
        """Models whose completions were rated, by name."""
        return sorted(self.frame["model"].unique())

    @property
    def dimensions(self) -> list[str]:
        """Dimensions, by name; the first is what the others' effects are relative to."""
        return sorted(self.frame["dimension"].unique())


def pair_with_reference(
    ratings: pd.DataFrame, family_of: FamilyOf, *, reference: str = "human", scaling: Scaling = "maximum"
) -> PairedRatings:
    """Join each judge's score with the reference score of the completion, and normalise both.

    The reference is the mean over the reference judge's rows of a completion (several annotators), missing scores left
    out. Rows whose `check` is not empty and those of judge `gold`, unless it is the reference, take no part.

    Args:
        ratings: long format (see `judgelm.data.sources.rating_tables`).
        family_of: name of a judge or model -> its family, or None.
        reference: the judge whose scores are the reference.
        scaling: see `Scaling`; highest and lowest are those of judges' and reference scores together.

    Raises:
        ValueError: no judge's score has a reference.
    """
    is_gold = (ratings["judge"] == "gold") & (reference != "gold")
    used = ratings[(ratings["check"] == "") & ~is_gold]
    is_reference = used["judge"] == reference
    judged = used[~is_reference]
    scored = judged[judged["score"].notna()].drop(columns=["annotator", "check"])
    known = used[is_reference & used["score"].notna()]
    means = known.groupby(COMPLETION, sort=False)["score"].mean().rename("reference_raw").reset_index()
    frame = scored.rename(columns={"score": "rating_raw"}).merge(means, on=COMPLETION, how="left")
    has_reference = frame["reference_raw"].notna()
    if not has_reference.any():
        raise ValueError(f"ratings: no judge's score has a reference by {reference!r}; add its rows")
    names = sorted({*frame["judge"], *frame["model"]})
    families = {name: family for name in names if (family := family_of(name)) is not None}
    scales = {str(name): _scale(rows, scaling) for name, rows in frame.groupby("dimension")}
    frame = _with_flags(_normalised(frame, scales), families)
    return PairedRatings(
        frame=frame[has_reference].reset_index(drop=True),
        scales=scales,
        families=families,
        unreferenced=frame[~has_reference].drop(columns=["reference", "reference_raw"]).reset_index(drop=True),
        unscored=len(judged) - len(scored),
    )


def with_length(paired: PairedRatings, over: Literal["prompt", "overall"]) -> PairedRatings:
    """Add `length_feature`, tanh((L - mean) / sd) in (-1, 1), and drop rows where it is undefined.

    Mean and sd (ddof 1) run over all rows of a prompt, as in the authors' code, or over all rows. Undefined is it
    without a length, and where all rows of a prompt have one length.

    Source: Play Favorites, section 6.2; Dubois et al., Length-Controlled AlpacaEval.
    """
    lengths = paired.frame["length"]
    if over == "prompt":
        groups = lengths.groupby(paired.frame["item"])
        mean, spread = groups.transform("mean"), groups.transform("std")
    else:
        mean = pd.Series(lengths.mean(), index=lengths.index)
        spread = pd.Series(lengths.std(), index=lengths.index)
    feature = ((lengths - mean) / spread.where(spread > 0)).map(np.tanh)
    return replace(paired, frame=paired.frame.assign(length_feature=feature)).keep(feature.notna())


def with_reference(paired: PairedRatings, reference: "pd.Series[float]") -> PairedRatings:
    """Replace the normalised reference; rows without one are left out, and so are the raw references."""
    frame = paired.frame.assign(reference=reference).drop(columns="reference_raw")
    return replace(paired, frame=frame[frame["reference"].notna()].reset_index(drop=True))


def _scale(rows: pd.DataFrame, scaling: Scaling) -> RatingScale:
    values = rows[["rating_raw", "reference_raw"]].to_numpy()
    low = float(np.nanmin(values)) if scaling == "unit" else 0.0
    span = float(np.nanmax(values)) - low
    return RatingScale(low=low, span=span if span > 0 else 1.0)


def _normalised(frame: pd.DataFrame, scales: Mapping[str, RatingScale]) -> pd.DataFrame:
    low = frame["dimension"].map({name: scale.low for name, scale in scales.items()})
    span = frame["dimension"].map({name: scale.span for name, scale in scales.items()})
    return frame.assign(rating=(frame["rating_raw"] - low) / span, reference=(frame["reference_raw"] - low) / span)


def _with_flags(frame: pd.DataFrame, families: Mapping[str, str]) -> pd.DataFrame:
    judge = frame["judge"].astype(object)
    own = judge == frame["model"].astype(object)
    judged_by = judge.map(families)
    related = judged_by.notna() & (judged_by == frame["model"].astype(object).map(families)) & ~own
    return frame.assign(own=judge.where(own, ""), family=judged_by.where(related, ""))


def family_by_name(name: str) -> str | None:
    """The family that a model's name tells, or None.

    The first five families are those of the paper's data and of HELM-Instruct; the others are ours.
    """
    return next((family for family, pattern in _PATTERNS.items() if re.search(pattern, name, re.IGNORECASE)), None)


def families_given(families: Mapping[str, Sequence[str]]) -> FamilyOf:
    """Families as the user lists them, `family -> names`; a model in no list has none.

    Raises:
        ValueError: a model is in two families.
    """
    known: dict[str, str] = {}
    for family, names in families.items():
        for name in names:
            if known.setdefault(name, family) != family:
                raise ValueError(f"families: {name} is in {known[name]} and in {family}; list it once")
    return known.get


def without_models(paired: PairedRatings, models: Collection[str], *, judges_too: bool = False) -> PairedRatings:
    """Leave out completions of some models (the paper's text), and their judgments too (the authors' R code)."""
    rows = ~paired.frame["model"].isin(models)
    if judges_too:
        rows &= ~paired.frame["judge"].isin(models)
    return paired.keep(rows)


def family_as_reference(paired: PairedRatings, family: str, *, completions_too: bool = True) -> PairedRatings:
    """The mean score by one family's judges as the reference, those judges left out.

    Args:
        paired: all ratings.
        family: whose judges make the reference.
        completions_too: also leave out the family's completions, as the paper says (section 6.2); the authors' code
            keeps them, so that the reference is biased towards part of what it measures.

    Raises:
        ValueError: no judge is of that family.
    """
    related = paired.frame["judge"].map(dict(paired.families)) == family
    if not related.any():
        raise ValueError(
            f"reference family {family!r}: no judge of that family; available: {sorted(_families(paired))}"
        )
    means = paired.frame[related].groupby(COMPLETION)["rating"].mean()
    others = paired.keep(~related)
    if completions_too:
        others = others.keep(others.frame["model"].map(dict(paired.families)) != family)
    keys = pd.MultiIndex.from_frame(others.frame[COMPLETION])
    return with_reference(others, pd.Series(means.reindex(keys).to_numpy(), index=others.frame.index))


def slices(paired: PairedRatings, column: str) -> Iterator[tuple[str, PairedRatings]]:
    """The rows of each value of a column, by value.

    Raises:
        ValueError: there is no such column.
    """
    if column not in paired.frame:
        raise ValueError(f'ratings: no column "{column}" to fit apart; name it when the files are read')
    for value in sorted(paired.frame[column].astype(str).unique()):
        yield value, paired.keep(paired.frame[column].astype(str) == value)


def _families(paired: PairedRatings) -> set[str]:
    return {paired.families[judge] for judge in paired.judges if judge in paired.families}


Measurement = Literal["nominal", "ordinal", "interval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorAgreement:
    """Agreement of several annotators on one dimension.

    Attributes:
        alpha: Krippendorff's, at most 1; None where all ratings are alike or no completion has two.
        observed: share of completions on which all annotators agree.
    """

    alpha: Estimate | None
    observed: Estimate


def annotator_agreement(
    ratings: Floats, resampling: Resampling, *, measurement: Measurement = "ordinal"
) -> AnnotatorAgreement:
    """Krippendorff's alpha and the share of completions on which all agree.

    Args:
        ratings: shape (completions, annotators), NaN where one did not rate; rows with fewer than two ratings say
            nothing about agreement and are left out.
        resampling: completions are resampled for both intervals.
        measurement: the distance between levels. The paper does not say which it used; its scales are ordinal.

    Raises:
        ValueError: no completion has two ratings.

    The package `krippendorff` computes the same under the GPL, so that it serves the tests alone.

    Source: Play Favorites, appendix B and Table 4; Krippendorff, Computing Krippendorff's Alpha-Reliability (2011).
    """
    shared = ratings[(~np.isnan(ratings)).sum(axis=1) >= 2]
    if not len(shared):
        raise ValueError("annotators: no completion has two ratings; agreement is undefined")
    values = np.unique(shared[~np.isnan(shared)])
    counts = np.stack([(shared == value).sum(axis=1) for value in values], axis=1)
    agree = (counts > 0).sum(axis=1) == 1
    return AnnotatorAgreement(
        alpha=_alpha(counts, values, measurement, resampling) if len(values) > 1 else None,
        observed=share(agree, None, resampling),
    )


def _alpha(counts: Ints, values: Floats, measurement: Measurement, resampling: Resampling) -> Estimate:
    """Alpha over units that are alike drawn by how often they occur."""
    kinds, often = np.unique(counts, axis=0, return_counts=True)
    pairs = np.einsum("ui,uj->uij", kinds, kinds) - np.einsum("ui,ij->uij", kinds, np.eye(len(values)))
    coincidences = pairs / (kinds.sum(axis=1) - 1)[:, None, None]
    draws = np.random.default_rng(resampling.seed).multinomial(
        len(counts), often / often.sum(), size=resampling.resamples
    )
    differing = draws[((draws @ kinds) > 0).sum(axis=1) > 1]
    samples = _alphas(np.tensordot(differing, coincidences, axes=1), values, measurement)
    low, high = interval(samples) if samples.size else (np.nan, np.nan)
    [value] = _alphas(np.tensordot(often[None], coincidences, axes=1), values, measurement)
    return Estimate(value=float(value), low=low, high=high, n=len(counts))


def _alphas(coincidences: Floats, values: Floats, measurement: Measurement) -> Floats:
    """Krippendorff's alpha of many coincidence matrices at once.

    Args:
        coincidences: shape (m, v, v), at least two of the values in each.
        values: shape (v,), ascending.
        measurement: the distance between values; between ordinal ones it is how many ratings lie between them.

    Returns:
        shape (m,).
    """
    totals = coincidences.sum(axis=2)
    if measurement == "nominal":
        distance = 1 - np.eye(len(values))[None]
    else:
        places = totals.cumsum(axis=1) - totals / 2 if measurement == "ordinal" else values[None]
        distance = (places[:, :, None] - places[:, None, :]) ** 2
    observed = (coincidences * distance).sum(axis=(1, 2))
    expected = (totals[:, :, None] * totals[:, None, :] * distance).sum(axis=(1, 2)) / (totals.sum(axis=1) - 1)
    return np.asarray(1 - observed / expected, dtype=np.float64)


def gold_accuracy(ratings: pd.DataFrame, gold: pd.DataFrame, resampling: Resampling) -> Estimate | None:
    """Share of ratings between the lowest and the highest gold score of their completion, both included.

    Args:
        ratings: annotators' rows, in long format; those without a score or a gold range do not count.
        gold: the experts' rows.
        resampling: ratings of one item are resampled together.

    Returns:
        None where no rating has a gold range.

    Source: Play Favorites, appendix B (human agreement on the gold dataset).
    """
    spans = gold[gold["score"].notna()].groupby(COMPLETION)["score"].agg(["min", "max"]).reset_index()
    both = ratings[ratings["score"].notna()].merge(spans, on=COMPLETION, how="inner")
    if both.empty:
        return None
    return share(both["score"].between(both["min"], both["max"]).to_numpy(), list(both["item"]), resampling)


def attention_accuracy(checks: pd.DataFrame, middle: float, resampling: Resampling) -> Estimate | None:
    """Share of attention checks rated below the middle of the scale; those without a score do not count.

    The paper does not say which ratings pass; below the middle is ours.

    Args:
        checks: rows of one rater and dimension, in long format.
        middle: of the dimension's scale, on which 'neutral' stands.
        resampling: checks of one item are resampled together.

    Returns:
        None where nothing is scored.
    """
    scored = checks[checks["score"].notna()]
    if scored.empty:
        return None
    return share((scored["score"] < middle).to_numpy(), list(scored["item"]), resampling)


def rank_correlation(judged: Floats, reference: Floats) -> Estimate | None:
    """Spearman's correlation with ties given their mean rank, and its 95 % interval.

    The interval is by Fisher's z with Bonett and Wright's standard error sqrt((1 + r^2 / 2) / (n - 3)).

    Args:
        judged: shape (n,).
        reference: shape (n,).

    Returns:
        None where fewer than four rows are left or one side is constant: a correlation with a constant is undefined.

    Source: Play Favorites, Figure 5; Bonett and Wright, Sample size requirements for correlations (2000).
    """
    n = len(judged)
    if n < 4 or np.ptp(judged) == 0 or np.ptp(reference) == 0:
        return None
    value = float(stats.spearmanr(judged, reference).statistic)
    if abs(value) >= 1 - 1e-12:
        return Estimate(value=round(value), low=round(value), high=round(value), n=n)
    reach = stats.norm.ppf((1 + LEVEL) / 2) * np.sqrt((1 + value**2 / 2) / (n - 3))
    low, high = np.tanh(np.arctanh(value) + np.array([-reach, reach]))
    return Estimate(value=value, low=float(low), high=float(high), n=n)


MAX_MIXED_PANELS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePanel:
    """Quality of a panel's mean score.

    Attributes:
        judges: its members.
        families: how many families they are of; a judge of no known family is one of its own.
        completions: rated by every member.
        correlation: Spearman's, with the reference; None where undefined.
        unevenness: root mean square over the models of (mean panel score - mean reference score), after the mean of
            these differences over the models is taken off; 0 is a panel that favours no model. Noise makes it larger,
            never smaller.
        favour: mean of these centred differences over models of the members' families, less that over the other
            models; None where there are none of either.
    """

    judges: tuple[str, ...]
    families: int
    completions: int
    correlation: Estimate | None
    unevenness: Estimate
    favour: Estimate | None


def assess_panel(paired: PairedRatings, judges: Sequence[str], resampling: Resampling) -> JudgePanel | None:
    """Compare the members' mean score with the reference, over completions that all of them rated.

    Args:
        paired: all ratings.
        judges: the members.
        resampling: completions of one item are resampled together.

    Returns:
        None where no completion is rated by all members.
    """
    of_members = paired.frame[paired.frame["judge"].isin(judges)]
    groups = of_members.groupby(COMPLETION, sort=False)
    both = groups.agg(rating=("rating", "mean"), reference=("reference", "first"), n=("judge", "nunique"))
    both = both[both["n"] == len(set(judges))].reset_index()
    if both.empty:
        return None
    related = {_kin(paired, judge) for judge in judges}
    models = sorted(both["model"].unique())
    near = np.array([_kin(paired, model) in related for model in models])
    unevenness, favour = estimate(
        _differences(both, models), lambda sums: _favours(sums, near), list(both["item"]), resampling
    )
    return JudgePanel(
        judges=tuple(judges),
        families=len(related),
        completions=len(both),
        correlation=rank_correlation(both["rating"].to_numpy(), both["reference"].to_numpy()),
        unevenness=unevenness,
        favour=favour if near.any() and not near.all() else None,
    )


def usual_panels(paired: PairedRatings) -> list[tuple[str, ...]]:
    """Each judge alone, the judges of each family, one judge of each family in all ways, and all judges.

    The mixed ones are left out where there would be more than 64.
    """
    by_family: dict[str, list[str]] = {}
    for judge in paired.judges:
        by_family.setdefault(_kin(paired, judge), []).append(judge)
    families = [tuple(members) for members in by_family.values()]
    mixed = list(product(*families)) if np.prod([len(members) for members in families]) <= MAX_MIXED_PANELS else []
    singles = [(judge,) for judge in paired.judges]
    return list(dict.fromkeys(map(tuple, [*singles, *families, *mixed, tuple(paired.judges)])))


def _kin(paired: PairedRatings, name: str) -> str:
    return paired.families.get(name, name)


def _differences(both: pd.DataFrame, models: list[str]) -> Floats:
    """Shape (completions, 2 x models): the difference in its model's column, and a 1 in the column of its count."""
    position = both["model"].map({model: i for i, model in enumerate(models)}).to_numpy(int)
    chosen = np.eye(len(models))[position]
    return np.hstack([chosen * (both["rating"] - both["reference"]).to_numpy()[:, None], chosen])


def _favours(sums: Floats, near: Flags) -> Floats:
    """Unevenness and favour from sums, shape (m, 2); a model that a resample does not hold is left out of it."""
    totals, counts = np.hsplit(sums, 2)
    means = np.divide(totals, counts, out=np.full(totals.shape, np.nan), where=counts > 0)
    centred = means - np.nanmean(means, axis=1, keepdims=True)
    uneven = np.sqrt(np.nanmean(centred**2, axis=1))
    if near.all() or not near.any():
        return np.stack([uneven, np.zeros_like(uneven)], axis=1)
    favour = np.nanmean(centred[:, near], axis=1) - np.nanmean(centred[:, ~near], axis=1)
    return np.stack([uneven, favour], axis=1)
