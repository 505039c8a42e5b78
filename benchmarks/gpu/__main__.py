"""Every figure and check of a GPU, by one command.

    make bench-gpu-packages                      # where there is a network: .gpu-packages/packages.tar.xz
    make bench-gpu                               # on the GPU machine: all steps, into runs/bench-gpu
    python -m benchmarks.gpu judging-7B sft-7B --out FOLDER
    python -m benchmarks.gpu all --device cpu --tiny --out FOLDER    # tiny shapes, to see that all of it runs

The GPU machine needs Python 3.12 and torch, transformers and accelerate; of what else judgelm imports the archive has
what is missing there. No vLLM, no network. Each step is a process of its own with a time limit of 8 minutes and writes
as it goes, so that what was measured before the limit is kept. A step that is in the folder already is not run again
unless `--again` says so. `gpu.json` has all results, `gpu.md` the tables.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.gpu.results import record, results

ROOT = Path(__file__).resolve().parents[2]
STEPS = ("facts", "tier", "precision", *(f"judging-{shape}" for shape in ("1B", "7B", "13B")), "sft-1B", "sft-7B")
LIMIT_S = 480.0
_TAIL = 4000


def main() -> int:
    """Run the steps one after another; 0 if all of them ended well."""
    options = parsed()
    if options.steps == ["packages"]:
        from benchmarks.gpu.packages import pack

        print(pack(options.packages, ROOT / "constraints.txt"))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    steps = STEPS if options.steps == ["all"] else options.steps
    with tempfile.TemporaryDirectory() as scratch:
        environment = prepared(options, Path(scratch) / "packages")
        for step in steps:
            if options.again or results(options.out).get(step, {}).get("state") != "done":
                run(step, options, environment)
    from benchmarks.gpu.report import page

    step_results = results(options.out)
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


def prepared(options: argparse.Namespace, packages: Path) -> dict[str, str]:
    """The environment of the steps, with the missing packages on Python's path."""
    path = [str(ROOT), str(packages)]
    archive = options.packages / "packages.tar.xz"
    if archive.is_file():
        from benchmarks.gpu.packages import unpack

        print(f"unpacked: {', '.join(unpack(archive, packages)) or 'nothing is missing here'}", flush=True)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path + [entry for entry in [os.environ.get("PYTHONPATH")] if entry]),
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    }
    if options.device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment


def run(step: str, options: argparse.Namespace, environment: dict[str, str]) -> None:
    """Run a step within its time, and note how it ended."""
    print(f"== {step}", flush=True)
    began = time.monotonic()
    record(options.out, step, {"state": "begun", "device": options.device, "tiny": options.tiny})
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu.step",
        step,
        str(options.out),
        options.device,
        str(int(options.tiny)),
    ]
    process = subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        encoding="utf-8", errors="replace",
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=options.limit)
        state = "done" if process.returncode == 0 else f"failed with exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # of a session that this function started
        output, _ = process.communicate()
        state = f"stopped at its limit of {options.limit:g} s"
    print(output[-_TAIL:], f"\n-- {step}: {state}, {time.monotonic() - began:.0f} s", flush=True)
    ended = {"state": state, "wall_s": round(time.monotonic() - began, 1)}
    record(options.out, step, ended if state == "done" else ended | {"output": output[-_TAIL:]})


if __name__ == "__main__":
    sys.exit(main())
