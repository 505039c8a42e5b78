"""The example pairs: balanced, so that no constant answer and no preference for length looks like judging."""

import json
from collections import Counter
from pathlib import Path

from judgelm.data.labelled_set import read_labelled, read_labels

EXAMPLES = Path(__file__).parents[2] / "examples"
PAIRS = EXAMPLES / "pairs.jsonl"
ROWS = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
DECIDED = [row for row in ROWS if row["winner"] != "tie"]


def better_is_longer(row):
    return (len(row["answer_1"]) > len(row["answer_2"])) == (row["winner"] == 1)


def test_each_row_has_the_same_fields_an_id_of_its_own_and_a_reason():
    fields = ["id", "category", "question", "answer_1", "answer_2", "winner", "reason"]
    assert [row["id"] for row in ROWS if list(row) != fields] == []
    assert len({row["id"] for row in ROWS}) == len({row["question"] for row in ROWS}) == len(ROWS) == 60
    assert [row["id"] for row in ROWS if not all(str(value).strip() for value in row.values())] == []
    assert [row["id"] for row in ROWS if not row["id"].startswith(f"{row['category']}-")] == []


def test_winners_are_balanced_by_order_and_by_length():
    assert Counter(row["winner"] for row in ROWS) == {1: 24, 2: 24, "tie": 12}
    # of the 24 winners at each place 12 are the longer answer: neither a place nor a length predicts the label
    assert Counter((row["winner"], better_is_longer(row)) for row in DECIDED) == dict.fromkeys(
        [(1, True), (1, False), (2, True), (2, False)], 12
    )


def test_all_rows_are_read_for_judging_for_training_and_as_labels():
    labelled = read_labels(str(PAIRS))
    assert {name: label.winner for name, label in labelled.labels.items()} == {r["id"]: r["winner"] for r in ROWS}
    assert labelled.groups["category"] == {row["id"]: row["category"] for row in ROWS}
    pairs = list(read_labelled(str(PAIRS), source="examples"))
    assert [pair.sample.answers for pair in pairs] == [(row["answer_1"], row["answer_2"]) for row in ROWS]
    assert [pair.label.reason for pair in pairs] == [row["reason"] for row in ROWS]
