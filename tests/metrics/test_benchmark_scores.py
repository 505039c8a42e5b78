"""What benchmarks of judges count, by hand."""

import pytest

from judgelm.metrics.benchmark_scores import Scored, first_place_share, right_by_vote, section_scores
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
