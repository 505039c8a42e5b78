"""The studies' statistics against other packages that compute the same, and against published figures."""

import krippendorff
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import f1_score

from judgelm.metrics.correctness import quality
from judgelm.metrics.correlation import generation_judgment
from judgelm.metrics.ratings import annotator_agreement, family_by_name, pair_with_reference, rank_correlation
from judgelm.metrics.resampling import Resampling
from judgelm.metrics.self_bias import BiasModel, design_of, fit_self_bias

pingouin = pytest.importorskip("pingouin", reason="pingouin is not installed: pip install -e '.[dev]'")

HOW = Resampling(resamples=100)

# Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), sections C and D: four observers of twelve units
OBSERVERS = """
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 .
"""
RATINGS = np.array(
    [[np.nan if one == "." else float(one) for one in line.split()] for line in OBSERVERS.split("\n") if line]
)


@pytest.mark.parametrize(("measurement", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_is_krippendorffs(measurement, published):
    found = annotator_agreement(RATINGS.T, HOW, measurement=measurement)
    assert found.alpha.value == pytest.approx(published, abs=5e-4)
    direct = krippendorff.alpha(reliability_data=RATINGS, level_of_measurement=measurement)
    assert found.alpha.value == pytest.approx(direct)
    # the twelfth unit has one rating; of the other eleven, 2, 6 and 8 have more than one value
    assert (found.completions, found.observed.value) == (11, pytest.approx(8 / 11))


def drawn(n=400, seed=3):
    """Own answer right, judgment right, agent right; each hangs on the last."""
    rng = np.random.default_rng(seed)
    agent = rng.random(n) < 0.6
    own = rng.random(n) < np.where(agent, 0.8, 0.4)
    judged = rng.random(n) < np.where(agent, 0.9, np.where(own, 0.7, 0.3))
    return pd.DataFrame({"g": own, "j": judged, "a": agent}).astype(float)


def test_partial_correlations_are_pingouins_with_their_interval():
    frame = drawn()
    found = generation_judgment(frame["g"].to_numpy(), frame["j"].to_numpy(), frame["a"].to_numpy(), None, HOW)
    partial = pingouin.partial_corr(frame, x="g", y="j", covar="a").iloc[0]
    assert found.g_j_given_a.estimate.value == pytest.approx(partial["r"])
    bounds = (found.g_j_given_a.fisher.low, found.g_j_given_a.fisher.high)
    assert bounds == pytest.approx(tuple(partial["CI95"]), abs=5e-3)  # pingouin rounds to two decimals
    plain = pingouin.corr(frame["g"], frame["j"]).iloc[0]
    assert found.g_j.estimate.value == pytest.approx(plain["r"])


def test_spearman_with_ties_is_scipys_and_pingouins():
    rng = np.random.default_rng(5)
    human = rng.integers(1, 6, 300)
    judged = np.clip(human + rng.integers(-1, 2, 300), 1, 5)
    found = rank_correlation(judged.astype(float), human.astype(float))
    assert found.value == pytest.approx(stats.spearmanr(judged, human).statistic)
    assert found.value == pytest.approx(pingouin.corr(judged, human, method="spearman")["r"].iloc[0])


def test_f1_is_scikit_learns():
    frame = drawn(seed=4)
    truth, judged = frame["a"].to_numpy(bool), frame["j"].to_numpy(bool)
    assert quality(truth, judged, None, HOW).f1.value == pytest.approx(f1_score(truth, judged))


def ratings(seed=0):
    """Scores by two judges of one family that grow more scattered with the reference, so that HC errors matter."""
    rng = np.random.default_rng(seed)
    rows = []
    for item in range(60):
        for model in ("GPT-1", "GPT-2", "Llama 3 8B"):
            human = int(rng.integers(1, 8))
            shared = {"item": str(item), "dimension": "d", "task": "t", "model": model, "check": "", "length": 1.0}
            rows.append(shared | {"judge": "human", "annotator": "0", "score": float(human)})
            rows += [
                shared | {"judge": judge, "annotator": "", "score": float(human + rng.normal(0, human / 3))}
                for judge in ("GPT-1", "GPT-2")
            ]
    return pair_with_reference(pd.DataFrame(rows), family_by_name)


@pytest.mark.parametrize(("errors", "factor"), [("HC0", lambda n, k: 1.0), ("HC1", lambda n, k: n / (n - k))])
def test_robust_errors_are_those_of_rs_sandwich(errors, factor):
    # vcovHC(lm(...), type): (X'X)^-1 X' diag(u^2) X (X'X)^-1, and for HC1 n / (n - k) times that
    paired = ratings()
    model = BiasModel(errors=errors)
    fit = fit_self_bias(paired, model)
    design, rating = design_of(paired.frame, model).matrix, paired.frame["rating"].to_numpy()
    n, k = design.shape
    bread = np.linalg.inv(design.T @ design)
    estimates = bread @ design.T @ rating
    scores = design * (rating - design @ estimates)[:, None]
    variance = factor(n, k) * bread @ scores.T @ scores @ bread
    assert [term.estimate.value for term in fit.terms] == pytest.approx(list(estimates))
    assert [term.error for term in fit.terms] == pytest.approx(list(np.sqrt(np.diag(variance))))
    # and 90 % Wald intervals with the normal quantile 1.6449
    first = fit.terms[0]
    assert first.estimate.high - first.estimate.value == pytest.approx(1.6448536 * first.error)
