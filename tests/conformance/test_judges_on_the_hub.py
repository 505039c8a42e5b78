"""A released judge and a set of questions by name, from a hub of files on this machine."""

import json
import os
import subprocess
import sys

import pytest

from judgelm.jsonl import read_jsonl
from tests.support.hub_server import running_hub

pytestmark = pytest.mark.conformance

JUDGE = "BAAI/JudgeLM-7B-v1.0"
PAIRS = [
    {"id": str(n), "question": f"What is {n} + 1?", "answer_1": str(n + 1), "answer_2": "5 or so"} for n in range(3)
]


@pytest.mark.parametrize("name", [JUDGE, JUDGE.lower()])
def test_a_name_becomes_a_verdict(tiny_judge, tmp_path, name):
    """The weights are tiny and trained on another template; what is tested is how the judge of that name is asked."""
    files = {path.name: path for path in tiny_judge.iterdir() if path.name != "judge.json" and path.is_file()}
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    with running_hub() as hub:
        hub.commit("model", name, files, licence="other")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        arguments = ["pairs.jsonl", "-o", "out.jsonl", "--model", name, "--max-failure-rate", "1", "--device", "cpu"]
        command = "from judgelm.cli.batch import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", command, *arguments],
            env=environment | hub.environment(tmp_path / "cache") | {"COLUMNS": "200"},
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "card judgelm (verified)" in done.stderr
    assert "template judgelm-v1 (from the card)" in done.stderr
    assert len(list(read_jsonl(tmp_path / "out.jsonl"))) == len(PAIRS)
    manifest = json.loads((tmp_path / "out.run.json").read_text())
    assert manifest["fingerprint"]["template"]["id"] == "judgelm-v1"


def test_questions_are_downloaded_once_by_the_name_of_their_set(tmp_path):
    turns = [{"question_id": n, "category": "math", "turns": [f"What is {n}?", "And why?"]} for n in range(20)]
    command = "from judgelm.cli.main import main; main()"
    sides = [f"name={name},engine=scripted,model={name}" for name in "ab"]
    arguments = ["compare", *sides, "--questions", "mt-bench", "-o", "out", "--engine", "scripted", "--judge", "8 6"]
    with running_hub() as hub:
        files = {"raw/question.jsonl": "".join(json.dumps(row) + "\n" for row in turns)}
        hub.commit("dataset", "HuggingFaceH4/mt_bench_prompts", files)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", command, *arguments, "--bootstrap", "100"],
                env=environment | hub.environment(tmp_path / "cache"),
                cwd=tmp_path, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
        assert len(hub.downloads("question.jsonl")) == 1
    assert next(iter(read_jsonl(tmp_path / "out" / "pairs.jsonl")))["question"] == "What is 0?"
