"""What benchmarks of judges count, by hand."""

import math

import pytest

from judgelm.metrics.benchmark_scores import (
    Scored,
    TiesPrompt,
    first_place_share,
    right_by_vote,
    section_scores,
    ties_score,
)
from judgelm.metrics.resampling import Resampling

HOW = Resampling(resamples=300)


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ((1, 1), True),
        ((1, 0), True),  # +1 and 0
        ((1, None), True),
        ((1, -1), False),  # they cancel
        ((0, 0), False),
        ((-1, None), False),
        ((None, None), False),
    ],
)
def test_judgebenchs_vote(said, right):
    assert right_by_vote(said, 1) is right
    assert right_by_vote([None if one is None else -one for one in said], -1) is right


@pytest.mark.parametrize(
    ("scores", "credit"), [((8, 3, 2, 1), 1.0), ((8, 8, 2, 1), 0.5), ((7, 8, 2, 1), 0.0), ((5, 5, 5, 5), 0.25)]
)
def test_a_shared_first_place_counts_its_share(scores, credit):
    assert first_place_share(scores, 0) == credit


def test_sections_weigh_their_subsets_and_count_the_same():
    scored = [Scored(subset=name, credit=credit, cluster=i) for i, (name, credit) in enumerate(
        [("a", 1.0), ("a", 0.5), ("b", 0.0), ("b", 1.0), ("c", 1.0), ("c", 0.0), ("c", 0.0), ("c", 0.0)]
    )]  # fmt: skip
    found = section_scores(scored, {"one": {"a": 3, "b": 1, "not judged": 96}, "two": {"c": 5}, "none": {"x": 1}}, HOW)
    # a 3/4, b 1/2, c 1/4; one (3 * 3/4 + 1/2) / 4 = 11/16; overall (11/16 + 4/16) / 2 = 15/32
    assert {name: one.value for name, one in found.subsets.items()} == {"a": 0.75, "b": 0.5, "c": 0.25}
    assert {name: (one.value, one.n) for name, one in found.sections.items()} == {"one": (11 / 16, 4), "two": (0.25, 4)}
    assert (found.overall.value, found.overall.n) == (15 / 32, 8)
    assert found.overall.low < 15 / 32 < found.overall.high


def test_full_marks_have_an_interval():
    found = section_scores([Scored(subset="a", credit=1.0, cluster=i) for i in range(5)], {"one": {"a": 1}}, HOW)
    assert (found.overall.value, found.overall.low < 0.9) == (1.0, True)


def test_a_subset_of_no_section_is_refused():
    with pytest.raises(ValueError, match="sections: z: in none"):
        section_scores([Scored(subset="z", credit=1.0, cluster=1)], {"one": {"a": 1}}, HOW)


def prompt(key, kind, right, wrong):
    return TiesPrompt(key=key, tied=kind == "tied", right=right, wrong=wrong)


def test_ties_by_hand():
    prompts = [
        # worst right 8, best wrong 5: gap 3, spread 1; the reference's gap is 1, which is no more than the spread
        prompt("0", "tied", (9.0, 8.0), (5.0, 1.0)),
        prompt("0", "ref", (7.0,), (6.0,)),
        # gap -1: wrong; spread 3; its reference is right
        prompt("1", "tied", (9.0, 6.0), (7.0,)),
        prompt("1", "ref", (8.0,), (2.0,)),
    ]
    # tied right 1/2, reference 1; margin kept 1/2, beside the reference 0
    size = (math.tanh(1 / 1 - 1) + math.tanh(-1 / 3 - 1)) / 2
    found = ties_score(prompts, HOW)
    assert found.value == pytest.approx(0.3 * 0.5 + 0.3 * 1 + 0.2 * 0.5 + 0.2 * 0 + 0.01 * size)
    assert found.n == 2


def test_right_answers_with_one_score_have_the_margin_that_tanh_tends_to():
    # spread 0: 3 > 0 twice, and tanh(3 / 0 - 1) is 1, so 0.3 + 0.3 + 0.2 + 0.2 + 0.01
    prompts = [prompt("0", "tied", (8.0, 8.0), (5.0,)), prompt("0", "ref", (8.0,), (5.0,))]
    assert ties_score(prompts, HOW).value == pytest.approx(1.01)
    # 0 / 0 counts nothing, and no gap is no margin
    level = [prompt("0", "tied", (5.0, 5.0), (5.0,)), prompt("0", "ref", (5.0,), (5.0,))]
    assert ties_score(level, HOW).value == 0.0


def test_prompts_without_scores_are_right_in_nothing():
    prompts = [prompt("0", "tied", None, None), prompt("0", "ref", (8.0,), (5.0,))]
    assert ties_score(prompts, HOW).value == pytest.approx(0.3)
