"""Ratings as tables: long and wide files, and HELM Instruct's runs."""

import json

import pytest

from judgelm.data.sources.rating_tables import (
    DIMENSIONS,
    RatingColumns,
    helm_instruct_ratings,
    is_helm_output,
    read_ratings,
    write_ratings,
)
from judgelm.errors import InputError


@pytest.fixture
def ratings(write):
    """Reads rows as ratings."""
    return lambda *rows, **columns: read_ratings([write(*rows, name="ratings.jsonl")], RatingColumns(**columns))


def rating(**changes):
    return {"item": "1", "dimension": "d", "judge": "a", "model": "b", "score": 3} | changes


def test_long_rows_are_read_with_what_is_not_given_filled_in(ratings):
    [row] = ratings({"item": 7, "judge": "a", "model": "b", "score": "4", "length": 12}).frame.to_dict("records")
    assert (row["item"], row["dimension"], row["task"], row["score"], row["length"]) == ("7", "all", "all", 4.0, 12.0)


@pytest.mark.parametrize("missing", [None, "", "NA", "n/a", "NA: not enough information to determine Correctness."])
def test_na_options_are_missing_values_and_never_numbers(ratings, missing):
    table = ratings(rating(score=missing), rating(item="2"))
    assert list(table.frame["score"].isna()) == [True, False]
    assert table.rejects == ()


LONG, WIDE = rating(), {"judge": "a", "model": "b", "gt": 3, "prompt_id": "1", "rating": 4}


@pytest.mark.parametrize(
    ("good", "bad", "finding"),
    [
        *(
            (LONG, LONG | {"score": wrong}, '"score": expected a number or NA')
            for wrong in ("good", "1e999", True, [3])
        ),
        (LONG, LONG | {"score": 10**400}, '"score": expected a number or NA'),
        (LONG, {name: value for name, value in LONG.items() if name != "score"}, 'no "score"; give null where the'),
        (LONG, LONG | {"judge": "a\ud800"}, '"judge": holds half a surrogate pair'),
        (LONG, LONG | {"score": 1}, "rated twice"),
        (WIDE, WIDE | {"judge": "b", "gt": 2}, '"gt" is 2, but an earlier row of this completion has 3'),
        (WIDE, {name: value for name, value in WIDE.items() if name != "prompt_id"}, "lacks prompt_id, which the"),
    ],
)
def test_a_row_that_cannot_be_used_is_a_reject_with_its_place(ratings, good, bad, finding):
    table = ratings(good, bad)
    assert len(table.frame) == (1 if good is LONG else 2)  # of a wide row the judge's rating and the human one
    assert [reject.message.startswith("ratings.jsonl:2: ") for reject in table.rejects] == [True]
    assert finding in table.rejects[0].message


def test_a_file_without_any_usable_row_is_an_error_that_says_the_first_finding(ratings):
    with pytest.raises(InputError, match=r'no row can be used \(1 read\); the first: .*no "model"'):
        ratings({"item": "1", "judge": "a", "score": 1})


def test_annotators_are_several_and_written_ratings_are_read_again(ratings, tmp_path):
    frame = ratings(rating(score=None), *(rating(judge="human", annotator=name) for name in ("x", "y"))).frame
    assert len(frame) == 3
    write_ratings(frame, tmp_path / "again.jsonl")
    assert read_ratings([tmp_path / "again.jsonl"]).frame.equals(frame)


def test_columns_may_have_other_names_and_further_ones_are_kept(ratings):
    row = {"prompt": "1", "judge": "a", "model": "b", "score": 1, "aspect": "tone", "long": 1}
    table = ratings(row, item="prompt", dimension="aspect", extra=("long",))
    assert table.frame[["item", "dimension", "long"]].to_numpy().tolist() == [["1", "tone", 1]]
    with pytest.raises(InputError, match='no row has a column "long"'):
        ratings(rating(), extra=("long",))


def test_a_wide_file_gives_each_completion_one_human_row(tmp_path):
    path = tmp_path / "Faithfulness.csv"
    rows = [
        f"{judge},anthropic.claude-v2:1,3.667,cnn,cnn_0,{score},120\n" for judge, score in (("gpt-4o", 4), ("x", 3))
    ]
    path.write_text("".join(["judge,model,gt,dataset,prompt_id,rating,pred_length\n", *rows]))
    frame = read_ratings([path], RatingColumns(extra=("dataset",))).frame
    assert frame[["judge", "model", "score"]].to_numpy().tolist() == [
        ["human", "Claude v2", 3.667],
        ["GPT-4o", "Claude v2", 4.0],
        ["x", "Claude v2", 3.0],
    ]
    facts = frame[["dimension", "task", "dataset", "length"]].drop_duplicates().to_numpy().tolist()
    assert facts == [["Faithfulness", "summarization", "cnn", 120.0]]


GPT_4, CLAUDE = "openai_gpt-4-0314", "anthropic_claude-v1.3"


def stat(name, mean=4.0, count=1):
    return {"name": {"name": name, "split": "test"}, "count": count, "sum": 0, "mean": mean}


def write_run(folder, scenario, model, evaluator, instances, texts=None):
    """A run folder: instance id -> its stats, and the completions where there are some."""
    run = folder / f"{scenario}{',' if ':' in scenario else ':'}model={model},evaluator={evaluator}"
    run.mkdir(parents=True)
    stats = [{"instance_id": key, "train_trial_index": 0, "stats": stats} for key, stats in instances.items()]
    (run / "per_instance_stats.json").write_text(json.dumps(stats, indent=2))
    if texts is not None:
        states = [{"instance": {"id": key}, "result": {"completions": [{"text": text}]}} for key, text in texts.items()]
        (run / "scenario_state.json").write_text(json.dumps({"request_states": states}))
    return run


def rows_of(folder):
    rejects = []
    return [row.data for row in helm_instruct_ratings(folder, rejects.append)], rejects


def test_a_rating_is_a_row_with_the_papers_names(tmp_path):
    stats = [stat(name, mean) for name, mean in zip(DIMENSIONS, (1.0, 2.5, 3.0, 4.0, 5.0), strict=True)]
    stats.append(stat("Keyword Feedback", 0.0))
    write_run(tmp_path / "runs" / "v1", "self_instruct", GPT_4, "mturk", {"id7": stats}, {"id7": "Three short words."})
    rows, rejects = rows_of(tmp_path)
    assert rejects == []
    assert [row["score"] for row in rows] == [1.0, 2.5, 3.0, 4.0, 5.0]
    assert rows[1] == {
        "judge": "human", "model": "GPT-4", "item": "self_instruct/id7", "task": "self_instruct",
        "dimension": "Understandability", "score": 2.5, "length": 3,
    }  # fmt: skip


def test_models_and_evaluators_that_are_one_are_named_alike(tmp_path):
    for evaluator in ("gpt4", "claude", "mturk"):
        for model in (GPT_4, CLAUDE, "cohere_command-xlarge-beta", "acme_new-1"):
            write_run(tmp_path, "vicuna:category=all", model, evaluator, {"id1": [stat("Helpfulness")]})
    rows, _ = rows_of(tmp_path)
    assert {row["judge"] for row in rows} == {"human", "GPT-4", "Claude v1.3"}
    assert {row["model"] for row in rows} == {"GPT-4", "Claude v1.3", "Command-Xlarge-Beta", "acme_new-1"}
    assert {(row["item"], row["task"], row["length"]) for row in rows} == {("vicuna:category=all/id1", "vicuna", None)}


def test_raters_that_are_not_the_papers_are_left_out_and_said_and_what_nobody_rated_is_missing(tmp_path):
    write_run(tmp_path, "koala", GPT_4, "scale", {"id1": [stat("Helpfulness")], "id2": [stat("Helpfulness")]})
    write_run(tmp_path, "koala", GPT_4, "mturk", {"id1": [{"name": {"name": "Helpfulness"}, "count": 0}]})
    [row], [reject] = rows_of(tmp_path)
    assert row["score"] is None
    assert "evaluator scale is none of the paper's (mturk, gpt4, claude)" in reject.reason


@pytest.mark.parametrize(
    ("stats", "reason"),
    [
        ([stat("Helpfulness", 0.0)], "Helpfulness: expected a mean from 1 to 5, got the number 0.0"),
        ([stat("Helpfulness", 7)], "expected a mean from 1 to 5"),
        ([stat("Helpfulness", True)], "expected a mean from 1 to 5, got true"),
        ([stat("Helpfulness", "4")], 'expected a mean from 1 to 5, got "4"'),
        ([{"name": "Helpfulness", "count": 1, "mean": 3}], "a stat without a name"),
        ({"Helpfulness": 3}, "expected instance_id and a list of stats"),
    ],
)
def test_an_instance_that_cannot_be_used_is_a_reject_as_a_whole(tmp_path, stats, reason):
    write_run(tmp_path, "koala", GPT_4, "gpt4", {"id1": stats, "id2": [stat("Helpfulness")]})
    rows, [reject] = rows_of(tmp_path)
    assert [row["item"] for row in rows] == ["koala/id2"]
    assert reason in reject.reason


def test_completions_that_cannot_be_read_leave_lengths_missing_and_are_said(tmp_path):
    run = write_run(tmp_path, "koala", GPT_4, "gpt4", {"id1": [stat("Helpfulness")]})
    (run / "scenario_state.json").write_text('{"request_states": [{"instance": {}}]}')
    [row], [reject] = rows_of(tmp_path)
    assert row["length"] is None
    assert "lengths are missing" in reject.reason


def test_a_folder_of_something_else_is_refused(tmp_path):
    assert not is_helm_output(tmp_path)
    (tmp_path / "mmlu:model=x").mkdir()
    (tmp_path / "mmlu:model=x" / "per_instance_stats.json").write_text("[]")
    assert is_helm_output(tmp_path)
    with pytest.raises(InputError, match="SCENARIO:model=MODEL,evaluator=EVALUATOR; found 'mmlu:model=x'"):
        rows_of(tmp_path)
