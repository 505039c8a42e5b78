"""Every figure and check of a GPU, by one command.

    make bench-gpu-packages                      # where there is a network: .gpu-packages/packages.tar.xz
    make bench-gpu                               # on the GPU machine: all steps, into runs/bench-gpu
    python -m benchmarks.gpu judging-7B sft-7B --out FOLDER
    python -m benchmarks.gpu all --device cpu --tiny --out FOLDER    # tiny shapes, to see that all of it runs

The GPU machine needs Python 3.12 and torch, transformers and accelerate; of what else judgelm imports the archive has
what is missing there. No vLLM, no network. Each step is a process of its own with a time limit of 8 minutes and writes
as it goes, so that what was measured before the limit is kept. A step that was done on this device and at this size is
not run again unless `--again` says so. `gpu.json` has all results, `gpu.md` the tables.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.step_runner import LIMIT_S, ROOT, environment, is_done, results, run_step, step_command

STEPS = ("facts", "tier", "precision", *(f"judging-{shape}" for shape in ("1B", "7B", "13B")), "sft-1B", "sft-7B")


def main() -> int:
    """Run the steps one after another; 0 if all of them ended well."""
    options = parsed()
    if options.steps == ["packages"]:
        from benchmarks.gpu.packages import pack

        print(pack(options.packages, ROOT / "constraints.txt"))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out.resolve() / "gpu.json"
    steps = STEPS if options.steps == ["all"] else options.steps
    facts = {"device": options.device, "tiny": options.tiny}
    with tempfile.TemporaryDirectory() as scratch:
        variables = environment(options.device, options.packages / "packages.tar.xz", Path(scratch) / "packages")
        for step in steps:
            if options.again or not is_done(results(file).get(step, {}), facts):
                command = step_command("benchmarks.gpu.step", step, file, options.device, int(options.tiny))
                run_step(step, file, command, variables, limit_s=options.limit, facts=facts)
    from benchmarks.gpu.report import page

    step_results = results(file)
    (options.out / "gpu.md").write_text(page(step_results), encoding="utf-8")
    print((options.out / "gpu.md").read_text(encoding="utf-8"))
    return int(any(step_results.get(step, {}).get("state") != "done" for step in steps))


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="+", help=f"all, or some of: {', '.join(STEPS)}; packages: make the archive")
    default = os.environ.get("OUT") or ROOT / "runs/bench-gpu"
    parser.add_argument(
        "--out", type=Path, default=Path(default), help="folder of the results; default: $OUT, %(default)s"
    )
    parser.add_argument("--packages", type=Path, default=ROOT / ".gpu-packages", help="folder of the archive")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes and few repetitions")
    parser.add_argument("--again", action="store_true", help="run steps that are in the folder already")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of a step; default %(default)g")
    options = parser.parse_args()
    unknown = [step for step in options.steps if step not in STEPS]
    if unknown and options.steps not in (["all"], ["packages"]):
        parser.error(f"no such step: {', '.join(unknown)}; there are: all, packages, {', '.join(STEPS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
