"""Exact match and F1 of short answers, by hand and against the original authors' own code."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.metrics.qa import AnswerMatch, drop_f1, match, token_f1
from judgelm.parsing.short_answers import drop_spans_match

EXPECTED = Path(__file__).parents[3].parent / "shared" / "data" / "expected" / "qa_metrics.json"
absent = pytest.mark.skipif(not EXPECTED.exists(), reason=f"{EXPECTED} is absent")


def pairs():
    return json.loads(EXPECTED.read_text(encoding="utf-8"))["pairs"] if EXPECTED.exists() else []


@absent
@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: f"{pair['pred'][:12]!r}|{pair['gold'][:12]!r}")
def test_the_original_codes_figures_are_met_exactly(pair):
    predicted, gold = pair["pred"], pair["gold"]
    hotpot, drop, quoref = pair["hotpot"], pair["drop"], pair["quoref"]
    assert token_f1(predicted, gold) == (hotpot["f1"], hotpot["precision"], hotpot["recall"])
    assert (drop_spans_match([predicted], [gold]), drop_f1([predicted], [gold])) == (drop["em"], drop["f1"])
    assert match(predicted, [(gold,)], "quoref") == (quoref["em"], quoref["f1"])
    assert (
        match(predicted, [(gold,)], "hotpotqa") == match(predicted, [(gold,)], "2wiki") == (hotpot["em"], hotpot["f1"])
    )


@pytest.mark.parametrize(
    ("predicted", "gold", "f1", "exact"),
    [
        (["dark blue", "red"], ["red", "blue"], 0.83, False),  # red 1, "dark blue" 2 * 1/2 / (3/2) = 2/3; 1.667 / 2
        (["blue", "red"], ["red", "blue"], 1.0, True),  # in another order
        (["red"], ["red", "blue", "green"], 0.33, False),  # one predicted span for three: 1 / 3
        (["red", "blue", "green"], ["green"], 0.33, False),  # more predicted than gold spans: 1 / 3 too
        (["red", "red"], ["red"], 0.5, False),  # the same set of spans, but not as many
        (["4 yards"], ["3 yards"], 0.0, False),  # none of the gold's numbers
        (["3 feet"], ["3 yards"], 0.5, False),
    ],
)
def test_drop_spans_are_paired_one_to_one(predicted, gold, f1, exact):
    assert drop_f1(predicted, gold) == f1
    assert drop_spans_match(predicted, gold) is exact


@pytest.mark.parametrize(
    ("predicted", "golds", "rules", "exact", "f1"),
    [
        # the best of the validated answers: F1 of {30.0, april} with {30.0, april, 1916.0} is 2 * 1 * 2/3 / (5/3) = 0.8
        ("30 April", ["30 April 1916"], "drop", False, 0.8),
        ("30 April", ["30 April 1916", "april 30", "30 april"], "drop", True, 1.0),
        ("EPA", ["Environmental Protection Agency", "E.P.A."], "hotpotqa", True, 1.0),
        # over multisets and over sets, as above
        ("Tom Tom Tom", ["Tom the cat"], "hotpotqa", False, 0.4),
        ("Tom Tom Tom", ["Tom the cat"], "drop", False, 0.67),
        ("Tom Tom Tom", ["Tom the cat"], "quoref", False, 0.67),
        # drop and quoref pass over a blank gold answer
        ("", [" "], "drop", False, 0.0),
        ("x", ["", "x"], "quoref", True, 1.0),
        ("93.5%", ["93.5"], "strict", False, 1.0),
    ],
)
def test_each_set_of_rules_by_hand(predicted, golds, rules, exact, f1):
    result = match(predicted, [(gold,) for gold in golds], rules)
    assert result == AnswerMatch(exact=exact, f1=pytest.approx(f1))


def test_hotpot_takes_several_spans_as_one_text():
    assert match("Ann and Bob", [("Ann and", "Bob")], "hotpotqa") == AnswerMatch(exact=True, f1=1.0)


@given(st.text(), st.text(), st.sampled_from(["hotpotqa", "drop", "quoref", "strict"]))
def test_scores_are_shares_and_an_answer_matches_itself(predicted, gold, rules):
    result = match(predicted, [(gold,)], rules)
    assert 0 <= result.f1 <= 1
    assert match(gold, [(gold,)], rules).exact or not gold.strip()
    if result.exact and rules in ("drop", "quoref"):
        assert result.f1 == 1


def test_a_match_with_nothing_is_undefined():
    for golds in ([], [()]):
        with pytest.raises(ValueError, match="requires a gold answer"):
            match("x", golds, "drop")
    with pytest.raises(ValueError, match="has no span"):
        drop_f1((), ("x",))
