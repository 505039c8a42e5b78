"""Match of short answers, by hand and against the authors' own code, and whether a judge alone favours an answer."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.metrics.qa import AnswerMatch, drop_f1, match, preferences, token_f1
from judgelm.metrics.resampling import Resampling
from judgelm.parsing.short_answers import drop_spans_match

HOW = Resampling(resamples=200)
EXPECTED = Path(__file__).parents[2].parent / "shared" / "data" / "expected" / "qa_metrics.json"
PAIRS = json.loads(EXPECTED.read_text(encoding="utf-8"))["pairs"] if EXPECTED.exists() else []


@pytest.mark.skipif(not EXPECTED.exists(), reason=f"{EXPECTED} is absent")
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair['pred'][:12]!r}|{pair['gold'][:12]!r}")
def test_scores_equal_those_of_the_original_code(pair):
    predicted, gold = pair["pred"], pair["gold"]
    hotpot, drop, quoref = pair["hotpot"], pair["drop"], pair["quoref"]
    assert token_f1(predicted, gold) == (hotpot["f1"], hotpot["precision"], hotpot["recall"])
    assert (drop_spans_match([predicted], [gold]), drop_f1([predicted], [gold])) == (drop["em"], drop["f1"])
    assert match(predicted, [(gold,)], "quoref") == (quoref["em"], quoref["f1"])
    for rules in ("hotpotqa", "2wiki"):
        assert match(predicted, [(gold,)], rules) == (hotpot["em"], hotpot["f1"])


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
    # hotpotqa takes several spans as one text
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


def labels(*rows):
    """Own label first, then those of the other judges; C is correct."""
    table = np.array([[sign == "C" for sign in row] for row in rows], dtype=bool)
    return table[:, 0], table[:, 1:], range(len(rows))


def test_only_the_own_judge_says_correct():
    judged = labels(
        "CIIIIII",  # all six others against: counts at every threshold
        "CIICIII",  # five of six: counts at 83 % and 67 %
        "CCICIII",  # four of six: at 67 % alone
        "CCCCIII",  # three of six: at none
        "IIIIIII",  # its own judge is against it too
        "ICIIIII",  # somebody else favours it
        "CCCCCCC",
        "CCCCCCC",
    )
    result = preferences(*judged, HOW)
    values = [(level.share.value, level.share.n, level.needed, level.others) for level in result]
    assert values == [(1 / 8, 8, 6, 6), (2 / 8, 8, 5, 6), (3 / 8, 8, 4, 6)]
    assert all(level.share.low <= level.share.value <= level.share.high for level in result)
    # of five others 5/6 is 4.2 and 4/6 is 3.3: at least 5 and at least 4
    result = preferences(*labels("CIIIII", "CCIIII", "CCCIII"), HOW)
    assert [(level.needed, level.share.value) for level in result] == [(5, 1 / 3), (5, 1 / 3), (4, 2 / 3)]


def test_no_preference_is_0_with_an_interval_and_no_answers_are_undefined():
    share = preferences(*labels(*["IIIIIII"] * 10), HOW)[0].share
    assert (share.value, share.high > 0.1) == (0, True)  # Wilson: 10 answers do not show that it never happens
    nothing = preferences(np.zeros(0, dtype=bool), np.zeros((0, 6), dtype=bool), (), HOW)
    assert [level.share for level in nothing] == [None, None, None]


OWN, OTHERS, _ = labels("CII")


@pytest.mark.parametrize(
    ("own", "others", "finding"),
    [
        (OWN, OTHERS[:, :0], "at least one other judge"),
        (OWN, OWN, "expected shapes"),
        (OWN, np.repeat(OTHERS, 2, axis=0), "expected shapes"),
    ],
)
def test_mismatched_labels_are_rejected(own, others, finding):
    with pytest.raises(ValueError, match=finding):
        preferences(own, others, [0], HOW)
