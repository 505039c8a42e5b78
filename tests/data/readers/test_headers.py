"""The header of a table below a title or other lines, and lines that are no rows."""

import pytest

from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Reject


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


def test_columns_named_by_the_user_make_a_header(tmp_path):
    [row] = table(tmp_path, "Paare\nFrage,Links,Rechts\nq,a,b\n", question="Frage", answer_1="Links")
    assert row.data == {"question": "q", "answer_1": "a", "Rechts": "b"}


def test_text_that_names_columns_is_no_header(tmp_path):
    rows = table(tmp_path, 'question\n"Which are they: id, question?"\n"question,\nid, question, answer"\n')
    assert [row.data["question"] for row in rows] == [
        "Which are they: id, question?",
        "question,\nid, question, answer",
    ]


def test_without_known_columns_the_reject_names_the_title(tmp_path):
    [first, _] = table(tmp_path, "Paare\nFrage,Links\nq,a\n")
    assert isinstance(first, Reject)
    assert 'if "Paare" is a title, delete the lines above the header' in first.reason


def test_the_header_once_more_is_no_row(tmp_path):
    _, again, last = table(tmp_path, "id,question\n1,q\nid,question\n2,r\n")
    assert (isinstance(again, Reject), last.data["id"]) == (True, "2")


def test_qualtrics_three_header_lines(tmp_path):
    ids = ",".join(['"{""ImportId"":""QID1""}"'] * 3)
    [row] = table(tmp_path, f"ResponseId,question,answer_1\nResponse ID,The question,First\n{ids}\nR_1,q,a\n")
    assert row.data == {"ResponseId": "R_1", "question": "q", "answer_1": "a"}
