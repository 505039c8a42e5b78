"""The corrected win rates by hand, against ppi-python, and the coverage of their intervals."""

import re

import numpy as np
import pytest
from scipy import stats

from benchmarks.estimate_coverage import World, coverage, draw
from judgelm.metrics.true_win_rate import (
    JudgedPairs,
    Stratum,
    TooFewLabels,
    labels_needed,
    stratified_mean,
    true_win_rate,
)


def pairs(verdicts, labels):
    verdicts = np.array(verdicts, dtype=float)
    labels = np.array(labels, dtype=float)
    return JudgedPairs(verdicts=verdicts, proxy=verdicts, labels=labels, clusters=range(len(verdicts)))


def world(**changes):
    return World(**{"wins": 0.6, "ties": 0.1, "hit": 0.8, "pairs": 1000, "labels": 100, "bias": 0.2} | changes)


def test_rogan_gladen_by_hand():
    # labelled: 10 wins, of which the judge sees 8; 10 losses, of which it calls 3 wins; 30 more pairs: 21 wins
    verdicts = [1] * 8 + [0] * 2 + [1] * 3 + [0] * 7 + [1] * 21 + [0] * 9
    result = true_win_rate(pairs(verdicts, [1] * 10 + [0] * 10 + [None] * 30))
    # judged rate (8 + 3 + 21) / 50 = 0.64; (0.64 + 0.7 - 1) / (0.8 + 0.7 - 1)
    assert (result.rogan_gladen.value, result.judge.value) == pytest.approx((0.68, 0.64))
    assert [error.sensitivity.value for error in result.errors] == [0.8, 0.7]
    # a tie is half a win
    # a judge without errors: 10 wins, 4 ties, 6 losses, and as many again unlabelled
    verdicts = ([1.0] * 10 + [0.5] * 4 + [0.0] * 6) * 2
    result = true_win_rate(pairs(verdicts, verdicts[:20] + [None] * 20))
    assert (result.rogan_gladen.value, result.ppi.value) == pytest.approx((12 / 20, 12 / 20))


def test_ppi_is_that_of_the_package():
    labels = [1, 1, 0.5, 0, 1, 0, 0, 1, 0.5, 1, 0, 1]
    rated = [0.9, 0.7, 0.6, 0.2, 0.8, 0.4, 0.1, 0.6, 0.5, 0.3, 0.3, 0.95]
    rated_only = [0.9, 0.1, 0.8, 0.7, 0.3, 0.55, 0.6, 0.2, 0.85, 0.4, 0.65, 0.75, 0.35, 0.9, 0.5]
    estimate = true_win_rate(pairs(rated + rated_only, labels + [None] * 15)).ppi
    # ppi-python 0.2.3: ppi_mean_pointestimate(*arrays) and ppi_mean_ci(*arrays, alpha=0.05)
    assert estimate.value == pytest.approx(0.6137222614030812, rel=1e-12)
    low, high = 0.40855833663410535, 0.818886186172057
    # ours is of Student's t and has the sample's own degrees of freedom: wider by 1.21 with 12 labels
    assert 1.1 < (estimate.high - estimate.low) / (high - low) < 1.3


def test_questions_are_clusters():
    generator = np.random.default_rng(0)
    alone = draw(world(per_question=1, bias=0, hit=1.0), generator)
    columns = {name: np.repeat(getattr(alone, name), 4) for name in ("verdicts", "proxy", "labels")}
    repeated = JudgedPairs(clusters=np.repeat(np.arange(len(alone.verdicts)), 4).tolist(), **columns)
    narrow, wide = true_win_rate(alone).labels, true_win_rate(repeated).labels
    assert wide.high - wide.low == pytest.approx(narrow.high - narrow.low, rel=0.01)


def test_without_an_estimate_there_is_a_reason():
    few = true_win_rate(pairs([1] * 20, [1] * 9 + [None] * 11))
    assert few.ppi == few.rogan_gladen == few.labels == "9 labels are too few (minimum: 10)"
    always = true_win_rate(pairs([1] * 20, [1] * 6 + [0] * 6 + [None] * 8))
    assert "no better than chance" in always.rogan_gladen
    assert always.ppi == "the judge gives every pair the same value"
    assert true_win_rate(pairs([1, 0] * 10, [1] * 10 + [0] * 10)).ppi == "every pair has a label"
    no_loss = true_win_rate(pairs([1, 0] * 10, [1] * 12 + [None] * 8))
    assert re.search("no labelled pair|all labelled pairs have", no_loss.rogan_gladen)
    assert (no_loss.labels.value, no_loss.labels.high) == (1.0, 1.0)
    assert 0.7 < no_loss.labels.low < 0.8  # Wilson's, 12 of 12: 0.757


def test_labels_that_are_no_random_part_are_noticed():
    assert true_win_rate(pairs([1] * 40 + [0] * 60, [1] * 25 + [0] * 15 + [None] * 60)).drift < 0.01
    assert true_win_rate(draw(world(), np.random.default_rng(0))).drift > 0.01


def test_the_number_of_labels_gives_the_width_that_was_asked_for():
    generator = np.random.default_rng(1)
    needed = labels_needed(draw(world(labels=300), generator), 0.12)
    estimates = [true_win_rate(draw(world(labels=needed), generator)).ppi for _ in range(40)]
    assert np.mean([estimate.high - estimate.low for estimate in estimates]) == pytest.approx(0.12, rel=0.07)
    assert labels_needed(draw(world(labels=300, pairs=400), generator), 0.01) is None


@pytest.mark.parametrize("changes", [{}, {"soft": True, "per_question": 2, "labels": 150}])
def test_intervals_hold_the_truth_as_often_as_they_say(changes):
    outcome = coverage(world(**changes), 300, seed=2)
    # 95 % of 300, less three standard errors of 1.3 points; benchmarks.estimate_coverage has 4,000 draws
    for name in ("labels", "rogan_gladen", "ppi"):
        assert outcome[name]["coverage"] > 0.91
        assert abs(outcome[name]["mean_error"]) < 0.03
    assert outcome["judge"]["coverage"] < 0.5  # a biased judge alone is wrong, however narrow its interval


Z90 = stats.norm.ppf(0.95)


def stratum(name, seed, shift=0.0):
    generator = np.random.default_rng(seed)
    truth = generator.normal(shift, 1.0, 460)
    rated = truth + generator.normal(0.5, 0.2, truth.size)
    return Stratum(name=name, labels=truth[:60], rated=rated[:60], rated_only=rated[60:])


def test_labels_alone_are_weighted_by_the_size_of_their_stratum():
    first = Stratum(name="a", labels=np.array([1.0, 3]), rated=np.zeros(2), rated_only=np.zeros(4))
    second = Stratum(name="b", labels=np.array([10.0, 10]), rated=np.zeros(2), rated_only=np.zeros(0))
    result = stratified_mean([first, second], 0.90, powered=False)
    # 6/8 * 2 + 2/8 * 10 = 4; standard error 6/8 * sd 1 / sqrt 2 (the second has none)
    assert (result.value, result.n, result.level) == (4.0, 4, 0.90)
    assert result.high - result.value == pytest.approx(Z90 * 0.75 / np.sqrt(2))


# Of ppi-python 0.2.3, recorded 2026-11-26 with `pip install ppi-python==0.2.3` in an environment of its own:
#   from ppi_py import ppi_mean_ci
#   print([float(bound[0]) for bound in ppi_mean_ci(labels, rated, rated_only, alpha=0.1)])
LABELS = np.array([1.0, 2, 4, 4, 5, 7, 7, 9])
RATED = np.array([2.0, 2, 3, 5, 5, 6, 8, 9])
RATED_ONLY = np.array([1.0, 3, 3, 4, 6, 6, 7, 8, 8, 9, 10, 2])
TIMID = np.array([4.6, 4.7, 4.9, 5, 5, 5.2, 5.1, 5.5])
TIMID_ONLY = np.array([4.5, 4.8, 5, 5.3, 5.1, 4.9, 5.6, 4.7, 5.2, 5.0])


@pytest.mark.parametrize(
    ("labels", "rated", "rated_only", "recorded"),
    [
        (LABELS, RATED, RATED_ONLY, (4.08321663529042, 6.207340265435974)),
        (LABELS / 100, RATED / 100, RATED_ONLY / 100, (0.040832166352904195, 0.06207340265435973)),
        (LABELS, 10 - RATED, RATED_ONLY, (3.4084749659744973, 6.341525034025503)),  # weight held at 0
        (LABELS, TIMID, TIMID_ONLY, (3.5588134932584943, 6.211186506741507)),  # and at 1
    ],
)
def test_one_stratum_is_the_interval_of_ppi_python(labels, rated, rated_only, recorded):
    estimate = stratified_mean([Stratum(name="a", labels=labels, rated=rated, rated_only=rated_only)], 0.90)
    assert (estimate.low, estimate.high) == pytest.approx(recorded, rel=1e-12)


def test_good_ratings_narrow_the_interval_and_their_bias_does_not_shift_it():
    strata = [stratum("a", 1), stratum("b", 2, shift=3.0)]
    # what a rating alone says is 0.5 too high
    ratings = np.mean([np.r_[each.rated, each.rated_only].mean() for each in strata])
    alone, powered = stratified_mean(strata, 0.90, powered=False), stratified_mean(strata, 0.90)
    assert powered.high - powered.low < 0.6 * (alone.high - alone.low)
    assert powered.low < ratings - 0.5 < powered.high


def test_ratings_that_are_all_alike_or_not_needed_change_nothing():
    labels = np.array([1.0, 2, 3])
    for rated, rated_only in ((np.ones(3), np.zeros(0)), (np.ones(3), np.ones(5)), (labels**2, np.zeros(0))):
        alone = Stratum(name="a", labels=labels, rated=rated, rated_only=rated_only)
        assert stratified_mean([alone], 0.90) == stratified_mean([alone], 0.90, powered=False)


def test_one_label_has_no_variance():
    alone = Stratum(name="a", labels=np.ones(1), rated=np.ones(1), rated_only=np.ones(5))
    with pytest.raises(TooFewLabels, match=r"stratum a: .*got 1"):
        stratified_mean([alone], 0.90)
