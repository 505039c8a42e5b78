import math

import pytest

from judgelm.metrics.agreement import HumanAgreement
from judgelm.metrics.resampling import Estimate
from judgelm.reports.html import look_up, sessions
from judgelm.reports.plots import inline_svg
from judgelm.reports.wording import human_sentence, number_text


def about(value, low, high):
    return Estimate(value=value, low=low, high=high, n=10)


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.4172, "3.42 s"), (2140.3, "2,140 s"), (0, "0 s"), (None, "not recorded"), (True, "not recorded")],
)
def test_numbers(value, text):
    assert number_text(value, "s") == text


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(0.01, 0.1, "more often"), (-0.2, -0.1, "less often"), (-0.1, 0.1, "not significant")],
)
def test_people_sentence_follows_the_interval(low, high, words):
    humans = HumanAgreement(
        human_human=about(0.8, 0.7, 0.9),
        judge_human=about(0.8, 0.7, 0.9),
        difference=about(math.nan, low, high),
        fleiss_kappa=None,
        annotators=(3, 3),
    )
    assert words in human_sentence(humans)


def test_look_up_prefers_the_top_and_the_last_session():
    manifest = {"sessions": [{"judge_s": 1.0}, {"judge_s": 2.0}], "seconds": 9}
    assert look_up(manifest, "judge_s") == 2.0
    assert look_up(manifest, "seconds") == 9
    assert look_up(manifest, "absent") is None
    assert sessions(manifest) == 2


def test_inline_svg_keeps_only_what_html_needs():
    document = (
        '<?xml version="1.0"?><!DOCTYPE svg><svg xmlns="http://www.w3.org/2000/svg" width="1">'
        '<metadata>x</metadata><style type="text/css">*{}</style><g id="axes_1"><path id="m1"/></g>'
        '<use xlink:href="#m1"/></svg>'
    )
    assert inline_svg(document, "A figure") == (
        '<svg role="img" aria-label="A figure" width="1"><g><path id="m1"/></g><use href="#m1"/></svg>'
    )
