import math

import pytest

from judgelm.metrics.agreement import HumanAgreement
from judgelm.metrics.resampling import Estimate
from judgelm.reports.wording import human_sentence


def about(value, low, high):
    return Estimate(value=value, low=low, high=high, n=10)


@pytest.mark.parametrize(
    ("low", "high", "words"), [(0.01, 0.1, "more often"), (-0.2, -0.1, "less often"), (-0.1, 0.1, "not significant")]
)
def test_people_sentence_follows_the_interval(low, high, words):
    humans = HumanAgreement(
        human_human=about(0.8, 0.7, 0.9), judge_human=about(0.8, 0.7, 0.9), difference=about(math.nan, low, high),
        fleiss_kappa=None, annotators=(3, 3),
    )  # fmt: skip
    assert words in human_sentence(humans)
