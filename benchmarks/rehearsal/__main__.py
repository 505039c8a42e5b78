"""Rehearsal of what people run on GPUs: vLLM, Ray, FP8, ZeRO-3, FSDP2, QLoRA, GRPO, the server; with random weights.

    make rehearse                                       # on the GPU machine: all steps, into runs/rehearsal
    make rehearse STEPS='judge-vllm sft-zero3' OUT=FOLDER SKIP='eight-zero3 eight-vllm'
    python -m benchmarks.rehearsal --list
    python -m benchmarks.rehearsal all --device cpu --tiny --out FOLDER     # what a CPU can run, tiny

Offline; every model is made here. Each step is a process with a limit of 8 minutes, runs the public commands and checks
their results: `done`, `failed`, `timed out`, `skipped`, `not installed: PACKAGES` or `needs N GPUs`. The same command
again runs what is not done; `--again` all. `rehearsal.json` has all results, `rehearsal.md` the table, `logs/` the
output. Exit code 1 if a step failed or timed out.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.rehearsal.plan import STEPS
from benchmarks.step_runner import (
    FAILED,
    LIMIT_S,
    ROOT,
    TIMED_OUT,
    environment,
    is_done,
    record,
    results,
    run_step,
    step_command,
    table,
)  # fmt: skip

SKIPPED = "skipped"


def main() -> int:
    """Run the steps one after another; 1 if one of them failed or timed out, else 0."""
    options = parsed()
    if options.list:
        print(table(("step", "what", "GPUs"), [(name, step.does, step.gpus) for name, step in STEPS.items()]))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out.resolve() / "rehearsal.json"
    facts = {"device": options.device, "tiny": options.tiny}
    with tempfile.TemporaryDirectory() as packages:
        variables = environment(options.device, options.packages / "packages.tar.xz", Path(packages))
        for step in options.steps:
            wanted = options.again or not is_done(results(file).get(step, {}), facts)
            if wanted and step in options.skip:
                record(file, step, {"state": SKIPPED})
            elif wanted:
                command = step_command("benchmarks.rehearsal.step", step, file, options.device, int(options.tiny))
                run_step(step, file, command, variables, limit_s=options.limit, facts=facts)
            (options.out / "rehearsal.md").write_text(page(results(file)), encoding="utf-8")
    print((options.out / "rehearsal.md").read_text(encoding="utf-8"))
    return exit_code({step: results(file)[step] for step in options.steps})


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.rehearsal", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="*", default=["all"], help="all (the default), or names of steps")
    parser.add_argument("--list", action="store_true", help="print the steps and end")
    parser.add_argument("--skip", nargs="*", default=[], metavar="STEP", help="steps to leave out")
    parser.add_argument("--out", type=Path, default=ROOT / "runs/rehearsal", help="folder of the results; %(default)s")
    parser.add_argument("--packages", type=Path, default=ROOT / ".gpu-packages", help="from make bench-gpu-packages")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a tiny model and few pairs; a CPU needs it")
    parser.add_argument("--again", action="store_true", help="run steps that are done already")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of a step; default %(default)g")
    options = parser.parse_args()
    if options.device == "cpu" and not options.tiny and not options.list:
        parser.error("--device cpu runs a model of 7B for days; add --tiny")
    options.steps = list(STEPS) if options.steps == ["all"] else options.steps
    if unknown := [step for step in [*options.steps, *options.skip] if step not in STEPS]:
        parser.error(f"no such step: {', '.join(unknown)}; available: all, {', '.join(STEPS)}")
    return options


def exit_code(steps: Mapping[str, Mapping[str, Any]]) -> int:
    """1 if a step failed or timed out; steps that this machine cannot run do not count."""
    return int(any(entry["state"] in (FAILED, TIMED_OUT) for entry in steps.values()))


def page(steps: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of all steps in the file, in the order of the plan."""
    parts = ["# Rehearsal\n"]
    if any(entry.get("tiny") for entry in steps.values()):
        parts.append("With a tiny model: no rate says anything about a GPU.\n")
    rows = []
    for name in STEPS:
        if name in steps:
            entry = steps[name]
            figures = {**entry.get("figures", {}), "peak GPU GiB": entry.get("peak_gpu_gib")}
            shown = "; ".join(f"{key} {_short(value)}" for key, value in figures.items() if value is not None)
            machine = ", ".join(dict.fromkeys(entry.get("machine", ())))
            rows.append((name, entry["state"], entry.get("wall_s", ""), shown or entry.get("why", ""), machine))
    parts.append(table(("step", "state", "s", "figures", "machine"), rows))
    parts += [f"## {name}: {entry['state']}\n\n```\n{last_lines(entry['output'])}\n```\n"
              for name, entry in steps.items() if "output" in entry]  # fmt: skip
    return "\n".join(parts)


def last_lines(output: str, count: int = 12) -> str:
    """The end of a step's output."""
    return "\n".join(output.strip().splitlines()[-count:])


def _short(value: object) -> object:
    return f"{value:.4g}" if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
