"""Judges' ratings beside the reference score of the same completion: the rows that self-bias is estimated from.

Families of models come from their names or from the user. Robustness checks change the rows: another reference, weak
models removed, one slice at a time.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

Scaling = Literal["maximum", "unit"]
"""`maximum`: scores divided by the dimension's highest, as the authors do. `unit`: lowest 0 and highest 1."""

COMPLETION = ["item", "dimension", "model"]

FamilyOf = Callable[[str], str | None]
"""Name of a judge or model -> its family; None where it has no relatives that are known."""

_PATTERNS: tuple[tuple[str, str], ...] = (
    ("Claude", r"claude"),
    ("GPT", r"\bgpt-?\d|\bgpt\b|chatgpt"),
    ("Llama 3", r"llama-?\s?3"),
    ("Llama 2", r"llama-?\s?2"),
    ("Mistral", r"mistral|mixtral"),
    ("Command", r"\bcommand"),
    ("Qwen", r"qwen|\bqwq"),
    ("Gemma", r"gemma"),
    ("Gemini", r"gemini"),
    ("DeepSeek", r"deepseek"),
    ("Phi", r"\bphi-?\d"),
)

PAPERS_WEAK_MODELS = ("Mistral 7B", "Llama 3 8B")
"""Removed in section 6.2; Figure 10's caption names Claude v2 as well."""

PAPERS_WEAK_MODELS_FIGURE_10 = ("Claude v2", *PAPERS_WEAK_MODELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
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
    scales: Mapping[str, Scale]
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


def _scale(rows: pd.DataFrame, scaling: Scaling) -> Scale:
    values = rows[["rating_raw", "reference_raw"]].to_numpy()
    low = float(np.nanmin(values)) if scaling == "unit" else 0.0
    span = float(np.nanmax(values)) - low
    return Scale(low=low, span=span if span > 0 else 1.0)


def _normalised(frame: pd.DataFrame, scales: Mapping[str, Scale]) -> pd.DataFrame:
    low = frame["dimension"].map({name: scale.low for name, scale in scales.items()})
    span = frame["dimension"].map({name: scale.span for name, scale in scales.items()})
    return frame.assign(
        rating=(frame["rating_raw"] - low) / span,
        reference=(frame["reference_raw"] - low) / span,
    )


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
    return next((family for family, pattern in _PATTERNS if re.search(pattern, name, re.IGNORECASE)), None)


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
