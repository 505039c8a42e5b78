"""How well mode `grounded` judges claims against retrieved chunks, on our own cases.

    python -m benchmarks.chunks

Each of the cases in `chunks.jsonl` has four chunks about similar things, and claims that one chunk supports, that no
chunk supports, or that are true of another thing. Prints the AUROC per claim, and for how many of the supported claims
the chunk that was found is the right one. Intervals are from a bootstrap over cases.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.qags import RESAMPLES, auroc
from judgelm.judge import Judge
from judgelm.modes.grounded import Grounded
from judgelm.records import Sample
from judgelm.runs.in_memory import judge_samples


def main() -> None:
    """Judge the cases, and print both figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    options = parser.parse_args()
    lines = Path(__file__).with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    samples = [
        Sample(
            id=case["id"],
            question=case["question"],
            answers=(case["answer"],),
            metadata={"context": case["context"], "claims": case["claims"]},
        )
        for case in cases
    ]
    with Judge(options.model, engine="transformers") as judge:
        judgments = judge_samples(samples, Grounded(evidence=True), judge.engine, progress=True)
    rows, right = [], []
    for case, judgment in zip(cases, judgments, strict=True):
        assert judgment.failure is None, judgment.failure
        truth = np.array([float(passage is not None) for passage in case["supported_by"]])
        rows.append((truth, np.array([shown.scores[0] for shown in judgment.shown if shown.scores])))
        pairs = zip(judgment.shown, case["supported_by"], strict=True)
        right.append([shown.passage == passage for shown, passage in pairs if passage is not None])
        for shown, passage in zip(judgment.shown, case["supported_by"], strict=True):
            print(f"{case['id']:10} {(shown.scores or (0,))[0]:.3f} {shown.passage} {passage or '-'} {shown.part}")
    value, (low, high) = auroc(rows)
    count = sum(len(truth) for truth, _ in rows)
    print(f"{count} claims of {len(cases)} cases: AUROC {value:.3f} ({low:.3f} to {high:.3f})")
    draws = np.random.default_rng(0).integers(len(right), size=(RESAMPLES, len(right)))
    shares = [np.mean([each for place in draw for each in right[place]]) for draw in draws]
    low, high = np.quantile(shares, [0.025, 0.975])
    share = np.mean([each for case_right in right for each in case_right])
    print(f"right chunk of {sum(map(len, right))} supported claims: {share:.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
