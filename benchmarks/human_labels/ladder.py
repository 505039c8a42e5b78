"""What to do with labels: the untuned judge, a chosen prompt, a head, or LoRA, on the same unseen pairs.

    python -m benchmarks.human_labels.ladder --data DATA --states STATES --work WORK --cells pandalm=100 auto-j=1000

STATES is written by `benchmarks.human_labels.states`. Each cell is one split of a set, as in
`benchmarks.human_labels.heads`: `judgelm train preference` and the readings run on the labels and on 150 unseen pairs
with a winner. Finished files in WORK are not computed again, and the table shows all cells that are finished.
Intervals are from a bootstrap over questions.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.human_labels.heads import candidates_of, drawn
from benchmarks.human_labels.sets import Rows, read_rows
from benchmarks.human_labels.states import read_states, with_states
from judgelm.metrics.agreement import paired_difference
from judgelm.metrics.resampling import Resampling
from judgelm.records import Judgment, Sample
from judgelm.runs.run_files import read_judgments
from judgelm.studies.tuning import ReadingCandidate, TuningLabels, TuningOptions, strength_difference, tune

UNSEEN = 150
READINGS = ("yes-no", "letters")


def main() -> None:
    """Run the cells, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--states", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--cells", nargs="+", metavar="SET=LABELS", required=True)
    options = parser.parse_args()
    for cell in options.cells:
        name, labels = cell.split("=")
        folder = options.states / name
        rows = with_states(read_rows(options.data / f"{name}.jsonl", limit=None, seed=0), folder)
        print(cell, *measure(rows, folder, options.work / cell, int(labels)), sep="\n    ", flush=True)


def measure(rows: Rows, states: Path, work: Path, number: int) -> list[str]:
    """Measure all steps of the ladder on one split, and return a line for each."""
    parts = drawn(rows.questions, number, 0)
    assert parts is not None, "the set is large enough"
    train, unseen = np.flatnonzero(parts[0]), np.flatnonzero(parts[1] & (rows.truth != 0))
    unseen = np.sort(np.random.default_rng(0).permutation(unseen)[:UNSEEN])
    work.mkdir(parents=True, exist_ok=True)
    for part, places in (("labels", train), ("unseen", unseen)):
        (work / f"{part}.jsonl").write_text("".join(_line(rows, index) for index in places), encoding="utf-8")
    runs = {}
    for reading in READINGS:
        for name in ("labels", "unseen"):
            out = work / f"{name}.{reading}.jsonl"
            _run(work / f"{name}.{reading}", "batch", work / f"{name}.jsonl", "-o", out, "--reading", reading)
            runs[name, reading] = read_judgments(out)
    judge = work / "lora"
    config = ("--config", "few_pairs", "--train_data", work / "labels.jsonl", "--output_dir", judge)
    _run(judge, "train", "preference", *config)
    _run(work / "unseen.lora", "batch", work / "unseen.jsonl", "-o", work / "unseen.lora.jsonl", "--model", judge)
    tuned = read_judgments(work / "unseen.lora.jsonl")
    labelled = rows.part(train)
    truth = labelled.truth.astype(np.float64)
    lengths = np.array([[len(answer) for answer in sample.answers] for sample in labelled.samples])
    readings = {
        name: ReadingCandidate(differences=_differences(runs["labels", name], labelled.samples)) for name in READINGS
    }
    labels = TuningLabels(truth=truth, questions=labelled.questions, lengths=lengths)
    chosen = tune(readings, labels, TuningOptions(default="yes-no", resampling=Resampling(seed=0))).chosen
    samples = rows.part(unseen).samples
    head, _ = candidates_of(read_states(states, rows))["head"].predict(parts[0])
    leads = {
        f"prompt ({chosen})": _differences(runs["unseen", chosen], samples),
        "head": head[unseen],
        "LoRA": _differences(tuned, samples),
    }
    right = {name: np.sign(each) == rows.truth[unseen] for name, each in leads.items()}
    untuned = np.sign(_differences(runs["unseen", "yes-no"], samples)) == rows.truth[unseen]
    questions = [sample.question for sample in samples]
    lines = [f"untuned {100 * untuned.mean():.1f} % of {untuned.size}"]
    for name, each in right.items():
        gain = paired_difference(each, untuned, questions, Resampling(seed=0))
        lines.append(f"{name} {100 * gain.value:+.1f} ({100 * gain.low:.1f} to {100 * gain.high:.1f})")
    return [*lines, *((path.stem + ": " + path.read_text(encoding="utf-8")) for path in sorted(work.glob("*.time")))]


def _differences(judgments: Mapping[str, Judgment], samples: Sequence[Sample]) -> NDArray[np.float64]:
    return np.array([strength_difference(judgments.get(each.id)) for each in samples])


def _line(rows: Rows, index: int) -> str:
    sample = rows.samples[index]
    winner = {1: 1, 0: "tie", -1: 2}[int(rows.truth[index])]
    first, second = sample.answers
    row = {
        "id": sample.id,
        "question": sample.question,
        "answer_1": first,
        "answer_2": second,
        "winner": winner,
    }
    return json.dumps(row) + "\n"


def _run(out: Path, *arguments: object) -> None:
    """Run a command of judgelm, unless it has run before, and write its time and memory to OUT.time."""
    log = out.with_name(f"{out.name}.time")
    if log.exists():
        return
    begun = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "judgelm", *map(str, arguments)])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"error: judgelm {arguments[0]} exited with status {os.waitstatus_to_exitcode(status)}")
    log.write_text(f"{time.monotonic() - begun:.0f} s, {usage.ru_maxrss / 2**20:.1f} GB", encoding="utf-8")


if __name__ == "__main__":
    main()
