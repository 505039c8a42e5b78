"""Ratings next to a reference score: agreement of annotators, and rows that count."""

import krippendorff
import numpy as np
import pandas as pd
import pytest

from judgelm.metrics.ratings import (
    RatingScale,
    annotator_agreement,
    attention_accuracy,
    families_given,
    family_by_name,
    gold_accuracy,
    pair_with_reference,
    rank_correlation,
    slices,
    with_length,
    without_models,
)
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.metrics.self_bias import BiasFit, Term, debiased

HOW = Resampling(resamples=200)


def test_alpha_of_two_levels_by_hand():
    # units (1, 1), (1, 1), (2, 2), (1, 2); 8 values, five 1s and three 2s
    # disagreement observed: one pair of four, 1/4; expected: 2 * 5 * 3 / (8 * 7) = 15/28; 1 - (1/4) / (15/28) = 8/15
    ratings = np.array([[1.0, 1], [1, 1], [2, 2], [1, 2]])
    result = annotator_agreement(ratings, HOW)
    assert result.alpha.value == pytest.approx(8 / 15)
    assert result.alpha.low < result.alpha.value <= result.alpha.high
    assert (result.observed.value, result.observed.n) == (0.75, 4)


def test_a_resample_of_one_value_has_no_alpha():
    # (1, 1) and (1, 2): 1 - 6/6 = 0; the second twice -1/2; the first twice is left out
    ratings = np.array([[1.0, 1], [1, 2]])
    # seed 3 draws nothing else
    for how, low, high in ((HOW, -0.5, 0), (Resampling(seed=3, resamples=1), np.nan, np.nan)):
        alpha = annotator_agreement(ratings, how).alpha
        assert (alpha.value, alpha.low, alpha.high) == pytest.approx((0, low, high), nan_ok=True)


# Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), sections C and D: four observers of twelve units
OBSERVERS = "1 2 3 3 2 1 4 1 2 . . .|1 2 3 3 2 2 4 1 2 5 . 3|. 3 3 3 2 3 4 2 2 5 1 .|1 2 3 3 2 4 4 1 2 5 1 ."
RATINGS = np.array([line.replace(".", "nan").split() for line in OBSERVERS.split("|")], dtype=float)


def test_alpha_is_krippendorffs_and_that_of_the_package():
    result = annotator_agreement(RATINGS.T, HOW)
    known = krippendorff.alpha(reliability_data=RATINGS, level_of_measurement="ordinal")
    assert result.alpha.value == pytest.approx(known)
    assert known == pytest.approx(0.815, abs=5e-4)
    # the twelfth unit has one rating; of the other eleven, 2, 6 and 8 have more than one value
    assert (result.alpha.n, result.observed.n, result.observed.value) == (11, 11, pytest.approx(8 / 11))


def test_completions_with_one_rating_are_left_out():
    ratings = np.array([[1.0, 1, np.nan], [2, np.nan, np.nan], [1, 2, 2]])
    result = annotator_agreement(ratings, HOW)
    assert (result.observed.n, result.observed.value) == (2, 0.5)
    with pytest.raises(ValueError, match="no completion has two ratings"):
        annotator_agreement(ratings[1:2], HOW)
    # all ratings alike
    result = annotator_agreement(np.ones((4, 3)), HOW)
    assert (result.alpha, result.observed.value) == (None, 1)


def rows(scores, items="abc"):
    return pd.DataFrame({"item": list(items), "dimension": "d", "model": "m", "score": scores})


def test_a_rating_within_the_gold_range_is_accurate():
    gold = pd.concat([rows([1, 4, 2]), rows([3, 4, np.nan]), rows([2, 5, np.nan])])
    # ranges a 1-3, b 4-5, c 2-2; ratings 3 (in), 3 (out), 2 (in); one without a score does not count
    ratings = pd.concat([rows([3, 3, 2]), rows([np.nan] * 3)])
    result = gold_accuracy(ratings, gold, HOW)
    assert (result.value, result.n) == (pytest.approx(2 / 3), 3)
    assert gold_accuracy(rows([1, 1, 1], items="xyz"), gold, HOW) is None
    # an attention check passes below the middle
    assert attention_accuracy(rows([1, 3, np.nan]), 3.0, HOW).value == 0.5
    assert attention_accuracy(rows([np.nan] * 3), 3.0, HOW) is None


def test_rank_correlation_by_hand():
    rising = np.array([1.0, 2, 3, 4, 9])
    for other, value in ((rising**2, 1), (-rising, -1)):
        result = rank_correlation(rising, other)
        assert (result.value, result.low, result.high, result.n) == (value, value, value, 5)
    # ranks 1.5 1.5 3 4 and 1 2.5 2.5 4: deviations -1 -1 .5 1.5 and -1.5 0 0 1.5
    # products 1.5 + 0 + 0 + 2.25 = 3.75; squares 4.5 each: 3.75 / 4.5
    result = rank_correlation(np.array([1.0, 1, 2, 3]), np.array([1.0, 2, 2, 3]))
    assert (result.value, result.n) == (pytest.approx(3.75 / 4.5), 4)
    # z = atanh(.8333) = 1.1989, half width 1.95996 * sqrt((1 + .6944 / 2) / 1) = 2.2749
    assert (result.low, result.high) == pytest.approx(np.tanh((1.19895 - 2.27491, 3.47386)), abs=1e-4)
    # a constant, and too few
    assert rank_correlation(np.ones(9), np.arange(9.0)) is None
    assert rank_correlation(np.arange(9.0), np.ones(9)) is None
    assert rank_correlation(np.arange(3.0), np.arange(3.0)) is None


FAMILIES = families_given({"F": ["a", "b"], "G": ["c"]})


def ratings(*rows):
    """(judge, model, score) of item i and dimension d; further columns as in the files."""
    frame = pd.DataFrame(rows, columns=["judge", "model", "score"])
    return frame.assign(item="i", dimension="d", task="t", length=1.0, annotator="", check="")


PLAIN = ratings(("human", "a", 4.0), ("human", "b", 2.0), ("a", "a", 5.0), ("a", "b", 3.0), ("c", "a", 1.0))


def test_families_are_known_by_name_or_given():
    assert [family_by_name(name) for name in ("Claude v1.3", "GPT-4", "llama3-8b", "Mixtral", "nobody")] == [
        "Claude", "GPT", "Llama 3", "Mistral", None,
    ]  # fmt: skip
    given = families_given({"F": ["x", "y"]})
    assert (given("x"), given("z")) == ("F", None)
    with pytest.raises(ValueError, match="x is in both F and G"):
        families_given({"F": ["x"], "G": ["x"]})


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
    # scores that are all alike are not stretched
    alike = PLAIN.assign(score=3.0)
    assert pair_with_reference(alike, FAMILIES, scaling="unit").scales == {"d": RatingScale(low=3.0, span=1.0)}
    assert pair_with_reference(alike.assign(score=0.0), FAMILIES).scales == {"d": RatingScale(low=0.0, span=1.0)}


def test_checks_and_gold_take_no_part():
    extra = ratings(("gold", "a", 9.0), ("a", "b", 8.0)).assign(check=["", "attention"])
    paired = pair_with_reference(pd.concat([PLAIN, extra]), FAMILIES)
    assert (paired.judges, paired.scales["d"].span, len(paired.frame)) == (["a", "c"], 5.0, 3)
    # unless gold is the reference, which then only knows a; humans are a judge like others
    by_gold = pair_with_reference(pd.concat([PLAIN, extra]), FAMILIES, reference="gold")
    assert (by_gold.judges, by_gold.frame["reference_raw"].tolist()) == (["a", "c", "human"], [9.0] * 3)


def test_rows_without_a_reference_or_a_score_are_kept_apart():
    rows = pd.concat([PLAIN, ratings(("a", "x", 2.0), ("c", "b", np.nan))])
    paired = pair_with_reference(rows, FAMILIES)
    assert (len(paired.frame), paired.unscored) == (3, 1)
    assert paired.unreferenced[["judge", "model", "rating"]].to_numpy().tolist() == [["a", "x", 0.4]]
    assert not {"reference", "reference_raw"} & set(paired.unreferenced)
    assert (paired.models, paired.dimensions, paired.families) == (["a", "b"], ["d"], {"a": "F", "b": "F", "c": "G"})
    with pytest.raises(ValueError, match="no judge's score has a reference score by 'nobody'"):
        pair_with_reference(rows, FAMILIES, reference="nobody")


def test_length_over_all_rows():
    for lengths in ([10.0, 20.0, 30.0], [1.1, 1.2, 1.3]):  # mean 20, sd 10; mean 1.2, sd 0.1
        rows = pair_with_reference(PLAIN.assign(length=[1.0, 1.0, *lengths]), FAMILIES)
        result = with_length(rows, "overall").frame["length_feature"]
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
    terms = []
    for name, value in values.items():
        kind, level = name.split("_")
        known = None if value is None else Estimate(value=value, low=value - 1, high=value + 1, n=1)
        terms.append(Term(kind=kind, level=level, estimate=known))
    return BiasFit(terms=tuple(terms), n=3, unit=unit, errors="HC1")


def test_a_coefficient_that_the_fit_lacks_counts_as_0():
    result = fit(self_a=0.1, self_c=None)
    missing = [("self", "c"), ("self", "nobody"), ("family", "a")]
    assert [result.value(*term) for term in (("self", "a"), *missing)] == [0.1, 0.0, 0.0, 0.0]
    assert [term.level for term in result.of("self")] == ["a", "c"]


def test_debiased_scores_by_hand():
    frame = debiased(pair_with_reference(PLAIN, FAMILIES), fit(self_a=0.1, family_F=0.2, self_c=0.4))
    assert frame["bias"].tolist() == [0.1, 0.2, 0.0]  # itself, a relative, a stranger
    assert frame["debiased"].tolist() == pytest.approx([0.9, 0.4, 0.2])
    assert frame["debiased_raw"].tolist() == pytest.approx([4.5, 2.0, 1.0])  # of 5
    with pytest.raises(ValueError, match="the fit is in log-odds; use a linear fit"):
        debiased(pair_with_reference(PLAIN, FAMILIES), fit(unit="log-odds"))
