"""What a head gains on the labelled sets, at 50, 100, and 200 labels.

    python -m benchmarks.human_labels.heads --data DATA --states STATES --out heads.json

STATES is written by `benchmarks.human_labels.states`. Each set is split 20 times, by question, into labels and at least
100 unseen pairs. On the labels, everything is chosen and fitted as `judgelm tune` does; all judges are compared on the
same unseen pairs: on those with a winner, where every judge has to name one, and on all, where fitted judges may say
tie. A pair counts with its mean outcome over the splits in which it was unseen, and intervals are from a bootstrap over
questions, because splits of one set are not independent. The pooled gain is the mean over the sets.
"""

import argparse
import json
from collections import Counter
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
TRIES = 1000
"""Draws of the half, so that sets with few pairs have enough of both kinds."""
RESAMPLES = 2000

Outcomes = dict[str, NDArray[np.float64]]
"""Judge -> shape (n,): share of the splits with an unseen pair in which the judge was right; NaN if there are none."""
Measured = tuple[Outcomes, list[str]]
"""Outcomes and questions of a set."""


def main() -> None:
    """Measure every set whose states are there, print a table, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--states", type=Path, required=True)
    parser.add_argument("--labels", type=int, nargs="+", default=LABELS)
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    measured: dict[tuple[str, int], dict[str, Measured]] = {}
    for human_set in SETS:
        folder = options.states / human_set.name
        rows = with_states(read_rows(options.data / f"{human_set.name}.jsonl", limit=None, seed=0), folder)
        states = read_states(folder, rows)
        for number in options.labels:
            for pairs, outcomes in measure(states, number).items():
                measured.setdefault((pairs, number), {})[human_set.name] = outcomes, rows.questions
                _add(results, human_set.name, pairs, number, {human_set.name: (outcomes, rows.questions)})
    for (pairs, number), sets in measured.items():
        _add(results, "pooled", pairs, number, sets)
        _add(results, "without llmbar", pairs, number, {key: sets[key] for key in sets if key != "llmbar"})
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _add(results: dict[str, dict[str, Any]], name: str, pairs: str, number: int, sets: Mapping[str, Measured]) -> None:
    results[f"{name}, {pairs}, {number}"] = row = gains(sets)
    print(f"{name:14} {pairs:7} {number:4} {_text(row)}", flush=True)


def candidates_of(states: SetStates) -> dict[str, TuningCandidate]:
    """Return the untuned default first, and what is fitted to labels."""
    rows = states.rows
    truth = rows.truth.astype(np.float64)
    differences = {layer: np.subtract(*states.states[layer].astype(np.float64).swapaxes(0, 1)) for layer in LAYERS}
    prompt = PromptStates(states=differences, log_odds=states.log_odds)
    lengths = np.array([[len(answer) for answer in sample.answers] for sample in rows.samples])
    return {
        "untuned": ReadingCandidate(differences=states.log_odds),
        "tie threshold": ReadingCandidate(differences=states.log_odds),
        "head": HeadCandidate(prompts={"yes-no": prompt}, targets=(truth + 1) / 2, questions=rows.questions),
        "fitted length": length_candidate(TuningLabels(truth=truth, questions=rows.questions, lengths=lengths)),
        "longer": ReadingCandidate(differences=np.sign(lengths[:, 0] - lengths[:, 1]).astype(float)),
    }


def measure(states: SetStates, number: int) -> dict[str, Outcomes]:
    """Fit to `number` labels in each split, and judge the unseen pairs; empty if the set is too small."""
    candidates, truth, questions = candidates_of(states), states.rows.truth.astype(np.float64), states.rows.questions
    right = {pairs: {name: np.zeros(truth.size) for name in candidates} for pairs in ("winners", "all")}
    seen = np.zeros(truth.size)
    for split in range(SPLITS):
        parts = drawn(questions, number, split)
        if parts is None:
            return {}
        train, unseen = parts
        seen += unseen
        for name, candidate in candidates.items():
            predicted, ties = candidate.predict(train)
            fit = ReadingFit()
            if name not in ("untuned", "longer"):
                fit = fit_reading(predicted[train], ties[train], truth[train])
            right["winners"][name] += (np.sign(predicted) == truth) & unseen
            right["all"][name] += (fit.verdicts(predicted, ties) == truth) & unseen
    shown = {"winners": np.where(truth != 0, seen, 0), "all": seen}
    return {
        pairs: {
            name: np.divide(each, shown[pairs], out=np.full(truth.size, np.nan), where=shown[pairs] > 0)
            for name, each in judges.items()
        }
        for pairs, judges in right.items()
        if pairs == "winners" or (truth == 0).any()
    }


def drawn(questions: list[str], number: int, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
    """Return the pairs with labels, and the unseen pairs; None if the set is too small.

    Labels are of random pairs of half of the questions, from as many questions as possible. All pairs of the other half
    are unseen.
    """
    draws = np.random.default_rng(seed)
    unique = np.array(list(dict.fromkeys(questions)))
    for _ in range(TRIES):
        half = draws.permutation(unique)[: len(unique) // 2]
        unseen = ~np.isin(questions, half)
        if unseen.sum() >= UNSEEN and (~unseen).sum() >= number:
            break
    else:
        return None
    taken: Counter[str] = Counter()
    turns: list[tuple[int, int]] = []
    for place in draws.permutation(np.flatnonzero(~unseen)):
        turns.append((taken[questions[place]], int(place)))
        taken[questions[place]] += 1
    labelled = np.zeros(len(questions), dtype=np.bool_)
    labelled[[place for _, place in sorted(turns, key=lambda turn: turn[0])[:number]]] = True
    return labelled, unseen


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
