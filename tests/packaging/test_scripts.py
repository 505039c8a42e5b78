"""The scripts of configs/recipes and configs/study: each command of theirs exists, and two run to their report."""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.processes import run_command
from tests.support.snippet_commands import check_shell

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path for folder in ("recipes", "study") for path in (ROOT / "configs" / folder).glob("*.sh"))
PROGRAMS = ("hf", "judgelm", "judgelm-batch", "python", "accelerate")
RECORDED = """#!/bin/bash
printf '%s\\0' "${0##*/}" "$@" $'\\n' >> "$RECORD"
"""


def run(script, path, **variables):
    """What the script prints; it must end with 0."""
    environment = os.environ | {"PATH": os.pathsep.join(map(str, path))} | variables
    done = run_command("bash", script, cwd=ROOT, env=environment)
    return done.stdout + done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_every_command_of_a_script_and_its_options_exist(script, tmp_path):
    """The script runs with programs that record their arguments, so that loops and variables are filled in."""
    assert f"bash {script.relative_to(ROOT)}\n" in script.read_text(encoding="utf-8").split("\n\n")[0]
    for name in PROGRAMS:
        (tmp_path / name).write_text(RECORDED)
        (tmp_path / name).chmod(0o755)
    record = tmp_path / "record"
    out, cache = tmp_path / "out", tmp_path / "cache"
    run(script, [tmp_path, os.environ["PATH"]], out=str(out), RECORD=str(record), JUDGELM_CACHE=str(cache))
    commands = [call.split("\0") for call in record.read_text().split("\0\n\0")[:-1]]
    assert len(commands) >= 4
    for words in commands:
        check_shell(shlex.join(words))


def run_study(name, out, **variables):
    programs = Path(sys.executable).parent
    return run(ROOT / f"configs/study/{name}.sh", [programs, os.environ["PATH"]], out=str(out), **variables)


def test_a_study_runs_to_its_report_and_judges_nothing_twice(tmp_path):
    judges = {"engine": "scripted", "judge_1": "8 6", "judge_2": "6 8"}
    run_study("judgelm", tmp_path, **judges)
    assert (tmp_path / "study/report.html").is_file()
    judged = (tmp_path / "judge-1.jsonl").read_bytes()
    assert run_study("judgelm", tmp_path, **judges).count("judged in an earlier session") == 2
    assert (tmp_path / "judge-1.jsonl").read_bytes() == judged


@pytest.mark.slow
def test_a_paper_runs_from_questions_to_tables(tmp_path):
    models = {"judge": "<ans> CORRECT </ans>", "agent_1": "<ans> honey </ans>", "agent_2": "<ans> Oslo </ans>"}
    engines = {"engine": "scripted", "agent_engine": "scripted"}
    run_study("qa", tmp_path, **models, **engines)
    study = json.loads((tmp_path / "study/study.json").read_text())
    tables = {table["name"]: table["rows"] for table in study["tables"]}
    prompts = ["initial", "zero-shot", "2-shot", "no-context", "reworded"]
    assert [row["prompt"] for row in tables["judges"]] == [*prompts, "initial", "initial"]
    assert [(row["model"], row["judge"]) for row in tables["self-preference"]] == [("agent-1",) * 2, ("agent-2",) * 2]
    assert run_study("qa", tmp_path, **models, **engines).count("judged in an earlier session") == 7
