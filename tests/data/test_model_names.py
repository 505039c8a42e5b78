"""Models' names without the blanks around them, and those that are nearly alike."""

import json

import pytest

from judgelm.data.answers import read_model_answers
from judgelm.data.labelled_set import read_labels
from judgelm.data.readers.values import similar_names_notes
from judgelm.data.samples import SampleStream
from tests.support.jsonl_files import write_rows

TEXTS = {"question": "q", "answer_1": "a", "answer_2": "b"}


@pytest.mark.parametrize(
    "names",
    [
        {"model_1": " north", "model_2": "south\u00a0"},
        {"answer_models": ["north\u200b", "\ufeffsouth\t"]},
        {"answer_models": json.dumps(["north ", " south"])},
    ],
)
def test_names_of_rows_are_without_blanks_around(tmp_path, names):
    [sample] = SampleStream([write_rows(tmp_path / "a.jsonl", [TEXTS | names])])
    assert sample.answer_models == ("north", "south")


def test_names_of_labels_and_answers_are_without_blanks_around(tmp_path):
    label = {"question_id": "1", "model_a": "north ", "model_b": "south", "label": "A"}
    assert [*read_labels(write_rows(tmp_path / "l.jsonl", [label])).labels] == ["1:north:south"]
    answers = [{"question_id": str(n), "model": f"north{' ' * n}", "text": "a"} for n in range(2)]
    assert read_model_answers(write_rows(tmp_path / "a.jsonl", answers))[0] == "north"


def test_names_that_differ_in_case_or_blanks_within_have_a_note(tmp_path):
    rows = [TEXTS | {"id": n, "winner": 1, "model_1": name, "model_2": "z"} for n, name in enumerate(("GPT 4", "gpt4"))]
    [note] = read_labels(write_rows(tmp_path / "a.jsonl", rows)).notes()
    assert '"GPT 4" and "gpt4"' in note
    assert similar_names_notes(["GPT-4", "gpt-5"]) == []
