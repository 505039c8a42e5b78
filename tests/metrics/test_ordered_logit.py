"""The ordered logit's maximum: found by other optimisers too, with the errors of the exact Hessian, or not claimed."""

import numpy as np
import pytest
from statsmodels.miscmodels.ordinal_model import OrderedModel

from judgelm.metrics.ordered_logit import ordered_logit


def ratings(judges=3, each=200):
    """Scores 1 to 5 by judges of different severity, with a reference of three people's mean and own completions."""
    generator = np.random.default_rng(5)
    rows = []
    for judge in range(judges):
        quality = generator.normal(size=each)
        reference = np.clip(np.round(3 + quality[:, None] + generator.normal(size=(each, 3))), 1, 5).mean(axis=1) / 5
        own = generator.random(each) < 0.2
        score = np.clip(np.round(3.4 + 0.4 * judge + 0.8 * quality + 0.7 * own + generator.logistic(size=each)), 1, 5)
        dummies = np.tile(np.arange(1, judges) == judge, (each, 1))
        slopes = reference[:, None] * (np.arange(judges) == judge)
        rows.append(np.column_stack([dummies, slopes, own[:, None] * (np.arange(judges) == judge), score]))
    stacked = np.concatenate(rows)
    return np.unique(stacked[:, -1], return_inverse=True)[1], stacked[:, :-1]


def once(levels):
    return np.ones(len(levels), dtype=int)


@pytest.mark.parametrize(
    ("judges", "options"), [(3, {"method": "bfgs", "gtol": 1e-8, "maxiter": 5000}), (1, {"method": "newton"})]
)
def test_other_optimisers_of_another_parametrisation_find_the_same_maximum(judges, options):
    levels, matrix = ratings(judges)
    ours = ordered_logit(levels, matrix, once(levels))
    theirs = OrderedModel(levels, matrix, distr="logit").fit(disp=False, **options)
    columns = matrix.shape[1]
    assert ours.converged
    assert ours.coefficients == pytest.approx(theirs.params[:columns], abs=1e-5)
    assert ours.errors == pytest.approx(theirs.bse[:columns], abs=2e-4)  # theirs: of a Hessian by differences
    assert ours.log_likelihood == pytest.approx(theirs.llf, abs=1e-8)


def test_counted_rows_are_the_rows_themselves():
    levels, matrix = ratings(each=60)
    counts = np.random.default_rng(0).integers(1, 4, len(levels))
    counted = ordered_logit(levels, matrix, counts)
    repeated = np.repeat(np.arange(len(levels)), counts)
    whole = ordered_logit(levels[repeated], matrix[repeated], once(repeated))
    assert counted.coefficients == pytest.approx(whole.coefficients, abs=1e-9)
    assert counted.errors == pytest.approx(whole.errors, abs=1e-9)


def test_one_group_of_two_levels_by_hand():
    # 30 of 40 high with the flag, 10 of 40 without: the log of odds 3 against 1/3, and sqrt(1/30 + 1/10 + 1/10 + 1/30)
    levels, flags = np.array([0, 1, 0, 1]), np.array([[1.0], [1.0], [0.0], [0.0]])
    fit = ordered_logit(levels, flags, np.array([10, 30, 30, 10]))
    values = (fit.coefficients[0], fit.errors[0], fit.thresholds[0])
    assert values == pytest.approx((np.log(9), np.sqrt(4 / 15), np.log(3)), abs=1e-9)


def test_separated_levels_have_no_maximum():
    x = np.linspace(0, 1, 40)[:, None]
    for levels in ((x[:, 0] > 0.5).astype(int), np.minimum((x[:, 0] * 3).astype(int), 2)):
        fit = ordered_logit(levels, x, once(levels))
        # the likelihood tends to 1 as the slope grows without end
        assert (fit.converged, fit.log_likelihood > -0.1) == (False, True)


def test_far_tails_keep_their_digits():
    # cdf differences would be 1 - 1 = 0 here: an outlier 60 away from where its level is expected
    x = np.concatenate([np.linspace(-1, 1, 60), [60.0]])[:, None]
    levels = np.concatenate([np.arange(60) % 3, [0]])
    fit = ordered_logit(levels, x, once(levels))
    assert (fit.converged, np.isfinite(fit.log_likelihood)) == (True, True)


def test_a_level_that_no_row_has_is_refused():
    for levels, finding in (([0, 2], "levels, .* 0 to 2"), ([0, 0], "two or more levels")):
        with pytest.raises(ValueError, match=finding):
            ordered_logit(np.array(levels), np.zeros((2, 1)), once(levels))
