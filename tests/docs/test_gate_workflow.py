"""The GitHub workflow on the gate's page: its judging steps are run."""

import subprocess

import yaml

from tests.docs.test_snippets import ROOT, _environment
from tests.support.snippets import snippets

PAGE = ROOT / "docs/gate.md"


def test_the_workflow_judges_and_writes_a_summary(tmp_path):
    blocks = list(snippets(PAGE))
    for block in blocks:
        if block.title.endswith(".jsonl"):
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    [workflow] = [yaml.safe_load(block.text) for block in blocks if block.language == "yaml"]
    steps = [step["run"] for step in workflow["jobs"]["gate"]["steps"] if "run" in step]
    judging = [step for step in steps if step.startswith(("judgelm-batch", "judgelm gate"))]
    assert len(judging) == 2
    own = {"JUDGE": "--engine scripted --model Yes", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    baseline = "judgelm-batch answers-main.jsonl -o main.jsonl --mode grounded $JUDGE"
    for command in (baseline, *judging):
        done = subprocess.run(
            ["bash", "-ec", command], cwd=tmp_path, env=_environment() | own, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "| drop | 0.00 |" in (tmp_path / "summary.md").read_text(encoding="utf-8")
