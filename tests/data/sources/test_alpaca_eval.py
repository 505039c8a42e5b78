import pyarrow
import pyarrow.parquet
import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.errors import InputError
from tests.support.benchmark_files import imported

ROW = {"instruction": "q", "output_1": "a", "output_2": "b", "generator_1": "base", "generator_2": "m"}
MORE = {"annotator": "judge", "dataset": "koala"}


def test_annotations_become_labelled_rows_with_models_annotator_and_preference(write, tmp_path):
    others = ({"preference": preference, "instruction": str(preference)} for preference in (2, 1.5, 0, None))
    path = write(ROW | MORE | {"preference": 1.25}, *(ROW | MORE | other for other in others))
    result, rows = imported("alpaca-eval", tmp_path, path)
    row = rows[0]
    assert (row["question"], row["answer_1"], row["answer_models"], row["category"]) == (
        "q",
        "a",
        ["base", "m"],
        "koala",
    )
    assert (row["winner"], row["preference"], row["metadata"]) == (1, 0.75, {"annotator": "judge"})
    # 2 is the second answer; 1.5, and 0 in older files, a tie; without a preference there is no label
    preferences = [0.75, 0.0, 0.5, 0.5]
    assert [row["preference"] for row in rows] == preferences
    assert (result.winners, len(result.rejects)) == ({"1": 1, "2": 1, "tie": 2}, 1)
    assert [label.preference for label in read_labels(str(tmp_path / "out.jsonl")).labels.values()] == preferences


def test_one_annotator_judges_a_pair_once_and_another_again(write, tmp_path):
    others = [ROW | MORE | {"preference": 2}, ROW | {"annotator": "other", "preference": 2}]
    result, rows = imported("alpaca-eval", tmp_path, write(ROW | MORE | {"preference": 1}, *others))
    assert [(row["metadata"]["annotator"], row["winner"]) for row in rows] == [("judge", 1), ("other", 2)]
    assert "already judged this pair" in result.rejects[0].reason


def tables(folder, judgments):
    folder.mkdir()
    outputs = [{"instruction": 0, "generator": name, "text": text} for name, text in (("base", "a"), ("m", "b"))]
    for name, rows in (("instructions", [{"instruction": "q"}]), ("outputs", outputs), ("judgments", judgments)):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"{name}.parquet")
    return folder


def test_a_folder_of_three_tables_gives_the_same_rows(write, tmp_path):
    _, rows = imported("alpaca-eval", tmp_path, write(ROW | MORE | {"preference": 1.25}))
    judgment = {"instruction": 0, "output_1": 0, "output_2": 1, "preference": 1.25, **MORE}
    folder = tables(tmp_path / "tables", [judgment, judgment | {"output_2": 5}])
    result, from_tables = imported("alpaca-eval", tmp_path, folder)
    assert from_tables == rows
    assert 'field "output_2": expected a row number below 2, got the number 5' in result.rejects[0].reason
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: no Parquet files in this folder; pass the files"):
        imported("alpaca-eval", tmp_path, tmp_path / "empty")


def test_right_and_wrong_solutions_of_gsm8k_become_pairs(write, tmp_path):
    solutions = {"m": (True, "A: 4"), "n": (False, "A: 5"), "b": (False, "A: 6")}
    row = {"question": "2 + 2?", "ground_truth": "A: 4"}
    row |= {name: {"is_correct": right, "solution": text} for name, (right, text) in solutions.items()}
    _, rows = imported("gsm8k-pairs", tmp_path, write(row))
    # models in the order of their names; b and n are both wrong
    assert [(row["answer_models"], row["winner"]) for row in rows] == [(["b", "m"], 2), (["m", "n"], 1)]
    assert {"reference", "metadata"}.isdisjoint(rows[0])
