"""What labelled examples before the question gain, if they are the nearest ones by the model's states.

    python -m benchmarks.human_labels.few_shot pandalm auto-j llmbar --data DATA --states STATES --examples 2

STATES is written by `benchmarks.human_labels.states`. Labels and unseen pairs are drawn as in
`benchmarks.human_labels.heads`, and 150 of the unseen pairs with a winner are judged by the prompt yes-no. Before each
question stand the labelled pairs with a winner whose states are most alike, both answers with their yes or no, nearest
last. Both answers of a pair are shown the same examples. Intervals are from a bootstrap over questions.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.human_labels.heads import drawn
from benchmarks.human_labels.sets import Rows, read_rows
from benchmarks.human_labels.states import SetStates, read_states, with_states
from judgelm.judge import Judge
from judgelm.metrics.agreement import paired_difference
from judgelm.metrics.resampling import Resampling
from judgelm.modes import Pairwise
from judgelm.records import Sample
from judgelm.runs.runner import judge
from judgelm.studies.tuning import strength_difference

UNSEEN = 150
LAYER = 18
LONGEST = 2_000
"""Characters of a question or answer in an example."""


def main() -> None:
    """Judge the unseen pairs of each set with and without examples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--states", type=Path, required=True)
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--examples", type=int, default=2)
    parser.add_argument("--model", default="qwen-1.5b")
    options = parser.parse_args()
    mode = Pairwise(template="yes-no", tie_threshold=0.0)
    outcomes: list[tuple[NDArray[np.bool_], NDArray[np.bool_], list[str]]] = []
    with Judge(options.model, engine="transformers", template="yes-no") as loaded:
        for name in options.sets:
            folder = options.states / name
            rows = with_states(read_rows(options.data / f"{name}.jsonl", limit=None, seed=0), folder)
            states = read_states(folder, rows)
            parts = drawn(rows.questions, options.labels, 0)
            assert parts is not None, "the set is large enough"
            unseen = np.flatnonzero(parts[1] & (rows.truth != 0))
            unseen = np.sort(np.random.default_rng(0).permutation(unseen)[:UNSEEN])
            labelled = np.flatnonzero(parts[0] & (rows.truth != 0))
            right, seconds = [], []
            for samples in (rows.part(unseen).samples, _with_examples(states, labelled, unseen, options.examples)):
                begun = time.monotonic()
                found = {each.sample_id: each for each in judge(samples, mode, loaded.engine)}
                seconds.append(time.monotonic() - begun)
                leads = np.array([strength_difference(found.get(sample.id)) for sample in samples])
                right.append(np.sign(leads) == rows.truth[unseen])
            plain, shown = right
            outcomes.append((shown, plain, [f"{name} {each}" for each in rows.part(unseen).questions]))
            print(f"{name}: {_gain(*outcomes[-1])}; {seconds[0]:.0f} and {seconds[1]:.0f} s", flush=True)
    shown, plain = (np.concatenate([each[place] for each in outcomes]) for place in (0, 1))
    print(f"pooled: {_gain(shown, plain, [question for each in outcomes for question in each[2]])}")


def _gain(shown: NDArray[np.bool_], plain: NDArray[np.bool_], questions: list[str]) -> str:
    gain = paired_difference(shown, plain, questions, Resampling(seed=0))
    values = f"{100 * gain.value:+.1f} ({100 * gain.low:.1f} to {100 * gain.high:.1f}), n = {plain.size}"
    return f"without {100 * plain.mean():.1f} %, gain {values}"


def _with_examples(states: SetStates, labelled: NDArray[np.int_], unseen: NDArray[np.int_], count: int) -> list[Sample]:
    whole = states.states[LAYER].astype(np.float64).mean(1)
    centered = whole - whole[labelled].mean(0)
    directions = centered / np.linalg.norm(centered, axis=1, keepdims=True)
    samples = []
    for place in unseen:
        order = labelled[np.argsort(directions[labelled] @ directions[place])]
        examples = "\n\n".join(_example(states.rows, int(near)) for near in order[-count:])
        sample = states.rows.samples[place]
        samples.append(replace(sample, question=f"Examples:\n\n{examples}\n\nNow judge this one:\n{sample.question}"))
    return samples


def _example(rows: Rows, place: int) -> str:
    sample, truth = rows.samples[place], rows.truth[place]
    answers = [
        f"Answer: {answer[:LONGEST]}\nVerdict: {'yes' if (truth > 0) == (number == 0) else 'no'}"
        for number, answer in enumerate(sample.answers)
    ]
    return "\n".join([f"Question: {sample.question[:LONGEST]}", *answers])


if __name__ == "__main__":
    main()
