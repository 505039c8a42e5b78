"""Panels of judges: whether judges of several families together favour anybody less."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from judgelm.metrics.resampling import Estimate, Resampling, estimate
from judgelm.metrics.self_bias.annotation import rank_correlation
from judgelm.metrics.self_bias.rows import COMPLETION, PairedRatings

MOST_MIXED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
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


def assess_panel(paired: PairedRatings, judges: Sequence[str], resampling: Resampling) -> Panel | None:
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
    return Panel(
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
    mixed = list(product(*families)) if np.prod([len(members) for members in families]) <= MOST_MIXED else []
    singles = [(judge,) for judge in paired.judges]
    return list(dict.fromkeys(map(tuple, [*singles, *families, *mixed, tuple(paired.judges)])))


def _kin(paired: PairedRatings, name: str) -> str:
    return paired.families.get(name, name)


def _differences(both: pd.DataFrame, models: list[str]) -> NDArray[np.float64]:
    """Shape (completions, 2 x models): the difference in its model's column, and a 1 in the column of its count."""
    position = both["model"].map({model: i for i, model in enumerate(models)}).to_numpy(int)
    chosen = np.eye(len(models))[position]
    return np.hstack([chosen * (both["rating"] - both["reference"]).to_numpy()[:, None], chosen])


def _favours(sums: NDArray[np.float64], near: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Unevenness and favour from sums, shape (m, 2); a model that a resample does not hold is left out of it."""
    totals, counts = np.hsplit(sums, 2)
    means = np.divide(totals, counts, out=np.full(totals.shape, np.nan), where=counts > 0)
    centred = means - np.nanmean(means, axis=1, keepdims=True)
    uneven = np.sqrt(np.nanmean(centred**2, axis=1))
    if near.all() or not near.any():
        return np.stack([uneven, np.zeros_like(uneven)], axis=1)
    favour = np.nanmean(centred[:, near], axis=1) - np.nanmean(centred[:, ~near], axis=1)
    return np.stack([uneven, favour], axis=1)
