"""The worked examples, on a tiny policy: a judge in the same process, and one behind a server."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.jsonl_files import write_rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def questions(tmp_path):
    rows = [{"question": f"what is {number} ?", "reference": f"{number} because it can"} for number in range(8)]
    return write_rows(tmp_path / "questions.jsonl", rows)


def run(tiny_model, tmp_path, *arguments):
    """Run TRL's example for three steps; the lines with its rewards."""
    command = [sys.executable, ROOT / "examples/rewards/trl_grpo.py", "--policy", tiny_model, "--steps", "3"]
    command += ["--tokens", "8", "-o", tmp_path / "policy", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    where = {"cwd": tmp_path, "env": environment, "timeout": 280}
    done = subprocess.run(command, **where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert (tmp_path / "policy" / "model.safetensors").exists()
    return re.findall(r"step \d: reward (\S+), judge failures (\d+)%", done.stdout)


@pytest.mark.parametrize("method", ["reference", "group"])
def test_a_judge_in_the_same_process(tiny_model, tiny_judge, questions, tmp_path, method):
    steps = run(tiny_model, tmp_path, "--judge", str(tiny_judge), "--data", str(questions), "--method", method)
    assert len(steps) == 3
    assert all(0 <= float(reward) <= 1 and int(failures) < 100 for reward, failures in steps)


def test_a_judge_behind_a_server(tiny_model, questions, tmp_path):
    command = [sys.executable, "tests/conformance/known_server.py"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        address = server.stdout.readline().strip()
        assert address.startswith("http"), "the server did not start"
        judge = ("--judge", "known", "--engine", "openai", "--base-url", address)
        steps = run(tiny_model, tmp_path, *judge, "--data", str(questions))
    finally:
        server.terminate()
        server.wait(20)
    assert [int(failures) for _, failures in steps] == [0, 0, 0]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("verl.sh", ("path=pkg://judgelm.rewards.verl", "name=compute_score")),
        ("openrlhf.sh", ("--reward.remote_url http://localhost:8000/get_reward",)),
    ],
)
def test_the_shell_scripts_name_the_function_and_the_route(script, words):
    path = ROOT / "examples/rewards" / script
    assert all(word in path.read_text() for word in words)
    subprocess.run(["bash", "-n", str(path)], check=True)
