import itertools
from dataclasses import replace

import pandas as pd
import pytest

from judgelm.metrics.ratings import assess_panel, family_by_name, pair_with_reference, usual_panels
from judgelm.metrics.resampling import Resampling

HOW = Resampling(resamples=100)
NAMES = ("Claude a", "Claude b", "GPT-1")


def paired(left_out=None):
    """Humans give 1 of 4 on even items and 2 on odd ones, Claude b one more; each judge gives its family one more."""
    rows = []
    for item, model in itertools.product(range(6), NAMES):
        shared = {"item": str(item), "dimension": "d", "model": model, "task": "t", "length": 1.0, "check": ""}
        human = 1.0 + item % 2 + (model == "Claude b")
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
    assert (alone.judges, alone.families, alone.completions) == (("GPT-1",), 1, 18)


def test_a_judge_of_no_known_family_is_one_of_its_own():
    alone = assess_panel(replace(paired(), families={}), ["Claude a"], HOW)
    # Claude a and b have +1/4 each, GPT-1 nothing; centred 1/12, 1/12, -1/6; near is Claude a alone
    assert alone.favour.value == pytest.approx(1 / 12 - (1 / 12 - 1 / 6) / 2)
    assert assess_panel(replace(paired(), families={}), ["Claude a", "Claude b"], HOW).families == 2


def judged(scores):
    """Of one judge, GPT-1: (item, model) -> score; humans give 0 to all, and the highest score is 1."""
    rows = []
    for (item, model), score in scores.items():
        shared = {"item": item, "dimension": "d", "model": model, "task": "t", "length": 1.0, "check": ""}
        rows.append(shared | {"judge": "human", "score": 0.0, "annotator": "mean"})
        rows.append(shared | {"judge": "GPT-1", "score": score, "annotator": ""})
    return pair_with_reference(pd.DataFrame(rows), family_by_name)


def test_whole_items_are_drawn_and_each_resample_is_centred_by_itself():
    # GPT-1 favours itself by 0.8 on the second item alone, and gives all three 0.2 on that item
    scores = {("1", name): 0.0 for name in NAMES} | {("2", name): 0.2 for name in NAMES} | {("2", "GPT-1"): 1.0}
    result = assess_panel(judged(scores), ["GPT-1"], HOW)
    # twice the first item (a quarter of the resamples): favour 0; twice the second: 0.8; both: 0.4
    assert (result.favour.value, result.favour.low, result.favour.high) == pytest.approx((0.4, 0.0, 0.8))
    # favour f is 2f/3, -f/3, -f/3 about the mean: sqrt(6/27) f
    assert (result.unevenness.value, result.unevenness.low, result.unevenness.high) == pytest.approx(
        tuple(f * (6 / 27) ** 0.5 for f in (0.4, 0.0, 0.8))
    )


def test_a_model_that_a_resample_does_not_hold_is_left_out_of_it():
    # GPT-1 favours itself by 1 throughout; Claude b answered the second item alone
    scores = {("1", "Claude a"): 0.0, ("1", "GPT-1"): 1.0} | {("2", name): float(name == "GPT-1") for name in NAMES}
    result = assess_panel(judged(scores), ["GPT-1"], HOW)
    assert (result.favour.value, result.favour.low, result.favour.high) == pytest.approx((1, 1, 1))
    # of three models sqrt(6/27); of two, +1/2 and -1/2
    assert (result.unevenness.value, result.unevenness.low, result.unevenness.high) == pytest.approx(
        ((6 / 27) ** 0.5, (6 / 27) ** 0.5, 0.5)
    )


def test_only_completions_that_all_members_rated_count():
    result = assess_panel(paired(left_out=("GPT-1", 0)), ["Claude a", "GPT-1"], HOW)
    assert result.completions == 5 * 3
    assert assess_panel(paired(), ["nobody"], HOW) is None


def test_the_usual_panels_are_each_judge_each_family_each_mixture_and_all():
    assert usual_panels(paired()) == [
        ("Claude a",), ("Claude b",), ("GPT-1",), ("Claude a", "Claude b"),
        ("Claude a", "GPT-1"), ("Claude b", "GPT-1"), NAMES,
    ]  # fmt: skip


@pytest.mark.parametrize(("families", "members", "panels"), [(3, 4, 12 + 3 + 4**3 + 1), (4, 3, 12 + 4 + 1)])
def test_mixtures_beyond_64_are_left_out(families, members, panels):
    of = {f"{family}{member}": f"F{family}" for family in range(families) for member in range(members)}
    known = replace(paired(), frame=pd.DataFrame({"judge": list(of)}), families=of)  # 4^3 are 64, 3^4 are 81
    assert len(usual_panels(known)) == panels
