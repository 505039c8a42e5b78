"""Record the states of a model for the labelled sets, with its log-odds of yes versus no.

    python -m benchmarks.human_labels.states --data DATA --out STATES --model qwen-1.5b --rows 400 llmbar auto-j

One file per set is written under STATES: ids, layers, states of both answers, and log-odds. Runs again with more rows
compute only those that are missing. The states are about 90 KB per pair; keep them outside the repository.
"""

import argparse
import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.human_labels.sets import SETS, Rows, read_rows
from judgelm.cli.tuned_head import HEAD_LAYERS
from judgelm.engines.recorded_states import RecordedStates
from judgelm.judge import Judge
from judgelm.modes import Pairwise
from judgelm.modes.readings import prompts_alone
from judgelm.runs.runner import judge
from judgelm.studies.tuning import strength_difference

PART = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStates:
    """States of n pairs.

    Attributes:
        states: layer -> shape (n, 2, hidden), float16: of both answers.
        log_odds: shape (n,), first minus second.
    """

    rows: Rows
    states: dict[int, NDArray[np.float16]]
    log_odds: NDArray[np.float64]


def main() -> None:
    """Record the states of each set in parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=[each.name for each in SETS])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="qwen-1.5b")
    parser.add_argument("--template", default="yes-no")
    parser.add_argument("--rows", type=int, help="of a fixed subset of each set")
    options = parser.parse_args()
    mode = Pairwise(template=options.template, tie_threshold=0.0)
    with Judge(options.model, engine="transformers", template=options.template) as loaded:
        count = loaded.engine.state_layers  # type: ignore[attr-defined]  # of the transformers engine
        layers = tuple(sorted({max(1, round(share * count)) for share in HEAD_LAYERS}))
        identity = json.dumps(loaded.engine.describe(), sort_keys=True, default=str)
        for name in options.sets:
            rows = read_rows(options.data / f"{name}.jsonl", limit=options.rows, seed=0)
            folder = options.out / name
            folder.mkdir(parents=True, exist_ok=True)
            missing = [sample for sample in rows.samples if not _file(folder, sample.id).exists()]
            for start in range(0, len(missing), PART):
                part = missing[start : start + PART]
                begun = time.monotonic()
                recorder = RecordedStates(loaded.engine, layers, folder / "part.npz", identity)
                judgments = {each.sample_id: each for each in judge(part, mode, recorder)}
                prompts = [prompt for sample in part for prompt in prompts_alone(mode, sample)]
                states = recorder.states(prompts).reshape(len(part), 2, len(layers), -1).astype(np.float16)
                for sample, both in zip(part, states, strict=True):
                    log_odds = strength_difference(judgments.get(sample.id))
                    np.savez(_file(folder, sample.id), layers=layers, states=both, log_odds=log_odds)
                (folder / "part.npz").unlink()
                seconds = (time.monotonic() - begun) / len(part)
                print(f"{name}: {start + len(part)} of {len(missing)}, {seconds:.2f} s per pair", flush=True)


def read_states(folder: Path, rows: Rows) -> SetStates:
    """Load the states of pairs, of the layers that were recorded for all of them."""
    stored = []
    for sample in rows.samples:
        with np.load(_file(folder, sample.id)) as file:
            states = dict(zip(file["layers"].tolist(), file["states"].swapaxes(0, 1), strict=True))
            stored.append((states, float(file["log_odds"])))
    layers = sorted(set.intersection(*(set(states) for states, _ in stored)))
    return SetStates(
        rows=rows,
        states={layer: np.stack([states[layer] for states, _ in stored]) for layer in layers},
        log_odds=np.array([log_odds for _, log_odds in stored]),
    )


def with_states(rows: Rows, folder: Path) -> Rows:
    """Return the pairs whose states are in a folder."""
    return rows.part(
        np.array([place for place, each in enumerate(rows.samples) if _file(folder, each.id).exists()], int)
    )


def _file(folder: Path, name: str) -> Path:
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.npz"


if __name__ == "__main__":
    main()
