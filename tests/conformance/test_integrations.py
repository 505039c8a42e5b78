"""`judgelm.integrations` in an environment with inspect_ai, lm-evaluation-harness and lighteval."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("inspect_ai==0.3.285", "lm_eval==0.4.13", "lighteval==0.13.0")


def test_each_framework_gets_grades_and_no_grade_for_a_failure(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env/bin/python"
    subprocess.run([python, "-m", "pip", "install", "-qq", "torch", *FRAMEWORKS, str(ROOT)], check=True)
    driver = ROOT / "tests/conformance/drivers/integrations.py"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([python, "-P", driver], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    inspect, lm_eval, lighteval = json.loads(done.stdout.splitlines()[-1])
    assert inspect == [[7.0, None], [None, "unparseable"]]
    assert lm_eval == [{"judge_failed": 0.0, "judge_score": 7.0}, {"judge_failed": 1.0}]
    assert lighteval == [[7.0, 0.0], [7.0, 1.0]]  # the mean leaves the failed one out
