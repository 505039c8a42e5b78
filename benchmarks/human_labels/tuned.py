"""What `judgelm tune` gains on the labelled sets, on questions that had no part in the choice.

    python -m benchmarks.human_labels.tuned --data DATA --runs RUNS/all --rows 200 yes-no=JUDGE letters=JUDGE

Candidates are runs of `python -m benchmarks.human_labels --judge`, of which the first is the default. Reading,
temperature and tie threshold are chosen by nested cross-validation over the questions of a set, as `judgelm tune`
does; the difference is to the default as it is without labels.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.human_labels.sets import SETS, Rows, read_rows
from judgelm.metrics.agreement import paired_difference
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.records import Judgment
from judgelm.runs.run_files import read_judgments
from judgelm.studies.tuning import ReadingCandidate, ReadingFit, TuningLabels, TuningOptions, strength_difference, tune


def main() -> None:
    """Choose on each set that all candidates judged, and print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("candidates", nargs="+", metavar="READING=JUDGE")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--rows", type=int, help="of a fixed subset of each set")
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args()
    folders = {reading: options.runs / judge for reading, judge in (each.split("=") for each in options.candidates)}
    results = {}
    for human_set in SETS:
        files = {reading: folder / f"{human_set.name}.jsonl" for reading, folder in folders.items()}
        if all(file.exists() for file in files.values()):
            rows = read_rows(options.data / f"{human_set.name}.jsonl", limit=options.rows, seed=0)
            judgments = {reading: read_judgments(file) for reading, file in files.items()}
            results[human_set.name] = tuned(rows, judgments)
    for name, found in results.items():
        print(f"| {name} | {found['n']} | " + " | ".join(_points(found[key]) for key in ("untuned", "tuned", "gain")))
        print(f"    {found['selected']}, chosen {found['chosen']}")
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def tuned(rows: Rows, judgments: dict[str, dict[str, Judgment]]) -> dict[str, Any]:
    """Agreement with all labels of the first candidate as it is, of the nested choice, and the paired difference."""
    truth, questions, resampling = rows.truth, rows.questions, Resampling(seed=0)
    candidates = {
        reading: ReadingCandidate(differences=np.array([strength_difference(by_id.get(s.id)) for s in rows.samples]))
        for reading, by_id in judgments.items()
    }
    default = next(iter(candidates))
    lengths = np.array([[len(answer) for answer in sample.answers] for sample in rows.samples])
    labels = TuningLabels(truth=truth, questions=questions, lengths=lengths)
    result = tune(candidates, labels, TuningOptions(default=default, resampling=resampling))
    untuned = ReadingFit().verdicts(candidates[default].differences) == truth
    gain = paired_difference(result.nested_right, untuned, questions, resampling)
    return {
        "n": result.n,
        "untuned": _shares(share(untuned, questions, resampling)),
        "tuned": _shares(result.nested),
        "gain": _shares(gain),
        "selected": list(result.selected),
        "chosen": result.chosen,
    }


def _shares(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high


def _points(values: tuple[float, float, float]) -> str:
    value, low, high = (100 * each for each in values)
    return f"{value:.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
