"""`judgelm export`: the input's rows as they came, with verdicts beside them."""

import csv
import json

import pytest

from tests.support.jsonl_files import write_rows

ROWS = "Name,question,answer_1,answer_2,winner\n"
PAIRS = ROWS + 'x,=1+1,"a, b",b,1\ny,q2,,b,tie\n'


@pytest.fixture
def judged(batch, tmp_path):
    """Judge a table in which the first answer always wins; the table and the run."""

    def judge(text, *options):
        table = tmp_path / "pairs.csv"
        table.write_text(text)
        assert batch(table, *options, reply="8 6\n")[0] == 0
        return table, tmp_path / "out.jsonl"

    return judge


def test_columns_and_rows_of_the_input_stay_in_their_order(cli, judged, tmp_path):
    table, run = judged(PAIRS)
    assert cli("judgelm", "export", run, "--samples", table, "-o", tmp_path / "verdicts.csv")[0] == 0
    with (tmp_path / "verdicts.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    added = ["verdict", "probability", "scores", "consistent", "reason", "failure"]
    assert header == ["Name", "question", "answer_1", "answer_2", "winner", *added]
    assert rows == [
        ["x", "=1+1", "a, b", "b", "1", "1", "", "8 6", "", "", ""],
        ["y", "q2", "", "b", "tie", "1", "", "8 6", "", "", ""],
    ]


def test_rows_without_a_verdict_are_there_and_say_why(cli, judged, tmp_path):
    table, run = judged(PAIRS, "--limit", "1")
    with table.open("a") as file:
        file.write("z,too,few\n")
    cli("judgelm", "export", run, "-s", table, "-o", tmp_path / "verdicts.csv")
    with (tmp_path / "verdicts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["failure"] for row in rows] == ["", "not judged", "not judged"]
    assert rows[2]["unreadable"] == "z,too,few"


def test_a_workbook_holds_texts_and_computes_nothing(cli, judged, tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed: pip install -e '.[xlsx]'")
    table, run = judged(PAIRS)
    assert cli("judgelm", "export", run, "-s", table, "--to", "xlsx")[0] == 0
    _, first, _ = openpyxl.load_workbook(tmp_path / "out.xlsx").active.iter_rows()
    assert (first[1].value, first[1].data_type) == ("=1+1", "s")


def test_parquet_keeps_lists_and_numbers(cli, batch, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"id": str(n), "question": "q", "answers": ["a", "b"], "seen": n} for n in range(2)]
    pairs = write_rows(tmp_path / "pairs.jsonl", rows)
    batch(pairs)
    assert cli("judgelm", "export", tmp_path / "out.jsonl", "-s", pairs, "--to", "parquet")[0] == 0
    [first, _] = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert (first["answers"], first["seen"], first["verdict"]) == (["a", "b"], 0, "1")


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (["-o", "verdicts.txt"], "choose --to csv, parquet, xlsx"),
        (["-s", "other.jsonl"], "none of its ids was judged"),
        (["-s", "pairs.csv", "-o", "pairs.csv"], "write over"),
    ],
)
def test_what_cannot_be_written_or_is_not_what_was_judged_is_refused(
    cli, judged, tmp_path, monkeypatch, options, finding
):
    table, run = judged(PAIRS)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.jsonl").write_text(json.dumps({"question": "q", "answer_1": "a", "answer_2": "b"}) + "\n")
    code, _, said = cli("judgelm", "export", run, *options)
    assert code == 1
    assert finding in said
    assert table.read_text() == PAIRS
