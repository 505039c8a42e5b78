"""How often `judgelm tune` recommends a head for labels that say nothing.

    python -m benchmarks.human_labels.permuted pandalm --data DATA --states STATES --labels 100 --runs 200

STATES is written by `benchmarks.human_labels.states`. Each run draws pairs as `benchmarks.human_labels.heads` does,
permutes their labels, and tunes. At most 5 % of the runs should recommend anything.
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.human_labels.heads import candidates_of, drawn
from benchmarks.human_labels.sets import read_rows
from benchmarks.human_labels.states import SetStates, read_states, with_states
from judgelm.metrics.resampling import Resampling
from judgelm.studies.tuning import TuningLabels, TuningOptions, tune


def main() -> None:
    """Tune on permuted labels of a set, and count the recommendations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--states", type=Path, required=True)
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    folder = options.states / options.set
    rows = with_states(read_rows(options.data / f"{options.set}.jsonl", limit=None, seed=0), folder)
    whole = read_states(folder, rows)
    recommended = 0
    for run in range(options.runs):
        parts = drawn(rows.questions, options.labels, run)
        assert parts is not None, "the set is large enough"
        chosen = np.flatnonzero(parts[0])
        truth = np.random.default_rng(run).permutation(rows.truth[chosen])
        states = {layer: each[chosen] for layer, each in whole.states.items()}
        part = rows.part(chosen)
        permuted = SetStates(
            rows=type(part)(samples=part.samples, truth=truth), states=states, log_odds=whole.log_odds[chosen]
        )
        candidates = candidates_of(permuted)
        lengths = np.array([[len(answer) for answer in sample.answers] for sample in part.samples])
        labels = TuningLabels(truth=truth.astype(np.float64), questions=part.questions, lengths=lengths)
        result = tune(
            {name: candidates[name] for name in ("untuned", "head")},
            labels,
            TuningOptions(default="untuned", resampling=Resampling(seed=run)),
        )
        recommended += result.chosen != "untuned"
        if run % 20 == 19:
            print(f"{recommended} of {run + 1} runs recommend a head", flush=True)


if __name__ == "__main__":
    main()
