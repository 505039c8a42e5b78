"""Reasons for doubt: flips, one order, truncation and close calls."""

from dataclasses import replace

from judgelm.records import Truncation
from judgelm.serving.web.judgment_view import doubts, doubts_html
from tests.support.judged_items import failed_judgment, pair_judgment


def test_a_flip_comes_first():
    flipped = replace(pair_judgment("a", "tie", swapped=(8.0, 6.0)), probability=0.55)
    first, second = doubts(flipped)
    assert first.startswith("The orders disagree")
    assert "P(first better) is 0.55" in second


def test_one_order_leaves_the_position_unknown():
    [doubt] = doubts(pair_judgment("a", 1))
    assert "Only one order" in doubt


def test_a_truncated_answer_is_numbered_in_sample_order():
    given = pair_judgment("a", 1, swapped=(6.0, 8.0))
    # the first answer shown in the swapped order is answer 2
    cut = replace(given.shown[1], truncations=(Truncation(answer=0, tokens_before=900, tokens_after=400),))
    judgment = replace(given, shown=(given.shown[0], cut))
    assert doubts(judgment) == ["Answer 2 was truncated from 900 to 400 tokens."]


def test_without_doubt_the_page_names_the_checks():
    judgment = replace(pair_judgment("a", 1, swapped=(6.0, 8.0)), probability=0.9)
    assert doubts(judgment) == []
    assert "can still be wrong" in doubts_html(judgment)


def test_a_failure_has_no_verdict_to_doubt():
    assert doubts_html(failed_judgment("a")) == ""
