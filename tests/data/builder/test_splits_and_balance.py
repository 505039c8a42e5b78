"""Splits, nested subsets and balance: which pairs are in which set and order, and what simple baselines score."""

import random
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.builder.balance import PairFacts, baselines, over_balance, over_limit, to_swap, win_rates
from judgelm.data.builder.options import build_options
from judgelm.data.builder.pipeline import build
from judgelm.data.builder.splits import SubsetSizes, nested_order, split_questions, stratum, subset_sizes
from judgelm.data.duplicates import QuestionGroups, normalised
from judgelm.errors import ConfigError, InputError
from tests.support.jsonl_files import rows_of

LONG = "please write one short story about a small dog that finds its own way home from the far north in winter"


def grouped(questions):
    groups = QuestionGroups()
    for question in questions:
        groups.add(question)
    return groups


def numbered(count):
    return [f"question {number}" for number in range(count)]


def test_numbers_of_questions_are_exact_shares_approximate_and_test_leaves_validation_unchanged():
    groups = grouped(numbered(100))
    split = split_questions(groups, seed=0, validation=20, test=10)
    sides = [split.side(question) for question in numbered(100)]
    assert (sides.count("test"), sides.count("validation")) == (10, 20)
    assert split.validation == split_questions(groups, seed=0, validation=20).validation
    # 2,000 questions at 0.2: 400, standard deviation sqrt(2000 * 0.2 * 0.8) = 17.9; four of them are 72
    split = split_questions(grouped(numbered(2000)), seed=0, validation=0.2)
    assert 328 <= len(split.validation) <= 472


def test_a_question_keeps_its_side_when_the_data_grows():
    small, large = (split_questions(grouped(numbered(n)), seed=3, validation=0.3) for n in (100, 400))
    assert [*map(small.side, numbered(100))] == [*map(large.side, numbered(100))]


def test_questions_drawn_once_are_drawn_again_by_every_version():
    groups = grouped(numbered(12))
    for options, drawn in (({"validation": 3}, (3, 4, 5)), ({"validation": 0.3}, (4, 5))):
        split = split_questions(groups, seed=0, **options)
        assert [n for n in range(12) if split.side(f"question {n}") == "validation"] == list(drawn)
        assert split.side(groups.add("question 4")) == "validation"  # by its digest


@pytest.mark.parametrize("seed", range(20))
def test_near_copies_count_as_one_and_go_together(seed):
    # one word of 21 replaced: 18 of 22 shingles, 0.82, over 0.7
    copies = [LONG, LONG.upper() + "!", LONG.replace("dog", "cat"), LONG.replace("winter", "spring")]
    questions = [*copies, *numbered(3)]
    split = split_questions(grouped(questions), seed=seed, validation=2)
    assert len({split.side(copy) for copy in copies}) == 1
    assert len(split.validation) == 2


@given(
    questions=st.lists(st.text(alphabet="ab .?"), max_size=20).map(lambda drawn: [*drawn, "c", "d", LONG]),
    count=st.integers(1, 2),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_no_question_leaks_whatever_the_order(questions, count, seed, data):
    split = split_questions(grouped(questions), seed=seed, validation=count)
    sides = {side: {normalised(q) for q in questions if split.side(q) == side} for side in ("train", "validation")}
    assert sides["train"].isdisjoint(sides["validation"])
    assert sides["train"]
    assert sides["validation"]
    shuffled = split_questions(grouped(data.draw(st.permutations(questions))), seed=seed, validation=count)
    assert shuffled.validation == split.validation


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"validation": 3}, "validation 3 of 3 distinct .* leaves no questions for training"),
        ({"validation": 1e-9}, "validation 1e-09 of 3 distinct .* leaves no questions for validation"),
        ({"test": 1e-9}, "test 1e-09 of 3 distinct .* leaves no questions for test"),
        ({"validation": 1, "test": 2}, "validation 1 and test 2 of 3 distinct .* leaves no questions for training"),
        ({"validation": 0.9, "test": 2}, "validation 0.9 and test 2 of 3 distinct .* leaves no questions for training"),
        ({"validation": -0.1}, "validation -0.1: expected a share below 1"),
        ({"test": 1.5}, "test 1.5: expected a share below 1 or a whole number"),
    ],
)
def test_invalid_splits_are_refused(options, finding):
    with pytest.raises(ConfigError, match=finding):
        split_questions(grouped(["a", "A!", "b", "c"]), seed=0, **options)


MODELS = tuple(f"model-{number}" for number in range(11))
STRATA = st.builds(
    stratum,
    st.sampled_from(["maths", "writing", None]),
    st.sampled_from([1, 2, "tie", None]),
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=2, max_size=2),
)
ROWS = st.lists(STRATA, max_size=40).map(lambda strata: [(f"row-{n}", found) for n, found in enumerate(strata)])


def skewed(count):
    """Rows of 30 categories, the first 30 times the last, three winners and 55 model pairs."""
    rng = random.Random(0)
    categories = rng.choices(range(30), [1 / (1 + category) for category in range(30)], k=count)
    winners = rng.choices((1, 2, "tie"), (45, 42, 13), k=count)
    return [
        (f"row-{number}", stratum(f"category-{category}", winner, rng.sample(MODELS, 2)))
        for number, (category, winner) in enumerate(zip(categories, winners, strict=True))
    ]


def farthest(rows, order, size, part):
    """By how many rows a part is off its proportional count in the subset, at most."""
    whole = Counter(part(found) for _, found in rows)
    subset = Counter(part(found) for (_, found), place in zip(rows, order, strict=True) if place < size)
    return max(abs(subset[name] - count * size / len(rows)) for name, count in whole.items())


@given(ROWS, st.integers(0, 9), st.randoms())
def test_every_row_has_its_place_whatever_the_order_of_rows(rows, seed, rng):
    places = [
        {row_id: place for (row_id, _), place in zip(order, nested_order(order, seed=seed), strict=True)}
        for order in (rows, rng.sample(rows, len(rows)))
    ]
    assert places[0] == places[1]
    assert sorted(places[0].values()) == list(range(len(rows)))  # so a subset has its exact size


@pytest.mark.parametrize("size", [350, 1000, 3000])
def test_every_beginning_has_the_proportions_of_the_whole(size):
    rows = skewed(10_000)
    order = nested_order(rows, seed=0)
    # simple random sampling of 1,000 from 10,000 is off by 13 rows in the largest category and by 15 in a winner,
    # standard deviations: sqrt(1000 * 0.25 * 0.75 * 0.9), sqrt(1000 * 0.45 * 0.55 * 0.9)
    assert farthest(rows, order, size, lambda found: found.category) <= 4
    assert farthest(rows, order, size, lambda found: (found.category, found.winner)) <= 4
    assert farthest(rows, order, size, lambda found: found.winner) <= 10
    # a pair is 182 rows in up to 90 strata, independent draws in them are off by about sqrt(90 / 6) = 4
    assert farthest(rows, order, size, lambda found: found.models) <= 16
    assert farthest(rows, order, size, lambda found: found) <= 4


def test_strata_of_one_row_are_not_left_for_last():
    # half the rows are alone in their stratum: they are half of a small subset, too
    rows = [(str(n), stratum("common" if n % 2 else f"rare-{n}", 1, "ab")) for n in range(2000)]
    order = nested_order(rows, seed=0)
    rare = sum(found.category != "common" for (_, found), place in zip(rows, order, strict=True) if place < 100)
    assert abs(rare - 50) <= 4


@pytest.mark.parametrize("seed", range(5))
def test_a_period_in_the_strata_does_not_fall_in_step(seed):
    # 64 categories with two rows of each of 16 pairs: every 32nd row of a line in a fixed order would be the same pair
    rows = [
        (f"{category} {pair} {copy}", stratum(str(category), 1, (f"a{pair}", f"b{pair}")))
        for category, pair, copy in product(range(64), range(16), range(2))
    ]
    order = nested_order(rows, seed=seed)
    assert len({found.models for (_, found), place in zip(rows, order, strict=True) if place < 64}) >= 12


def test_ids_must_be_unique():
    rows = [(row_id, stratum(None, winner, "ab")) for row_id, winner in (("x", 1), ("y", 1), ("x", 2))]
    with pytest.raises(InputError, match="rows 1 and 3 have the same id"):
        nested_order(rows, seed=0)


def test_too_large_subsets_are_named_and_invalid_sizes_refused():
    sizes = subset_sizes(10_000, (30_000, 10_000, 3_500, 100_000))
    assert sizes == SubsetSizes(sizes=(3_500, 10_000), too_large=(30_000, 100_000))
    for wanted, finding in (((5, 0), "subset size 0: expected"), ((5, 1, 5), "subset sizes 1, 5, 5: repeated size")):
        with pytest.raises(ConfigError, match=finding):
            subset_sizes(10, wanted)


def test_subsets_drawn_once_are_drawn_again_by_every_version():
    rows = [
        (f"row-{n}", stratum(("maths", "writing", None)[n % 3], (1, 2, "tie", None)[n % 4], "ba" if n % 5 else "ac"))
        for n in range(12)
    ]
    assert nested_order(rows, seed=0).tolist() == [9, 8, 7, 6, 2, 1, 0, 5, 10, 3, 11, 4]
    assert nested_order(rows, seed=1).tolist() == [10, 2, 3, 1, 5, 9, 4, 11, 0, 7, 8, 6]


BOTH = ("models", "length")


def facts(index, winner=1, longer=10, models=("a", "b"), question=b"q"):
    return PairFacts(f"id-{index}", "s", question, models, longer, winner)


def indexed(pairs):
    return list(enumerate(pairs))


def left(pairs, by, strata=(25, 75)):
    out = over_balance(indexed(pairs), by, strata, seed=0)
    return [pair for index, pair in enumerate(pairs) if index not in out]


def test_in_each_group_both_models_win_equally_often_in_either_order_of_the_models():
    # model a is longer: wins 3, loses 1, so 1 and 1 stay; b is longer: only b wins, none stays
    pairs = [facts(i) for i in range(3)] + [facts(3, winner=2)] + [facts(i, winner=2, longer=-10) for i in (4, 5)]
    assert sorted(pair.winner for pair in left(pairs, BOTH)) == [1, 2]
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
    out = over_limit(indexed(pairs), 3, seed=0)
    assert len(out) == 7
    assert 10 not in out
    names = {pairs[index].id for index in out}
    assert {pairs[::-1][index].id for index in over_limit(indexed(pairs[::-1]), 3, seed=0)} == names


@pytest.mark.parametrize("winner", [1, 2])
def test_the_better_answer_stands_first_in_half_the_pairs(winner):
    pairs = [*(facts(i, winner=winner) for i in range(10)), facts(10, winner="tie")]
    swapped = to_swap(indexed(pairs), seed=0)
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
    pairs = indexed(facts(index, winner=1 if index % 5 else 2, longer=50) for index in range(500))
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
