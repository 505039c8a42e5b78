"""`judgelm study run`: each paper's file parses, and a chain runs to its study and resumes."""

import json
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = ("self_reference", "ssr", "qa", "self_bias", "judgelm")


@pytest.mark.parametrize("name", FILES)
def test_every_file_plans_its_steps_and_has_its_inputs(cli, monkeypatch, tmp_path, name):
    monkeypatch.chdir(ROOT)
    code, out, _ = cli("judgelm", "study", "run", f"configs/study/{name}.yaml", "--dry-run", "--set", f"out={tmp_path}")
    assert code == 0
    assert out.splitlines()[-1].startswith("judgelm study ")


def test_a_paper_runs_from_questions_to_tables_and_is_skipped_the_next_time(cli, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    recipe = yaml.safe_load((ROOT / "configs/study/qa.yaml").read_text(encoding="utf-8"))
    recipe["steps"] = [step for step in recipe["steps"] if step["name"] != "small"]  # it would download a model
    recipe["variables"] |= {
        "out": str(tmp_path / "out"),
        "engine": "scripted",
        "agent_engine": "scripted",
        "judge": "<ans> CORRECT </ans>",
        "agent_1": "<ans> honey </ans>",
        "agent_2": "<ans> Oslo </ans>",
    }
    (tmp_path / "qa.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    command = ("judgelm", "study", "run", str(tmp_path / "qa.yaml"))
    code, _, errors = cli(*command)
    assert code == 0, errors
    study = json.loads((tmp_path / "out/study/study.json").read_text())
    tables = {table["name"]: table["rows"] for table in study["tables"]}
    prompts = ["initial", "zero-shot", "2-shot", "no-context", "reworded"]
    assert [row["prompt"] for row in tables["judges"]] == [*prompts, "initial", "initial"]
    assert [(row["model"], row["judge"]) for row in tables["self-preference"]] == [("agent-1",) * 2, ("agent-2",) * 2]
    code, _, errors = cli(*command)
    assert code == 0
    assert errors.count("skipped, it is finished") == len(recipe["steps"])
