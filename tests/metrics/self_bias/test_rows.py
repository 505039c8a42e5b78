"""Judges' ratings beside the reference score: which rows count, how they are normalised, and whose they are."""

import numpy as np
import pandas as pd
import pytest

from judgelm.metrics.ratings import (
    RatingScale,
    families_given,
    pair_with_reference,
    slices,
    with_length,
    without_models,
)
from judgelm.metrics.self_bias import BiasFit, Term, debiased

FAMILIES = families_given({"F": ["a", "b"], "G": ["c"]})


def ratings(*rows):
    """(judge, model, score) of item i and dimension d; further columns as in the files."""
    frame = pd.DataFrame(rows, columns=["judge", "model", "score"])
    return frame.assign(item="i", dimension="d", task="t", length=1.0, annotator="", check="")


PLAIN = ratings(("human", "a", 4.0), ("human", "b", 2.0), ("a", "a", 5.0), ("a", "b", 3.0), ("c", "a", 1.0))


def test_rows_say_whether_a_judge_rates_itself_or_a_relative():
    frame = pair_with_reference(PLAIN, FAMILIES).frame
    result = frame[["judge", "model", "own", "family"]].to_numpy().tolist()
    assert result == [["a", "a", "a", ""], ["a", "b", "", "F"], ["c", "a", "", ""]]


def test_scores_are_divided_by_the_highest_or_go_from_0_to_1():
    # 5 is the highest of judges' and human scores, 1 the lowest
    paired = pair_with_reference(PLAIN, FAMILIES)
    assert paired.frame[["rating", "reference"]].to_numpy().tolist() == [[1.0, 0.8], [0.6, 0.4], [0.2, 0.8]]
    assert paired.scales == {"d": RatingScale(low=0.0, span=5.0)}
    unit = pair_with_reference(PLAIN, FAMILIES, scaling="unit")
    assert unit.frame[["rating", "reference"]].to_numpy().tolist() == [[1.0, 0.75], [0.5, 0.25], [0.0, 0.75]]
    assert unit.scales == {"d": RatingScale(low=1.0, span=4.0)}


def test_scores_that_are_all_alike_are_not_stretched():
    alike = PLAIN.assign(score=3.0)
    assert pair_with_reference(alike, FAMILIES, scaling="unit").scales == {"d": RatingScale(low=3.0, span=1.0)}
    assert pair_with_reference(alike.assign(score=0.0), FAMILIES).scales == {"d": RatingScale(low=0.0, span=1.0)}


def test_checks_and_gold_take_no_part():
    extra = ratings(("gold", "a", 9.0), ("a", "b", 8.0)).assign(check=["", "attention"])
    paired = pair_with_reference(pd.concat([PLAIN, extra]), FAMILIES)
    assert (paired.judges, paired.scales["d"].span, len(paired.frame)) == (["a", "c"], 5.0, 3)
    # unless gold is the reference, which then only knows a; humans are a judge like others
    by_gold = pair_with_reference(pd.concat([PLAIN, extra]), FAMILIES, reference="gold")
    assert by_gold.judges == ["a", "c", "human"]
    assert by_gold.frame["reference_raw"].tolist() == [9.0, 9.0, 9.0]


def test_what_has_no_reference_or_no_score_stands_apart():
    rows = pd.concat([PLAIN, ratings(("a", "x", 2.0), ("c", "b", np.nan))])
    paired = pair_with_reference(rows, FAMILIES)
    assert (len(paired.frame), paired.unscored) == (3, 1)
    assert paired.unreferenced[["judge", "model", "rating"]].to_numpy().tolist() == [["a", "x", 0.4]]
    assert not {"reference", "reference_raw"} & set(paired.unreferenced)
    assert (paired.models, paired.dimensions, paired.families) == (["a", "b"], ["d"], {"a": "F", "b": "F", "c": "G"})
    with pytest.raises(ValueError, match="no judge's score has a reference score by 'nobody'"):
        pair_with_reference(rows, FAMILIES, reference="nobody")


def test_length_over_all_rows():
    rows = PLAIN.assign(length=[1.0, 1.0, 10.0, 20.0, 30.0])
    result = with_length(pair_with_reference(rows, FAMILIES), "overall").frame["length_feature"]
    assert result.tolist() == pytest.approx([np.tanh(-1), 0, np.tanh(1)])  # mean 20, sd 10
    close = PLAIN.assign(length=[1.0, 1.0, 1.1, 1.2, 1.3])  # mean 1.2, sd 0.1
    result = with_length(pair_with_reference(close, FAMILIES), "overall").frame["length_feature"]
    assert result.tolist() == pytest.approx([np.tanh(-1), 0, np.tanh(1)])
    assert with_length(pair_with_reference(PLAIN, FAMILIES), "overall").frame.empty  # one length throughout


def test_models_leave_as_models_alone_or_as_judges_too():
    paired = pair_with_reference(PLAIN, FAMILIES)
    assert without_models(paired, ["a"]).frame[["judge", "model"]].to_numpy().tolist() == [["a", "b"]]
    assert without_models(paired, ["a"], judges_too=True).frame.empty
    assert without_models(paired, ["c"], judges_too=True).judges == ["a"]


def test_slices_are_by_value_and_need_their_column():
    paired = pair_with_reference(PLAIN, FAMILIES)
    assert [(name, len(rows.frame)) for name, rows in slices(paired, "model")] == [("a", 2), ("b", 1)]
    with pytest.raises(ValueError, match='no column "nothing"'):
        list(slices(paired, "nothing"))


def fit(unit="normalised score", **values):
    """Terms with these estimates; None has none."""
    from judgelm.metrics.resampling import Estimate

    terms = []
    for name, value in values.items():
        kind, level = name.split("_")
        known = None if value is None else Estimate(value=value, low=value - 1, high=value + 1, n=1)
        terms.append(Term(kind=kind, level=level, estimate=known))
    return BiasFit(terms=tuple(terms), n=3, unit=unit, errors="HC1")


def test_a_coefficient_that_the_fit_lacks_counts_as_0():
    result = fit(self_a=0.1, self_c=None)
    assert [result.value("self", level) for level in ("a", "c", "nobody")] == [0.1, 0.0, 0.0]
    assert result.value("family", "a") == 0.0
    assert [term.level for term in result.of("self")] == ["a", "c"]


def test_debiased_scores_by_hand():
    frame = debiased(pair_with_reference(PLAIN, FAMILIES), fit(self_a=0.1, family_F=0.2, self_c=0.4))
    assert frame["bias"].tolist() == [0.1, 0.2, 0.0]  # itself, a relative, a stranger
    assert frame["debiased"].tolist() == pytest.approx([0.9, 0.4, 0.2])
    assert frame["debiased_raw"].tolist() == pytest.approx([4.5, 2.0, 1.0])  # of 5
    with pytest.raises(ValueError, match="the fit is in log-odds; use a linear fit"):
        debiased(pair_with_reference(PLAIN, FAMILIES), fit(unit="log-odds"))
