"""The worked examples, on a tiny policy: a judge in the same process, and one behind a server."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.jsonl"
    rows = [{"question": f"what is {number} ?", "reference": f"{number} because it can"} for number in range(8)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(tiny_model, tmp_path, *arguments):
    """Run TRL's example for three steps; the lines with its rewards."""
    command = [
        *(sys.executable, str(ROOT / "examples/rewards/trl_grpo.py"), "--policy", str(tiny_model), "--steps", "3"),
        *("--tokens", "8", "-o", str(tmp_path / "policy"), *arguments),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert (tmp_path / "policy" / "model.safetensors").exists()
    return re.findall(r"step \d: reward (\S+), judge failures (\d+)%", done.stdout)


@pytest.mark.parametrize("method", ["reference", "group"])
def test_a_judge_in_the_same_process(tiny_model, tiny_judge, questions, tmp_path, method):
    steps = run(tiny_model, tmp_path, "--judge", str(tiny_judge), "--data", str(questions), "--method", method)
    assert len(steps) == 3
    for reward, failures in steps:
        assert 0 <= float(reward) <= 1
        assert int(failures) < 100


def test_a_judge_behind_a_server(tiny_model, questions, tmp_path):
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/conformance/known_server.py")], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        address = server.stdout.readline().strip()
        assert address.startswith("http"), "the server did not start"
        judge = ("--judge", "known", "--engine", "openai", "--base-url", address)
        steps = run(tiny_model, tmp_path, *judge, "--data", str(questions))
    finally:
        server.terminate()
        server.wait(20)
    assert [int(failures) for _, failures in steps] == [0, 0, 0]


def test_the_shell_script_names_the_function_as_verl_finds_it():
    text = (ROOT / "examples/rewards/verl.sh").read_text()
    assert "path=pkg://judgelm.rewards.verl" in text
    assert "name=compute_score" in text
    subprocess.run(["bash", "-n", str(ROOT / "examples/rewards/verl.sh")], check=True)


def test_the_shell_script_names_the_route_of_the_server():
    path = ROOT / "examples/rewards/openrlhf.sh"
    assert "--reward.remote_url http://localhost:8000/get_reward" in path.read_text()
    subprocess.run(["bash", "-n", str(path)], check=True)
