"""Runs with parts in judgelm report and judgelm export."""

import csv
import io
import json

import pytest


@pytest.fixture
def run(cli, tmp_path):
    rows = [
        {"id": "a", "question": "Where?", "docs": ["In Paris.", "Old."], "answer": "It is in Paris. It is new."},
        {"id": "b", "question": "How?", "docs": "By hand.", "answer": "By hand."},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    given = (
        "--column",
        "context=docs",
        "--mode",
        "grounded",
        "--mode-arg",
        "claims=sentences",
        "--mode-arg",
        "evidence=true",
    )
    code, _, errors = cli(
        "judgelm-batch", path, "-o", tmp_path / "out.jsonl", *given, "--engine", "scripted", "--model", "Yes"
    )
    assert code == 0, errors
    return tmp_path


def test_report_prints_and_writes_a_run_with_parts(cli, run):
    code, output, _ = cli("judgelm", "report", run / "out.jsonl", "-s", run / "rows.jsonl", "-o", run / "page.html")
    assert (code, "2 judgments with 3 parts: 2 supported." in output) == (0, True)
    assert "It is new." in (run / "page.html").read_text(encoding="utf-8")


def test_export_writes_a_row_for_each_part(cli, run):
    assert (
        cli("judgelm", "export", run / "out.jsonl", "-s", run / "rows.jsonl", "--parts", "-o", run / "parts.csv")[0]
        == 0
    )
    rows = list(csv.DictReader(io.StringIO((run / "parts.csv").read_text(encoding="utf-8"))))
    assert [(row["id"], row["part"], row["answer_number"]) for row in rows] == [
        ("a", "It is in Paris.", "1"),
        ("a", "It is new.", "1"),
        ("b", "By hand.", "1"),
    ]
    assert {row["verdict"] for row in rows} == {"supported"}
    assert rows[0]["passage"] == "1"
