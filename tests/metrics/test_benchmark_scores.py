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


@pytest.mark.parametrize("verdicts", [(1, 1), (1, 0), (1, None), (1, -1), (0, 0), (-1, None), (None, None)])
def test_judgebenchs_vote(verdicts):
    right = verdicts in ((1, 1), (1, 0), (1, None))  # the others cancel out, tie or fail
    assert right_by_vote(verdicts, 1) is right
    assert right_by_vote([verdict and -verdict for verdict in verdicts], -1) is right


@pytest.mark.parametrize(
    ("scores", "credit"), [((8, 3, 2, 1), 1.0), ((8, 8, 2, 1), 0.5), ((7, 8, 2, 1), 0.0), ((5, 5, 5, 5), 0.25)]
)
def test_a_shared_first_place_counts_its_share(scores, credit):
    assert first_place_share(scores, 0) == credit


def test_sections_weigh_their_subsets_and_count_the_same():
    scored = [Scored(subset=name, credit=credit, cluster=i) for i, (name, credit) in enumerate(
        [("a", 1.0), ("a", 0.5), ("b", 0.0), ("b", 1.0), ("c", 1.0), ("c", 0.0), ("c", 0.0), ("c", 0.0)]
    )]  # fmt: skip
    result = section_scores(scored, {"one": {"a": 3, "b": 1, "not judged": 96}, "two": {"c": 5}, "none": {"x": 1}}, HOW)
    # a 3/4, b 1/2, c 1/4; one (3 * 3/4 + 1/2) / 4 = 11/16; overall (11/16 + 4/16) / 2 = 15/32
    assert {name: score.value for name, score in result.subsets.items()} == {"a": 0.75, "b": 0.5, "c": 0.25}
    sections = {name: (score.value, score.n) for name, score in result.sections.items()}
    assert sections == {"one": (11 / 16, 4), "two": (0.25, 4)}
    assert (result.overall.value, result.overall.n) == (15 / 32, 8)
    assert result.overall.low < 15 / 32 < result.overall.high


def test_prompts_of_one_cluster_are_one_draw():
    # three prompts of one question, all right: Wilson's low end of 1 of 1 is 1 / (1 + 1.96^2) = 0.2065
    result = section_scores([Scored(subset="a", credit=1.0, cluster="q")] * 3, {"one": {"a": 1}}, HOW)
    lows = [result.subsets["a"].low, result.sections["one"].low, result.overall.low]
    assert lows == pytest.approx([0.2065] * 3, abs=1e-4)
    # ten prompts each of two questions, one all right and one all wrong: both draws are of one in half of the resamples
    pairs = [Scored(subset="a", credit=credit, cluster=credit) for credit in (0.0, 1.0) for _ in range(10)]
    result = section_scores(pairs, {"one": {"a": 1}}, HOW)
    for score in (result.subsets["a"], result.sections["one"], result.overall):
        assert (score.low, score.value, score.high, score.n) == (0.0, 0.5, 1.0, 20)


def test_a_resample_without_a_subset_takes_the_mean_of_the_others():
    # b is one prompt of five and missing from (4/5)^5 = 33 % of the resamples
    scored = [Scored(subset="a", credit=1.0, cluster=i) for i in range(4)]
    scored += [Scored(subset="b", credit=0.25, cluster=4)]
    # the mean of a's 1.0 and b's 0.25, and without b 1.0; in one section or in two
    together = section_scores(scored, {"one": {"a": 1, "b": 1}, "two": {}}, HOW)
    apart = section_scores(scored, {"one": {"a": 1}, "two": {"b": 1}}, HOW)
    for result in (together.sections["one"], together.overall, apart.overall):
        assert (result.value, result.low, result.high) == (0.625, 0.625, 1.0)
    # such a resample says nothing of the subset's own score
    for b in (apart.subsets["b"], apart.sections["two"]):
        assert (b.low, b.value, b.high, b.n) == (0.25, 0.25, 0.25, 1)


def test_no_prompt_or_one_of_no_section_is_refused():
    for scored, finding in (([], "has a prompt"), ([Scored(subset="z", credit=1.0, cluster=1)], "no section has z")):
        with pytest.raises(ValueError, match=finding):
            section_scores(scored, {"one": {"a": 1}}, HOW)


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
    result = ties_score(prompts, HOW)
    expected = 0.3 * 0.5 + 0.3 * 1 + 0.2 * 0.5 + 0.2 * 0 + 0.01 * size
    assert (result.value, result.n) == (pytest.approx(expected), 2)
    # gap 3, spread 2; its reference's gap 2.5 is smaller but above the spread: 0.3 + 0.3 + 0.2 + 0.2 and the size
    prompts = [prompt("0", "tied", (9.0, 7.0), (4.0,)), prompt("0", "ref", (8.0,), (5.5,))]
    assert ties_score(prompts, HOW).value == pytest.approx(1.0 + 0.01 * math.tanh(2.5 / 2 - 1))


def test_right_answers_with_one_score_have_the_margin_that_tanh_tends_to():
    # spread 0: 3 > 0 twice, and tanh(3 / 0 - 1) is 1, so 0.3 + 0.3 + 0.2 + 0.2 + 0.01
    prompts = [prompt("0", "tied", (8.0, 8.0), (5.0,)), prompt("0", "ref", (8.0,), (5.0,))]
    assert ties_score(prompts, HOW).value == pytest.approx(1.01)
    # 0 / 0 counts nothing, and no gap is no margin
    level = [prompt("0", "tied", (5.0, 5.0), (5.0,)), prompt("0", "ref", (5.0,), (5.0,))]
    assert ties_score(level, HOW).value == 0.0


def test_a_prompt_without_its_counterpart_counts_for_itself_alone():
    # 0.3 for the tied prompts; no reference, no margin
    alone = [prompt("0", "tied", (8.0, 7.9), (7.5,))]
    for prompts in (alone, [prompt("0", "ref", (8.0,), (7.5,))]):
        result = ties_score(prompts, HOW)
        assert (result.low, result.value, result.high) == pytest.approx((0.3, 0.3, 0.3))
    # of two tied prompts one is right, the only reference is not: 0.3 / 2
    apart = [*alone, prompt("1", "tied", (5.0, 5.0), (5.0,)), prompt("2", "ref", (5.0,), (6.0,))]
    result = ties_score(apart, HOW)
    assert (result.value, result.n) == (pytest.approx(0.15), 3)


def test_ties_have_the_interval_of_resampled_keys():
    right = [prompt(key, kind, (8.0,), (5.0,)) for key in "01" for kind in ("tied", "ref")]
    result = ties_score(right, HOW)
    assert (result.low, result.value, result.high) == pytest.approx((1.01, 1.01, 1.01))  # whatever is drawn
    wrong = [prompt(key, kind, (5.0,), (8.0,)) for key in "23" for kind in ("tied", "ref")]
    result = ties_score(right + wrong, Resampling(resamples=2000))
    # all four draws right in 1/16 of the resamples, all wrong in as many: -1 is tanh's end for no spread
    assert (result.low, result.high) == pytest.approx((-0.01, 1.01))
    with pytest.raises(ValueError, match="at least one prompt"):
        ties_score([], HOW)


@pytest.mark.parametrize(("right", "wrong"), [(None, None), (None, (5.0,)), ((8.0, 8.0), None)])
def test_prompts_without_scores_are_right_in_nothing(right, wrong):
    prompts = [prompt("0", "tied", right, wrong), prompt("0", "ref", (8.0,), (5.0,))]
    assert ties_score(prompts, HOW).value == pytest.approx(0.3)
