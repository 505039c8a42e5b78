"""Whether a judge alone favours an answer."""

import numpy as np
import pytest

from judgelm.metrics.qa import preferences
from judgelm.metrics.resampling import Resampling

HOW = Resampling(resamples=200)


def labels(*rows):
    """Own label first, then those of the other judges; C is correct."""
    table = np.array([[sign == "C" for sign in row] for row in rows], dtype=bool)
    return table[:, 0], table[:, 1:], range(len(rows))


def test_only_the_own_judge_says_correct():
    own, others, questions = labels(
        "CIIIIII",  # all six others against: counts at every threshold
        "CIICIII",  # five of six: counts at 83 % and 67 %
        "CCICIII",  # four of six: at 67 % alone
        "CCCCIII",  # three of six: at none
        "IIIIIII",  # its own judge is against it too
        "ICIIIII",  # somebody else favours it
        "CCCCCCC",
        "CCCCCCC",
    )
    result = preferences(own, others, questions, HOW)
    assert [one.share.value for one in result] == [1 / 8, 2 / 8, 3 / 8]
    assert [(one.needed, one.others) for one in result] == [(6, 6), (5, 6), (4, 6)]
    assert all(one.share.n == 8 and one.share.low <= one.share.value <= one.share.high for one in result)


def test_other_numbers_of_judges_round_up():
    # of five others 5/6 is 4.2 and 4/6 is 3.3: at least 5 and at least 4
    own, others, questions = labels("CIIIII", "CCIIII", "CCCIII")
    result = [(one.needed, one.share.value) for one in preferences(own, others, questions, HOW)]
    assert result == [(5, 1 / 3), (5, 1 / 3), (4, 2 / 3)]


def test_no_preference_is_a_share_of_0_with_an_interval():
    own, others, questions = labels(*["IIIIIII"] * 10)
    [one, _, _] = preferences(own, others, questions, HOW)
    assert one.share.value == 0
    assert one.share.high > 0.1  # Wilson: 10 answers do not show that it never happens


def test_no_answer_without_exact_match_leaves_the_share_undefined():
    result = preferences(np.zeros(0, dtype=bool), np.zeros((0, 6), dtype=bool), (), HOW)
    assert [one.share for one in result] == [None, None, None]


OWN, OTHERS, _ = labels("CII")


@pytest.mark.parametrize(
    ("own", "others", "finding"),
    [
        (OWN, OTHERS[:, :0], "at least one other judge"),
        (OWN, OWN, "expected shapes"),
        (OWN, np.repeat(OTHERS, 2, axis=0), "expected shapes"),
    ],
)
def test_what_makes_no_sense_is_refused(own, others, finding):
    with pytest.raises(ValueError, match=finding):
        preferences(own, others, [0], HOW)
