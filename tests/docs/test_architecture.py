"""The files that docs/architecture.md names in its walks run in a real training step, batch run and request."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # trains one step, judges 60 pairs and starts a server

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/architecture.md"
SECTIONS = {"batch": "A pair, from file to verdict", "sft": "A row, from file to trained judge", "request": "A request"}
OTHER_RUNS = {
    "judgelm/engines/openai/engine.py": "another engine",
    "judgelm/engines/vllm/engine.py": "another engine",
    "judgelm/data/swap_names.py": "needs reasons",
    "judgelm/judges/cards.py": "needs a judge by name",
    "judgelm/serving/app.py": "runs at the server's start",
}
"""Files that the page names for cases that the walks do not have."""


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    file = tmp_path_factory.mktemp("walks") / "walks.json"
    command = [sys.executable, "-m", "benchmarks.walks", "--json", str(file)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=900)
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("walk", SECTIONS)
def test_the_files_of_a_walk_run(walks, walk):
    _, _, text = PAGE.read_text(encoding="utf-8").partition(f"\n## {SECTIONS[walk]}")
    steps = re.findall(r"^\d+\. .*(?:\n   .*)*", text.partition("\n## ")[0], re.M)
    named = set(re.findall(r"`(judgelm/[\w/]+\.py)`", "\n".join(steps)))
    assert len(steps) == 10
    assert named - OTHER_RUNS.keys() - set(walks[walk]) == set()
