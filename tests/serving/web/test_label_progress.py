"""Agreement after each label, in the order of the labels."""

import pytest

from judgelm.serving.web.browse_state import start_browsing
from judgelm.serving.web.label_agreement import MAX_POINTS, agreement_growth, evaluate_labels, progress_html
from tests.support.judged_items import failed_judgment, pair_judgment, run_of


def growth_of(judgments, labels):
    run = run_of(*judgments)
    return agreement_growth(list(labels), evaluate_labels(start_browsing(run, labels=labels), run), {})


def test_each_label_adds_a_point_and_failures_add_none():
    judgments = [pair_judgment("a", 1), failed_judgment("b"), pair_judgment("c", 1), pair_judgment("d", 1)]
    growth = growth_of(judgments, {"c": 1, "b": 1, "a": 2, "d": 1})
    # in the order of the labels c is right, b failed, a is wrong, d is right
    assert [(each.n, each.value) for each in growth] == [(1, 1.0), (2, 0.5), (3, pytest.approx(2 / 3))]
    assert growth[0].low == pytest.approx(0.2065, abs=1e-3)  # Wilson's of 1 in 1: 1 / (1 + 1.96^2)


def test_many_labels_are_thinned_and_end_with_the_last():
    judgments = [pair_judgment(str(index), 1) for index in range(101)]
    growth = growth_of(judgments, {each.sample_id: 1 for each in judgments})
    assert len(growth) <= MAX_POINTS
    assert growth[-1].n == 101


def test_progress_without_labels():
    assert "No labels yet" in progress_html(start_browsing(run_of(pair_judgment("a", 1))))
