import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.builder.splits import split_questions
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


def test_a_number_of_questions_is_met_exactly():
    questions = numbered(50)
    split = split_questions(grouped(questions), seed=0, questions=7)
    assert [split.side(question) for question in questions].count("validation") == 7


def test_a_fraction_is_met_nearly():
    # 2,000 questions at 0.2: 400, standard deviation sqrt(2000 * 0.2 * 0.8) = 17.9; four of them are 72
    split = split_questions(grouped(numbered(2000)), seed=0, fraction=0.2)
    assert 328 <= len(split.validation) <= 472


def test_a_question_keeps_its_side_when_the_data_grows():
    small, large = (split_questions(grouped(numbered(n)), seed=3, fraction=0.3) for n in (100, 400))
    assert [small.side(one) for one in numbered(100)] == [large.side(one) for one in numbered(100)]


def test_another_seed_draws_other_questions():
    groups = grouped(numbered(200))
    assert split_questions(groups, seed=0, questions=20) != split_questions(groups, seed=1, questions=20)


def test_questions_drawn_once_are_drawn_again_by_every_version():
    groups = grouped(numbered(12))
    for options, drawn in (({"questions": 3}, (3, 4, 5)), ({"fraction": 0.3}, (4, 5))):
        split = split_questions(groups, seed=0, **options)
        assert [n for n in range(12) if split.side(f"question {n}") == "validation"] == list(drawn)
        assert split.side(groups.add("question 4")) == "validation"  # by its digest


@pytest.mark.parametrize("seed", range(20))
def test_near_copies_count_as_one_and_go_together(seed):
    # one word of 21 replaced: 18 of 22 shingles, 0.82, over 0.7
    copies = [LONG, LONG.upper() + "!", LONG.replace("dog", "cat"), LONG.replace("winter", "spring")]
    questions = [*copies, *numbered(3)]
    split = split_questions(grouped(questions), seed=seed, questions=2)
    assert len({split.side(copy) for copy in copies}) == 1
    assert len(split.validation) == 2


@given(
    questions=st.lists(st.text(alphabet="ab .?"), max_size=20).map(lambda drawn: [*drawn, "c", "d", LONG]),
    count=st.integers(1, 2),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_no_question_leaks_whatever_the_order(questions, count, seed, data):
    split = split_questions(grouped(questions), seed=seed, questions=count)
    sides = {side: {normalised(q) for q in questions if split.side(q) == side} for side in ("train", "validation")}
    assert sides["train"].isdisjoint(sides["validation"])
    assert sides["train"]
    assert sides["validation"]
    shuffled = split_questions(grouped(data.draw(st.permutations(questions))), seed=seed, questions=count)
    assert shuffled.validation == split.validation


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"questions": 3}, "3 questions for validation, of 3 different .* leaves none for training"),
        ({"fraction": 1e-9}, "a fraction of 1e-09 for validation, of 3 different .* leaves none for validation"),
        ({"fraction": 1.0}, "validation fraction 1: expected more than 0 and less than 1"),
        ({"fraction": 0.0}, "validation fraction 0: expected"),
        ({"questions": 0}, "0 validation questions: expected at least 1"),
        ({}, "either"),
        ({"fraction": 0.5, "questions": 1}, "either"),
    ],
)
def test_a_split_that_cannot_be_is_refused(options, finding):
    with pytest.raises(ConfigError, match=finding):
        split_questions(grouped(["a", "A!", "b", "c"]), seed=0, **options)
