"""Check that the cost per pair does not grow with the input: `judgelm-batch` with a tiny model, one process per size.

    python -m benchmarks.linear_cost
    python -m benchmarks.linear_cost --few 50 --many 200 --rounds 1

Both sizes alternate over several rounds, and the ratio of times per pair is computed per round. Memory is the process's
peak; the ID index grows with the input. `batch_memory.py` does the same without a model, up to a million pairs.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # saving a model loads deepspeed, which otherwise warns of a missing GPU

import torch

from benchmarks.dummy_model import SHAPES, TEMPLATE, made_up_pairs, make_dummy_model

TARGET_DRIFT = 0.10
TARGET_GROWTH_MB = 100


def main() -> None:
    """Judge both sizes alternately, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--many", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_dummy_model(list(made_up_pairs(50)), folder / "judge", SHAPES["tiny"], torch.float32, "cpu")
        sizes = (options.few, options.many)
        for count in sizes:
            write_pairs(folder / f"{count}.jsonl", count)
        rounds = [[run(folder, count) for count in sizes] for _ in range(options.rounds)]
    ratios = sorted(many["ms_per_pair"] / few["ms_per_pair"] for few, many in rounds)
    results = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "rounds": rounds,
        "time_per_pair_many_over_few_median": round(statistics.median(ratios), 3),
        "range": [round(ratios[0], 3), round(ratios[-1], 3)],
        "peak_grows_mb": round(max(many["peak_mb"] - few["peak_mb"] for few, many in rounds), 1),
    }
    print(json.dumps(results, indent=1))
    if abs(statistics.median(ratios) - 1) > TARGET_DRIFT:
        sys.exit("the time per pair changes with their number; rerun on an idle machine before you believe it")
    if results["peak_grows_mb"] > TARGET_GROWTH_MB:
        sys.exit("memory grows with the number of pairs")


def run(folder: Path, count: int) -> dict[str, float]:
    """Judge `count` pairs in a separate process."""
    out = folder / f"{count}.out.jsonl"
    code = "import resource, sys\nfrom judgelm.cli.batch import app\ntry:\n    app()\nexcept SystemExit as end:\n"
    code += "    print(end.code or 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    command = [
        sys.executable, "-c", code, str(folder / f"{count}.jsonl"), "-o", str(out), "--engine", "transformers",
        "--model", str(folder / "judge"), "--template", TEMPLATE, "--overwrite", "-q",
    ]  # fmt: skip
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert printed[0] == "0", printed
    session = json.loads((folder / f"{count}.out.run.json").read_text())["sessions"][-1]
    assert session["judged"] == count
    return {
        "pairs": count,
        "ms_per_pair": round(1000 * session["judge_s"] / count, 3),
        "peak_mb": round(int(printed[1]) / 1e3, 1),
    }


def write_pairs(path: Path, count: int) -> None:
    """Return distinct pairs of made-up words."""
    with path.open("w", encoding="utf-8") as file:
        for sample in made_up_pairs(count):
            first, second = sample.answers
            file.write(
                json.dumps({"id": sample.id, "question": sample.question, "answer_1": first, "answer_2": second})
            )
            file.write("\n")


if __name__ == "__main__":
    main()
