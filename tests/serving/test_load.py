"""Many clients at once, each with its own questions: nothing is lost, nothing is mixed up."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_sixty_four_clients_lose_and_mix_up_nothing():
    command = [sys.executable, "-m", "benchmarks.server_load", "--clients", "64", "--requests", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["requests"], found["answered"], found["errors"], found["wrong"], found["lost"]) == (
        1000,
        1000,
        0,
        0,
        0,
    )
    assert found["exit_code"] == 0
