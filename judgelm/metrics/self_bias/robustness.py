"""Robustness checks that change the rows: another reference, weak models removed, one slice at a time."""

from collections.abc import Collection, Iterator

import pandas as pd

from judgelm.metrics.self_bias.rows import COMPLETION, PairedRatings, with_reference

PAPERS_WEAK_MODELS = ("Mistral 7B", "Llama 3 8B")
"""Removed in section 6.2; Figure 10's caption names Claude v2 as well."""

PAPERS_WEAK_MODELS_FIGURE_10 = ("Claude v2", *PAPERS_WEAK_MODELS)


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
        raise ValueError(f"reference family {family!r}: no judge is of it; there are {sorted(_families(paired))}")
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
