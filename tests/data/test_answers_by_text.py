"""Answers without ids join their questions by the text; all others by id alone."""

from collections import Counter

import pytest

from judgelm.data.answers import AnswerSet, pair_of_models, read_model_answers, read_questions
from judgelm.errors import InputError
from tests.support.jsonl_files import write_rows


@pytest.fixture
def questions(tmp_path):
    rows = [{"id": f"k{number}", "question": f"What is {number}?"} for number in range(2)]
    return read_questions(str(write_rows(tmp_path / "q.jsonl", rows)))


@pytest.fixture
def outputs(tmp_path):
    def write(model, *rows, **fields):
        named = rows or [{"instruction": f"What is {number}?", "output": f"{model}{number}"} for number in range(2)]
        return str(write_rows(tmp_path / f"{model}.jsonl", [row | {"generator": model} | fields for row in named]))

    return write


def test_outputs_without_ids_join_questions_with_ids(questions, outputs):
    paths = outputs("a"), outputs("b")
    pairs = pair_of_models(questions, ("a", "b"), paths, Counter())
    assert [(pair.id, pair.answers) for pair in pairs] == [("k0", ("a0", "b0")), ("k1", ("a1", "b1"))]
    assert len(AnswerSet(paths).of(questions[0])) == 2


@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        ([{"instruction": "What is 7?", "output": "x"}], "have no ids"),
        ([{"question_id": "q0", "output": "x"}], "ids such as q0"),
        ([{"instruction": "What is 0?", "output": text} for text in "xy"], "two outputs"),
    ],
)
def test_answers_that_join_no_question_say_how_they_are_named(questions, outputs, rows, finding):
    with pytest.raises(InputError, match=finding):
        pair_of_models(questions, ("a", "b"), (outputs("a", *rows), outputs("b")), Counter())


@pytest.mark.parametrize(
    "row",
    [
        {"question_id": 81, "choices": [{"index": 0, "turns": ["Yes.", "And no."]}]},
        {"question_id": 81, "choices": [{"turns": [{"content": "Yes."}]}]},
        {"uid": "81", "messages": [{"role": "user"}, {"role": "assistant", "content": {"answer": "Yes."}}]},
    ],
)
def test_first_turns_of_published_answers(outputs, row):
    assert read_model_answers(outputs("a", row))[1]["81"].text == "Yes."
