"""The corrected win rates by hand, against ppi-python, and the coverage of their intervals."""

import numpy as np
import pytest

from benchmarks.estimate_coverage import World, coverage, draw
from judgelm.metrics.true_win_rate import JudgedPairs, labels_needed, true_win_rate


def pairs(verdicts, labels, clusters=None):
    verdicts = np.array(verdicts, dtype=float)
    labels = np.array([np.nan if label is None else label for label in labels], dtype=float)
    return JudgedPairs(verdicts=verdicts, proxy=verdicts, labels=labels, clusters=clusters or range(len(verdicts)))


def world(**changes):
    return World(**{"wins": 0.6, "ties": 0.1, "hit": 0.8, "pairs": 1000, "labels": 100, "bias": 0.2} | changes)


def test_rogan_gladen_without_ties_by_hand():
    # labelled: 10 wins, of which the judge sees 8; 10 losses, of which it calls 3 wins; 30 more pairs: 21 wins
    verdicts = [1] * 8 + [0] * 2 + [1] * 3 + [0] * 7 + [1] * 21 + [0] * 9
    result = true_win_rate(pairs(verdicts, [1] * 10 + [0] * 10 + [None] * 30))
    # judged rate (8 + 3 + 21) / 50 = 0.64; (0.64 + 0.7 - 1) / (0.8 + 0.7 - 1)
    assert result.rogan_gladen.value == pytest.approx(0.68)
    assert result.judge.value == pytest.approx(0.64)
    assert [error.sensitivity.value for error in result.errors] == [0.8, 0.7]


def test_a_tie_is_half_a_win_for_rogan_gladen_too():
    # a judge without errors: 10 wins, 4 ties, 6 losses, and as many again unlabelled
    verdicts = ([1.0] * 10 + [0.5] * 4 + [0.0] * 6) * 2
    result = true_win_rate(pairs(verdicts, verdicts[:20] + [None] * 20))
    assert result.rogan_gladen.value == pytest.approx(12 / 20)
    assert result.ppi.value == pytest.approx(12 / 20)


def test_ppi_is_that_of_the_package():
    labels = [1, 1, 0.5, 0, 1, 0, 0, 1, 0.5, 1, 0, 1]
    rated = [0.9, 0.7, 0.6, 0.2, 0.8, 0.4, 0.1, 0.6, 0.5, 0.3, 0.3, 0.95]
    rated_only = [0.9, 0.1, 0.8, 0.7, 0.3, 0.55, 0.6, 0.2, 0.85, 0.4, 0.65, 0.75, 0.35, 0.9, 0.5]
    estimate = true_win_rate(pairs(rated + rated_only, labels + [None] * 15)).ppi
    # ppi-python 0.2.3: ppi_mean_pointestimate(*arrays) and ppi_mean_ci(*arrays, alpha=0.05); see test_ppi.py
    assert estimate.value == pytest.approx(0.6137222614030812, rel=1e-12)
    low, high = 0.40855833663410535, 0.818886186172057
    # ours is of Student's t and has the sample's own degrees of freedom: wider by 1.21 with 12 labels
    assert 1.1 < (estimate.high - estimate.low) / (high - low) < 1.3


def test_questions_are_clusters():
    generator = np.random.default_rng(0)
    alone = draw(world(per_question=1, bias=0, hit=1.0), generator)
    repeated = JudgedPairs(
        verdicts=np.repeat(alone.verdicts, 4),
        proxy=np.repeat(alone.proxy, 4),
        labels=np.repeat(alone.labels, 4),
        clusters=np.repeat(np.arange(len(alone.verdicts)), 4).tolist(),
    )
    narrow, wide = true_win_rate(alone).labels, true_win_rate(repeated).labels
    assert wide.high - wide.low == pytest.approx(narrow.high - narrow.low, rel=0.01)


def test_where_there_is_no_estimate_the_reason_stands():
    few = true_win_rate(pairs([1] * 20, [1] * 9 + [None] * 11))
    assert few.ppi == few.rogan_gladen == few.labels == "9 labels are too few (minimum: 10)"
    always = true_win_rate(pairs([1] * 20, [1] * 6 + [0] * 6 + [None] * 8))
    assert "no better than chance" in always.rogan_gladen
    assert always.ppi == "the judge gives every pair the same value"
    assert true_win_rate(pairs([1, 0] * 10, [1] * 10 + [0] * 10)).ppi == "every pair has a label"
    no_loss = true_win_rate(pairs([1, 0] * 10, [1] * 12 + [None] * 8))
    assert "no labelled pair" in no_loss.rogan_gladen or "all labelled pairs have" in no_loss.rogan_gladen
    assert (no_loss.labels.value, no_loss.labels.high) == (1.0, 1.0)
    assert 0.7 < no_loss.labels.low < 0.8  # Wilson's, 12 of 12: 0.757


def test_labels_that_are_no_random_part_are_noticed():
    result = true_win_rate(pairs([1] * 40 + [0] * 60, [1] * 25 + [0] * 15 + [None] * 60))
    assert result.drift < 0.01
    assert true_win_rate(draw(world(), np.random.default_rng(0))).drift > 0.01


def test_the_number_of_labels_gives_the_width_that_was_asked_for():
    generator = np.random.default_rng(1)
    needed = labels_needed(draw(world(labels=300), generator), 0.12)
    widths = [
        estimate.high - estimate.low
        for estimate in (true_win_rate(draw(world(labels=needed), generator)).ppi for _ in range(40))
    ]
    assert np.mean(widths) == pytest.approx(0.12, rel=0.07)
    assert labels_needed(draw(world(labels=300, pairs=400), generator), 0.01) is None


@pytest.mark.parametrize("changes", [{}, {"soft": True, "per_question": 2, "labels": 150}])
def test_intervals_hold_the_truth_as_often_as_they_say(changes):
    outcome = coverage(world(**changes), 300, seed=2)
    # 95 % of 300, less three standard errors of 1.3 points; benchmarks.estimate_coverage has 4,000 draws
    for name in ("labels", "rogan_gladen", "ppi"):
        assert outcome[name]["coverage"] > 0.91
        assert abs(outcome[name]["mean_error"]) < 0.03
    assert outcome["judge"]["coverage"] < 0.5  # a biased judge alone is wrong, however narrow its interval
