"""Collected answers as rows to judge, with the truth about them."""

from collections import Counter

import pytest

from judgelm.data.answers import judged_rows, read_collected, read_questions
from judgelm.errors import InputError


def answer(question, model, text, **more):
    return {"id": f"{question}#{model}", "question_id": question, "model": model, "decoding_method": "greedy",
            "text": text, "finish_reason": "stop", "failure": None, **more}  # fmt: skip


@pytest.fixture
def questions(write):
    rows = [{"id": "1", "question": "2 + 2?", "reference": "4", "metadata": {"data_set": "sums"}},
            {"id": "2", "question": "Which?", "options": ["x", "y"], "reference": "B", "category": "c"}]  # fmt: skip
    return read_questions(write(*rows, name="q.jsonl"))


def test_each_answer_is_a_row_that_names_its_question(write, questions):
    answers = read_collected([write(answer("1", "m", "so it is 4", task="number", answer="4"))])
    counts = Counter()
    [judged] = judged_rows(questions[:1], answers, "number", counts=counts)
    assert judged.row == {
        "id": "1/m", "question": "2 + 2?", "answer": "so it is 4", "answer_models": ["m"], "reference": "4",
        "metadata": {"data_set": "sums", "source_id": "1"},
    }  # fmt: skip
    assert judged.truth == {
        "id": "1/m", "agent": "m", "dataset": "sums", "truth": True, "question": "1", "answer": "4",
    }  # fmt: skip
    assert counts["rows with a right answer"] == 1


def test_options_stay_with_the_row(write, questions):
    answers = read_collected([write(answer("2", "m", "The answer is (A)."))])
    [judged] = judged_rows(questions, answers, "choice", counts=Counter())
    assert judged.row["metadata"]["options"] == ["x", "y"]
    assert judged.truth["truth"] is False


def test_several_answers_of_a_model_have_ids_of_their_own(write, questions):
    rows = [answer("1", "m", str(seed), decoding_method=f"temperature=1,seed={seed}") for seed in (10, 2)]
    judged = judged_rows(questions, read_collected([write(*rows)]), "number", counts=Counter())
    assert [each.row["id"] for each in judged] == ["1/m/temperature=1,seed=2", "1/m/temperature=1,seed=10"]


def test_an_answer_without_end_is_wrong_and_a_failure_is_left_out(write, questions):
    rows = [answer("1", "cut", "The answer is 4", finish_reason="length"),
            answer("1", "none", None, failure={"code": "engine", "text": "", "why": ""})]  # fmt: skip
    counts = Counter()
    [judged] = judged_rows(questions, read_collected([write(*rows)]), "number", counts=counts)
    assert judged.truth["truth"] is False
    assert counts["answers left out: failed"] == 1


def test_qa_rows_hold_the_answer_in_the_tags(write, questions):
    rows = [answer("1", "m", "I think <ans>four</ans>", task="qa", answer="four"),
            answer("1", "n", "four", task="qa", answer=None)]  # fmt: skip
    counts = Counter()
    [judged] = judged_rows(questions, read_collected([write(*rows)]), "qa", counts=counts)
    assert (judged.row["answer"], judged.truth) == ("four", None)
    assert counts["answers left out: none in tags"] == 1


def test_a_reference_of_another_task_is_refused(write, questions):
    answers = read_collected([write(answer("2", "m", "4"))])
    with pytest.raises(InputError, match="is not a valid answer for task number"):
        list(judged_rows(questions, answers, "number", counts=Counter()))


def test_a_question_about_a_pair_has_a_letter_as_its_reference(write):
    row = {"id": "1", "question": "q", "answer_1": "x", "answer_2": "y", "winner": 2}
    [question] = read_questions(write(row))
    assert (question.reference, question.metadata["pair"]) == ("B", ["x", "y"])
