"""Join ratings with reference scores, and assess the quality of ratings."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from judgelm.metrics.correlation import fisher_interval
from judgelm.metrics.resampling import Estimate, Floats, Ints, Resampling, interval, share
from judgelm.yaml_files import read_yaml

Scaling = Literal["maximum", "unit"]
"""`maximum` divides by the highest score of the dimension, like the authors. `unit` scales scores to [0, 1]."""

COMPLETION = ["item", "dimension", "model"]

FamilyOf = Callable[[str], str | None]
"""Function that returns the family of a judge or model; None if unknown."""

_PATTERNS: dict[str, str] = read_yaml(Path(__file__).with_name("families.yaml"))

PAPERS_WEAK_MODELS = ("Mistral 7B", "Llama 3 8B")
"""Models excluded in section 6.2; the caption of Figure 10 also includes Claude v2."""

PAPERS_WEAK_MODELS_FIGURE_10 = ("Claude v2", *PAPERS_WEAK_MODELS)


class RatingScale(NamedTuple):
    """Scale of a dimension; the normalised score is `(score - low) / span`."""

    low: float
    span: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRatings:
    """Judges' scores with their references, one row each.

    Attributes:
        frame: columns `item`, `dimension`, `task`, `judge`, `model`, `length`, and extra columns. `rating` and
            `reference` are normalised (raw values: suffix `_raw`). `own` is the judge's name if it rates itself.
            `family` is the judge's family if it rates another model from this family. Otherwise, both are empty.
        unreferenced: scored rows without a reference.
        unscored: number of judges' rows without a score.
    """

    frame: pd.DataFrame
    scales: Mapping[str, RatingScale]
    families: Mapping[str, str]
    unreferenced: pd.DataFrame
    unscored: int = 0

    def keep(self, rows: "pd.Series[bool]") -> "PairedRatings":
        """Keep the marked rows."""
        return replace(self, frame=self.frame[rows].reset_index(drop=True))

    @property
    def judges(self) -> list[str]:
        """Sorted names."""
        return sorted(self.frame["judge"].unique())

    @property
    def models(self) -> list[str]:
        """Sorted names."""
        return sorted(self.frame["model"].unique())

    @property
    def dimensions(self) -> list[str]:
        """Sorted names; effects are relative to the first dimension."""
        return sorted(self.frame["dimension"].unique())


def pair_with_reference(
    ratings: pd.DataFrame, family_of: FamilyOf, *, reference: str = "human", scaling: Scaling = "maximum"
) -> PairedRatings:
    """Join each score with the completion's mean reference score, and normalise both on the same scale.

    Attention checks are excluded. Scores by the judge `gold` are also excluded, unless they are the reference.

    Raises:
        ValueError: no score has a reference.
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
        raise ValueError(f"ratings: no judge's score has a reference score by {reference!r}; add rows with this judge")
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
    """Add `length_feature`, tanh((L - mean) / sd) by prompt or overall, and drop rows where it is undefined.

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
    """Return the family whose pattern matches a model's name, or None."""
    return next((family for family, pattern in _PATTERNS.items() if re.search(pattern, name, re.IGNORECASE)), None)


def families_given(families: Mapping[str, Sequence[str]]) -> FamilyOf:
    """Return a lookup function for user-defined families, `family -> names`.

    Raises:
        ValueError: a model is in two families.
    """
    known: dict[str, str] = {}
    for family, names in families.items():
        for name in names:
            if known.setdefault(name, family) != family:
                raise ValueError(f"families: {name} is in both {known[name]} and {family}; list it once")
    return known.get


def without_models(paired: PairedRatings, models: Collection[str], *, judges_too: bool = False) -> PairedRatings:
    """Exclude completions by `models` (as in the paper) and optionally their judgments (as in the R code)."""
    rows = ~paired.frame["model"].isin(models)
    if judges_too:
        rows &= ~paired.frame["judge"].isin(models)
    return paired.keep(rows)


def family_as_reference(paired: PairedRatings, family: str, *, completions_too: bool = True) -> PairedRatings:
    """Use the mean score of one family's judges as the reference, and drop these judges.

    `completions_too` also drops the family's completions, as in section 6.2, but unlike the authors' code.

    Raises:
        ValueError: the family has no judge.
    """
    related = paired.frame["judge"].map(dict(paired.families)) == family
    if not related.any():
        available = sorted({paired.families[judge] for judge in paired.judges if judge in paired.families})
        raise ValueError(f"reference family {family!r} has no judge; available: {available}")
    means = paired.frame[related].groupby(COMPLETION)["rating"].mean()
    others = paired.keep(~related)
    if completions_too:
        others = others.keep(others.frame["model"].map(dict(paired.families)) != family)
    keys = pd.MultiIndex.from_frame(others.frame[COMPLETION])
    frame = others.frame.assign(reference=means.reindex(keys).to_numpy()).drop(columns="reference_raw")
    return replace(others, frame=frame).keep(frame["reference"].notna())


def slices(paired: PairedRatings, column: str) -> Iterator[tuple[str, PairedRatings]]:
    """Yield the rows for each value of a column, sorted by value.

    Raises:
        ValueError: the column does not exist.
    """
    if column not in paired.frame:
        raise ValueError(f'ratings: no column "{column}"; keep this column when you load the files')
    for value in sorted(paired.frame[column].astype(str).unique()):
        yield value, paired.keep(paired.frame[column].astype(str) == value)


class AnnotatorAgreement(NamedTuple):
    """Krippendorff's alpha (None if all ratings are equal), and the share of unanimous completions."""

    alpha: Estimate | None
    observed: Estimate


def annotator_agreement(ratings: Floats, resampling: Resampling) -> AnnotatorAgreement:
    """Compute Krippendorff's alpha with ordinal distances, and the share of unanimous completions.

    `ratings` has shape (completions, annotators), with NaN for missing ratings.

    Raises:
        ValueError: no completion has two ratings.

    Source: Play Favorites, appendix B and Table 4; Krippendorff, Computing Krippendorff's Alpha-Reliability (2011).
    """
    shared = ratings[(~np.isnan(ratings)).sum(axis=1) >= 2]
    if not len(shared):
        raise ValueError("annotators: no completion has two ratings")
    values = np.unique(shared[~np.isnan(shared)])
    counts = np.stack([(shared == value).sum(axis=1) for value in values], axis=1)
    agree = (counts > 0).sum(axis=1) == 1
    return AnnotatorAgreement(
        alpha=_alpha(counts, resampling) if len(values) > 1 else None, observed=share(agree, None, resampling)
    )


def _alpha(counts: Ints, resampling: Resampling) -> Estimate:
    kinds, often = np.unique(counts, axis=0, return_counts=True)
    pairs = np.einsum("ui,uj->uij", kinds, kinds) - np.einsum("ui,ij->uij", kinds, np.eye(counts.shape[1]))
    coincidences = pairs / (kinds.sum(axis=1) - 1)[:, None, None]
    draws = np.random.default_rng(resampling.seed).multinomial(
        len(counts), often / often.sum(), size=resampling.resamples
    )
    differing = draws[((draws @ kinds) > 0).sum(axis=1) > 1]
    samples = _alphas(np.tensordot(differing, coincidences, axes=1))
    low, high = interval(samples) if samples.size else (np.nan, np.nan)
    [value] = _alphas(np.tensordot(often[None], coincidences, axes=1))
    return Estimate(value=float(value), low=low, high=high, n=len(counts))


def _alphas(coincidences: Floats) -> Floats:
    totals = coincidences.sum(axis=2)
    places = totals.cumsum(axis=1) - totals / 2
    distance = (places[:, :, None] - places[:, None, :]) ** 2
    observed = (coincidences * distance).sum(axis=(1, 2))
    expected = (totals[:, :, None] * totals[:, None, :] * distance).sum(axis=(1, 2)) / (totals.sum(axis=1) - 1)
    return np.asarray(1 - observed / expected, dtype=np.float64)


def gold_accuracy(ratings: pd.DataFrame, gold: pd.DataFrame, resampling: Resampling) -> Estimate | None:
    """Compute the share of ratings within the range of the gold scores.

    Source: Play Favorites, appendix B (human agreement on the gold dataset).
    """
    spans = gold[gold["score"].notna()].groupby(COMPLETION)["score"].agg(["min", "max"]).reset_index()
    both = ratings[ratings["score"].notna()].merge(spans, on=COMPLETION, how="inner")
    if both.empty:
        return None
    return share(both["score"].between(both["min"], both["max"]).to_numpy(), list(both["item"]), resampling)


def attention_accuracy(checks: pd.DataFrame, middle: float, resampling: Resampling) -> Estimate | None:
    """Compute the share of attention checks rated below the middle of the scale; the paper specifies no threshold."""
    scored = checks[checks["score"].notna()]
    if scored.empty:
        return None
    return share((scored["score"] < middle).to_numpy(), list(scored["item"]), resampling)


def rank_correlation(judged: Floats, reference: Floats) -> Estimate | None:
    """Compute Spearman's correlation; None if there are fewer than four rows or either variable is constant.

    The interval uses Fisher's z with Bonett and Wright's standard error sqrt((1 + r^2 / 2) / (n - 3)).

    Source: Play Favorites, Figure 5; Bonett and Wright, Sample size requirements for correlations (2000).
    """
    n = len(judged)
    if n < 4 or np.ptp(judged) == 0 or np.ptp(reference) == 0:
        return None
    value = float(stats.spearmanr(judged, reference).statistic)
    perfect = Estimate(value=round(value), low=round(value), high=round(value), n=n)
    return fisher_interval(value, n, variance=1 + value**2 / 2) or perfect
