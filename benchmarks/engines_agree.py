"""Share of prompts with different scores by vLLM and transformers, in float32 and in bfloat16.

    python -m benchmarks.engines_agree --model runs/bench/unsure-judge --pairs DATA/pandalm/testset-v1.json --limit 120

In float32 the two must agree on every text; in bfloat16 they round differently, so near-ties can fall the other way.
`runs/bench/unsure-judge` is made by `score_distribution.py`: a judge that is hardly ever sure, so the hard case.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from statsmodels.stats.proportion import proportion_confint

from judgelm.parsing.scores import is_assigned
from judgelm.records import Shown
from judgelm.runs.run_files import read_judgments


def main() -> None:
    """Judge the same pairs with both engines in both formats; count prompts whose reply or probability differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--template", default="judgelm-v1")
    parser.add_argument("--pairs", required=True)
    parser.add_argument("--limit", type=int, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            (dtype, engine): prompts(options, dtype, engine, Path(folder))
            for dtype in ("float32", "bfloat16")
            for engine in ("transformers", "vllm")
        }
    results = {
        dtype: compared(runs[dtype, "transformers"], runs[dtype, "vllm"]) for dtype in ("float32", "bfloat16")
    } | {
        f"{engine}, float32 against bfloat16": compared(runs["float32", engine], runs["bfloat16", engine])
        for engine in ("transformers", "vllm")
    }
    print(json.dumps(results, indent=1))
    assert results["float32"]["changed"] == 0, "the engines differ in float32"


def prompts(options: argparse.Namespace, dtype: str, engine: str, folder: Path) -> list[Shown]:
    """The judge's reply to every prompt, in the order of ids."""
    out = folder / f"{dtype}-{engine}.jsonl"
    command = [
        str(Path(sys.executable).parent / "judgelm-batch"), options.pairs, "-o", str(out), "--model", options.model,
        "--template", options.template, "--engine", engine, "--dtype", dtype, "--limit", str(options.limit),
        "--both-orders", "--distribution", "--max-failure-rate", "1", "--quiet",
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return [shown for _, judgment in sorted(read_judgments(out).items()) for shown in judgment.shown]


def compared(first: list[Shown], second: list[Shown]) -> dict[str, object]:
    """Prompts with another reply, and how far P(first better) moved where score lines have half of the mass or more."""
    changed = sum(a.text != b.text for a, b in zip(first, second, strict=True))
    low, high = proportion_confint(changed, len(first), method="wilson")
    moved = [
        abs(a.distribution.first_better - b.distribution.first_better)
        for a, b in zip(first, second, strict=True)
        if a.distribution is not None and is_assigned(a.distribution)
        if b.distribution is not None and is_assigned(b.distribution)
    ]
    return {
        "prompts": len(first),
        "changed": changed,
        "percent": round(100 * changed / len(first), 2),
        "interval_percent": [round(100 * low, 2), round(100 * high, 2)],
        "probabilities": len(moved),
        "probability_moved_at_most": max(moved, default=None),
    }


if __name__ == "__main__":
    main()
