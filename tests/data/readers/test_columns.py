"""Names of columns: assigned by the user, or different from a field's name only in case and blanks around."""

import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.data.readers.files import read_rows
from judgelm.data.samples import Reading, SampleStream
from judgelm.errors import InputError


def write(folder, text, name="a.csv"):
    (folder / name).write_text(text)
    return str(folder / name)


def test_names_match_without_case_and_blanks(tmp_path):
    path = write(tmp_path, "ID, Question ,Answer_1,ANSWER_2,Answer_3,Winner,Topic\n7,q,a,b,c,,x\n")
    [sample] = SampleStream([path])
    assert (sample.id, sample.question, sample.answers) == ("7", "q", ("a", "b", "c"))
    assert sample.metadata == {"Topic": "x"}
    path = write(tmp_path, '{"Id": 1, "Winner": "B"}', "a.jsonl")
    assert read_labels(path).labels["1"].winner == 2


def test_the_exact_name_wins_and_two_others_are_refused(tmp_path):
    good, bad = read_rows(write(tmp_path, '{"a": 1, "A": 2}\n{"A": 1, "a ": 2}\n', "a.jsonl"), known=("a",))
    assert good.data == {"a": 1, "A": 2}
    assert bad.reason == 'columns "A" and "a " all match the field "a"; rename all but one'


@pytest.mark.parametrize("wanted", ["prompt", "PROMPT", " Prompt"])
def test_an_assigned_column_takes_the_fields_place(tmp_path, wanted):
    path = write(tmp_path, "Prompt,question,answer_1,answer_2\np,q,a,b\n")
    columns = {"question": wanted, "answer_1": "answer_2", "answer_2": "answer_1"}
    [sample] = SampleStream([path], reading=Reading(columns=columns))
    assert (sample.question, sample.answers, sample.metadata) == ("p", ("b", "a"), {})


@pytest.mark.parametrize(
    ("columns", "finding"),
    [
        ({"question": "task"}, '"task", assigned to field "question": not found; the columns are prompt, Prompt'),
        ({"question": "PROMPT"}, "matches several columns: prompt, Prompt"),
        ({"question": "answer_1", "reference": "answer_1"}, 'assigned to both "question" and "reference"'),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(tmp_path, columns, finding):
    path = write(tmp_path, "prompt,Prompt,answer_1,answer_2\np,q,a,b\n")
    with pytest.raises(InputError, match=finding):
        list(SampleStream([path], reading=Reading(columns=columns), on_reject=lambda reject: None))
