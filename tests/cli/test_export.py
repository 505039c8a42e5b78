"""`judgelm export`: the input rows with their verdicts."""

import csv
import json

import pytest

from judgelm.jsonl import encode_line
from tests.support.jsonl_files import write_rows

ROWS = "Name,question,answer_1,answer_2,winner\n"
PAIRS = ROWS + 'x,=1+1,"a, b",b,1\ny,q2,,b,tie\n'


@pytest.fixture
def judged(batch, tmp_path):
    """Judge a table where the first answer always wins; return the table and the run."""

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


def test_rows_without_a_verdict_are_exported_with_the_reason(cli, judged, tmp_path):
    table, run = judged(PAIRS, "--limit", "1")
    with table.open("a") as file:
        file.write("z,too,few\n")
    cli("judgelm", "export", run, "-s", table, "-o", tmp_path / "verdicts.csv")
    with (tmp_path / "verdicts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["failure"] for row in rows] == ["", "not judged", "not judged"]
    assert rows[2]["unreadable"] == "z,too,few"


def test_a_workbook_has_no_formulas(cli, judged, tmp_path):
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
    assert (first["answers"], first["seen"], first["verdict"], first["id"]) == (["a", "b"], 0, 1, "0")


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (["-o", "verdicts.txt"], "available for --to: csv, parquet, xlsx"),
        (["-s", "other.jsonl"], "none of the ids"),
        (["-s", "pairs.csv", "-o", "pairs.csv"], "overwrite"),
    ],
)
def test_invalid_outputs_and_other_samples_are_refused(cli, judged, tmp_path, monkeypatch, options, finding):
    table, run = judged(PAIRS)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.jsonl").write_text(json.dumps({"question": "q", "answer_1": "a", "answer_2": "b"}) + "\n")
    code, _, errors = cli("judgelm", "export", run, *options)
    assert code == 1
    assert finding in errors
    assert table.read_text() == PAIRS


@pytest.fixture
def exported(cli, batch, tmp_path):
    """Judge pairs with extra fields and export them; return the rows of the table and the messages."""

    def export(kind, *options, reason=None, **fields):
        row = {"id": "1", "question": "q", "answer_1": "a", "answer_2": "b"} | fields
        pairs = write_rows(tmp_path / "pairs.jsonl", [row, row | {"id": "2", "answer_1": "c"}])
        batch(pairs)
        run = tmp_path / "out.jsonl"
        if reason is not None:
            judgments = [json.loads(line) for line in run.read_text().splitlines()]
            for judgment in judgments:
                judgment["shown"][0]["reason"] = reason
            run.write_bytes(b"".join(map(encode_line, judgments)))
        code, _, messages = cli("judgelm", "export", run, "-s", pairs, "--to", kind, *options)
        assert code == 0, messages
        assert not list(tmp_path.glob("*.partial"))
        return READERS[kind](tmp_path / f"out.{kind}"), messages

    return export


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_parquet(path):
    return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()


def read_xlsx(path):
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed: pip install -e '.[xlsx]'")
    header, *rows = openpyxl.load_workbook(path).active.iter_rows(values_only=True)
    return [dict(zip(header, row, strict=True)) for row in rows]


READERS = {"csv": read_csv, "parquet": read_parquet, "xlsx": read_xlsx}


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize(
    "fields",
    [
        {"answer_1": "half \ud800 pair"},
        {"note": "half \ud800 pair"},
        {"note": ["half \ud800 pair"]},
        {"reason": "half \ud800 pair"},
        {"half \ud800": "name"},
    ],
)
def test_a_lone_surrogate_is_replaced_in_its_cell_only(exported, kind, fields):
    rows, messages = exported(kind, **fields)
    assert len(rows) == 2
    assert "half \ufffd" in str(rows[0])
    assert "U+FFFD" in messages


@pytest.mark.parametrize("character", ["\a", "\0", "\x1f", "\uffff"])
def test_characters_invalid_in_xml_are_replaced(exported, character):
    rows, messages = exported("xlsx", note=f"ding{character}", reason=f"dong{character}")
    assert [(row["note"], row["reason"]) for row in rows] == [("ding\ufffd", "dong\ufffd")] * 2
    assert "4 cells have unsupported characters" in messages


def test_a_workbook_cuts_by_utf16_units_between_characters(exported):
    rows, messages = exported("xlsx", note="\U0001f600" * 17_000)  # 34,000 units
    assert rows[0]["note"].endswith("\U0001f600 [... 17,000 characters in all]")
    assert len(rows[0]["note"].encode("utf-16-le")) / 2 in (32_766, 32_767)
    assert "2 cells have more than 32,767 UTF-16 code units" in messages


def test_formulas_in_csv_are_counted_and_unchanged(exported):
    rows, messages = exported("csv", note='=HYPERLINK("http://x")', more="@SUM(1)", less="-0.5", percent="+3 %")
    assert (rows[0]["note"], rows[0]["more"], rows[0]["less"]) == ('=HYPERLINK("http://x")', "@SUM(1)", "-0.5")
    assert "4 cells begin with =" in messages


def test_formulas_are_escaped_on_request_and_numbers_are_not(exported):
    rows, messages = exported("csv", "--escape-formulas", note="=1+1", dash="- item", less="-0.5", power="-1e3")
    assert [rows[0][name] for name in ("note", "dash", "less", "power")] == ["'=1+1", "'- item", "-0.5", "-1e3"]
    assert "note:" not in messages


@pytest.mark.parametrize("kind", ["xlsx", "parquet"])
def test_verdicts_are_numbers_and_ids_are_texts(exported, kind):
    rows, _ = exported(kind, id=12345678901234567890)
    assert [(row["verdict"], row["id"]) for row in rows] == [(1, "12345678901234567890"), (1, "2")]


def test_a_column_of_mixed_values_is_text_in_parquet(exported):
    rows, _ = exported("parquet", note={}, size=2**70, mixed=[1, "x"])
    assert [rows[0][name] for name in ("note", "size", "mixed")] == ["{}", str(2**70), '[1, "x"]']


def test_an_earlier_table_is_replaced_only_on_request(cli, judged, tmp_path):
    _, run = judged(PAIRS)
    (tmp_path / "out.csv").write_text("mine")
    code, _, error = cli("judgelm", "export", run)
    assert (code, (tmp_path / "out.csv").read_text()) == (1, "mine")
    assert "out.csv already exists" in error
    assert cli("judgelm", "export", run, "--overwrite")[0] == 0
    assert (tmp_path / "out.csv").read_text() != "mine"


def test_the_input_of_the_run_is_never_overwritten(cli, judged, tmp_path):
    table, run = judged(PAIRS)
    code, _, error = cli("judgelm", "export", run, "-o", table, "--overwrite")
    assert (code, table.read_text()) == (1, PAIRS)
    assert "overwrite the input" in error
