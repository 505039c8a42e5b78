"""How many labels a head needs if the most informative pairs are labelled, instead of random ones.

    python -m benchmarks.human_labels.active pandalm auto-j llmbar --data DATA --states STATES

STATES is written by `benchmarks.human_labels.states`. Only pairs with a winner take part. In each of 30 draws, half of
the questions are unseen; 20 random labels of the other half start, and 20 labels are added at a time:

- random: random pairs
- unsure: the pairs whose winner the current head is least sure of
- spread: of the pairs, the one that is farthest from all labelled ones, again and again

The labels that a choice needs are those at which its mean accuracy first reaches that of 100 random labels.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.human_labels.sets import read_rows
from benchmarks.human_labels.states import read_states, with_states
from judgelm.studies.heads import HeadCandidate, PromptStates

LAYER = 18
SIZES = tuple(range(20, 161, 20))
AIM = 100

Choice = Callable[[NDArray[np.float64], NDArray[np.float64], NDArray[np.int_], NDArray[np.int_]], NDArray[np.int_]]
"""Maps differences of states, leads, labelled places, and other places to the other places, the first chosen first."""


def main() -> None:
    """Print the mean accuracy at each number of labels, and how many labels each choice needs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--states", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=30)
    options = parser.parse_args()
    choices: dict[str, Choice] = {"random": _random, "unsure": _unsure, "spread": _spread}
    for name in options.sets:
        folder = options.states / name
        rows = with_states(read_rows(options.data / f"{name}.jsonl", limit=None, seed=0), folder)
        states = read_states(folder, rows.part(np.flatnonzero(rows.truth != 0)))
        differences = np.subtract(*states.states[LAYER].astype(np.float64).swapaxes(0, 1))
        candidate = HeadCandidate(
            prompts={"yes-no": PromptStates(states={LAYER: differences}, log_odds=states.log_odds)},
            targets=(states.rows.truth + 1) / 2,
            questions=states.rows.questions,
        )
        curves = {
            label: np.mean([_curve(candidate, differences, choice, seed) for seed in range(options.seeds)], axis=0)
            for label, choice in choices.items()
        }
        aim = float(np.interp(AIM, SIZES, curves["random"]))
        for label, curve in curves.items():
            reached = np.flatnonzero(curve >= aim)
            needed = f"{SIZES[reached[0]]} labels" if reached.size else f"more than {SIZES[-1]} labels"
            values = " ".join(f"{100 * each:.1f}" for each in curve)
            print(f"{name} {label}: {values}; {needed} for {100 * aim:.1f} %", flush=True)


def _curve(candidate: HeadCandidate, differences: NDArray[np.float64], choice: Choice, seed: int) -> list[float]:
    draws = np.random.default_rng(seed)
    questions = np.array([str(question) for question in candidate.questions])
    unique = np.unique(questions)
    seen = np.isin(questions, draws.permutation(unique)[: len(unique) // 2])
    order = draws.permutation(np.flatnonzero(seen))
    labelled, accuracies = order[: SIZES[0]], []
    for _ in SIZES:
        train = np.zeros(seen.size, dtype=np.bool_)
        train[labelled] = True
        setting, _ = candidate.choose(train)
        leads = candidate.fitted(setting, train)
        accuracies.append(float(((leads > 0) == (candidate.targets > 0.5))[~seen].mean()))
        rest = order[~np.isin(order, labelled)]
        labelled = np.concatenate([labelled, choice(differences, leads, labelled, rest)[:20]])
    return accuracies


def _random(
    differences: NDArray[np.float64], leads: NDArray[np.float64], labelled: NDArray[np.int_], rest: NDArray[np.int_]
) -> NDArray[np.int_]:
    return rest


def _unsure(
    differences: NDArray[np.float64], leads: NDArray[np.float64], labelled: NDArray[np.int_], rest: NDArray[np.int_]
) -> NDArray[np.int_]:
    return rest[np.argsort(np.abs(leads[rest]))]


def _spread(
    differences: NDArray[np.float64], leads: NDArray[np.float64], labelled: NDArray[np.int_], rest: NDArray[np.int_]
) -> NDArray[np.int_]:
    """The sign of a difference is arbitrary, so directions are compared. Two answers may be identical."""
    directions = differences / np.maximum(np.linalg.norm(differences, axis=1, keepdims=True), 1e-9)
    nearest = np.abs(directions[rest] @ directions[labelled].T).max(1)
    chosen = []
    for _ in range(20):
        best = int(np.argmin(nearest))
        chosen.append(rest[best])
        nearest = np.maximum(nearest, np.abs(directions[rest] @ directions[rest[best]]))
        nearest[best] = np.inf
    return np.array(chosen)


if __name__ == "__main__":
    main()
