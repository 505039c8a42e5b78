"""What a head gains on the labelled sets, at 50, 100, and 200 labels.

    python -m benchmarks.human_labels.heads --data DATA --states STATES --out heads.json

STATES is written by `benchmarks.human_labels.states`. Each set is split 20 times, by question, into labels and unseen
pairs, of which there are at least 100. On the labels, everything is chosen and fitted as `judgelm tune` does; all
judges are compared on the same unseen pairs. A pair counts with its mean outcome over the splits in which it was
unseen, and intervals are from a bootstrap over questions, because splits of one set are not independent. The pooled
gain is the mean over the sets.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.human_labels.sets import SETS, read_rows
from benchmarks.human_labels.states import SetStates, read_states, with_states
from judgelm.studies.heads import HeadCandidate, PromptStates
from judgelm.studies.tuning import (
    ReadingCandidate,
    ReadingFit,
    TuningCandidate,
    TuningLabels,
    fit_reading,
    length_candidate,
)

LAYERS = (18, 20, 22)
"""Those that `judgelm tune` uses for a model of 28 layers."""
LABELS = (50, 100, 200)
UNSEEN = 100
SPLITS = 20
RESAMPLES = 2000

Outcomes = dict[str, NDArray[np.float64]]
"""Judge -> shape (n,): share of the splits with an unseen pair in which the judge was right; NaN if there are none."""


def main() -> None:
    """Measure every set whose states are there, print a table, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--states", type=Path, required=True)
    parser.add_argument("--labels", type=int, nargs="+", default=LABELS)
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    measured: dict[int, dict[str, tuple[Outcomes, list[str]]]] = {number: {} for number in options.labels}
    for human_set in SETS:
        folder = options.states / human_set.name
        rows = with_states(read_rows(options.data / f"{human_set.name}.jsonl", limit=None, seed=0), folder)
        for number in options.labels:
            if len(rows.samples) < number + UNSEEN:
                continue
            outcomes = measure(read_states(folder, rows), number)
            measured[number][human_set.name] = outcomes, rows.questions
            results[f"{human_set.name} {number}"] = row = gains({human_set.name: (outcomes, rows.questions)})
            print(f"{human_set.name:12} {number:4} {_text(row)}", flush=True)
    for number, sets in measured.items():
        for name, chosen in (("pooled", set(sets)), ("without llmbar", set(sets) - {"llmbar"})):
            results[f"{name} {number}"] = row = gains({key: sets[key] for key in chosen})
            print(f"{name:12} {number:4} {_text(row)}", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def candidates_of(states: SetStates) -> dict[str, TuningCandidate]:
    """Return the untuned default first, and what is fitted to labels."""
    rows = states.rows
    differences = {layer: states.states[layer][:, 0].astype(float) - states.states[layer][:, 1] for layer in LAYERS}
    prompt = PromptStates(states=differences, log_odds=states.log_odds)
    lengths = np.array([[len(answer) for answer in sample.answers] for sample in rows.samples])
    return {
        "untuned": ReadingCandidate(differences=states.log_odds),
        "tie threshold": ReadingCandidate(differences=states.log_odds),
        "head": HeadCandidate(prompts={"yes-no": prompt}, targets=(rows.truth + 1) / 2, questions=rows.questions),
        "fitted length": length_candidate(TuningLabels(truth=rows.truth, questions=rows.questions, lengths=lengths)),
        "longer": ReadingCandidate(differences=np.sign(lengths[:, 0] - lengths[:, 1]).astype(float)),
    }


def measure(states: SetStates, number: int) -> Outcomes:
    """Fit to `number` labels in each split, and judge the unseen pairs."""
    candidates, truth, questions = candidates_of(states), states.rows.truth, states.rows.questions
    right = {name: np.zeros(truth.size) for name in candidates}
    seen = np.zeros(truth.size)
    for split in range(SPLITS):
        train = labelled(questions, number, split)
        if (~train).sum() < UNSEEN:
            raise SystemExit(f"only {(~train).sum()} unseen pairs with {number} labels")
        seen += ~train
        for name, candidate in candidates.items():
            predicted, ties = candidate.predict(train)
            fit = (
                ReadingFit()
                if name in ("untuned", "longer")
                else fit_reading(predicted[train], ties[train], truth[train])
            )
            right[name] += (fit.verdicts(predicted, ties) == truth) & ~train
    return {
        name: np.divide(each, seen, out=np.full(truth.size, np.nan), where=seen > 0) for name, each in right.items()
    }


def labelled(questions: list[str], number: int, seed: int) -> NDArray[np.bool_]:
    """Return the pairs of random questions, at least `number` pairs."""
    unique = list(dict.fromkeys(questions))
    chosen: set[str] = set()
    count = 0
    for place in np.random.default_rng(seed).permutation(len(unique)):
        if count >= number:
            break
        chosen.add(unique[place])
        count += questions.count(unique[place])
    return np.array([question in chosen for question in questions])


def gains(sets: Mapping[str, tuple[Outcomes, list[str]]]) -> dict[str, Any]:
    """Return the mean over sets of each judge's gain over the untuned default, with intervals, in points."""
    draws = np.random.default_rng(0)
    values: dict[str, list[float]] = {}
    samples: dict[str, list[NDArray[np.float64]]] = {}
    untuned, pairs = [], 0
    for outcomes, questions in sets.values():
        known = np.isfinite(outcomes["untuned"])
        _, cluster = np.unique(np.array(questions)[known], return_inverse=True)
        weights = draws.multinomial(cluster.max() + 1, np.full(cluster.max() + 1, 1 / (cluster.max() + 1)), RESAMPLES)
        counts = np.bincount(cluster)
        untuned.append(100 * outcomes["untuned"][known].mean())
        pairs += int(known.sum())
        compared = {name: outcomes[name] - outcomes["untuned"] for name in outcomes if name != "untuned"}
        compared["head over fitted length"] = outcomes["head"] - outcomes["fitted length"]
        for name, difference in compared.items():
            sums = np.bincount(cluster, weights=difference[known])
            values.setdefault(name, []).append(100 * difference[known].mean())
            samples.setdefault(name, []).append(100 * (weights @ sums) / (weights @ counts))
    bounds = {name: np.quantile(np.mean(each, axis=0), (0.025, 0.975)) for name, each in samples.items()}
    return {"pairs": pairs, "untuned": float(np.mean(untuned))} | {
        name: [float(np.mean(each)), float(bounds[name][0]), float(bounds[name][1])] for name, each in values.items()
    }


def _text(row: Mapping[str, Any]) -> str:
    parts = [f"untuned {row['untuned']:.1f}"]
    for name, values in row.items():
        if isinstance(values, list):
            parts.append(f"{name} {values[0]:+.1f} ({values[1]:.1f} to {values[2]:.1f})")
    return f"n {row['pairs']}: {', '.join(parts)}"


if __name__ == "__main__":
    main()
