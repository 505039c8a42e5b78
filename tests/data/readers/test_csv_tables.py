"""Columns: headers below a title, columns assigned by the user or matched without case and blanks."""

import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Reject
from judgelm.data.samples import Reading, SampleStream
from judgelm.errors import InputError


def table(tmp_path, text, **columns):
    (tmp_path / "a.csv").write_text(text)
    return list(read_rows(str(tmp_path / "a.csv"), columns=columns))


PAIR = {"id": "1", "question": "q", "answer_1": "a", "answer_2": "b"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Our pairs,,,\n,,,\nid,question,answer_1,answer_2\n1,q,a,b\n", 4),
        ("Our pairs\n\nid;question;answer_1;answer_2\n1;q;a;b\n", 4),
        ("sep=;\nWinner\nid;question;answer_1;answer_2\n1;q;a;b\n", 4),
        ('"Our ""pairs"",\nid, question",,,\nid,question,answer_1,answer_2\n1,q,a,b\n', 4),
        ("id,question,answer_1,answer_2\n,,,\n1,q,a,b\n", 3),
    ],
)
def test_the_line_with_known_columns_is_the_header(tmp_path, text, line):
    [row] = table(tmp_path, text)
    assert (row.line, row.data) == (line, PAIR)


def test_text_that_names_columns_is_not_a_header(tmp_path):
    rows = table(tmp_path, 'question\n"Which are they: id, question?"\n"question,\nid, question, answer"\n')
    texts = ["Which are they: id, question?", "question,\nid, question, answer"]
    assert [row.data["question"] for row in rows] == texts


def test_without_known_columns_the_reject_names_the_title(tmp_path):
    [first, _] = table(tmp_path, "Paare\nFrage,Links\nq,a\n")
    assert isinstance(first, Reject)
    assert 'if "Paare" is a title, delete the lines above the header' in first.reason


def test_a_repeated_header_is_a_reject(tmp_path):
    _, again, last = table(tmp_path, "id,question\n1,q\nid,question\n2,r\n")
    assert (isinstance(again, Reject), last.data["id"]) == (True, "2")


def test_assigned_columns_and_the_three_lines_of_qualtrics_are_headers(tmp_path):
    [row] = table(tmp_path, "Paare\nFrage,Links,Rechts\nq,a,b\n", question="Frage", answer_1="Links")
    assert row.data == {"question": "q", "answer_1": "a", "Rechts": "b"}
    ids = ",".join(['"{""ImportId"":""QID1""}"'] * 3)
    [row] = table(tmp_path, f"ResponseId,question,answer_1\nResponse ID,The question,First\n{ids}\nR_1,q,a\n")
    assert row.data == {"ResponseId": "R_1", "question": "q", "answer_1": "a"}


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
def test_invalid_assignments_are_refused(tmp_path, columns, finding):
    path = write(tmp_path, "prompt,Prompt,answer_1,answer_2\np,q,a,b\n")
    with pytest.raises(InputError, match=finding):
        list(SampleStream([path], reading=Reading(columns=columns), on_reject=lambda reject: None))
