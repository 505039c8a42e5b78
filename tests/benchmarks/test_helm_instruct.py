"""HELM Instruct's runs as ratings."""

import json
import sys

import pytest

from benchmarks.helm_instruct import DIMENSIONS, helm_instruct_ratings, main

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


def test_the_command_prints_rows_and_says_what_it_left_out(tmp_path, monkeypatch, capsys):
    write_run(tmp_path, "koala", GPT_4, "gpt4", {"id1": [stat("Helpfulness", 5)], "id2": [stat("Helpfulness", 0)]})
    monkeypatch.setattr(sys, "argv", ["helm_instruct", str(tmp_path)])
    main()
    printed = capsys.readouterr()
    [row] = map(json.loads, printed.out.splitlines())
    assert (row["judge"], row["model"], row["score"]) == ("GPT-4", "GPT-4", 5.0)
    assert "left out: " in printed.err
