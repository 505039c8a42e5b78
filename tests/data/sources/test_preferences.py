"""Chosen and rejected answers: RewardBench 1 and 2, and sets in general."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.preference_sets import SECTIONS
from judgelm.errors import InputError
from tests.support import benchmark_files

FIRST = {
    "prompt": "Say a.",
    "chosen": "a",
    "chosen_model": "m1",
    "rejected": "b",
    "rejected_model": "m2",
    "subset": "alpacaeval-easy",
    "id": 3,
}
SECOND = {
    "id": "12",
    "prompt": "Say a.",
    "chosen": ["a"],
    "rejected": ["b", "c", "d"],
    "num_correct": 1,
    "num_incorrect": 3,
    "total_completions": 4,
    "models": ["m1", "m2", "m3", "m4"],
    "subset": "Focus",
    "additional_metadata": {"index": float("nan")},
}


def imported(name, tmp_path, rows):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return benchmark_files.imported(name, tmp_path, path)


def test_rewardbench_rows_know_subset_and_section(tmp_path):
    _, [row] = imported("rewardbench", tmp_path, [FIRST])
    assert (row["id"], row["category"]) == ("alpacaeval-easy-3", "alpacaeval-easy")
    assert row["metadata"]["section"] == "Chat"
    winner = row["winner"]
    assert row[f"answer_{winner}"] == "a"
    assert row["answer_models"][winner - 1] == "m1"


def test_rewardbenchs_sections_are_in_the_protocol_file(tmp_path):
    imported("rewardbench", tmp_path, [FIRST])
    protocol = json.loads((tmp_path / "out.protocol.json").read_text())
    assert protocol["details"]["sections"]["Safety"]["donotanswer"] == 136
    assert sum(len(subsets) for subsets in SECTIONS.values()) == 23
    assert "published weights" in protocol["protocol"]


def test_rewardbench_as_parquet(tmp_path):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([FIRST, FIRST | {"id": 4}]), tmp_path / "in.parquet")
    done = import_benchmark("rewardbench", [str(tmp_path / "in.parquet")], tmp_path / "out.jsonl")
    assert done.rows == 2


def test_rewardbench_and_its_second_version_are_not_mixed_up(tmp_path):
    with pytest.raises(InputError, match="import it as rewardbench-2"):
        imported("rewardbench", tmp_path, [SECOND])
    with pytest.raises(InputError, match="with one text each this is rewardbench"):
        imported("rewardbench-2", tmp_path, [FIRST])
    with pytest.raises(InputError, match="none of RewardBench's 23"):
        imported("rewardbench", tmp_path, [FIRST | {"subset": "mine"}])


def test_best_of_four_stands_in_an_order_that_does_not_tell_which_was_chosen(tmp_path):
    _, [row] = imported("rewardbench-2", tmp_path, [SECOND])
    other = SECOND | {"chosen": ["c"], "rejected": ["a", "b", "d"], "models": ["m3", "m1", "m2", "m4"]}
    _, [same] = imported("rewardbench-2", tmp_path, [other])
    assert row["answers"] == same["answers"]
    assert row["answer_models"] == same["answer_models"]
    assert sorted(row["scores"]) == [0, 0, 0, 1]
    assert row["answers"][row["scores"].index(1)] == "a"
    assert same["answers"][same["scores"].index(1)] == "c"
    assert row["metadata"]["additional_metadata"] == {"index": None}  # NaN is not JSON


def test_only_ties_has_several_right_answers(tmp_path):
    several = SECOND | {"chosen": ["a", "A"], "models": None}
    _, [row] = imported("rewardbench-2", tmp_path, [several | {"subset": "Ties", "id": "tied:0"}])
    assert sorted(row["scores"]) == [0, 0, 0, 1, 1]
    with pytest.raises(InputError, match="expected 1 text outside of the subset Ties, got 2"):
        imported("rewardbench-2", tmp_path, [several])


def test_the_labels_of_best_of_four_can_be_read(tmp_path):
    imported("rewardbench-2", tmp_path, [SECOND])
    labelled = read_labels(str(tmp_path / "out.jsonl"))
    assert (labelled.labels["12"].winner, sum(labelled.labels["12"].scores)) == (None, 1)
    assert labelled.groups["category"] == {"12": "Focus"}


def test_preference_sets_in_general(tmp_path):
    _, [row] = imported(
        "preferences",
        tmp_path,
        [{"prompt": "q", "chosen": "a", "rejected": "b", "score_chosen": 9, "score_rejected": 2}],
    )
    assert sorted(row["scores"]) == [2, 9]
    assert row["scores"].index(9) == row["winner"] - 1
    battle = {
        "prompt": "q",
        "response_a": "a",
        "response_b": "b",
        "winner_model_a": 0,
        "winner_model_b": 0,
        "winner_tie": 1,
    }
    assert imported("preferences", tmp_path, [battle])[1][0]["winner"] == "tie"
    with pytest.raises(InputError, match="read as plain, which is no preference set"):
        imported("preferences", tmp_path, [{"question": "q", "answer_1": "a", "answer_2": "b"}])
