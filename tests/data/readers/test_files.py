"""Rows of JSON lines, JSON lists and tables, whose columns may be below a title, renamed or assigned by the user."""

import csv
import gzip
import io
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.labelled_set import read_labels
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.json_lists import read_list, read_wrapped
from judgelm.data.readers.rows import Reject, Row
from judgelm.data.samples import Reading, SampleStream
from judgelm.errors import InputError


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def data(rows):
    return [row.data for row in rows if isinstance(row, Row)]


def rejects(rows):
    return [(row.line, row.reason, row.raw) for row in rows if isinstance(row, Reject)]


ROWS = [{"id": 1, "q": "é😀\u2028"}, {"id": 2, "q": "b\nc"}]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json", "a.txt", "a"])
@pytest.mark.parametrize("content", [LINES, "\ufeff" + LINES, LINES.replace("\n", "\r\n"), "\n \n" + LINES, LINES[:-1]])
def test_json_lines_whatever_the_name_mark_or_line_end(tmp_path, name, content):
    assert data(read_rows(write(tmp_path, name, content))) == ROWS


@pytest.mark.parametrize("mark", ["", "\ufeff", "\n  "])
def test_json_list_with_the_lines_of_its_rows(tmp_path, mark):
    rows = list(read_rows(write(tmp_path, "a.json", mark + '[\n{"a":\n 1},\n\n {"a": 2}]')))
    assert [(row.data["a"], row.line - mark.count("\n")) for row in rows] == [(1, 2), (2, 5)]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", ["data", "rows", "examples"])
def test_an_object_with_one_list_of_rows_is_read(tmp_path, name, indent):
    content = {"version": 1, "about": {"data": 3}, name: [{"a": 1}, {"a": {"b": "]"}}], "more": [1, 2]}
    assert data(read_rows(write(tmp_path, "rows.json", json.dumps(content, indent=indent)))) == content[name]


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_a_wrapped_list_is_read_whatever_the_chunk(chunk):
    text = '{"version": 12, "data": [{"a": "x"}, 7], "n": 3}'
    row, reject = read_wrapped(io.BufferedReader(io.BytesIO(text.encode())), "f", chunk)
    assert (row.data, reject.raw) == ({"a": "x"}, "7")


def test_json_lines_with_lists_of_objects_stay_lines(tmp_path):
    two = write(tmp_path, "rows.jsonl", '{"id": 1, "data": [{"a": 1}]}\n{"id": 2, "data": [{"a": 2}]}\n')
    assert [row.data["id"] for row in read_rows(two)] == [1, 2]
    one = write(tmp_path, "rows.jsonl", '{"id": 1, "turns": [{"question": "q"}]}')
    assert [row.data["id"] for row in read_rows(one)] == [1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"data": [{"a": 1}], "rows": [{"a": 2}]}', 'two lists of rows, "data" and "rows"'),
        ('{"data": [{"a": 1}]', 'expected "," or "}" after a field, but the file ends; fix'),
        ('{"data": [{"a": 1}]} {}', "text after the end"),
    ],
)
def test_what_follows_a_wrapped_list_is_checked(tmp_path, text, reason):
    rows = read_rows(write(tmp_path, "rows.json", text))
    assert next(rows).data == {"a": 1}
    with pytest.raises(InputError, match=reason):
        next(rows)


@pytest.mark.parametrize(
    ("line", "reason", "raw"),
    [
        (b'{"a": 1', "invalid JSON: Expecting ',' delimiter", '{"a": 1'),
        (b'{"a": "\xe9"}', "invalid UTF-8 at byte 8 of the line", '{"a": "\\xe9"}'),
        (b"[1, 2]", "expected a JSON object, got a list", "[1, 2]"),
        (b"null", "expected a JSON object, got null", "null"),
        (b'"x"', "expected a JSON object, got a text", '"x"'),
        (b"[" * 100_000, "nested too deeply", "[" * 100_000),
        (b'{"a": ' + b"1" * 5000 + b"}", "invalid JSON: Exceeds the limit", '{"a": ' + "1" * 5000 + "}"),
    ],
)
def test_a_bad_line_is_a_reject_and_the_others_are_read(tmp_path, line, reason, raw):
    path = write(tmp_path, "a.jsonl", b'{"a": 0}\n' + line + b'\n{"a": 2}\n')
    rows = list(read_rows(path))
    assert data(rows) == [{"a": 0}, {"a": 2}]
    [(number, message, kept)] = rejects(rows)
    assert (number, kept) == (2, raw)
    assert reason in message
    assert "it may be incomplete" not in message


def test_the_reject_of_an_incomplete_last_line_says_so(tmp_path):
    [(_, message, _)] = rejects(read_rows(write(tmp_path, "a.jsonl", '{"a": 0}\n{"a": ')))
    assert "it may be incomplete" in message


@pytest.mark.parametrize(("length", "whole"), [(900_000, True), (1_100_000, False)])
def test_a_reject_keeps_up_to_a_million_characters(tmp_path, length, whole):
    [reject] = read_rows(write(tmp_path, "a.jsonl", "x" * length))
    assert (reject.raw == "x" * length) is whole
    assert whole or reject.raw == "x" * 10_000 + " [... 1100000 characters in total]"


@given(
    rows=st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=30) | st.integers() | st.none(), max_size=3)),
    indent=st.sampled_from([None, 0, 2]),
    ascii_only=st.booleans(),
    chunk=st.integers(min_value=1, max_value=50),
)
def test_any_chunk_size_gives_the_rows_of_json_loads(rows, indent, ascii_only, chunk):
    text = json.dumps(rows, indent=indent, ensure_ascii=ascii_only)
    read = list(read_list(io.BytesIO(text.encode()), "f", chunk))
    assert [row.data for row in read] == json.loads(text)
    if indent is not None and rows:
        lines = text.split("\n")
        assert all(lines[row.line - 1].lstrip().startswith("{") for row in read)


@given(cut=st.integers(min_value=1, max_value=200), chunk=st.integers(min_value=1, max_value=50))
def test_a_list_cut_short_gives_its_whole_rows_and_an_error(cut, chunk):
    whole = json.dumps([{"n": number, "text": 'é[]{}\\"'} for number in range(5)], ensure_ascii=False)
    text = whole[: min(cut, len(whole) - 1)]
    rows = []
    with pytest.raises(InputError, match=r"^f:1: broken JSON list: .*(end of the file|file ends|Unterminated)"):
        rows.extend(read_list(io.BytesIO(text.encode()), "f", chunk))
    assert [row.data["n"] for row in rows] == list(range(len(rows)))


@pytest.mark.parametrize(
    ("text", "place", "finding"),
    [
        ('[{"a": 0},\n{"a": 1 "b": 2}, {"a": 3}]', 2, "Expecting ',' delimiter at line 2, character 20 of the file"),
        ('[{"a": 0} {"a": 1}]', 1, 'expected "," or "]" after a row, got "{"'),
        ('[{"a": 0}] {"a": 1}', 1, "text after the end of the JSON list"),
        ('[{"a": 0}, {"a": 1}', 1, "but the file ends"),
        ('[{"a": 0}, ' + "[" * 100_000, 1, "invalid JSON"),
    ],
)
def test_a_broken_list_gives_the_rows_before_that_place_and_an_error(tmp_path, text, place, finding):
    path = write(tmp_path, "a.json", text)
    rows = read_rows(path)
    assert next(rows).data == {"a": 0}
    with pytest.raises(InputError) as caught:
        list(rows)
    assert str(caught.value).startswith(f"{path}:{place}: ")
    assert finding in str(caught.value)


def test_bad_bytes_in_a_list_cost_one_row(tmp_path):
    rows = list(read_rows(write(tmp_path, "a.json", b'[{"a": "\xe9"}, {"a": "b"}, 7]')))
    assert data(rows) == [{"a": "b"}]
    bad = [(raw, reason.split(";")[0]) for _, reason, raw in rejects(rows)]
    assert bad == [('{"a": "\\xe9"}', "not valid UTF-8"), ("7", "expected a JSON object in the list")]


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.tsv", "\t")])
def test_tables_have_lines_quotes_and_big_cells(tmp_path, name, separator):
    big = "x" * 10_000_000
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=separator).writerows([["id", " q"], ["1", 'a\n"b"'], ["2", big]])
    rows = list(read_rows(write(tmp_path, name, "\ufeff" + out.getvalue())))
    assert data(rows) == [{"id": "1", "q": 'a\n"b"'}, {"id": "2", "q": big}]
    assert [row.line for row in rows] == [2, 4]


@pytest.mark.parametrize(
    ("line", "reason", "raw"),
    [
        (b"1,2,3", "expected 2 cells, as in the header, got 3", "1,2,3"),
        (b"1", "expected 2 cells, as in the header, got 1", "1"),
        (b"1,\xe9", "not valid UTF-8", "1,\\xe9"),
        (b'1,"x"y', "cannot parse the row: ',' expected after '\"'", '1,"x"y'),
    ],
)
def test_a_bad_table_row_is_a_reject(tmp_path, line, reason, raw):
    rows = list(read_rows(write(tmp_path, "a.csv", b"id,q\n0,a\n" + line + b"\n\n2,b\n")))
    assert data(rows) == [{"id": "0", "q": "a"}, {"id": "2", "q": "b"}]
    [(number, message, kept)] = rejects(rows)
    assert (number, kept) == (3, raw)
    assert reason in message


@pytest.mark.parametrize(
    ("lines", "good", "place"),
    [
        (['1,"b', "2,c"], 1, 3),  # swallows the rest of the file
        (['1,"b', '2,"c"'], 1, 3),  # up to the next quote
        (["1,b", '2,"He said "hi" there', "3,c"], 2, 4),
        (['1,"b', "2,c", '3,d",e'], 1, 3),  # a stray quote ends it: 1 row of 3 cells that has swallowed one of 2
        (['1,"two', 'lines"', '2,"b'], 2, 5),
    ],
)
def test_an_unclosed_quote_is_an_error_after_the_rows_before_it(tmp_path, lines, good, place):
    rows = []
    with pytest.raises(InputError, match=rf":{place}: a quote is not closed, so the rest of the file is unreadable"):
        rows.extend(read_rows(write(tmp_path, "a.csv", "\n".join(["id,q", "0,a", *lines, ""]))))
    assert len(data(rows)) == len(rows) == good


def test_rows_of_several_lines_and_line_ends_of_old_macs(tmp_path):
    rows = list(read_rows(write(tmp_path, "a.csv", 'id,q\n0,"some, words\nand more",z\n1,b\n')))
    assert [(type(row), row.line) for row in rows] == [(Reject, 2), (Row, 4)]
    rows = list(read_rows(write(tmp_path, "a.csv", 'id,q\r1,"a\rb"\r2,c\r')))
    assert data(rows) == [{"id": "1", "q": "a\rb"}, {"id": "2", "q": "c"}]


@pytest.mark.parametrize("line", ["sep=;", '"sep=;"', "SEP=;\r"])
def test_the_separator_that_a_spreadsheet_states_is_used(tmp_path, line):
    path = write(tmp_path, "a.csv", f"\n{line}\nid;q,r,s,t,u\n1;x\n2;y;z\n")
    good, bad = read_rows(path)
    assert (good.line, good.data) == (4, {"id": "1", "q,r,s,t,u": "x"})
    assert (bad.line, bad.reason.split(";")[0]) == (5, "expected 2 cells, as in the header, got 3")


@pytest.mark.parametrize(
    ("name", "content", "finding"),
    [
        ("a.jsonl", b"", "contains no rows"),
        ("a.json", b"[]", "contains no rows"),
        ("a.csv", b"id,q\n", "no rows below the header"),
        ("a.parquet", b"PAR1 but no more", "not a Parquet file (after 0 rows)"),
        ("a.csv", b"id,id\n1,2\n", 'column "id" appears twice in the header'),
        ("a.jsonl", LINES.encode("utf-16"), "encoded as UTF-16; save it as UTF-8"),
    ],
)
def test_an_unusable_file_is_named_with_the_finding(tmp_path, name, content, finding):
    with pytest.raises(InputError) as caught:
        list(read_rows(write(tmp_path, name, content)))
    assert str(caught.value).startswith(f"{tmp_path}/{name}:")
    assert finding in str(caught.value)


def test_rows_before_the_damage_of_a_gzip_file_are_given(tmp_path):
    lines = b"".join(b'{"n": %d, "hash": "%d"}\n' % (number, hash(str(number))) for number in range(100_000))
    rows = read_rows(write(tmp_path, "a.jsonl.gz", gzip.compress(lines)[:-1000]))
    assert next(rows).data["n"] == 0
    with pytest.raises(InputError, match="damaged gzip"):
        list(rows)


def test_a_missing_file_suggests_close_names_before_it_is_read(tmp_path):
    write(tmp_path, "pairs.jsonl", LINES)
    with pytest.raises(InputError, match=r"pair\.jsonl: no such file; did you mean pairs\.jsonl\?"):
        read_rows(str(tmp_path / "pair.jsonl"))
    with pytest.raises(InputError, match=r"nowhere/a.jsonl: no such file or folder"):
        read_rows(str(tmp_path / "nowhere" / "a.jsonl"))


def test_reading_text_does_not_import_pyarrow():
    code = "import sys, judgelm.data.samples; sys.exit(any(m in sys.modules for m in ('pyarrow', 'torch', 'pandas')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def table(tmp_path, text, **columns):
    return list(read_rows(write(tmp_path, "a.csv", text), columns=columns))


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


def test_an_unknown_title_and_a_repeated_header_are_rejects(tmp_path):
    [first, _] = table(tmp_path, "Paare\nFrage,Links\nq,a\n")
    assert 'if "Paare" is a title, delete the lines above' in first.reason
    _, again, last = table(tmp_path, "id,question\n1,q\nid,question\n2,r\n")
    assert (isinstance(again, Reject), last.data["id"]) == (True, "2")


def test_assigned_columns_and_the_three_lines_of_qualtrics_are_headers(tmp_path):
    [row] = table(tmp_path, "Paare\nFrage,Links,Rechts\nq,a,b\n", question="Frage", answer_1="Links")
    assert row.data == {"question": "q", "answer_1": "a", "Rechts": "b"}
    ids = ",".join(['"{""ImportId"":""QID1""}"'] * 3)
    [row] = table(tmp_path, f"ResponseId,question,answer_1\nResponse ID,The question,First\n{ids}\nR_1,q,a\n")
    assert row.data == {"ResponseId": "R_1", "question": "q", "answer_1": "a"}


def test_names_match_without_case_and_blanks(tmp_path):
    path = write(tmp_path, "a.csv", "ID, Question ,Answer_1,ANSWER_2,Answer_3,Winner,Topic\n7,q,a,b,c,,x\n")
    [sample] = SampleStream([path])
    assert (sample.id, sample.question, sample.answers) == ("7", "q", ("a", "b", "c"))
    assert sample.metadata == {"Topic": "x"}
    path = write(tmp_path, "a.jsonl", '{"Id": 1, "Winner": "B"}')
    assert read_labels(path).labels["1"].winner == 2


def test_the_exact_name_wins_and_two_others_are_refused(tmp_path):
    good, bad = read_rows(write(tmp_path, "a.jsonl", '{"a": 1, "A": 2}\n{"A": 1, "a ": 2}\n'), known=("a",))
    assert good.data == {"a": 1, "A": 2}
    assert bad.reason == 'columns "A" and "a " all match the field "a"; rename all but one'


@pytest.mark.parametrize("wanted", ["prompt", "PROMPT", " Prompt"])
def test_an_assigned_column_takes_the_fields_place(tmp_path, wanted):
    path = write(tmp_path, "a.csv", "Prompt,question,answer_1,answer_2\np,q,a,b\n")
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
    path = write(tmp_path, "a.csv", "prompt,Prompt,answer_1,answer_2\np,q,a,b\n")
    with pytest.raises(InputError, match=finding):
        list(SampleStream([path], reading=Reading(columns=columns), on_reject=lambda reject: None))
