"""A released judge and a set of questions by name, from a hub of files on this machine."""

import json
import os
import sys

import pytest

from tests.support.hub_server import running_hub
from tests.support.jsonl_files import rows_of, write_rows
from tests.support.processes import run_command

pytestmark = pytest.mark.conformance

JUDGE = "BAAI/JudgeLM-7B-v1.0"


def run_judgelm(hub, folder, *arguments):
    """Run judgelm in the folder, with the hub of this machine as the hub."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= hub.environment(folder / "cache") | {"COLUMNS": "200"}
    return run_command(sys.executable, "-m", "judgelm", *arguments, cwd=folder, env=environment)


PAIRS = [
    {"id": str(n), "question": f"What is {n} + 1?", "answer_1": str(n + 1), "answer_2": "5 or so"} for n in range(3)
]


@pytest.mark.parametrize("name", [JUDGE, JUDGE.lower()])
def test_a_name_becomes_a_verdict(tiny_judge, tmp_path, name):
    """The weights are tiny and trained on another template; what is tested is how the judge of that name is asked."""
    files = {path.name: path for path in tiny_judge.iterdir() if path.name != "judge.json" and path.is_file()}
    write_rows(tmp_path / "pairs.jsonl", PAIRS)
    with running_hub() as hub:
        hub.commit("model", name, files, licence="other")
        arguments = ("pairs.jsonl", "-o", "out.jsonl", "--model", name, "--max-failure-rate", 1, "--device", "cpu")
        done = run_judgelm(hub, tmp_path, "batch", *arguments)
    assert "card judgelm (verified)" in done.stderr
    assert "template judgelm-v1 (from the card)" in done.stderr
    assert len(rows_of(tmp_path / "out.jsonl")) == len(PAIRS)
    manifest = json.loads((tmp_path / "out.run.json").read_text())
    assert manifest["fingerprint"]["template"]["id"] == "judgelm-v1"


def test_questions_are_downloaded_once_by_the_name_of_their_set(tmp_path):
    turns = [{"question_id": n, "category": "math", "turns": [f"What is {n}?", "And why?"]} for n in range(20)]
    sides = [f"name={name},engine=scripted,model={name}" for name in "ab"]
    options = ("-o", "out", "--engine", "scripted", "--judge", "8 6", "--bootstrap", 100)
    with running_hub() as hub:
        files = {"raw/question.jsonl": "".join(json.dumps(row) + "\n" for row in turns)}
        hub.commit("dataset", "HuggingFaceH4/mt_bench_prompts", files)
        for _ in range(2):
            run_judgelm(hub, tmp_path, "compare", *sides, "--questions", "mt-bench", *options)
        assert len(hub.downloads("question.jsonl")) == 1
    assert rows_of(tmp_path / "out" / "pairs.jsonl")[0]["question"] == "What is 0?"
