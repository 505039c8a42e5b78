import json

import pytest

from judgelm.data.sources.rating_tables import RatingColumns, read_ratings, write_ratings
from judgelm.errors import InputError


def rows_in(tmp_path, *rows):
    path = tmp_path / "ratings.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rating(**changes):
    return {"item": "1", "dimension": "d", "judge": "a", "model": "b", "score": 3} | changes


def test_long_rows_are_read_with_what_is_not_given_filled_in(tmp_path):
    path = rows_in(tmp_path, {"item": 7, "judge": "a", "model": "b", "score": "4", "length": 12})
    [row] = read_ratings([path]).frame.to_dict("records")
    assert (row["item"], row["dimension"], row["task"], row["score"], row["length"]) == ("7", "all", "all", 4.0, 12.0)


@pytest.mark.parametrize("missing", [None, "", "NA", "n/a", "NA: not enough information to determine Correctness."])
def test_na_options_are_missing_values_and_never_numbers(tmp_path, missing):
    path = rows_in(tmp_path, rating(score=missing), rating(item="2"))
    table = read_ratings([path])
    assert list(table.frame["score"].isna()) == [True, False]
    assert table.rejects == ()


@pytest.mark.parametrize("wrong", ["good", "1e999", True, [3]])
def test_a_score_that_is_no_number_is_a_reject_with_its_place(tmp_path, wrong):
    table = read_ratings([rows_in(tmp_path, rating(score=wrong), rating(item="2"))])
    assert len(table.frame) == 1
    assert 'ratings.jsonl:1: "score": expected a number or NA' in table.rejects[0].message


def test_a_row_without_a_score_field_is_a_reject(tmp_path):
    table = read_ratings([rows_in(tmp_path, rating(), {"item": "2", "judge": "a", "model": "b"})])
    assert "give null where the score is missing" in table.rejects[0].reason


def test_a_rating_given_twice_is_kept_once_but_annotators_are_several(tmp_path):
    people = [rating(judge="human", annotator=name) for name in ("x", "y")]
    table = read_ratings([rows_in(tmp_path, rating(), rating(score=1), *people)])
    assert list(table.frame["score"]) == [3, 3, 3]
    assert "rated twice" in table.rejects[0].reason


def test_columns_may_have_other_names_and_further_ones_are_kept(tmp_path):
    path = rows_in(tmp_path, {"prompt": "1", "judge": "a", "model": "b", "score": 1, "aspect": "tone", "long": 1})
    table = read_ratings([path], RatingColumns(item="prompt", dimension="aspect", extra=("long",)))
    assert table.frame[["item", "dimension", "long"]].to_numpy().tolist() == [["1", "tone", 1]]


def test_a_column_that_is_nowhere_is_an_error(tmp_path):
    with pytest.raises(InputError, match='no row has a column "long"'):
        read_ratings([rows_in(tmp_path, rating())], RatingColumns(extra=("long",)))


def test_a_file_without_any_usable_row_is_an_error_that_says_the_first_finding(tmp_path):
    with pytest.raises(InputError, match=r'no row can be used \(1 read\); the first: .*no "model"'):
        read_ratings([rows_in(tmp_path, {"item": "1", "judge": "a", "score": 1})])


WIDE = "judge,model,gt,dataset,prompt_id,rating,pred_length\n"


def test_a_wide_file_gives_each_completion_one_human_row(tmp_path):
    path = tmp_path / "Faithfulness.csv"
    path.write_text(
        f"{WIDE}gpt-4o,anthropic.claude-v2:1,3.667,cnn,cnn_0,4,120\ngpt-3.5-turbo,anthropic.claude-v2:1,3.667,cnn,cnn_0,3,120\n"
    )
    frame = read_ratings([path]).frame
    assert frame[["judge", "model", "score"]].to_numpy().tolist() == [
        ["human", "Claude v2", 3.667],
        ["GPT-4o", "Claude v2", 4.0],
        ["GPT-3.5 Turbo", "Claude v2", 3.0],
    ]
    assert set(frame["dimension"]) == {"Faithfulness"}
    assert set(frame["task"]) == {"summarization"}
    assert set(frame["length"]) == {120.0}


def test_two_human_scores_of_one_completion_in_a_wide_file_are_a_finding(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text(f"{WIDE}a,m,3,x,1,4,9\nb,m,2,x,1,4,9\n")
    table = read_ratings([path])
    assert list(table.frame["judge"]) == ["human", "a"]
    assert '"gt" is 2, but an earlier row of this completion has 3' in table.rejects[0].reason


def test_a_data_set_of_a_wide_file_can_be_kept(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text(f"{WIDE}a,m,3,mtbench,1,4,9\n")
    frame = read_ratings([path], RatingColumns(extra=("dataset",))).frame
    assert set(frame["dataset"]) == {"mtbench"}
    assert set(frame["task"]) == {"open-ended QA"}


def test_written_ratings_are_read_again(tmp_path):
    frame = read_ratings([rows_in(tmp_path, rating(score=None), rating(item="2"))]).frame
    write_ratings(frame, tmp_path / "again.jsonl")
    assert read_ratings([tmp_path / "again.jsonl"]).frame.equals(frame)
