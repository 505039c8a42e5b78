import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from statsmodels.miscmodels.ordinal_model import OrderedModel

from judgelm.metrics.ratings import family_by_name, pair_with_reference
from judgelm.metrics.self_bias import BiasModel, TooFewRatings, design_of, fit_ordinal

NAMES = ("Claude a", "Claude b", "GPT-1", "GPT-2")


def paired(levels=3, *, own=None):
    """Random ratings on 0 .. levels - 1; a judge's rating of its own completion is `own` where given."""
    generator = np.random.default_rng(1)
    rows = []
    for item, model in itertools.product(range(40), NAMES):
        shared = {"item": str(item), "dimension": "d", "model": model, "task": "t", "length": 1.0, "check": ""}
        rows.append(shared | {"judge": "human", "score": float(generator.integers(levels)), "annotator": "mean"})
        for judge in NAMES:
            score = float(generator.integers(levels))
            favoured = own is not None and judge == model == "GPT-1"
            rows.append(shared | {"judge": judge, "score": own if favoured else score, "annotator": ""})
    return pair_with_reference(pd.DataFrame(rows), family_by_name)


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
    import statsmodels.api as sm

    ratings = paired(levels=2)
    fit = fit_ordinal(ratings)
    design = design_of(ratings.frame, BiasModel())
    theirs = sm.Logit(ratings.frame["rating_raw"].to_numpy(), design.matrix).fit(disp=False)
    own = [i for i, (kind, _) in enumerate(design.terms) if kind == "self"]
    assert [term.estimate.value for term in fit.of("self")] == pytest.approx(list(theirs.params[own]), abs=1e-6)
    assert [term.error for term in fit.of("self")] == pytest.approx(list(theirs.bse[own]), abs=1e-6)  # exact, too
    assert (fit.n, fit.unit, fit.errors, fit.left_out) == (640, "log-odds", "from the likelihood", "")
    for term in fit.of("self"):  # of 90 %
        assert term.estimate.high - term.estimate.value == pytest.approx(1.6448536 * term.error, rel=1e-6)


@pytest.mark.parametrize("own", [2.0, 0.0])
def test_a_judge_that_gives_itself_only_the_best_or_the_worst_has_no_finite_estimate(own):
    fit = fit_ordinal(paired(own=own))
    result = {term.level: term.estimate for term in fit.of("self")}
    assert result["GPT-1"] is None
    assert result["GPT-2"] is not None
    assert (fit.left_out, fit.n) == ("40 ratings that are fitted perfectly by a bias", 600)


def test_a_family_that_gives_its_own_only_the_best_has_no_finite_estimate_either():
    ratings = paired(own=0.0)
    ratings.frame.loc[ratings.frame["family"] == "GPT", "rating_raw"] = 2.0
    fit = fit_ordinal(ratings)
    assert {term.level: term.estimate is None for term in fit.of("family")} == {"Claude": False, "GPT": True}
    assert {term.level for term in fit.of("self") if term.estimate is None} == {"GPT-1"}
    assert fit.left_out == "120 ratings that are fitted perfectly by a bias"  # 80 of relatives, 40 of GPT-1 itself


def test_a_judge_that_rates_only_itself_has_no_self_bias_that_could_be_told():
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
    monkeypatch.setattr("judgelm.metrics.self_bias._MAX_STEPS", 1)
    fit = fit_ordinal(paired())
    assert not fit.converged
    assert [(term.estimate, term.error, term.p) for term in fit.terms] == [(None, None, None)] * len(fit.terms)


def test_what_is_constant_or_of_several_dimensions_is_refused():
    ratings = paired()
    ratings.frame["dimension"] = ["d", "e"] * (len(ratings.frame) // 2)
    with pytest.raises(ValueError, match="expected one dimension"):
        fit_ordinal(ratings)
    with pytest.raises(ValueError, match="too few"):
        fit_ordinal(paired(levels=1))


def test_not_more_ratings_than_coefficients_are_too_few():
    model = BiasModel(self_bias=False, family_bias=False)
    ratings = paired()
    three = ratings.frame[ratings.frame["judge"].isin(NAMES[:2])][:3].assign(rating_raw=[0.0, 1.0, 0.0])
    # an intercept of the second judge and a slope for each
    assert design_of(three, model, intercepts=False).matrix.shape == (3, 3)
    with pytest.raises(TooFewRatings, match="3 ratings with 2 levels"):
        fit_ordinal(replace(ratings, frame=three), model)
