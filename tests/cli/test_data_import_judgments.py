"""`judgelm data import-judgments` and `judgelm data sample`."""

import json

import pytest

from judgelm.jsonl import read_jsonl
from tests.support.jsonl_files import write_rows as write


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


PAIRS = [
    {"id": str(index), "question": "q", "answer_1": f"x{index}", "answer_2": "y", "winner": 1} for index in range(4)
]
ANNOTATIONS = [
    {"instruction": "q", "output_1": f"x{index}", "output_2": "y", "annotator": "a", "preference": 1 if index else 2}
    for index in range(4)
]


def test_published_judgments_are_scored_against_labels(cli):
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
    assert out.splitlines() == ["wrote 9 of 9 rows to drawn.jsonl", "too few rows: b has 4 instead of 5"]
    assert cli(*command)[1] == "drawn.jsonl already contains this sample\n"
    code, _, errors = cli(*command, "--seed", "1")
    assert code == 1
    assert "exists with different contents" in errors


def review(question, *, score="9 6", **fields):
    scores = json.dumps([float(number) for number in score.split()])
    both = {"review": score, "scores": scores, "review_reverse": score, "scores_reverse": scores}
    return {"Answer1": "x", "Answer2": "y", **question, **both, **fields}


def test_cherry_reviews_of_a_pair_in_several_sets_are_all_kept_under_the_ids_of_their_rows(cli):
    write("lima.jsonl", [review({"conversations": "Why?"}), review({"conversations": "How?"})])
    write("vicuna.jsonl", [review({"text": "Why?"}, score="2 5"), review({"text": "Why?"}, score="4 4")])
    code, _, errors = cli("judgelm", "data", "import-judgments", "lima.jsonl", "vicuna.jsonl", "-o", "run.jsonl")
    assert (code, "rejected" in errors) == (0, False), errors
    ids = [row["id"] for _, row in read_jsonl("run.jsonl")]
    assert ids == [ids[0], ids[1], f"{ids[0]}-2", f"{ids[0]}-3"]
    names = {"a": "Why?", "b": "How?", "c": "Why?"}
    write(
        "rows.jsonl", [{"id": key, "question": text, "answer_1": "x", "answer_2": "y"} for key, text in names.items()]
    )
    files = ("lima.jsonl", "vicuna.jsonl", "--rows", "rows.jsonl", "-o", "named.jsonl")
    code, _, errors = cli("judgelm", "data", "import-judgments", *files)
    assert (code, [row["id"] for _, row in read_jsonl("named.jsonl")]) == (0, ["a", "b", "c"])
    assert "1 rows rejected" in errors  # three judgments, two rows
