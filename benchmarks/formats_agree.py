"""Verdicts that a numeric format changes, and the time that it takes, against float32 on the same pairs.

    judgelm data import pandalm ../shared/data/pandalm/testset-v1.json -o pandalm.jsonl
    python -m benchmarks.formats_agree --model small-judge --pairs pandalm.jsonl --work runs/formats \
        --formats float32 bfloat16

Each pair is judged in both orders; its verdict is the answer that their mean P(first better) names. `+8bit` adds
`--quantization 8bit`. A change is a verdict that differs from the first format's; its interval is Wilson's. The same
command goes on after an interruption. Times are those of judging, without loading, of the latest session.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from statsmodels.stats.proportion import proportion_confint

from judgelm.runs.run_files import read_judgments


def main() -> None:
    """Judge the pairs in every format and compare each with the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--pairs", required=True, type=Path)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--formats", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    judged = {name: judge(options, name) for name in options.formats}
    first, first_rate = judged[options.formats[0]]
    print("| format | n | changed verdicts, percent | mean change of P | largest | pairs/s against the first |")
    print("|---|---|---|---|---|---|")
    for name, (probabilities, rate) in judged.items():
        print(f"| {name} | {compared(first, probabilities)} | {rate / first_rate:.2f} |")


def judge(options: argparse.Namespace, name: str) -> tuple[dict[str, float], float]:
    """P(first better) by id, and pairs per second."""
    out = options.work / f"{name}.jsonl"
    dtype, *quantization = name.split("+")
    command = [
        str(Path(sys.executable).parent / "judgelm-batch"), str(options.pairs), "-o", str(out),
        "--model", options.model, "--both-orders", "--order-rule", "probability", "--dtype", dtype,
        "--max-failure-rate", "1",
    ]  # fmt: skip
    command += ["--quantization", quantization[0]] if quantization else []
    command += ["--limit", str(options.limit)] if options.limit else []
    subprocess.run(command, check=True)
    probabilities = {
        name: judgment.probability for name, judgment in read_judgments(out).items() if judgment.probability is not None
    }
    sessions = json.loads(out.with_suffix(".run.json").read_text(encoding="utf-8"))["sessions"]
    latest = [session for session in sessions if session["judged"]][-1]
    return probabilities, latest["judged"] / latest["judge_s"]


def compared(first: dict[str, float], second: dict[str, float]) -> str:
    """The cells of a row: n, changed verdicts with their interval, mean and largest change of P."""
    names = sorted(first.keys() & second.keys())
    before: NDArray[np.float64] = np.array([first[name] for name in names])
    after: NDArray[np.float64] = np.array([second[name] for name in names])
    changed = int(np.sum((before > 0.5) != (after > 0.5)))
    low, high = proportion_confint(changed, len(names), method="wilson")
    moved = np.abs(after - before)
    share = f"{changed / len(names):.1%} ({low:.1%} to {high:.1%})".replace("%", "")
    return f"{len(names)} | {share} | {moved.mean():.4f} | {moved.max():.3f}"


if __name__ == "__main__":
    main()
