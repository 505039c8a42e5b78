import pytest

from judgelm.metrics.agreement import human_agreement
from judgelm.metrics.resampling import Resampling


def test_mean_pairwise_agreement():
    result = human_agreement([1, 0], [[1, 1, -1], [0, 0, 0]], None, Resampling())
    # people: pair 1 agrees in 1 of 3 annotator pairs, pair 2 in 3 of 3 -> (1/3 + 1) / 2 = 2/3
    assert result.human_human.value == pytest.approx(2 / 3)
    # judge: 2 of 3 annotators, then 3 of 3 -> 5/6
    assert result.judge_human.value == pytest.approx(5 / 6)
    assert result.difference.value == pytest.approx(1 / 6)
    assert result.annotators == (3, 3)


def test_fleiss_kappa_by_hand():
    # two raters, three pairs: agree on +1, agree on -1, differ. P = (1 + 1 + 0) / 3 = 2/3;
    # shares 1/2 and 1/2, so chance is 1/2: kappa = (2/3 - 1/2) / (1 - 1/2) = 1/3
    result = human_agreement([1, 1, 1], [[1, 1], [-1, -1], [1, -1]], None, Resampling())
    assert result.fleiss_kappa == pytest.approx(1 / 3)


def test_uneven_or_unanimous_votes_have_no_kappa():
    assert human_agreement([1, 1], [[1, 1], [1, -1, 0]], None, Resampling()).fleiss_kappa is None
    assert human_agreement([1], [[1, 1]], None, Resampling()).fleiss_kappa is None
    assert human_agreement([1, 1, 1], [[1, 1], [1, 1, 0], [1, 0, 0, 1]], None, Resampling()).annotators == (2, 4)


def test_pairs_of_one_question_are_one_draw_for_people_and_judge():
    # 8 pairs of 2 questions, all alike: Wilson's low end of 2 of 2 is 2 / (2 + 1.96^2) = 0.3424, of 8 of 8 0.6756
    clusters = ["a"] * 4 + ["b"] * 4
    result = human_agreement([1] * 8, [[1, 1]] * 8, clusters, Resampling())
    assert [result.human_human.low, result.judge_human.low] == pytest.approx([0.3424] * 2, abs=1e-4)
    # one question all right and one all wrong: the mean of two draws is 0 or 1 in a quarter of the resamples each
    halves = human_agreement([1] * 8, [[1, 1]] * 4 + [[-1, 0]] * 4, clusters, Resampling())
    assert (halves.human_human.low, halves.human_human.high) == (0, 1)
    assert (halves.judge_human.low, halves.judge_human.high) == (0, 1)


@pytest.mark.parametrize("votes", [[], [[1]], [[1, 1], [1]]])
def test_one_vote_is_not_agreement(votes):
    with pytest.raises(ValueError, match="two or more votes"):
        human_agreement([1] * len(votes), votes, None, Resampling())
