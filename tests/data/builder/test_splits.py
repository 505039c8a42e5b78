"""Splits: validation questions apart from training, and nested subsets that look like the whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.builder.splits import SubsetSizes, nested_order, split_questions, subset_sizes
from judgelm.data.duplicates import QuestionGroups, normalised
from judgelm.errors import ConfigError

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
    assert [small.side(one) for one in numbered(100)] == [large.side(one) for one in numbered(100)]


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
        ({"validation": 3}, "validation 3 of 3 different .* leaves none for training"),
        ({"validation": 1e-9}, "validation 1e-09 of 3 different .* leaves none for validation"),
        ({"test": 1e-9}, "test 1e-09 of 3 different .* leaves none for test"),
        ({"validation": 1, "test": 2}, "validation 1 and test 2 of 3 different .* leaves none for training"),
        ({"validation": 0.9, "test": 2}, "validation 0.9 and test 2 of 3 different .* leaves none for training"),
        ({"validation": -0.1}, "validation -0.1: expected a share below 1"),
        ({"test": 1.5}, "test 1.5: expected a share below 1 or a whole number"),
    ],
)
def test_a_split_that_cannot_be_is_refused(options, finding):
    with pytest.raises(ConfigError, match=finding):
        split_questions(grouped(["a", "A!", "b", "c"]), seed=0, **options)


@given(st.sets(st.text(max_size=3)).map(sorted), st.integers(0, 9), st.randoms())
def test_ranks_do_not_depend_on_the_order_of_rows(ids, seed, rng):
    shuffled = rng.sample(ids, len(ids))
    first, second = (dict(zip(rows, nested_order(rows, seed=seed), strict=True)) for rows in (ids, shuffled))
    assert first == second
    assert sorted(first.values()) == list(range(len(ids)))  # so a subset has its exact size


def test_sizes_that_the_data_lacks_are_said_and_those_that_make_no_sense_refused():
    sizes = subset_sizes(10_000, (30_000, 10_000, 3_500, 100_000))
    assert sizes == SubsetSizes(sizes=(3_500, 10_000), too_large=(30_000, 100_000))
    for wanted, finding in (
        ((5, 0), "subset size 0: expected"),
        ((5, 1, 5), "subset sizes 1, 5, 5: repeated size"),
    ):
        with pytest.raises(ConfigError, match=finding):
            subset_sizes(10, wanted)


def test_subsets_drawn_once_are_drawn_again_by_every_version():
    rows = [f"row-{n}" for n in range(12)]
    assert nested_order(rows, seed=0).tolist() == [9, 11, 0, 6, 2, 7, 5, 4, 10, 3, 1, 8]
    assert nested_order(rows, seed=1).tolist() == [3, 7, 5, 10, 1, 9, 4, 8, 0, 2, 11, 6]
