"""Share of scores that a different batch changes in bfloat16.

    python -m benchmarks.bfloat16_changes --model runs/demo-train/judge --pairs runs/demo-train/test.jsonl

In float32 greedy scores do not depend on the batch (a test pins it). In bfloat16 rounding differs with the shape of the
matrix products, so near-ties can fall the other way: this says for how many pairs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from judgelm.runs.run_files import read_judgments

BUDGETS = (1, 256, 4096)


def main() -> None:
    """Judge the same pairs under several batch budgets and count changed scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--pairs", required=True)
    options = parser.parse_args()
    results = {}
    for dtype in ("float32", "bfloat16"):
        with tempfile.TemporaryDirectory() as folder:
            runs = [scores(options, dtype, budget, Path(folder)) for budget in BUDGETS]
        changed = {name for name, first in runs[0].items() if any(run[name] != first for run in runs[1:])}
        results[dtype] = {
            "pairs": len(runs[0]),
            "batch_tokens": BUDGETS,
            "pairs_with_a_changed_score": len(changed),
            "share_percent": round(100 * len(changed) / len(runs[0]), 2),
        }
    print(json.dumps(results, indent=1))
    assert results["float32"]["pairs_with_a_changed_score"] == 0, "float32 depends on the batch"


def scores(options: argparse.Namespace, dtype: str, budget: int, folder: Path) -> dict[str, object]:
    """Raw replies of one run by id."""
    out = folder / f"{budget}.jsonl"
    command = [
        str(Path(sys.executable).parent / "judgelm-batch"), options.pairs, "-o", str(out), "--model", options.model,
        "--dtype", dtype, "--max-num-batched-tokens", str(budget), "--max-failure-rate", "1", "--quiet",
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return {name: judgment.shown[0].text for name, judgment in read_judgments(out).items()}


if __name__ == "__main__":
    main()
