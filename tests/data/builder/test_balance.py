"""Balance by hand: which pairs stay, which are swapped, and what rules that read no answer get before and after."""

import random

import pytest

from judgelm.data.builder.balance import PairFacts, baselines, over_balance, over_limit, to_swap, win_rates
from judgelm.data.builder.options import build_options
from judgelm.data.builder.pipeline import build
from judgelm.errors import ConfigError
from tests.support.jsonl_files import rows_of

BOTH = ("models", "length")


def facts(index, winner=1, longer=10, models=("a", "b"), question=b"q"):
    return PairFacts(f"id-{index}", "s", question, models, longer, winner)


def numbered(pairs):
    return list(enumerate(pairs))


def left(pairs, by, strata=(25, 75)):
    out = over_balance(numbered(pairs), by, strata, seed=0)
    return [pair for index, pair in enumerate(pairs) if index not in out]


def test_in_each_group_either_model_wins_as_often():
    # model a is longer: wins 3, loses 1, so 1 and 1 stay; b is longer: only b wins, none stays
    pairs = [facts(i) for i in range(3)] + [facts(3, winner=2)] + [facts(i, winner=2, longer=-10) for i in (4, 5)]
    assert sorted(pair.winner for pair in left(pairs, BOTH)) == [1, 2]


def test_the_order_of_the_models_does_not_matter():
    # in both pairs model a is longer; it wins one and loses the other
    pairs = [facts(0, winner=1, longer=10), facts(1, winner=1, longer=-10, models=("b", "a"))]
    assert left(pairs, BOTH) == pairs


def test_lengths_are_compared_within_strata():
    # differences of 10 and 50: the winners differ, but in different strata
    pairs = [facts(0, winner=1, longer=10), facts(1, winner=2, longer=50)]
    assert left(pairs, BOTH, strata=(25, 75)) == []
    assert left(pairs, BOTH, strata=()) == pairs
    assert left(pairs, ("length",), strata=(25, 75)) == []
    assert left(pairs, ("models",), strata=(25, 75)) == pairs


def test_the_order_of_the_rows_does_not_matter():
    pairs = [facts(i, winner=1 if i % 3 else 2) for i in range(12)]
    assert left(pairs, BOTH) == left(pairs[::-1], BOTH)[::-1]


def test_pairs_without_models_are_balanced_by_length_and_ties_stay():
    # the longer answer wins twice and loses once; nothing is known of equal lengths and ties
    pairs = [facts(0, models=()), facts(1, winner=2, longer=-9, models=()), facts(2, winner=2, models=())]
    stay = [facts(3, longer=0, models=()), facts(4, winner="tie")]
    assert len(left([*pairs, *stay], BOTH)) == 4
    assert left([*pairs, *stay], ("models",)) == [*pairs, *stay]


def test_the_limit_of_a_question_is_drawn_by_id():
    pairs = [facts(i, question=b"often") for i in range(10)] + [facts(11, question=b"seldom")]
    out = over_limit(numbered(pairs), 3, seed=0)
    assert len(out) == 7
    assert 10 not in out
    names = {pairs[index].id for index in out}
    assert {pairs[::-1][index].id for index in over_limit(numbered(pairs[::-1]), 3, seed=0)} == names


@pytest.mark.parametrize("winner", [1, 2])
def test_the_better_answer_stands_first_in_half_the_pairs(winner):
    pairs = [*(facts(i, winner=winner) for i in range(10)), facts(10, winner="tie")]
    swapped = to_swap(numbered(pairs), seed=0)
    assert len(swapped) == 5
    assert 10 not in swapped


def test_baselines_by_hand():
    # a wins 2 of 3, b 1 of 3; first wins 2 of 3; longer wins: yes, no, equal
    pairs = [facts(0), facts(1, longer=-1), facts(2, winner=2, longer=0), facts(3, winner="tie")]
    rates = win_rates(pairs)
    assert rates == pytest.approx({"a": 2 / 3, "b": 1 / 3})
    row = baselines(pairs, rates, set_name="train", stage="after", swapped=[True, False, False, False])
    assert (row.pairs, row.decided) == (4, 3)
    # of the two that the first answer won, one is swapped: 1 of 3; longer: 1.5 of 3; model a is named: right in 2
    assert (row.first, row.longer, row.model) == pytest.approx((1 / 3, 0.5, 2 / 3))


def biased_rows():
    """2,000 pairs of 50 questions: a baseline at the first position that loses 80 %; 80 % of longer answers win."""
    draw = random.Random(0)
    for i in range(2000):
        second_wins, longer_wins = draw.random() < 0.8, draw.random() < 0.8
        words = [f"word{draw.randrange(10**6)}" for _ in range(40)]
        long, short = " ".join(words), " ".join(words[: draw.randrange(20, 39)])
        first, second = (short, long) if second_wins == longer_wins else (long, short)
        row = {"id": str(i), "question": f"question {i % 50}", "answer_1": first, "answer_2": second}
        yield row | {"answer_models": ["base", f"model-{i % 3}"], "preference": 0.1 if second_wins else 0.9}


def test_a_balance_that_leaves_no_pairs_is_refused(write):
    row = {"answer_1": "long answer", "answer_2": "short", "preference": 1, "answer_models": ["a", "b"]}
    path = write(*(row | {"id": str(i), "question": f"question {i}"} for i in range(9)))
    with pytest.raises(ConfigError, match="balance models leaves none of 9 train pairs; use fewer"):
        built(path, "out", balance=["models"], validation=0, test=0)


def built(path, out, **options):
    values = {"inputs": [path], "out": str(out), "validation": 0.2, "test": 0.2, "swap": "none"} | options
    return build(build_options(values, "test"))


def test_a_built_set_is_balanced_on_every_side_and_every_pair_accounted_for(write, tmp_path):
    path = write(*biased_rows(), name="in.jsonl")
    done = built(path, tmp_path / "out", balance=["position", "models", "length"], max_per_question=35)
    for row in done.baselines:
        expected = (0.5, 0.5, 0.5) if row.stage == "after" else (0.2, 0.8, 0.8)
        # a middle that no pair has may stay: an odd number of pairs has no half
        assert (row.first, row.longer, row.model) == pytest.approx(expected, abs=0.01 if row.stage == "after" else 0.1)
    counts = done.counts
    assert counts.read.total() == counts.before.pairs + counts.dropped.total() == 2000
    assert counts.dropped["in", "over max_per_question"] == 50 * 5
    assert counts.before.pairs == counts.train.pairs + counts.validation.pairs + counts.test.pairs
    questions = {}
    for side in ("train", "validation", "test"):
        rows = rows_of(tmp_path / "out" / f"{side}.jsonl")
        questions[side] = {row["question_body"] for row in rows}
        assert {(row["swapped"], row["answer1_model_id"] == "base") for row in rows} == {(True, False), (False, True)}
        assert all((row["preference"] > 0.5) == (row["winner"] == "1") for row in rows)
    assert sum(map(len, questions.values())) == len(set.union(*questions.values()))


def test_the_longer_answer_wins_as_often_as_requested():
    pairs = numbered(facts(index, winner=1 if index % 5 else 2, longer=50) for index in range(500))
    out = over_balance(pairs, ["length"], (25, 75), seed=0, longer_share=0.65)
    winners = [pair.winner for index, pair in pairs if index not in out]
    assert winners.count(2) == 100  # every pair that the shorter answer wins
    assert winners.count(1) == round(100 * 0.65 / 0.35)
    with pytest.raises(ConfigError, match="longer_share requires balance to include length"):
        build_options({"inputs": ["a.jsonl"], "out": "b", "balance": ["position"], "longer_share": 0.65}, "here")


def test_pairs_that_are_long_or_ask_a_test_question_are_dropped(write, tmp_path):
    row = {"answer_1": "yes", "answer_2": "no", "preference": 1}
    rows = [row | {"id": str(i), "question": f"question {i}"} for i in range(9)]
    rows[3] |= {"answer_1": "yes " * 300}
    tests = write({"question": "Question 7!"}, {"question": "question 5"}, name="tests.jsonl")
    limits = {"exclude": [tests], "max_characters": 750}
    done = built(write(*rows, name="in.jsonl"), tmp_path / "out", validation=0, test=0, **limits)
    assert done.counts.dropped == {("in", "question of an excluded file"): 2, ("in", "too long"): 1}
    assert "tests.jsonl: exact 1" in (tmp_path / "out" / "left_out.jsonl").read_text()
