"""What a killed run leaves behind: engine processes that live on and hold the device's memory.

A run marks its environment, which every program that it starts inherits: the run's file, its own process id, and when
that process began. A marked process whose parent is gone belongs to no run. (A bare fork that starts no program shows
the environment its parent was started with, and so no mark.) Linux only; elsewhere nothing is ever found.
"""

import hashlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_MARK = "JUDGELM_RUN"
_PROCESSES = Path("/proc")
_POLL_S = 0.05


def mark_children(out: str) -> None:
    """Mark this process's environment, so that what it starts from now on is known to belong to the run of `out`.

    vLLM is told to start its processes as programs, unless the user says otherwise: forks would not show the mark.
    For command lines only, since a script without `if __name__ == "__main__"` cannot start processes in that way.
    """
    os.environ[_MARK] = _own_mark(out)
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")


def children(out: str) -> list[int]:
    """Ids of the living processes that this process has started for the run of `out`, and of theirs."""
    own = _own_mark(out)
    return sorted(pid for pid, mark in _marked() if mark == own)


def end_orphans(out: str, grace_s: float = 5.0) -> list[int]:
    """End what earlier runs of the same file left behind: SIGTERM, and SIGKILL after `grace_s` seconds.

    Returns:
        Ids of the processes ended; empty where there were none.
    """
    found = _orphans(out)
    _send(signal.SIGTERM, found)
    until = time.monotonic() + grace_s
    left = found
    while left and time.monotonic() < until:
        time.sleep(_POLL_S)
        left = sorted({*found} & {*_orphans(out)})
    _send(signal.SIGKILL, left)
    return found


def _send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _orphans(out: str) -> list[int]:
    """Marked with the same file, by a process that no longer lives."""
    run = _run_id(out)
    found = []
    for pid, mark in _marked():
        name, _, parent = mark.partition(":")
        process, _, began = parent.partition(":")
        if name == run and began and process.isdigit() and _start_time(int(process)) != began:
            found.append(pid)
    return sorted(found)


def _own_mark(out: str) -> str:
    return f"{_run_id(out)}:{os.getpid()}:{_start_time(os.getpid())}"


def _run_id(out: str) -> str:
    """12 hex digits of the run's file, wherever it was named from."""
    return hashlib.sha256(os.fsencode(Path(out).resolve())).hexdigest()[:12]


def _marked() -> Iterator[tuple[int, str]]:
    """Other living processes with a mark; only those that number processes as this one does (no other container's)."""
    start = f"{_MARK}=".encode()
    for folder in _PROCESSES.glob("[0-9]*"):
        pid = int(folder.name)
        try:
            entries = (folder / "environ").read_bytes().split(b"\0")
            alike = (folder / "ns/pid").readlink() == (_PROCESSES / "self/ns/pid").readlink()
        except OSError:  # gone meanwhile, or another user's
            continue
        mark = next((entry for entry in entries if entry.startswith(start)), None)
        if mark is not None and alike and pid != os.getpid():
            yield pid, mark.removeprefix(start).decode(errors="replace")


def _start_time(pid: int) -> str:
    """When a process began, in clock ticks since the machine did; empty when it lives no more, reaped or not."""
    try:
        stat = (_PROCESSES / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()  # the program's name before it can hold anything
    state, began = fields[0], fields[19]
    return "" if state in "ZX" else began
