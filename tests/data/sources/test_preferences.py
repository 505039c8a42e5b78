"""Chosen and rejected answers: RewardBench 1 and 2, and sets in general."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.data.sources.preference_sets import SECTIONS
from judgelm.errors import InputError
from tests.support import benchmark_files

FIRST = {
    "prompt": "Say a.", "chosen": "a", "chosen_model": "m1", "rejected": "b", "rejected_model": "m2",
    "subset": "alpacaeval-easy", "id": 3,
}  # fmt: skip
SECOND = {
    "id": "12", "prompt": "Say a.", "chosen": ["a"], "rejected": ["b", "c", "d"], "subset": "Focus",
    "models": ["m1", "m2", "m3", "m4"], "additional_metadata": {"index": float("nan")},
}  # fmt: skip


def test_rewardbench_rows_know_subset_and_section_which_are_in_the_protocol_file(imported, tmp_path):
    _, [row] = imported("rewardbench", FIRST)
    winner = row["winner"]
    assert (row["id"], row["category"], row["metadata"]["section"]) == ("alpacaeval-easy-3", "alpacaeval-easy", "Chat")
    assert (row[f"answer_{winner}"], row["answer_models"][winner - 1]) == ("a", "m1")
    protocol = json.loads((tmp_path / "out.protocol.json").read_text())
    assert protocol["details"]["sections"]["Safety"]["donotanswer"] == 136
    assert sum(len(subsets) for subsets in SECTIONS.values()) == 23


def test_rewardbench_as_parquet(tmp_path):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([FIRST, FIRST | {"id": 4}]), tmp_path / "in.parquet")
    assert benchmark_files.imported("rewardbench", tmp_path, tmp_path / "in.parquet")[0].rows == 2


def test_rewardbench_and_its_second_version_are_not_mixed_up(imported):
    with pytest.raises(InputError, match="import the file as rewardbench-2"):
        imported("rewardbench", SECOND)
    with pytest.raises(InputError, match="import rows with one string as rewardbench"):
        imported("rewardbench-2", FIRST)
    with pytest.raises(InputError, match="not in RewardBench"):
        imported("rewardbench", FIRST | {"subset": "mine"})


def test_best_of_four_stands_in_an_order_that_does_not_tell_which_was_chosen(imported, tmp_path):
    other = SECOND | {"chosen": ["c"], "rejected": ["a", "b", "d"], "models": ["m3", "m1", "m2", "m4"], "id": "13"}
    _, [row, same] = imported("rewardbench-2", SECOND, other)
    assert (row["answers"], row["answer_models"]) == (same["answers"], same["answer_models"])
    assert sorted(row["scores"]) == [0, 0, 0, 1]
    assert [each["answers"][each["scores"].index(1)] for each in (row, same)] == ["a", "c"]
    assert row["metadata"]["additional_metadata"] == {"index": None}  # NaN is not JSON
    labelled = read_labels(str(tmp_path / "out.jsonl"))
    assert (labelled.labels["12"].winner, sum(labelled.labels["12"].scores)) == (None, 1)
    assert labelled.groups["category"]["12"] == "Focus"


def test_only_ties_has_several_right_answers(imported):
    several = SECOND | {"chosen": ["a", "A"], "models": None}
    _, [row] = imported("rewardbench-2", several | {"subset": "Ties", "id": "tied:0"})
    assert sorted(row["scores"]) == [0, 0, 0, 1, 1]
    with pytest.raises(InputError, match="expected 1 string, except in the subset Ties, got 2"):
        imported("rewardbench-2", several)


def test_preference_sets_in_general(imported):
    scored = {"prompt": "q", "chosen": "a", "rejected": "b", "score_chosen": 9, "score_rejected": 2}
    _, [row] = imported("preferences", scored)
    assert (sorted(row["scores"]), row["scores"].index(9)) == ([2, 9], row["winner"] - 1)
    battle = {"prompt": "q", "response_a": "a", "response_b": "b"}
    tie = {"winner_model_a": 0, "winner_model_b": 0, "winner_tie": 1}
    assert imported("preferences", battle | tie)[1][0]["winner"] == "tie"
    with pytest.raises(InputError, match="recognised as plain; expected"):
        imported("preferences", {"question": "q", "answer_1": "a", "answer_2": "b"})
