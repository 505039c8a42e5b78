"""End the engine processes that a killed run left behind.

A run marks its environment before it starts programs. The next run of the same file finds programs with that mark.
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
"""Maximum error between the start times of two processes: the kernel states the time of the boot in whole seconds."""


def mark_children(out: str) -> None:
    """Mark this process's environment, so that the programs it starts from now on belong to the run of `out`.

    vLLM's setproctitle is told to leave the environment readable, over which it would write the process's title.
    """
    os.environ[_MARK] = _own_mark(out)
    os.environ.setdefault("SPT_NOENV", "1")


def children(out: str) -> list[int]:
    """Ids of the living processes that this process has started for the run of `out`, and of their children."""
    own = _own_mark(out)
    return sorted(process.pid for process, mark in _marked() if mark == own)


def end_orphans(out: str, grace_s: float = 5.0) -> list[int]:
    """End the processes that earlier runs of the same file left behind: SIGTERM, and SIGKILL after `grace_s` seconds.

    Returns:
        Ids of the processes ended; empty where there were none.
    """
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
    """True if a process was started for this run by a process that no longer lives."""
    name, _, parent = mark.partition(":")
    if name != run or not parent.isdigit():
        return False
    try:
        # both anew, so that both start times count from the same boot
        started, parent_started = (psutil.Process(process).create_time() for process in (pid, int(parent)))
        return not _lives(psutil.Process(int(parent))) or parent_started > started + _CLOCK_S
    except psutil.NoSuchProcess:
        return True


def _lives(process: psutil.Process) -> bool:
    """True if a process still runs; a zombie does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _own_mark(out: str) -> str:
    return f"{_run_id(out)}:{os.getpid()}"


def _run_id(out: str) -> str:
    """12 hex digits of the run's file, the same for every path to it."""
    return hashlib.sha256(os.fsencode(Path(out).resolve())).hexdigest()[:12]


def _marked() -> Iterator[tuple[psutil.Process, str]]:
    """Other living processes with a mark; only those of this process's pid namespace (no other container's)."""
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(_MARK)
            same = Path(f"/proc/{process.pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
        except (psutil.Error, OSError):  # gone meanwhile, or another user's
            continue
        if mark is not None and same and process.pid != os.getpid():
            yield process, mark
