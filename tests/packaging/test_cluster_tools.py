"""The files for SkyPilot, by its own code in an environment of its own."""

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
SKYPILOT = "skypilot==0.14.1"


def environment(folder, requirement):
    """The Python of a new environment with one package."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "-qq", "--no-compile", requirement], check=True)
    return python


def test_skypilot_reads_its_files(tmp_path):
    python = environment(tmp_path / "venv", SKYPILOT)
    code = """
import json, sys, sky
tasks = [sky.Task.from_yaml(path) for path in sys.argv[1:]]
print(json.dumps([[task.name, task.service.readiness_path if task.service else None] for task in tasks]))
"""
    variables = os.environ | {"HOME": str(tmp_path), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1", "JUDGELM_API_KEYS": "k"}
    files = [ROOT / f"serve/sky/{name}.yaml" for name in ("train", "judge")]
    done = subprocess.run([python, "-c", code, *files], cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [["judgelm-train", None], ["judgelm-judge", "/readyz"]]
