"""`judgelm study judgelm`: the file that says which run stands where."""

import json

import pytest


@pytest.fixture
def folder(cli, tmp_path):
    """A run of two pairs, and their labels."""
    rows = [{"id": name, "question": name, "answers": ["a", "b"]} for name in ("1", "2")]
    pairs, labels = tmp_path / "pairs.jsonl", tmp_path / "labels.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    labels.write_text("".join(json.dumps({"id": row["id"], "winner": 1}) + "\n" for row in rows))
    run = ("-o", tmp_path / "run.jsonl", "--engine", "scripted", "--model", "8 6", "--both-orders")
    code, _, err = cli("judgelm-batch", pairs, *run)
    assert code == 0, err
    return tmp_path


def tables(folder, text):
    (folder / "tables.yaml").write_text(text)
    return folder / "tables.yaml"


ROW = "{reference: no, method: mine, judgments: run.jsonl}"


def test_it_names_the_runs_of_each_row(cli, folder):
    file = tables(folder, f"labels: labels.jsonl\ntables:\n  - {{table: 1, runs: [{ROW}]}}\n")
    code, out, err = cli("judgelm", "study", "judgelm", file, "-o", folder / "out", "--json", "-")
    assert code == 0, err
    [table] = json.loads(out)["tables"]
    # the answer shown first always gets the higher score: it is right in the given order, and the mean is a tie
    row = table["rows"][0]
    assert (row["reference"], row["method"], row["agreement"]["value"], row["n"]) == ("no", "mine", 1.0, 2)
    assert row["agreement_by_mean"]["value"] == 0.0
    headings = {column["key"]: column["heading"] for column in table["columns"]}
    assert headings["agreement"] == "agreement, given order ↑"
    assert headings["agreement_by_mean"] == "agreement, mean of both orders ↑"
    assert (folder / "out" / "report.html").is_file()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"tables: [{{table: 1, runs: [{ROW}]}}]", "no labels, neither there nor for the whole file"),
        ("labels: labels.jsonl\ntables: [{table: 1, runs: [{judgments: run.jsonl}]}]", "a row has reference, method"),
        (f"labels: labels.jsonl\ntables: [{{table: 9, runs: [{ROW}]}}]", "tables.0.table: Input should be 1, 2"),
        ("labels: labels.jsonl\ntables: []", "names no run"),
        (f"labels: labels.jsonl\ntables: [{{table: 1, runs: [{ROW}]}}, {{table: 1, runs: []}}]", "appears twice"),
    ],
)
def test_what_is_wrong_with_it_is_said(cli, folder, text, message):
    code, _, err = cli("judgelm", "study", "judgelm", tables(folder, text), "-o", folder / "out")
    assert code == 1
    assert message in " ".join(err.split())
