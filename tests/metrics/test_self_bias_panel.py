import itertools

import pandas as pd
import pytest

from judgelm.metrics.resampling import Resampling
from judgelm.metrics.self_bias_families import family_by_name
from judgelm.metrics.self_bias_panel import assess_panel, usual_panels
from judgelm.metrics.self_bias_rows import pair_with_reference

HOW = Resampling(resamples=100)
NAMES = ("Claude a", "Claude b", "GPT-1")


def paired(left_out=None):
    """Humans give 2 of 4 to all on even items and 3 on odd ones; each judge gives its family one point more."""
    rows = []
    for item, model in itertools.product(range(6), NAMES):
        shared = {"item": str(item), "dimension": "d", "model": model, "task": "t", "length": 1.0, "check": ""}
        human = 2.0 + item % 2
        rows.append(shared | {"judge": "human", "score": human, "annotator": "mean"})
        for judge in NAMES:
            if (judge, item) != left_out:
                rows.append(shared | {"judge": judge, "score": human + (judge[:3] == model[:3]), "annotator": ""})
    return pair_with_reference(pd.DataFrame(rows), family_by_name)


def test_a_judge_alone_favours_its_family_and_a_mixed_panel_evens_it_out():
    alone = assess_panel(paired(), ["GPT-1"], HOW)
    # of 4: +0, +0, +1/4; centred -1/12, -1/12, +1/6; favour 1/6 + 1/12, unevenness sqrt((2/144 + 4/144) / 3)
    assert alone.favour.value == pytest.approx(0.25)
    assert alone.unevenness.value == pytest.approx((6 / 144 / 3) ** 0.5)
    mixed = assess_panel(paired(), ["Claude a", "GPT-1"], HOW)
    assert mixed.families == 2
    assert mixed.unevenness.value == pytest.approx(0)  # each model has 1/8 more
    assert mixed.favour is None  # every model is of a member's family
    assert mixed.correlation.value == 1


def test_only_completions_that_all_members_rated_count():
    found = assess_panel(paired(left_out=("GPT-1", 0)), ["Claude a", "GPT-1"], HOW)
    assert found.completions == 5 * 3
    assert assess_panel(paired(), ["nobody"], HOW) is None


def test_the_usual_panels_are_each_judge_each_family_each_mixture_and_all():
    assert usual_panels(paired()) == [
        ("Claude a",), ("Claude b",), ("GPT-1",), ("Claude a", "Claude b"),
        ("Claude a", "GPT-1"), ("Claude b", "GPT-1"), NAMES,
    ]  # fmt: skip
