"""`judgelm data import-judgments` and `judgelm data sample` by their commands."""

import json

import pytest

from tests.support.jsonl_files import write_rows as write


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


PAIRS = [
    {"id": str(index), "question": "q", "answer_1": f"x{index}", "answer_2": "y", "winner": 1} for index in range(4)
]
ANNOTATIONS = [
    {
        "instruction": "q",
        "output_1": f"x{index}",
        "output_2": "y",
        "preference": 1.0 if index else 2.0,
        "annotator": "a",
    }
    for index in range(4)
]


def test_published_judgments_are_scored_beside_labels(cli):
    write("pairs.jsonl", PAIRS)
    write("annotations.jsonl", ANNOTATIONS)
    code, _, errors = cli(
        "judgelm", "data", "import-judgments", "annotations.jsonl", "--rows", "pairs.jsonl", "-o", "run.jsonl"
    )
    assert code == 0
    assert "alpaca-eval, judge a: 2: 1, 1: 3" in errors
    code, out, _ = cli("judgelm", "eval", "run.jsonl", "--labels", "pairs.jsonl", "--json", "-")
    assert (code, json.loads(out)["excluded"]["accuracy"]["value"]) == (0, 0.75)


def test_without_files_the_formats_are_listed(cli):
    code, out, _ = cli("judgelm", "data", "import-judgments")
    assert (code, "judgebench" in out, "(unverified)" in out) == (0, True, False)


def test_a_sample_is_drawn_once(cli):
    write("rows.jsonl", [{"id": index, "category": "ab"[index % 2]} for index in range(9)])
    command = ("judgelm", "data", "sample", "rows.jsonl", "--per", "category", "5", "-o", "drawn.jsonl")
    code, out, _ = cli(*command)
    assert code == 0
    assert out.splitlines() == ["9 rows of 9 in drawn.jsonl", "short: b has 4 rows, not 5"]
    assert cli(*command)[1] == "drawn.jsonl: holds this sample already\n"
    code, _, errors = cli(*command, "--seed", "1")
    assert code == 1
    assert "holds something else than this sample" in errors
