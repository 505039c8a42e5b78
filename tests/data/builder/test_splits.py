"""Splits: validation questions apart from training, and nested subsets that look like the whole."""

import random
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.builder.splits import SubsetSizes, nested_order, split_questions, stratum, subset_sizes
from judgelm.data.duplicates import QuestionGroups, normalised
from judgelm.errors import ConfigError, InputError

LONG = "please write one short story about a small dog that finds its own way home from the far north in winter"


def grouped(questions):
    groups = QuestionGroups()
    for question in questions:
        groups.add(question)
    return groups


def numbered(count):
    return [f"question {number}" for number in range(count)]


def test_numbers_of_questions_are_met_exactly_and_test_leaves_validation_as_it_is():
    groups = grouped(numbered(100))
    split = split_questions(groups, seed=0, validation=20, test=10)
    sides = [split.side(question) for question in numbered(100)]
    assert (sides.count("test"), sides.count("validation")) == (10, 20)
    assert split.validation == split_questions(groups, seed=0, validation=20).validation


def test_a_fraction_is_met_nearly():
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
