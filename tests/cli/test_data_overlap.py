"""`judgelm data overlap`."""

import json

import pytest


@pytest.fixture
def files(tmp_path):
    def row(number, question):
        return json.dumps({"id": str(number), "question": question, "answer_1": "a", "answer_2": "b"}) + "\n"

    (tmp_path / "train.jsonl").write_text(row(1, "Name a prime.") + row(2, "Name a bird."))
    (tmp_path / "clean.jsonl").write_text(row(1, "Name a fish."))
    (tmp_path / "leaked.jsonl").write_text(row(1, "name a BIRD") + row(2, "Name a fish."))
    return tmp_path


def test_overlap_is_counted_per_file_and_sets_the_exit_code(cli, files):
    command = ("judgelm", "data", "overlap", files / "train.jsonl", files / "clean.jsonl")
    assert cli(*command)[0] == 0
    code, out, _ = cli(*command, files / "leaked.jsonl", "--json", "-")
    assert code == 2
    clean, leaked = json.loads(out)
    assert (clean["clean"], clean["question_overlaps"]) == (True, {"exact": 0, "near": 0, "passage": 0})
    assert (leaked["rows"], leaked["question_overlaps"]["exact"], leaked["rows_with_question"]) == (2, 1, 1)
    assert leaked["examples"][0]["text"] == "name a BIRD"
