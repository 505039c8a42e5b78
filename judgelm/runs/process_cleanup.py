"""Stop engine processes left behind by a killed run.

A run marks its environment before it starts other programs. The next run with the same output finds marked programs.
"""

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

_MARK = "JUDGELM_RUN"
_POLL_S = 0.05
_CLOCK_S = 1.0
"""Tolerance when comparing the start times of processes, because the kernel rounds the boot time to seconds."""


def mark_children(out: str) -> None:
    """Mark the environment so that programs started from now on belong to the run with output `out`.

    `SPT_NOENV` prevents vLLM's setproctitle from overwriting the environment.
    """
    os.environ[_MARK] = _own_mark(out)
    os.environ.setdefault("SPT_NOENV", "1")


def children(out: str) -> list[int]:
    """Return the IDs of this run's live child processes, including their descendants."""
    own = _own_mark(out)
    return sorted(process.pid for process, mark in _marked() if mark == own)


def end_orphans(out: str, grace_s: float = 5.0) -> list[int]:
    """Send SIGTERM, then SIGKILL after `grace_s`, to processes left by earlier runs of `out`. Return their IDs."""
    run = _run_id(out)
    orphans = [process for process, mark in _marked() if _is_orphan(process.pid, mark, run)]
    _end(orphans, grace_s)
    return sorted(process.pid for process in orphans)


def _end(processes: Sequence[psutil.Process], grace_s: float) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.terminate()
    until = time.monotonic() + grace_s
    while (left := [process for process in processes if _lives(process)]) and time.monotonic() < until:
        time.sleep(_POLL_S)
    for process in left:
        with suppress(psutil.Error):
            process.kill()


def _is_orphan(pid: int, mark: str, run: str) -> bool:
    name, _, parent = mark.partition(":")
    if name != run or not parent.isdigit():
        return False
    try:
        # read both times now, because they must be relative to the same boot time
        started, parent_started = (psutil.Process(process).create_time() for process in (pid, int(parent)))
        return not _lives(psutil.Process(int(parent))) or parent_started > started + _CLOCK_S
    except psutil.NoSuchProcess:
        return True


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _own_mark(out: str) -> str:
    return f"{_run_id(out)}:{os.getpid()}"


def _run_id(out: str) -> str:
    return hashlib.sha256(os.fsencode(Path(out).resolve())).hexdigest()[:12]


def _marked() -> Iterator[tuple[psutil.Process, str]]:
    """Yield other marked processes in this PID namespace, so that other containers are not affected."""
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(_MARK)
            same = Path(f"/proc/{process.pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
        except (psutil.Error, OSError):  # the process has ended or belongs to a different user
            continue
        if mark is not None and same and process.pid != os.getpid():
            yield process, mark
