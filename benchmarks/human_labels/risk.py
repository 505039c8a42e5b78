"""Whether `judgelm tune --risk` keeps its promise on the labelled sets, and how many pairs it decides.

    python -m benchmarks.human_labels.risk pandalm auto-j --data DATA --states STATES --labels 300 --levels 0.1 0.2 0.3

STATES is written by `benchmarks.human_labels.states`. Each of 100 splits draws labels and unseen pairs as
`benchmarks.human_labels.heads` does, and chooses judge and threshold as `judgelm tune --risk` does. The promise is kept
if the share of wrong verdicts on the unseen pairs, ties included, is at most the level; that share has an error of its
own. Splits without a threshold promise nothing.
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.human_labels.heads import candidates_of, drawn
from benchmarks.human_labels.sets import read_rows
from benchmarks.human_labels.states import SetStates, read_states, with_states
from judgelm.errors import InputError
from judgelm.metrics.resampling import Resampling
from judgelm.studies.risk import promise_of, split_by_question
from judgelm.studies.tuning import TuningLabels, TuningOptions, tune


def main() -> None:
    """Print a row for each set and level."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--states", type=Path, required=True)
    parser.add_argument("--labels", type=int, default=300)
    parser.add_argument("--levels", type=float, nargs="+", default=[0.1, 0.2, 0.3])
    parser.add_argument("--splits", type=int, default=100)
    options = parser.parse_args()
    for name in options.sets:
        folder = options.states / name
        rows = with_states(read_rows(options.data / f"{name}.jsonl", limit=None, seed=0), folder)
        states = read_states(folder, rows)
        for level in options.levels:
            found = [each for split in range(options.splits) if (each := measure(states, options.labels, level, split))]
            shown = np.array([each for each in found if np.isfinite(each).all()]).reshape(-1, 2)
            kept = int((shown[:, 1] <= level).sum())
            text = f"{name} {level:g}: a threshold in {len(shown)} of {len(found)} splits"
            if len(shown):
                coverage, risk = 100 * shown.mean(0)
                text += f", at most the level wrong in {kept}; decided {coverage:.1f} %, wrong {risk:.1f} % on average"
            print(text, flush=True)


def measure(states: SetStates, number: int, level: float, seed: int) -> tuple[float, float] | None:
    """Return the share of decided pairs and of wrong verdicts, NaN without a threshold; None if there are too few."""
    rows = states.rows
    parts = drawn(rows.questions, number, seed)
    if parts is None:
        return None
    labelled, unseen = parts
    candidates = candidates_of(states)
    lengths = np.array([[len(answer) for answer in sample.answers] for sample in rows.samples])
    known = TuningLabels(truth=rows.truth.astype(np.float64), questions=rows.questions, lengths=lengths)
    tried = {name: candidates[name].part(labelled) for name in ("untuned", "head")}
    labels = known.part(labelled)
    try:
        split = split_by_question(labels.questions, level, seed)
    except InputError:
        return None
    options = TuningOptions(default="untuned", repeats=1, resampling=Resampling(seed=seed, resamples=200))
    fitted = {name: each.part(split.train) for name, each in tried.items()}
    tuned = tune(fitted, labels.part(split.train), options)
    promised = promise_of(tuned, fitted[tuned.chosen], tried[tuned.chosen], labels, split)
    if promised is None:
        return np.nan, np.nan
    fit = tuned.candidates[tuned.chosen].fit
    lead = fit.lead(*candidates[tuned.chosen].applied(fitted[tuned.chosen]))
    decided = unseen & (np.abs(lead) >= promised.threshold)
    wrong = np.sign(lead[decided]) != rows.truth[decided]
    return float(decided.sum() / unseen.sum()), float(wrong.mean()) if wrong.size else 0.0


if __name__ == "__main__":
    main()
