"""Run the steps of a long measurement as processes with time limits, and collect results in one JSON file.

A step updates its entry in the file as it runs, so results are kept if it fails or is stopped. A later run repeats only
unfinished steps. The output of each step is in `logs/` next to the file. Uses only the standard library.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 480.0
BEGUN, DONE, FAILED, TIMED_OUT = "begun", "done", "failed", "timed out"
_TAIL = 4000
_GRACE_S = 3.0
"""Seconds between SIGTERM and SIGKILL, for launchers and Ray to clean up."""


def results(file: Path) -> dict[str, dict[str, Any]]:
    """Return the file's entries by step, or none if there is no file."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def record(file: Path, step: str, entries: Mapping[str, Any]) -> None:
    """Add entries to a step; starting a step removes those of an earlier run."""
    steps = results(file)
    steps[step] = dict(entries) if entries.get("state") == BEGUN else steps.get(step, {}) | entries
    new = file.with_name(file.name + ".new")
    new.write_text(json.dumps(steps, indent=1), encoding="utf-8")
    new.replace(file)


def is_done(entry: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Return whether a step was completed on this kind of device and at this size."""
    return entry.get("state") == DONE and all(entry.get(name) == value for name, value in facts.items())


def environment(device: str, archive: Path, packages: Path) -> dict[str, str]:
    """Return the steps' environment: offline, with archive packages that this Python lacks on its path.

    Args:
        device: `cuda` or `cpu`; the latter hides all GPUs.
        archive: from `benchmarks.gpu.packages`; if it is missing, nothing is unpacked.
        packages: folder to unpack it into.
    """
    if archive.is_file():
        from benchmarks.gpu.packages import unpack

        print(f"unpacked: {', '.join(unpack(archive, packages)) or 'nothing is missing here'}", flush=True)
    path = [str(ROOT), str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    offline = dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"), "1")
    return {
        **os.environ, **offline, "PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", **hidden,
    }  # fmt: skip


def run_step(
    step: str, file: Path, command: Sequence[str], environment: Mapping[str, str], *, limit_s: float = LIMIT_S,
    facts: Mapping[str, Any],
) -> str:  # fmt: skip
    """Run a step's command with a time limit, record how it ended, and return the state.

    A successful command may have recorded another state, such as `not installed`, which is kept.

    Args:
        step: its name in the file.
        file: the file of results.
        command: program and arguments.
        environment: environment variables.
        limit_s: seconds until the command and its child processes are stopped.
        facts: initial entries of its record.
    """
    print(f"== {step}", flush=True)
    began = time.monotonic()
    record(file, step, {"state": BEGUN, **facts})
    log = file.parent / "logs" / f"{step}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(limit_s)
            state = DONE if code == 0 else FAILED
        except subprocess.TimeoutExpired:
            code, state = None, TIMED_OUT
        finally:
            end_group(process)
    if state == DONE and (own := results(file)[step]["state"]) != BEGUN:
        state = own
    tail = log.read_bytes()[-_TAIL:].decode("utf-8", "replace")
    wall_s = round(time.monotonic() - began, 1)
    print(tail, f"\n-- {step}: {state}, {wall_s:.0f} s", flush=True)
    why = {FAILED: f"exit code {code}", TIMED_OUT: f"stopped at its limit of {limit_s:g} s"}.get(state)
    record(file, step, {"state": state, "wall_s": wall_s} | ({"why": why, "output": tail} if why else {}))
    return state


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End the rest of a process's session, and all its current descendants."""
    pids = descendants(process.pid)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for send, pid in ((os.killpg, process.pid), *((os.kill, pid) for pid in pids)):
            with suppress(ProcessLookupError):
                send(pid, number)
        if pids and number == signal.SIGTERM:
            time.sleep(_GRACE_S)
    process.wait()


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process; launchers start workers in separate sessions."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = list(children.get(pid, ()))
    for each in found:
        found += children.get(each, ())
    return found


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def step_command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module with this Python."""
    return [sys.executable, "-m", module, *map(str, arguments)]
