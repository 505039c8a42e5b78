"""Ratings as tables: long and wide files."""

import pytest

from judgelm.data.sources.rating_tables import RatingColumns, read_ratings, write_ratings
from judgelm.errors import InputError


def ratings(write, *rows, **columns):
    """Reads rows as ratings."""
    return read_ratings([write(*rows, name="ratings.jsonl")], RatingColumns(**columns))


def rating(**changes):
    return {"item": "1", "dimension": "d", "judge": "a", "model": "b", "score": 3} | changes


def test_long_rows_are_read_with_what_is_not_given_filled_in(write):
    [row] = ratings(write, {"item": 7, "judge": "a", "model": "b", "score": "4", "length": 12}).frame.to_dict("records")
    assert (row["item"], row["dimension"], row["task"], row["score"], row["length"]) == ("7", "all", "all", 4.0, 12.0)


@pytest.mark.parametrize("missing", [None, "", "NA", "n/a", "NA: not enough information to determine Correctness."])
def test_na_is_a_missing_value(write, missing):
    table = ratings(write, rating(score=missing), rating(item="2"))
    assert (list(table.frame["score"].isna()), table.rejects) == ([True, False], ())


INVALID_SCORES = ("good", "1e999", True, [3], 10**400)
LONG, WIDE = rating(), {"judge": "a", "model": "b", "gt": 3, "prompt_id": "1", "rating": 4}


@pytest.mark.parametrize(
    ("good", "bad", "finding"),
    [
        *((LONG, LONG | {"score": score}, '"score": expected a number or NA') for score in INVALID_SCORES),
        (LONG, {name: value for name, value in LONG.items() if name != "score"}, 'no "score"; write null'),
        (LONG, LONG | {"judge": "a\ud800"}, '"judge": contains half a surrogate pair'),
        (LONG, LONG | {"score": 1}, "rated more than once"),
        (WIDE, WIDE | {"judge": "b", "gt": 2}, '"gt" is 2, but 3 in an earlier row'),
        (WIDE, {name: value for name, value in WIDE.items() if name != "prompt_id"}, "prompt_id missing, unlike in"),
    ],
)
def test_a_row_that_cannot_be_used_is_a_reject_with_its_place(write, good, bad, finding):
    table = ratings(write, good, bad)
    assert len(table.frame) == (1 if good is LONG else 2)  # of a wide row the judge's rating and the human one
    assert [reject.message.startswith("ratings.jsonl:2: ") for reject in table.rejects] == [True]
    assert finding in table.rejects[0].message


def test_a_file_without_any_usable_row_is_an_error_that_says_the_first_finding(write):
    with pytest.raises(InputError, match=r'no usable rows \(1 read\); first reject: .*no "model"'):
        ratings(write, {"item": "1", "judge": "a", "score": 1})


def test_annotators_are_several_and_written_ratings_are_read_again(write, tmp_path):
    frame = ratings(write, rating(score=None), *(rating(judge="human", annotator=name) for name in ("x", "y"))).frame
    assert len(frame) == 3
    write_ratings(frame, tmp_path / "again.jsonl")
    assert read_ratings([tmp_path / "again.jsonl"]).frame.equals(frame)


def test_columns_may_have_other_names_and_further_ones_are_kept(write):
    row = {"prompt": "1", "judge": "a", "model": "b", "score": 1, "aspect": "tone", "long": 1}
    table = ratings(write, row, item="prompt", dimension="aspect", extra=("long",))
    assert table.frame[["item", "dimension", "long"]].to_numpy().tolist() == [["1", "tone", 1]]
    with pytest.raises(InputError, match='column "long" not found'):
        ratings(write, rating(), extra=("long",))


def test_a_wide_file_gives_each_completion_one_human_row(tmp_path):
    path = tmp_path / "Faithfulness.csv"
    rows = [f"{rating},anthropic.claude-v2:1,3.667,cnn,cnn_0,120\n" for rating in ("gpt-4o,4", "x,3")]
    path.write_text("".join(["judge,rating,model,gt,dataset,prompt_id,pred_length\n", *rows]))
    frame = read_ratings([path], RatingColumns(extra=("dataset",))).frame
    assert frame[["judge", "score"]].to_numpy().tolist() == [["human", 3.667], ["GPT-4o", 4.0], ["x", 3.0]]
    facts = frame[["model", "dimension", "task", "dataset", "length"]].drop_duplicates().to_numpy().tolist()
    assert facts == [["Claude v2", "Faithfulness", "summarization", "cnn", 120.0]]
