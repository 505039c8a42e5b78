"""JUDGE-BENCH's ratings: files in the schema of its data/README.md."""

import pytest

from judgelm.data.sources.importer import import_benchmark
from judgelm.errors import InputError
from tests.support.benchmark_files import published


def content(**changes):
    rating = {"mean_human": 2.5, "individual_human_scores": [2, 3]}
    annotation = {"metric": "fluency", "category": "graded", "prompt": "Rate: {{ instance }}", "worst": 1, "best": 7}
    return {
        "dataset": "d",
        "annotations": [annotation | changes],
        "instances": [{"id": 3, "instance": "Some text.", "annotations": {"fluency": rating}}],
    }


def test_a_property_of_a_text_is_a_row(imported):
    _, [row] = imported("judge-bench-nlp", content(), file="my_set.json")
    assert (row["id"], row["category"]) == ("my-set-3-fluency", "my-set: fluency")
    assert (row["question"], row["answer"], row["scores"]) == ("Rate:", "Some text.", [2.5])


def test_names_are_those_of_the_authors_tables(imported):
    _, [row] = imported("judge-bench-nlp", content(), file="roscoe-gsm8k-overall.json")
    assert row["metadata"]["data_set"] == "roscoe-gsm8k"


def test_a_scale_whose_best_value_is_the_smaller_one_is_turned(imported):
    _, [row] = imported("judge-bench-nlp", content(worst=7, best=1), file="my_set.json")
    assert row["scores"] == [-2.5]


def test_categorical_properties_are_rejects(imported):
    made = content()
    made["annotations"].append({"metric": "safe", "category": "categorical", "prompt": "{{ instance }}"})
    done, rows = imported("judge-bench-nlp", made, file="my_set.json")
    assert len(rows) == 1
    assert "safe is categorical" in done.rejects[0].reason


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"annotations": []}, "needs annotations and instances"),
        ([1], "needs annotations and instances"),
        (content(category="categorical"), "no graded or continuous property"),
        (content(prompt="no place"), "no graded or continuous property"),
    ],
)
def test_other_files_are_refused(imported, made, message):
    with pytest.raises(InputError, match=message):
        imported("judge-bench-nlp", made, file="my_set.json")


def test_the_published_files(tmp_path):
    files = published("judge-bench", "data/newsroom/newsroom.json", "data/roscoe/roscoe-gsm8k-overall.json")
    done = import_benchmark("judge-bench-nlp", files, tmp_path / "out.jsonl")
    assert done.rows == 4 * 420 + 2 * 200
