"""`judgelm study compare-judges`, `calibration` and `run` from the outside."""

import json
from pathlib import Path

import pytest
import yaml

from judgelm.records import Judgment, PairVerdict, Shown
from tests.support.jsonl_files import write_rows
from tests.support.judged_items import write_run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two judges of eight pairs, with probabilities, and the labels: a is right on seven, b on five."""
    monkeypatch.chdir(tmp_path)
    shown = (Shown(order=(0, 1), text="8 6", scores=(8, 6)),)
    for name, winners in {"a": [1, 2, 1, 2, 1, 2, 1, 1], "b": [1, 2, 1, 2, 1, 1, 2, 1]}.items():
        judged = [
            Judgment(
                sample_id=str(place), mode="pair", verdict=PairVerdict(winner=winner), shown=shown,
                probability=0.5 + (0.3 + place / 100) * (1 if winner == 1 else -1),
            )
            for place, winner in enumerate(winners)
        ]  # fmt: skip
        write_run(tmp_path / f"{name}.jsonl", judged)
    rows = (
        {"id": str(place), "question": f"q{place}", "answer_1": "a", "answer_2": "b", "winner": 1 + place % 2,
         "category": "math" if place % 2 else "chat"}
        for place in range(8)
    )  # fmt: skip
    write_rows(tmp_path / "labels.jsonl", rows)
    return tmp_path


@pytest.fixture
def study(cli):
    return lambda *arguments: cli(
        "judgelm", "study", *arguments, "-l", "labels.jsonl", "-o", "out", "--bootstrap", "100"
    )


def test_compare_judges(study, files):
    code, out, err = study("compare-judges", "a.jsonl", "b.jsonl")
    assert (code, out) == (0, "")
    assert "a 87.5 % (95 % interval" in err
    assert "common pairs 8" in err
    assert "out/report.html" in err
    found = json.loads((files / "out" / "study.json").read_text())
    assert [table["name"] for table in found["tables"]] == ["judges", "differences", "verdicts", "by-category", "flips"]
    assert (files / "out" / "tables" / "flips.csv").read_text().count("\n") == 3
    assert (files / "out" / "figures" / "agreement.png").is_file()
    code, _, err = study("compare-judges", "a.jsonl", "b.jsonl")
    assert (code, "holds a study" in err) == (1, True)


@pytest.mark.parametrize(
    ("runs", "names", "finding"),
    [
        (["a.jsonl", "a.jsonl"], ["one", "two"], ""),
        (["a.jsonl", "a.jsonl"], [], "give each a name with --name"),
        (["a.jsonl", "a.jsonl"], ["one"], "1 given for 2 files"),
        (["a.jsonl"], [], "two or more are compared"),
    ],
)
def test_judges_are_told_apart_by_names(study, files, runs, names, finding):
    options = [part for name in names for part in ("--name", name)]
    code, out, err = study("compare-judges", *runs, *options, "--json", "-")
    assert (code, finding in err) == (1 if finding else 0, True)
    if not finding:
        assert [row["judge"] for row in json.loads(out)["tables"][0]["rows"]] == names


@pytest.mark.parametrize(
    "command", [("eval",), ("report", "-o", "page.html"), ("study", "compare-judges", "second.jsonl", "-o", "study")]
)
def test_labels_of_an_id_and_a_review_alone_are_read(cli, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        write_rows(f"{name}.jsonl", [{"question_id": "1", "pred_text": "8 6"}])
    write_rows("labels.jsonl", [{"id": "1", "text": "9 5\nBecause."}])
    code, out, _ = cli("judgelm", *command, "first.jsonl", "--labels", "labels.jsonl", "--json", "-")
    assert code == 0
    assert '"n": 1' in out


def test_scores_beyond_the_scale_are_said_to_be_with_the_way_out(study, files):
    for name in ("first", "second"):
        write_rows(f"{name}.jsonl", [{"question_id": "1", "pred_text": "80 60"}])
    code, _, err = study("compare-judges", "first.jsonl", "second.jsonl")
    assert code == 1
    assert "first.jsonl: 1 of 1 replies have scores out of range (1-10); try --scale any" in err
    assert "(failed: first: 1 of 1 (out of range 1); second: 1 of 1 (out of range 1))" in err
    assert study("compare-judges", "first.jsonl", "second.jsonl", "--scale", "any")[0] == 0


def test_calibration(study, files):
    code, _, err = study("calibration", "a.jsonl", "--json", "numbers.json", "--bins", "4")
    assert code == 0
    assert "expected calibration error" in err
    assert "note: With only 8 pairs" in err
    assert json.loads((files / "numbers.json").read_text())["counts"]["measured"] == 8


@pytest.mark.parametrize("name", ["self_reference", "ssr", "qa", "self_bias", "judgelm"])
def test_every_papers_file_plans_its_steps_and_has_its_inputs(cli, monkeypatch, tmp_path, name):
    monkeypatch.chdir(ROOT)
    code, out, _ = cli("judgelm", "study", "run", f"configs/study/{name}.yaml", "--dry-run", "--set", f"out={tmp_path}")
    assert code == 0
    assert out.splitlines()[-1].startswith("judgelm study ")


@pytest.mark.slow
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
