"""JudgeLM's tables in small: the effect of swap augmentation, reference support and reference drop.

    python -m benchmarks.replication --plan full

Pre-trains small bases on the synthetic world's text, fine-tunes a judge for every setting and seed of JudgeLM's Tables
4, 5, 6 and 1, tests each on the same held-out pairs, and writes tables and plots. What is done stays done: run it again
after an interruption and it goes on. `make lab` runs the full plan, `make lab-quick` a small one.
"""

import argparse
import json
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from benchmarks.replication.data import write_test
from benchmarks.replication.measures import Cell, Truth, cell_of, truth_of
from benchmarks.replication.page import claim_figure, claim_lines, scaling_figure, standing_alone, table_lines
from benchmarks.replication.plan import PLANS, PREFERENCE, Plan, Reference, Run, Shown
from benchmarks.replication.runs import Outcome, fine_tune, pretrain, read_pairs, test
from benchmarks.replication.tables import claims_of, tables_of
from judgelm.metrics.resampling import Resampling


def main() -> None:
    """Run what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", choices=PLANS, default="full")
    parser.add_argument("--folder", type=Path, help="where runs are kept (default: runs/lab-PLAN)")
    parser.add_argument("--out", type=Path, help="where the page goes (default: FOLDER/page)")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="runs at once, a core each")
    options = parser.parse_args()
    plan = PLANS[options.plan]
    folder = options.folder or Path(f"runs/lab-{plan.name}")
    begin(plan, folder)
    run_all(plan, folder, options.workers)
    write_page(plan, folder, options.out or folder / "page")


def begin(plan: Plan, folder: Path) -> None:
    """Write the held-out pairs, or see that the folder belongs to this very plan."""
    stated = json.loads(json.dumps(asdict(plan) | {"preference": PREFERENCE}))
    plan_file = folder / "plan.json"
    if plan_file.exists() and json.loads(plan_file.read_text()) != stated:
        sys.exit(f"error: {folder} holds runs of another plan; give another --folder, or remove it")
    write_test(plan.test, folder / "test.jsonl", preference=PREFERENCE)
    write_test(plan.test, folder / "test-impartial.jsonl", preference=0)
    plan_file.write_text(json.dumps(stated, indent=1))


def run_all(plan: Plan, folder: Path, workers: int) -> None:
    """Every base and every run that is not there yet; a run follows its base."""
    todo = [run for run in plan.runs() if not outcome_file(folder, run).exists()]
    bases = [base for base in plan.bases if any(run.base == base.name for run in todo)]
    began, done = time.monotonic(), 0
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=one_core) as pool:
        pending: dict[Future[float], str] = {}
        for base in sorted(bases, key=lambda base: -base.hidden_size):
            pending[pool.submit(make_base, plan, base.name, folder)] = base.name
        while pending:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                name = pending.pop(future)
                seconds = future.result()
                if name in {base.name for base in bases}:
                    pending |= {pool.submit(run_judge, plan, run, folder): run.name for run in todo if run.base == name}
                else:
                    done += 1
                passed = (time.monotonic() - began) / 60
                print(f"{done}/{len(todo)} runs, {passed:.0f} min: {name} took {seconds:.0f} s", flush=True)


def one_core() -> None:
    """Keep a worker to one core: two small models side by side are faster than one after the other on two."""
    import torch

    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def make_base(plan: Plan, name: str, folder: Path) -> float:
    """Pre-train a base unless it is there; seconds."""
    began = time.monotonic()
    base = next(base for base in plan.bases if base.name == name)
    if not (folder / name).exists():
        pretrain(base, plan, folder / name)
    return time.monotonic() - began


def run_judge(plan: Plan, run: Run, folder: Path) -> float:
    """Fine-tune and test one judge; seconds."""
    began = time.monotonic()
    judge = folder / "judges" / run.name
    fine_tune(run, plan, folder / run.base, judge)
    trained = time.monotonic()
    pairs = read_pairs(folder / "test.jsonl")
    outcomes = {shown: test(judge, pairs, shown).to_json() for shown in plan.formats(run)}
    times = {"train_s": round(trained - began, 1), "test_s": round(time.monotonic() - trained, 1)}
    out = outcome_file(folder, run)
    out.parent.mkdir(exist_ok=True)
    partial = out.with_suffix(".partial")
    partial.write_text(json.dumps(outcomes | times))
    partial.replace(out)
    return time.monotonic() - began


def outcome_file(folder: Path, run: Run) -> Path:
    """File of a finished run's outcome."""
    return folder / "outcomes" / f"{run.name}.json"


def write_page(plan: Plan, folder: Path, out: Path) -> None:
    """Tables, plots, and what every judge said of every pair, from which they can be made again."""
    outcomes = {run.name: json.loads(outcome_file(folder, run).read_text()) for run in plan.runs()}
    teacher, impartial = (read_pairs(folder / name) for name in ("test.jsonl", "test-impartial.jsonl"))
    truths: dict[Shown, Truth] = {
        "without": truth_of(teacher, impartial, "without"),
        "with": truth_of(teacher, impartial, "with"),
    }

    @cache
    def cell(base: str, rows: int, swap: bool, reference: Reference, shown: Shown) -> Cell:
        runs = plan.cell(base, rows, swap=swap, reference=reference)
        return cell_of([Outcome.from_json(outcomes[run.name][shown]) for run in runs], truths[shown])

    resampling = Resampling()
    tables, claims = tables_of(plan, cell, resampling), claims_of(plan, cell, resampling)
    questions = len(set(truths["with"].questions))
    hours = sum(outcome["train_s"] + outcome["test_s"] for outcome in outcomes.values()) / 3600
    lines = [
        f"# Replication: plan `{plan.name}`", "",
        f"`python -m benchmarks.replication --plan {plan.name}`: {len(outcomes)} judges, {hours:.1f} hours of one "
        f"core to train and test them, without the bases. {plan.test:,} held-out pairs of {questions:,} questions, in "
        "both orders; agreement, precision, recall and F1 are those of the given order. Percent, with 95 % intervals "
        "of a bootstrap over questions and seeds, crossed; differences are paired by both.", "",
        "## Do the paper's claims hold?", "", *claim_lines(claims), "![differences](claims.svg)", "",
        "## The tables", "", *(line for table in tables for line in table_lines(table)),
        "![Table 4](scaling.svg)", "",
    ]  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    (out / "tables.md").write_text("\n".join(lines), encoding="utf-8")
    (out / "scaling.svg").write_text(standing_alone(scaling_figure(tables[0])), encoding="utf-8")
    (out / "claims.svg").write_text(standing_alone(claim_figure(claims)), encoding="utf-8")
    (out / "outcomes.json").write_text(json.dumps(outcomes, indent=0), encoding="utf-8")
    print(f"tables in {out / 'tables.md'}")
    print("\n".join(claim_lines(claims)))


if __name__ == "__main__":
    main()
