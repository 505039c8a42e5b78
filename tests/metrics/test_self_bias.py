"""The self-bias regressions: their columns, known biases, the authors' formula and figures, and the ordinal fit."""

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from statsmodels.discrete.discrete_model import Logit
from statsmodels.miscmodels.ordinal_model import OrderedModel

from judgelm.data.sources.rating_tables import read_ratings
from judgelm.metrics.ratings import family_as_reference, family_by_name, pair_with_reference, with_length
from judgelm.metrics.self_bias import (
    BiasModel,
    TooFewRatings,
    design_of,
    fit_ordinal,
    fit_self_bias,
    redundant,
    unidentified,
)

NAMES = ("Claude a", "Claude b", "GPT-1", "GPT-2")


def long_rows(rate, *, items=8, dimensions=("d",), judges=NAMES, models=NAMES, length=10.0):
    """Ratings `rate(judge, model, reference)` of completions whose human score goes round 1 to 5."""
    rows = []
    for i, dimension, (place, model) in itertools.product(range(items), dimensions, enumerate(models)):
        reference = 1 + (i * 3 + place * 2 + len(dimension)) % 5
        shared = {"item": str(i), "dimension": dimension, "model": model, "task": "t", "length": length, "check": ""}
        rows.append(shared | {"judge": "human", "score": reference, "annotator": "mean"})
        rows += [shared | {"judge": judge, "score": rate(judge, model, reference), "annotator": ""} for judge in judges]
    return pd.DataFrame(rows)


def favouring(judge, model, reference):
    """In raw scores on a scale that ends at 5: slope 1/2, own completions +1, those of the family +0.5."""
    own, family = judge == model, judge != model and judge[:3] == model[:3]
    return 1 + 0.5 * reference + own + 0.5 * family


def random_rows(**how):
    generator = np.random.default_rng(0)
    return long_rows(lambda *known: float(generator.integers(1, 6)), **how)


def term(fit, kind, level):
    return next(each for each in fit.of(kind) if each.level == level)


def test_a_bias_without_noise_is_found_exactly():
    paired = pair_with_reference(long_rows(favouring), family_by_name)
    fit = fit_self_bias(paired)
    # the highest score is 5 by a human and 1 + 2.5 + 1 = 4.5 by a judge: all are divided by 5
    for kind, expected in (("self", [0.2] * 4), ("family", [0.1] * 2), ("slope", [0.5] * 4)):  # +1 and +0.5 of 5
        assert [round(term.estimate.value, 9) for term in fit.of(kind)] == expected
    assert term(fit, "self", "GPT-1").estimate.n == 8  # one own completion of each item


@pytest.mark.parametrize("errors", ["HC1", "HC0"])
@pytest.mark.parametrize("dimensions", [("d",), ("d", "eee")])
def test_estimates_errors_and_intervals_are_those_of_the_authors_formula(errors, dimensions):
    paired = pair_with_reference(random_rows(dimensions=dimensions), family_by_name)
    fit = fit_self_bias(paired, BiasModel(errors=errors))
    frame = paired.frame.replace({"own": {"": "0"}, "family": {"": "0"}})
    formula = "rating ~ judge + reference:judge + own + family - 1" + " + dimension" * (len(dimensions) > 1)
    theirs = smf.ols(formula, frame.astype({"own": object})).fit(cov_type=errors)
    for kind, name in (("self", "own[T.GPT-2]"), ("family", "family[T.GPT]"), ("slope", "reference:judge[GPT-2]")):
        mine = term(fit, kind, "GPT" if kind == "family" else "GPT-2")
        estimate, known = mine.estimate, (theirs.params[name], theirs.bse[name], theirs.pvalues[name])
        assert (estimate.value, mine.error, mine.p) == pytest.approx(known, abs=1e-10)
        reaches = (estimate.high - estimate.value, estimate.value - estimate.low)
        assert (reaches, estimate.level) == (pytest.approx([1.6448536 * mine.error] * 2, rel=1e-6), 0.90)
    assert (fit.n, fit.unit, fit.errors, fit.converged) == (len(frame), "normalised score", errors, True)


def test_errors_clustered_by_item_are_those_of_statsmodels():
    paired = pair_with_reference(random_rows(), family_by_name)
    fit = fit_self_bias(paired, BiasModel(errors="cluster", self_bias=False, family_bias=False))
    groups = paired.frame["item"].astype(int).to_numpy()
    ols = smf.ols("rating ~ judge + reference:judge - 1", paired.frame)
    theirs = ols.fit(cov_type="cluster", cov_kwds={"groups": groups})
    assert term(fit, "slope", "GPT-1").error == pytest.approx(theirs.bse["reference:judge[GPT-1]"])
    assert fit.errors == "clustered by item"


def test_unidentified_terms_have_no_estimate():
    rows = long_rows(favouring, judges=("Claude a", "GPT-1", "Other"), models=("Claude a", "Claude b", "GPT-1"))
    fit = fit_self_bias(pair_with_reference(rows, family_by_name))
    assert [term.level for term in fit.of("self")] == ["Claude a", "GPT-1"]  # Other rates nothing of its own
    assert [term.level for term in fit.of("family")] == ["Claude"]  # GPT-1 has no relative
    alone = long_rows(favouring, judges=("Claude a",), models=("Claude a",))
    fit = fit_self_bias(pair_with_reference(alone, family_by_name))
    assert term(fit, "self", "Claude a").estimate is None  # the intercept can take it over
    assert term(fit, "slope", "Claude a").estimate.value == pytest.approx(0.5)


def test_too_few_ratings_are_rejected():
    with pytest.raises(TooFewRatings, match="4 ratings are too few"):
        fit_self_bias(pair_with_reference(long_rows(favouring, items=1, models=NAMES[:1]), family_by_name))
    # intercept, slope and self-bias of one judge: three rows are as many as coefficients, four are one more
    three, four = (long_rows(favouring, items=1, judges=NAMES[:1], models=(NAMES[0], *"xyz"[:n])) for n in (2, 3))
    with pytest.raises(TooFewRatings, match="3 ratings are too few"):
        fit_self_bias(pair_with_reference(three, family_by_name))
    assert fit_self_bias(pair_with_reference(four, family_by_name)).n == 4


def test_the_reference_is_the_mean_over_annotators_without_missing_scores():
    rows = long_rows(favouring, items=1)
    more = rows.iloc[[0, 0]].assign(score=[4.0, np.nan], annotator=["y", "z"])
    paired = pair_with_reference(pd.concat([rows, more]), family_by_name)
    # the first completion's human score is 1 + 1 % 5 = 2; (2 + 4) / 2 = 3
    assert paired.frame["reference_raw"].iloc[0] == 3


def test_length_is_a_bounded_z_score_whose_effect_is_found_per_judge_or_shared():
    rows = long_rows(favouring, items=2, judges=NAMES[:1], models=NAMES[:2])
    rows["length"] = rows["model"].map({"Claude a": 10.0, "Claude b": 20.0})
    paired = with_length(pair_with_reference(rows, family_by_name), "prompt")
    # mean 15, sd with ddof 1 is sqrt(25 + 25) = 7.0711, z = -+0.70711
    assert sorted(set(paired.frame["length_feature"].round(6))) == [-0.608859, 0.608859]
    rows = long_rows(favouring)
    rows["length"] = np.arange(len(rows)) % 7 + 1.0
    paired = with_length(pair_with_reference(rows, family_by_name), "overall")
    longer = paired.frame.assign(rating=paired.frame["rating"] + 0.03 * paired.frame["length_feature"])
    for how, level in (("per_judge", "GPT-1"), ("shared", "all judges")):
        fit = fit_self_bias(replace(paired, frame=longer), BiasModel(length=how))
        assert term(fit, "length", level).estimate.value == pytest.approx(0.03)
        assert term(fit, "self", "GPT-1").estimate.value == pytest.approx(0.2)


def test_an_indicator_measures_another_bias_beside_the_others():
    rows = long_rows(favouring)
    rows["polite"] = ["true" if i % 3 else "false" for i in range(len(rows))]
    rows["score"] += (rows["judge"] == "GPT-1") * (rows["polite"] == "true") * 0.25
    fit = fit_self_bias(pair_with_reference(rows, family_by_name), BiasModel(indicator="polite"))
    assert term(fit, "indicator", "GPT-1").estimate.value == pytest.approx(0.05)  # 0.25 of 5
    assert term(fit, "indicator", "GPT-2").estimate.value == pytest.approx(0, abs=1e-9)


def test_a_spline_takes_a_bent_reference_for_what_it_is():
    def bent(judge, model, reference):
        return reference**3 / 25 + (judge == model) * 0.5

    paired = pair_with_reference(long_rows(bent), family_by_name)
    straight, spline = fit_self_bias(paired), fit_self_bias(paired, BiasModel(reference="spline"))
    assert paired.scales["d"].span == 5.5  # 125 / 25 + 0.5
    assert term(spline, "self", "GPT-1").estimate.value == pytest.approx(0.5 / 5.5)
    assert abs(term(straight, "self", "GPT-1").estimate.value - 0.5 / 5.5) > 1e-4


def test_a_familys_judges_as_reference_leave_with_their_completions_or_without():
    paired = pair_with_reference(long_rows(favouring), family_by_name)
    paper = family_as_reference(paired, "GPT")
    authors = family_as_reference(paired, "GPT", completions_too=False)
    assert (paper.judges, paper.models) == (["Claude a", "Claude b"], ["Claude a", "Claude b"])
    assert (authors.judges, authors.models) == (["Claude a", "Claude b"], list(NAMES))
    first = paper.frame.iloc[0]
    by_family = paired.frame[(paired.frame["item"] == first["item"]) & (paired.frame["model"] == first["model"])]
    assert first["reference"] == by_family[by_family["judge"].str.startswith("GPT")]["rating"].mean()
    with pytest.raises(ValueError, match=r"has no judge; available: \['Claude', 'GPT'\]"):
        family_as_reference(paired, "Llama 3")


def test_the_released_faithfulness_ratings_give_the_authors_figures(shared_data):
    folder = os.environ.get("JUDGELM_PLAY_FAVORITES")
    if not folder:
        pytest.skip("JUDGELM_PLAY_FAVORITES does not name the folder of the released Play Favorites data")
    table = read_ratings([Path(folder) / "Faithfulness.csv"])
    fit = fit_self_bias(pair_with_reference(table.frame, family_by_name))
    expected = json.loads((shared_data / "expected" / "play_favorites_faithfulness.json").read_text())["terms"]
    kinds = {"delta": "judge", "gamma": "self", "lambda": "family", "beta": "slope"}
    assert (fit.n, len(fit.terms), len(expected)) == (16137, 31, 31)
    for row in expected:
        result = term(fit, kinds[row["param"]], row["level"])
        assert result.estimate.value == pytest.approx(row["estimate"], abs=1e-6)
        assert result.error == pytest.approx(row["se_HC1"], abs=1e-6)


def paired(levels=3, *, own=None):
    """Random ratings on 0 .. levels - 1; GPT-1's rating of its own completion is `own` where given."""
    generator = np.random.default_rng(1)

    def rate(judge, model, reference):
        score = float(generator.integers(levels))
        return own if own is not None and judge == model == "GPT-1" else score

    return pair_with_reference(long_rows(rate, items=40), family_by_name)


def test_alike_rows_counted_give_the_fit_of_all_rows():
    ratings = paired()
    fit = fit_ordinal(ratings)
    design = design_of(ratings.frame, BiasModel(), intercepts=False)
    whole = OrderedModel(ratings.frame["rating_raw"].astype(int).to_numpy(), design.matrix, distr="logit")
    theirs = whole.fit(method="bfgs", disp=False, maxiter=5000, gtol=1e-8)
    assert fit.converged
    for i, term in enumerate(fit.terms):
        assert term.estimate.value == pytest.approx(theirs.params[i], abs=1e-5)
        assert term.error == pytest.approx(theirs.bse[i], abs=1e-3)  # theirs: of a Hessian by differences


def test_two_levels_are_the_logistic_regression():
    ratings = paired(levels=2)
    fit = fit_ordinal(ratings)
    design = design_of(ratings.frame, BiasModel())
    theirs = Logit(ratings.frame["rating_raw"].to_numpy(), design.matrix).fit(disp=False)
    own = [i for i, (kind, _) in enumerate(design.terms) if kind == "self"]
    assert [term.estimate.value for term in fit.of("self")] == pytest.approx(list(theirs.params[own]), abs=1e-6)
    assert [term.error for term in fit.of("self")] == pytest.approx(list(theirs.bse[own]), abs=1e-6)  # exact, too
    assert (fit.n, fit.unit, fit.errors, fit.left_out) == (640, "log-odds", "from the likelihood", "")
    for term in fit.of("self"):  # of 90 %
        assert term.estimate.high - term.estimate.value == pytest.approx(1.6448536 * term.error, rel=1e-6)


@pytest.mark.parametrize("own", [2.0, 0.0])
def test_a_judge_that_gives_itself_only_the_best_or_the_worst_has_no_finite_estimate(own):
    fit = fit_ordinal(paired(own=own))
    assert [term.level for term in fit.of("self") if term.estimate is None] == ["GPT-1"]
    assert (fit.left_out, fit.n) == ("40 ratings that are fitted perfectly by a bias", 600)


def test_a_family_that_gives_its_own_only_the_best_has_no_finite_estimate_either():
    ratings = paired(own=0.0)
    ratings.frame.loc[ratings.frame["family"] == "GPT", "rating_raw"] = 2.0
    fit = fit_ordinal(ratings)
    assert {term.level: term.estimate is None for term in fit.of("family")} == {"Claude": False, "GPT": True}
    assert {term.level for term in fit.of("self") if term.estimate is None} == {"GPT-1"}
    assert fit.left_out == "120 ratings that are fitted perfectly by a bias"  # 80 of relatives, 40 of GPT-1 itself


def test_a_judge_that_rates_only_itself_has_no_self_bias():
    ratings = paired()
    two = ratings.frame[ratings.frame["judge"].isin(["Claude a", "GPT-1"])]
    for judge in ("GPT-1", "Claude a"):
        rows = (two["judge"] != judge) | (two["model"] == judge)
        fit = fit_ordinal(replace(ratings, frame=two[rows]), BiasModel(family_bias=False))
        # the second judge's intercept is relative to the first one's, which the thresholds take over
        assert [(term.kind, term.level) for term in fit.terms if term.estimate is None] == [
            ("judge", "GPT-1"), ("self", judge),
        ]  # fmt: skip
        assert fit.converged


def test_a_search_that_is_cut_short_gives_no_estimates(monkeypatch):
    monkeypatch.setattr("judgelm.metrics.ordered_logit._MAX_STEPS", 1)
    fit = fit_ordinal(paired())
    assert not fit.converged
    assert [(term.estimate, term.error, term.p) for term in fit.terms] == [(None, None, None)] * len(fit.terms)


def test_constant_scores_several_dimensions_and_too_few_ratings_are_rejected():
    ratings = paired()
    ratings.frame["dimension"] = ["d", "e"] * (len(ratings.frame) // 2)
    with pytest.raises(ValueError, match="expected one dimension"):
        fit_ordinal(ratings)
    with pytest.raises(ValueError, match="too few"):
        fit_ordinal(paired(levels=1))
    model = BiasModel(self_bias=False, family_bias=False)
    ratings = paired()
    three = ratings.frame[ratings.frame["judge"].isin(NAMES[:2])][:3].assign(rating_raw=[0.0, 1.0, 0.0])
    # an intercept of the second judge and a slope for each
    assert design_of(three, model, intercepts=False).matrix.shape == (3, 3)
    with pytest.raises(TooFewRatings, match="3 ratings with 2 levels"):
        fit_ordinal(replace(ratings, frame=three), model)


def frame(**columns):
    """Two judges, a relative pair, two dimensions; `own` and `family` are empty in the control group."""
    rows = {"judge": [*"aabb"], "reference": [0.2, 0.4, 0.6, 1.0], "dimension": [*"xyxy"]}
    return pd.DataFrame(rows | {"own": ["a", "", "", "b"], "family": ["", "F", "", ""]} | columns)


def columns_of(design):
    return {term: design.matrix[:, place].tolist() for place, term in enumerate(design.terms)}


def test_columns_of_the_authors_formula_by_hand():
    assert columns_of(design_of(frame(), BiasModel())) == {
        ("judge", "a"): [1, 1, 0, 0],
        ("judge", "b"): [0, 0, 1, 1],
        ("slope", "a"): [0.2, 0.4, 0, 0],
        ("slope", "b"): [0, 0, 0.6, 1.0],
        ("self", "a"): [1, 0, 0, 0],
        ("self", "b"): [0, 0, 0, 1],
        ("family", "F"): [0, 1, 0, 0],
        ("dimension", "y"): [0, 1, 0, 1],  # relative to x
    }


def test_terms_are_left_out_as_asked():
    model = BiasModel(self_bias=False, family_bias=False)
    rows = frame(dimension=["x"] * 4)
    assert design_of(rows, model).terms == (("judge", "a"), ("judge", "b"), ("slope", "a"), ("slope", "b"))
    # thresholds take the first judge's intercept over
    assert design_of(rows, model, intercepts=False).terms == (("judge", "b"), ("slope", "a"), ("slope", "b"))


def test_length_has_a_slope_for_each_judge_or_one_for_all():
    model = BiasModel(self_bias=False, family_bias=False)
    rows = frame(length_feature=[0.1, -0.1, 0.3, 0.0])
    apart = columns_of(design_of(rows, BiasModel(length="per_judge")))
    assert (apart["length", "a"], apart["length", "b"]) == ([0.1, -0.1, 0, 0], [0, 0, 0.3, 0])
    assert columns_of(design_of(rows, BiasModel(length="shared")))["length", "all judges"] == [0.1, -0.1, 0.3, 0]
    assert not [kind for kind, _ in design_of(rows, model).terms if kind == "length"]


def test_an_indicator_is_0_or_1_however_it_is_written():
    rows = frame(polite=[" True ", 0, "1.0", False])
    result = columns_of(design_of(rows, BiasModel(indicator="polite")))
    assert (result["indicator", "a"], result["indicator", "b"]) == ([1, 0, 0, 0], [0, 0, 1, 0])
    rows = frame(polite=["false", "0.0", 1, "TRUE"])
    result = columns_of(design_of(rows, BiasModel(indicator="polite")))
    assert (result["indicator", "a"], result["indicator", "b"]) == ([0, 0, 0, 0], [0, 0, 1, 1])


def test_a_spline_has_its_pieces_judge_by_judge():
    terms = design_of(frame(), BiasModel(reference="spline")).terms
    # four knots and degree three are six pieces, of which one is in the intercept
    pieces = [f"{judge} {n}" for n in range(1, 6) for judge in "ab"]
    assert [level for kind, level in terms if kind == "spline"] == pieces
    flat = design_of(frame(reference=0.5), BiasModel(reference="spline"))
    assert [kind for kind, _ in flat.terms if kind in ("spline", "slope")] == ["slope", "slope"]


@pytest.mark.parametrize(
    ("rows", "model", "finding"),
    [
        (frame().iloc[:0], BiasModel(), "no ratings to fit"),
        (frame(), BiasModel(length="shared"), 'no column "length_feature"; add it with with_length'),
        (frame(), BiasModel(indicator="polite"), 'no column "polite"; choose a column'),
        (frame(polite=[0, 1, 2, 1]), BiasModel(indicator="polite"), r"expected 0 or 1 in every row, got '2'"),
    ],
)
def test_missing_rows_and_columns_are_rejected(rows, model, finding):
    with pytest.raises(ValueError, match=finding):
        design_of(rows, model)


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        # the second is twice the first, the last is zero; 0.5 (first) + 1 (third) is independent of them
        ([[1, 2, 0, 0], [1, 2, 1, 0], [1, 2, 3, 0]], [True, True, False, True]),
        (np.eye(3), [False] * 3),
        ([[1, 1, 1]], [True] * 3),  # fewer rows than columns: some dependency has a part of each
        (np.diag([1.0, 1e-12]), [False, False]),  # small numbers are told like any others
        (np.zeros((3, 2)), [True, True]),
    ],
)
def test_a_column_that_others_can_take_over_is_not_identified(matrix, expected):
    assert unidentified(np.array(matrix, dtype=float)).tolist() == expected


def test_redundant_columns_are_as_many_as_leave_the_others_independent():
    matrix = np.array([[1.0, 2, 0, 0], [1, 2, 1, 0], [1, 2, 3, 0]])
    gone = redundant(matrix)
    assert (gone[:2].sum(), gone[2:].tolist()) == (1, [False, True])
    for independent in (np.eye(3), np.diag([1.0, 1e-12, 1.0])):
        assert redundant(independent).tolist() == [False] * 3
    assert redundant(np.zeros((3, 2))).tolist() == [True, True]
    # dummies of two levels sum to 1; a column of ones is the constant itself
    dummies = np.array([[1.0, 0], [1, 0], [0, 1]])
    assert redundant(dummies).sum() == 0
    assert redundant(dummies, constant=True).sum() == 1
    assert redundant(np.array([[1.0, 0], [1, 1], [1, 3]]), constant=True).tolist() == [True, False]
    # the mean of three times 0.1 is not 0.1 to the last bit
    assert redundant(np.full((3, 1), 0.1), constant=True).tolist() == [True]
    assert redundant(np.array([[1.0], [1.000001], [0.999999]]), constant=True).tolist() == [False]
