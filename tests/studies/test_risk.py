"""Thresholds with a promise about the share of wrong verdicts."""

import numpy as np
import pytest
from scipy.stats import binomtest

from judgelm.studies.risk import one_per_question, pairs_needed, passes, promise, thresholds


@pytest.mark.parametrize(("wrong", "pairs"), [(0, 22), (2, 52), (5, 91)])
def test_the_smallest_number_of_pairs_by_the_binomial_distribution(wrong, pairs):
    assert pairs_needed(0.1, 0.9, wrong) == pairs
    assert passes(wrong, pairs, 0.1, 0.9)
    assert not passes(wrong, pairs - 1, 0.1, 0.9)


def test_the_most_lenient_threshold_before_the_first_failure_is_chosen():
    leads = np.repeat([0.4, 0.3, 0.2, 0.1], 30)
    wrong = np.zeros(120, dtype=bool)
    wrong[60:75] = True  # half of those at 0.2
    found = promise(leads, wrong, np.array([0.4, 0.3, 0.2, 0.1]), 0.1, 0.9)
    assert (found.threshold, found.decided, found.wrong, found.pairs) == (0.3, 60, 0, 120)
    assert promise(leads, ~wrong, np.array([0.4, 0.3]), 0.1, 0.9) is None
    assert promise(leads[:21], wrong[:21], np.array([0.4]), 0.1, 0.9) is None  # too few


def test_failed_pairs_are_not_decided():
    leads = np.where(np.arange(60) < 30, np.nan, 0.4)
    found = promise(leads, np.arange(60) < 30, np.array([0.4]), 0.1, 0.9)
    assert (found.decided, found.wrong) == (30, 0)


def test_thresholds_begin_where_enough_pairs_can_be_expected():
    leads = np.linspace(0.005, 0.5, 100)
    grid = thresholds(leads, 66, 0.1, 0.9)
    assert grid[0] == pytest.approx(np.quantile(leads, 0.5), abs=0.01)  # 33 of 66 pairs
    assert grid[-1] == 0
    assert (np.diff(grid) < 0).all()
    assert not thresholds(np.full(3, np.nan), 66, 0.1, 0.9).size


def test_the_promise_is_kept_as_often_as_promised():
    draw = np.random.default_rng(0)
    broken = promised = 0
    for _ in range(1000):
        skill = draw.uniform(1, 8)
        leads = draw.uniform(0, 0.5, 400)
        risk = np.exp(-skill * leads) / 2  # known for each pair
        wrong = draw.uniform(size=400) < risk
        grid = thresholds(leads[:200], 200, 0.1, 0.9)
        if (found := promise(leads[200:], wrong[200:], grid, 0.1, 0.9)) is None:
            continue
        promised += 1
        points = np.linspace(found.threshold, 0.5, 1000)
        broken += bool((np.exp(-skill * points) / 2).mean() > 0.1)
    assert promised > 100
    assert binomtest(broken, 1000, 0.1, alternative="greater").pvalue > 0.05


def test_a_random_pair_of_each_question_is_used():
    questions = ["a", "a", "b", "a", "c"]
    draws = {tuple(one_per_question(questions, seed)) for seed in range(30)}
    assert draws == {(0, 2, 4), (1, 2, 4), (2, 3, 4)}


def test_the_promise_is_kept_with_several_pairs_per_question():
    draw = np.random.default_rng(1)

    def sample(questions, pairs):
        """Pairs of a question are equally hard, and the judge is equally sure of them."""
        asked = np.repeat(np.arange(questions), pairs)
        hard, sure = draw.uniform(0, 2, questions)[asked], draw.uniform(0, 0.5, questions)[asked]
        leads = np.clip(sure + draw.normal(0, 0.02, asked.size), 0, 0.5)
        return asked, leads, np.minimum(hard * np.exp(-skill * leads) / 2, 1)

    broken = promised = 0
    for _ in range(1000):
        skill = draw.uniform(2, 12)
        asked, leads, risk = sample(150, draw.integers(1, 7, 150))
        wrong = draw.uniform(size=leads.size) < risk
        used = one_per_question(asked.tolist(), int(draw.integers(2**31)))
        _, train, _ = sample(150, 1)
        grid = thresholds(train, len(used), 0.1, 0.9)
        if (found := promise(leads[used], wrong[used], grid, 0.1, 0.9)) is None:
            continue
        promised += 1
        _, leads, risk = sample(20_000, 1)
        broken += bool(risk[leads >= found.threshold].mean() > 0.1)
    assert promised > 100
    assert binomtest(broken, 1000, 0.1, alternative="greater").pvalue > 0.05
