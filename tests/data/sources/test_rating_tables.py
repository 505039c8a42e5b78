"""Ratings as tables: long and wide files, HELM Instruct's runs, and attention checks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.sources.rating_tables import (
    DIMENSIONS,
    RatingColumns,
    attention_checks,
    dropped_characters,
    helm_instruct_ratings,
    is_helm_output,
    read_ratings,
    reversed_words,
    write_ratings,
)
from judgelm.errors import InputError
from judgelm.records import Sample


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


def samples(count):
    return [Sample(id=str(i), question=f"question {i}", answers=(f"Answer {i}. Yes it is.",)) for i in range(count)]


def test_words_are_reversed_within_their_sentence():
    assert reversed_words("The cat sat. Did it stay?\nYes!") == "sat cat The. stay it Did?\nYes!"


def test_up_to_a_third_of_the_characters_go():
    # 10 characters, a third is 3.33, rounded down 3
    assert len(dropped_characters("abcdefghij")) == 7
    with pytest.raises(ValueError, match="expected 0 to 1/3"):
        dropped_characters("abc", share=0.5)


@given(st.text(max_size=60), st.integers())
def test_what_is_left_is_in_order_and_repeats_with_the_seed(text, seed):
    left = dropped_characters(text, seed=seed)
    rest = iter(text)
    assert all(letter in rest for letter in left)
    assert len(text) - len(left) == len(text) // 3
    assert left == dropped_characters(text, seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_random_pairing_gives_every_question_the_answer_to_another(seed):
    given_samples = samples(5)
    spoiled = attention_checks(given_samples, "random_pairing", seed=seed)
    assert all(new.answers != old.answers for new, old in zip(spoiled, given_samples, strict=True))
    assert {new.answers for new in spoiled} == {old.answers for old in given_samples}
    assert spoiled[0].id == "0#random_pairing"
    assert spoiled[0].metadata == {"check": "random_pairing"}


def test_random_pairing_needs_another_question():
    with pytest.raises(ValueError, match="at least two"):
        attention_checks(samples(1), "random_pairing")
    with pytest.raises(ValueError, match="occurs twice"):
        attention_checks([samples(1)[0], samples(1)[0]], "random_pairing")


def test_the_other_checks_spoil_each_answer():
    [words] = attention_checks(samples(1), "reversed_words")
    [letters] = attention_checks(samples(1), "dropped_characters", seed=1)
    assert words.answers == ("0 Answer. is it Yes.",)
    assert len(letters.answers[0]) == 20 - 6


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


def test_raters_that_are_not_the_papers_are_left_out_and_said(tmp_path):
    write_run(tmp_path, "koala", GPT_4, "scale", {"id1": [stat("Helpfulness")], "id2": [stat("Helpfulness")]})
    write_run(tmp_path, "koala", GPT_4, "mturk", {"id1": [stat("Helpfulness")]})
    rows, [reject] = rows_of(tmp_path)
    assert len(rows) == 1
    assert "evaluator scale is none of the paper's (mturk, gpt4, claude)" in reject.reason


def test_what_nobody_rated_is_missing_and_no_number(tmp_path):
    write_run(tmp_path, "koala", GPT_4, "gpt4", {"id1": [{"name": {"name": "Helpfulness"}, "count": 0}]})
    [row], _ = rows_of(tmp_path)
    assert row["score"] is None


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
