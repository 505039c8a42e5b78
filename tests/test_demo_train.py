"""What `make demo-train` must show, over three seeds; some ten minutes each."""

import json
from pathlib import Path

import pytest

from tests.support.processes import run_command

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_demos_judge_beats_the_most_frequent_label_and_is_not_perfect(seed):
    run = Path("runs") / f"demo-train-test-seed{seed}"
    run_command("make", "demo-train", f"SEED={seed}", f"RUN={run}", cwd=ROOT)
    shown = json.loads((ROOT / run / "eval.json").read_text())["excluded"]
    assert shown["gain"]["value"] >= 0.30
    assert 0.75 <= shown["accuracy"]["value"] <= 0.97
    assert (ROOT / run / "report.html").stat().st_size > 100_000
