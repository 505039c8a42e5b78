"""A million pairs through `judgelm-batch --ray`, four workers, while drivers and workers are killed and a disk fills.

    python -m benchmarks.million_pairs --work runs/million [--pairs N] [--model FOLDER]

The judge is the scripted engine, or a model's folder. At fixed shares of the judgments a worker is killed, the driver
is killed, or the disk of the output has no room left; then the same command goes on. At the end each pair must stand
in the output once. The full disk is a file system in memory (root mounts it); without root that fault is left out, and
the output says so.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from benchmarks.batch_memory import index_bytes, write_pairs
from judgelm.prompts.judge_card import find_card

WORKERS = 4
BYTES_A_JUDGMENT = 700
"""More than a judgment takes in the output."""

Fault = Literal["worker killed", "driver killed", "disk full"]
FAULTS: tuple[tuple[float, Fault], ...] = (
    (0.1, "worker killed"), (0.25, "driver killed"), (0.4, "worker killed"), (0.5, "disk full"),
    (0.65, "driver killed"), (0.8, "worker killed"), (0.9, "driver killed"),
)  # fmt: skip
"""Share of the judgments -> what happens there."""


@dataclass(kw_only=True)
class Attempt:
    """One start of the command.

    Attributes:
        began_with: judgments in the output at its start.
        ended_with: at its end.
        seconds: from start to end.
        exit_code: negative where a signal ended it.
        faults: that happened to it.
        driver_mb: peak memory of the driver.
        workers_mb: peak memory of all workers together.
    """

    began_with: int
    ended_with: int = 0
    seconds: float = 0.0
    exit_code: int = 0
    faults: list[str] = field(default_factory=list)
    driver_mb: float = 0.0
    workers_mb: float = 0.0


def main() -> None:
    """Run to the end through all faults, and count what is in the output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    pairs = options.work / "pairs.jsonl"
    write_pairs(pairs, options.pairs)
    with _output_folder(options.work / "output", options.pairs * BYTES_A_JUDGMENT) as (folder, is_limited):
        command = _command(pairs, folder / "judgments.jsonl", options.model)
        attempts = list(_attempts(command, folder, options.pairs, is_limited=is_limited))
        counts = Counter(_ids(folder / "judgments.jsonl"))
    wanted = {f"pair-{pair_index}" for pair_index in range(options.pairs)}
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "model": str(options.model or "scripted"),
        "pairs": options.pairs,
        "lost": len(wanted - counts.keys()),
        "doubled": sum(count > 1 for count in counts.values()),
        "not_asked_for": len(counts.keys() - wanted),
        "disk_was_full": is_limited,
        "lost_workers": (options.work / "log.txt").read_text().count("\nlost a worker"),
        "index_mb": round(index_bytes(options.pairs) / 1e6, 1),
        "attempts": [asdict(attempt) for attempt in attempts],
    }
    print(json.dumps(result, indent=1))
    if result["lost"] or result["doubled"] or result["not_asked_for"]:
        sys.exit(1)


def _command(pairs: Path, out: Path, model: Path | None) -> list[str]:
    judge = ["--engine", "scripted", "--model", "8 6"]
    if model is not None:
        judge = ["--engine", "transformers", "--model", str(model), "--device", "cpu"]
        if find_card(str(model)) is None:
            judge.append("--ignore-card")
    program = str(Path(sys.executable).parent / "judgelm-batch")
    workers = ["--ray", "local", "--workers", str(WORKERS), "--worker-cores", "1"]
    return [program, str(pairs), "-o", str(out), *judge, *workers, "--max-failure-rate", "1", "--quiet"]


def _attempts(command: list[str], folder: Path, pairs: int, *, is_limited: bool) -> Iterator[Attempt]:
    """Start the command again and again, until all is judged."""
    faults = [(round(share * pairs), kind) for share, kind in FAULTS if is_limited or kind != "disk full"]
    while True:
        attempt = _attempt(command, folder, faults)
        yield attempt
        if attempt.exit_code == 0:
            return
        if not attempt.faults:
            raise SystemExit(f"ended with {attempt.exit_code} by itself; its output is in {folder.parent / 'log.txt'}")


def _attempt(command: list[str], folder: Path, faults: list[tuple[int, Fault]]) -> Attempt:
    """Run once, and let the faults happen that are due; they are taken off the list."""
    out, filler = folder / "judgments.jsonl", folder / "filler"
    attempt, began = Attempt(began_with=_lines(out)), time.monotonic()
    count, position = attempt.began_with, out.stat().st_size if out.exists() else 0
    with (folder.parent / "log.txt").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        driver = psutil.Process(process.pid)
        while process.poll() is None:
            time.sleep(0.5)
            workers = _workers()
            attempt.driver_mb = max(attempt.driver_mb, _megabytes([driver]))
            attempt.workers_mb = max(attempt.workers_mb, _megabytes(workers))
            count, position = _count_on(out, count, position)
            if faults and count >= faults[0][0] and (workers or faults[0][1] != "worker killed"):
                _, kind = faults.pop(0)
                attempt.faults.append(kind)
                _happen(kind, process, workers, filler)
    filler.unlink(missing_ok=True)
    attempt.ended_with, attempt.seconds = _lines(out), round(time.monotonic() - began, 1)
    attempt.exit_code = process.returncode
    return attempt


def _happen(kind: Fault, process: "subprocess.Popen[bytes]", workers: list[psutil.Process], filler: Path) -> None:
    if kind == "driver killed":
        process.send_signal(signal.SIGKILL)
    elif kind == "worker killed":
        workers[0].kill()
    else:
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))


def _workers() -> list[psutil.Process]:
    """Processes of Ray that hold an engine."""
    return [process for process in psutil.process_iter(["cmdline"]) if _is_worker(process.info["cmdline"])]


def _is_worker(command: list[str] | None) -> bool:
    return bool(command) and command[0].startswith("ray::Worker")


def _megabytes(processes: list[psutil.Process]) -> float:
    total = 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.Error:  # ended meanwhile
            continue
    return round(total / 1e6, 1)


def _count_on(path: Path, count: int, position: int) -> tuple[int, int]:
    """Lines of a growing file, and up to which byte they were counted."""
    if not path.exists():
        return count, position
    with path.open("rb") as file:
        file.seek(position)
        while block := file.read(1 << 24):
            count, position = count + block.count(b"\n"), position + len(block)
    return count, position


def _lines(path: Path) -> int:
    return _count_on(path, 0, 0)[0]


def _ids(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        for line in file:
            yield json.loads(line)["id"]


@contextmanager
def _output_folder(folder: Path, size: int) -> Iterator[tuple[Path, bool]]:
    """A folder on a disk of its own with so many bytes, and whether it has one."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "judgelm-million", str(folder)]
    is_limited = os.geteuid() == 0 and subprocess.run(mount, check=False).returncode == 0
    try:
        yield folder, is_limited
    finally:
        if is_limited:
            subprocess.run(["umount", str(folder)], check=True)


if __name__ == "__main__":
    main()
