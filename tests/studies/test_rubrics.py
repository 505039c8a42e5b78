"""Criteria that a model writes: replies taken apart, and the arithmetic of what is dropped and measured."""

import pytest

from judgelm.data.labelled_set import LabelledSet
from judgelm.errors import InputError
from judgelm.records import Judgment, Label, PairVerdict, Sample, Shown, Unparsed
from judgelm.studies.rubrics import (
    merged,
    rubric_scores,
    separation,
    split_pairs,
    writing_prompt,
    written_criteria,
)


def labelled(*winners, questions=None):
    names = [f"p{index}" for index in range(len(winners))]
    questions = questions or names
    return LabelledSet(
        samples={
            name: Sample(id=name, question=question, answers=("a", "b"))
            for name, question in zip(names, questions, strict=True)
        },
        labels={name: Label(sample_id=name, winner=winner) for name, winner in zip(names, winners, strict=True)},
        groups={},
    )


def judgment(winner, *readings, failed=False):
    """A judgment by one criterion; readings are P(yes) of the first and of the second answer."""
    shown = tuple(
        Shown(order=(i,), text="", part="c", scores=None if p is None else (p,)) for i, p in enumerate(readings)
    )
    failure = Unparsed("engine", "") if failed else None
    verdict = None if failed else PairVerdict(winner=winner)
    return Judgment(sample_id="", mode="checklist", verdict=verdict, shown=shown, failure=failure)


@pytest.mark.parametrize(
    ("reply", "criteria", "unusable"),
    [
        ("Here they are:\n1. It is **short**.\n2) It names a year.", ["It is short.", "It names a year."], 0),
        ("- It is short.\n* It names a year.", ["It is short.", "It names a year."], 0),
        ('```json\n["It is short.", "It names a year."]\n```', ["It is short.", "It names a year."], 0),
        ('[{"criterion": "It is short.", "weight": 2}]', ["It is short."], 0),
        ("Criteria:\n\nIt is short.\nIt names a year.", ["It is short.", "It names a year."], 0),
        ("1. It is short.\n2. The first answer is short.\n3. Short", ["It is short."], 2),
        ("1. The preferred answer names a year.\n2. It beats the rejected answer.", ["The answer names a year."], 1),
        ("", [], 0),
    ],
)
def test_replies_are_taken_apart(reply, criteria, unusable):
    assert written_criteria(reply) == (criteria, unusable)


def test_criteria_that_say_the_same_are_merged():
    texts = ["The answer names the year.", "the answer names the year", "The answer is polite to the user."]
    assert merged(texts) == [texts[0], texts[2]]


def test_prompts_show_the_better_answer_first_and_keep_braces():
    text = writing_prompt("pairs", "1", 3, "q {question}", ("good", "bad")).question
    assert "q {question}" in text
    assert text.index("good") < text.index("bad")
    assert "Write 3 criteria" in text


def test_pairs_of_a_question_are_on_one_side_and_ties_on_none():
    training, held = split_pairs(labelled(1, 2, "tie", 1, 2, questions=list("aabbc")), 0.4, seed=0)
    assert sorted(training + held) == ["p0", "p1", "p3", "p4"]
    assert ("p0" in held) is ("p1" in held)
    with pytest.raises(InputError, match="1 pairs with a winner, of 1 questions"):
        split_pairs(labelled(1, "tie"), 0.5, seed=0)


@pytest.mark.parametrize(
    ("readings", "expected", "outcome"),
    [
        # the first answer is better, then the second: leads 0.9 - 0.2 and 0.4 - 0.6
        ([(0.9, 0.2), (0.6, 0.4)], (2, 2, pytest.approx(0.25)), "kept"),
        ([(0.9, 0.6), (0.98, 0.99)], (2, 1, pytest.approx(0.155)), "kept"),
        ([(0.99, 0.96), (0.98, 0.99)], (2, 0, pytest.approx(0.02)), "separates nothing"),
        ([(0.2, 0.9), (0.6, 0.4)], (2, 2, pytest.approx(-0.45)), "prefers the wrong answer"),
        ([(0.9, None), (0.2, 0.6)], (1, 1, pytest.approx(0.4)), "kept"),
        ([(0.9, None), (None, 0.6)], (0, 0, 0), "could not be read"),
    ],
)
def test_a_criterion_is_kept_where_it_separates_towards_the_better_answer(readings, expected, outcome):
    judgments = {f"p{index}": judgment(1, *values) for index, values in enumerate(readings)}
    result = separation("c", judgments, labelled(1, 2))
    assert (tuple(result), result.outcome) == (expected, outcome)


def test_accuracy_counts_failures_and_missing_judgments_as_wrong():
    checklist = {"p0": judgment(1), "p1": judgment(2), "p2": judgment(1, failed=True)}
    plain = {"p0": judgment("tie"), "p1": judgment(2), "p2": judgment(2)}
    scores = rubric_scores(checklist, plain, labelled(1, 2, 2, 1), ["p0", "p1", "p2", "p3"])
    # right: p0, p1 of 4; p1, p2 of 4
    assert (scores["checklist"].value, scores["yes-no"].value, scores["gain"].value) == (0.5, 0.5, 0)
    assert scores["checklist"].n == 4
