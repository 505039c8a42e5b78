import json

import pytest
from typer.testing import CliRunner

from judgelm.cli.main import app


@pytest.fixture
def files(tmp_path):
    def row(number, question):
        return json.dumps({"id": str(number), "question": question, "answer_1": "a", "answer_2": "b"}) + "\n"

    (tmp_path / "train.jsonl").write_text(row(1, "Name a prime.") + row(2, "Name a bird."))
    (tmp_path / "clean.jsonl").write_text(row(1, "Name a fish."))
    (tmp_path / "leaked.jsonl").write_text(row(1, "name a BIRD") + row(2, "Name a fish."))
    return tmp_path


def run(files, *arguments):
    paths = [str(files / argument) if argument.endswith(".jsonl") else argument for argument in arguments]
    return CliRunner().invoke(app, ["data", "overlap", *paths], env={"COLUMNS": "200"})


def test_the_exit_code_says_whether_anything_overlaps(files):
    assert run(files, "train.jsonl", "clean.jsonl").exit_code == 0
    assert run(files, "train.jsonl", "clean.jsonl", "leaked.jsonl").exit_code == 2


def test_counts_for_each_file_as_json(files):
    done = run(files, "train.jsonl", "clean.jsonl", "leaked.jsonl", "--json", "-")
    clean, leaked = json.loads(done.stdout)
    assert (clean["clean"], clean["question_overlaps"]) == (True, {"exact": 0, "near": 0, "passage": 0})
    assert (leaked["rows"], leaked["question_overlaps"]["exact"], leaked["rows_with_question"]) == (2, 1, 1)
    assert leaked["examples"][0]["text"] == "name a BIRD"
