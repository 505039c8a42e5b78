"""Judges on six sets of labelled pairs, beside baselines that read nothing.

    python -m benchmarks.human_labels prepare --out DATA ...
    python -m benchmarks.human_labels --data DATA --judge --runs RUNS
    python -m benchmarks.human_labels --data DATA

The first line makes DATA (`prepare --help` names its sources). The second judges every set of DATA with each judge of
`judges.yaml`, and writes the page, its figure and all figures as JSON. The first judge of the file is compared with
each of the others. Runs are run files of `judgelm-batch`: the same command resumes what was interrupted. The verdicts
on a full set are stored in OUT/verdicts, by id and without texts; where they are, the set is not judged again. The
third line writes the page from stored verdicts and baselines, and needs no model. A judge with `rows` judges a fixed
subset of each set, and is compared on it. `--only NAME` judges with one judge of the file; `--limit 300` takes a fixed
subset of each set while a judge is being developed; the full sets are for the end.

Tie thresholds and the shared temperature are fitted on DATA/dev.jsonl, never on rows of a set that a figure is of.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.human_labels.baselines import WinRates
from benchmarks.human_labels.judging import (
    JudgedSet,
    JudgeOptions,
    judge_set,
    read_judges,
    read_verdicts,
    write_verdicts,
)
from benchmarks.human_labels.measures import FITTED_ON, Decided, decided, fit_tie_threshold
from benchmarks.human_labels.page import figure_of, page_of, standing_alone
from benchmarks.human_labels.prepare import WIN_RATES, prepare
from benchmarks.human_labels.results import Entrant, Pooled, SetResult, pooled, result_of
from benchmarks.human_labels.sets import DEV_SET, SETS, HumanSet, Rows, estimated_tokens, read_rows
from judgelm.machine import look_at_devices
from judgelm.metrics.resampling import Resampling

DEV = DEV_SET.name
DEV_ROWS = 400
JUDGES = Path(__file__).with_name("judges.yaml")


def main() -> None:
    """Prepare the data, or judge what is to be judged and write the page."""
    if sys.argv[1:2] == ["prepare"]:
        prepare(sys.argv[2:])
        return
    options = parsed()
    chosen = [each for each in (*SETS, DEV_SET) if each.name in (options.sets or [each.name for each in SETS])]
    rows = {
        human_set.name: read_rows(path, limit=options.limit, seed=options.seed)
        for human_set in chosen
        if (path := options.data / f"{human_set.name}.jsonl").exists()
    }
    missing = [human_set.name for human_set in chosen if human_set.name not in rows]
    if not rows:
        sys.exit(f"error: {options.data} holds none of {', '.join(missing)}; make it with `prepare`")
    if missing:
        print(f"not measured, since {options.data} has no file: {', '.join(missing)}")
    rates_file = options.data / WIN_RATES
    rates = WinRates.from_json(json.loads(rates_file.read_text())) if rates_file.exists() else None
    results, together = measure(options, [human_set for human_set in chosen if human_set.name in rows], rows, rates)
    write(options, results, together)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that `prepare` made")
    parser.add_argument("--judges", type=Path, default=JUDGES, help="YAML list of judges")
    parser.add_argument("--judge", action="store_true", help="judge sets without stored verdicts")
    parser.add_argument("--only", help="name of the one judge of the file that judges")
    parser.add_argument(
        "--sets", type=lambda text: text.split(","), help="some of the sets, by name; `dev`: the development set"
    )
    parser.add_argument("--limit", type=int, help="a fixed subset of so many rows a set")
    parser.add_argument("--seed", type=int, default=0, help="of the subsets, splits and intervals")
    parser.add_argument("--runs", type=Path, default=Path("runs/human-labels"))
    parser.add_argument("--out", type=Path, help="where the page goes (default: RUNS/page)")
    options = parser.parse_args()
    options.out = options.out or options.runs / "page"
    return options


def measure(
    options: argparse.Namespace, sets: list[HumanSet], rows: dict[str, Rows], rates: WinRates | None
) -> tuple[dict[str, SetResult], dict[str, Pooled]]:
    """Judge dev and every set with each judge; all figures, and those of all sets together."""
    resampling = Resampling(seed=options.seed)
    judges = read_judges(options.judges)
    dev_file = options.data / f"{DEV}.jsonl"
    todo = dict(rows)
    if dev_file.exists():
        todo = {DEV: read_rows(dev_file, limit=min(DEV_ROWS, options.limit or DEV_ROWS), seed=options.seed)} | todo
    else:
        print(f"no {dev_file}: verdicts are never ties, and no shared temperature is fitted")
    for name, part in todo.items():
        tokens = estimated_tokens(part.samples)
        print(f"{name}: {len(part.samples):,} pairs, about {tokens:,} prompt tokens in both orders", flush=True)
    judged = {judge.name: run_judge(judge, todo, options) for judge in judges}
    fits = {name: fit_on_dev(by_set.get(DEV)) for name, by_set in judged.items()}
    results = {}
    for human_set in sets:
        entrants = {
            name: Entrant(judged=by_set[human_set.name], tie_threshold=fits[name][0], dev=fits[name][1])
            for name, by_set in judged.items()
            if human_set.name in by_set
        }
        results[human_set.name] = result_of(human_set, rows[human_set.name], rates, entrants, resampling)
    return results, pooled(
        {judge: {name: by_set[name] for name in rows if name in by_set} for judge, by_set in judged.items() if by_set},
        {judge.name: judge.beside for judge in judges},
        resampling,
    )


def run_judge(judge: JudgeOptions, todo: dict[str, Rows], options: argparse.Namespace) -> dict[str, JudgedSet]:
    """One judge on dev and all sets: stored verdicts, else judged now, else not among the results."""
    part = "all" if options.limit is None else f"{options.limit}-{options.seed}"
    folder = options.runs / part
    results = {}
    for name, part_of_set in todo.items():
        rows = part_of_set if name == DEV else part_of_set.subset(judge.rows, options.seed)
        stored = options.out / "verdicts" / judge.name / f"{name}.json"
        if options.limit is None and stored.exists():
            results[name] = read_verdicts(stored, rows, options.seed)
            print(f"{judge.name}, {name}: verdicts of {stored}; delete it to judge the set again", flush=True)
        elif options.judge and options.only in (None, judge.name):
            pairs, run = folder / "pairs" / f"{name}.jsonl", folder / judge.name / f"{name}.jsonl"
            results[name] = judge_set(judge, rows, pairs, run)
            if options.limit is None:
                write_verdicts(stored, results[name])
    return results


def fit_on_dev(judged: JudgedSet | None) -> tuple[float, Decided | None]:
    """Tie threshold from all dev rows, and the first decided ones for a temperature."""
    if judged is None:
        return 0.0, None
    probability, rows = judged.verdicts.probability, judged.rows
    pairs = decided(probability, rows.truth, rows.questions)
    if not pairs.outcome.size:
        return 0.0, None
    return fit_tie_threshold(probability, rows.truth), pairs.part(np.arange(min(FITTED_ON, pairs.outcome.size)))


def write(options: argparse.Namespace, results: dict[str, SetResult], together: dict[str, Pooled]) -> None:
    """The page, the figure, and everything as JSON."""
    options.out.mkdir(parents=True, exist_ok=True)
    devices = look_at_devices()
    heading = {
        "command": "python -m benchmarks.human_labels " + " ".join(sys.argv[1:]),
        "machine": f"{devices.cpu.model}, {os.cpu_count()} cores, {' '.join(devices.cpu.instruction_sets)}",
        "rows": "all rows" if options.limit is None else f"{options.limit} rows a set, seed {options.seed}",
    }
    page = page_of(results, together, heading)
    (options.out / "results.md").write_text(page, encoding="utf-8")
    (options.out / "results.svg").write_text(standing_alone(figure_of(results)), encoding="utf-8")
    record = {**heading, "sets": {name: asdict(result) for name, result in results.items()}}
    record["all sets"] = {name: asdict(figures) for name, figures in together.items()}
    (options.out / "results.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    print("\n" + page)


if __name__ == "__main__":
    main()
