import pytest

from judgelm.metrics.annotators import human_agreement
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


def test_unanimous_people_have_an_interval_with_width():
    human = human_agreement([1, 1], [[1, 1], [-1, -1]], None, Resampling()).human_human
    assert human.value == 1
    assert human.low < 1


def test_one_vote_is_not_agreement():
    with pytest.raises(ValueError, match="two votes"):
        human_agreement([1], [[1]], None, Resampling())
