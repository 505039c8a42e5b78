"""The scaffold of every run: pending items, the session that an engine works in, and a run joined from others.

Batch runs and answer generation drive an engine over what is pending, in a `RunSession`. Cascades and panels judge
nothing themselves: `write_joined` copies what their runs decided.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psutil

from judgelm.engines.base import Engine
from judgelm.errors import RunError
from judgelm.jsonl import encode_line, read_jsonl
from judgelm.records import Judgment
from judgelm.runs.run_files import RunFiles
from judgelm.runs.serialization import judgment_row
from judgelm.runs.stats import RunStats, SessionStats

_SAVE_EVERY_S = 30.0


Item = TypeVar("Item")


def pending(items: Iterable[Item], is_finished: Callable[[Any], bool], stats: SessionStats) -> Iterator[Item]:
    """The items that are not finished; the others are counted as skipped. A None passes."""
    for item in items:
        if item is not None and is_finished(item):
            stats.skipped += 1
        else:
            yield item


class RunSession:
    """One process's entry in the manifest of a run, from entering the `with` block to leaving it.

    The entry is saved every half minute, so that a killed session leaves its trace.

    Args:
        files: open; whoever opened them closes them after the session.
        stats: counts of the session.
        engine: that the run uses; None for a run joined from others.
    """

    def __init__(self, files: RunFiles, stats: SessionStats, engine: Engine | None = None) -> None:
        self._files = files
        self._stats = stats
        self._engine = engine
        self._began = self._saved = time.monotonic()
        self._entry: dict[str, Any] = {"started": _now(), "outcome": "running", "pid": os.getpid()}

    def __enter__(self) -> Self:
        self._update()
        self._files.start_session(self._entry)
        return self

    def tick(self) -> None:
        """Count time, and save when the last save is long ago."""
        now = time.monotonic()
        self._stats.judge_s = now - self._began
        if now - self._saved > _SAVE_EVERY_S:
            self._saved = now
            self._update()
            self._files.save()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._update()
        self._entry |= {"outcome": _outcome(error), "ended": _now()}
        if error is None:
            self._files.save()
            return
        with suppress(RunError):  # a full disk does not hide the first error
            self._files.save()

    def _update(self) -> None:
        """Enter the counts of the run and of its engine, and the engine's processes, as they are now."""
        self._entry |= self._stats.row()
        if self._engine is not None:
            self._entry |= {"engine": self._engine.stats(), "children": children(str(self._files.out))}


def write_joined(
    files: RunFiles, judgments: Iterable[Judgment], stats: RunStats, entries: Callable[[], Mapping[str, Any]]
) -> None:
    """Write judgments that other runs decided, except those that stand in the file already.

    Args:
        files: of the joined run.
        judgments: all of them, one per sample.
        stats: counts them.
        entries: gives further entries of the manifest, called at the end.
    """
    with RunSession(files, stats):
        written = {hash(row["id"]): _hash_of_content(row) for _, row in read_jsonl(files.out)}
        for judgment in judgments:
            stats.add(judgment)
            content = _hash_of_content(judgment_row(judgment))
            if written.get(hash(judgment.sample_id)) != content:
                files.write(judgment)
                written[hash(judgment.sample_id)] = content
        files.manifest |= entries()


def _hash_of_content(row: Mapping[str, object]) -> int:
    """A hash of a row, whichever session wrote it."""
    return hash(encode_line({**row, "provenance": ""}))


def common_mode(manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The options of the mode that all runs have in common."""
    first, *others = (manifest["fingerprint"].get("mode", {}) for manifest in manifests)
    return {key: value for key, value in first.items() if all(mode.get(key) == value for mode in others)}


def last_provenance(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance of a run's last session; empty without sessions."""
    return next(reversed(manifest["provenance"].values()), {})


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "finished"
    return "interrupted" if isinstance(error, KeyboardInterrupt | GeneratorExit) else type(error).__name__


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


_MARK = "JUDGELM_RUN"
_POLL_S = 0.05
_CLOCK_S = 1.0
"""Maximum error between the start times of two processes: the kernel states the time of the boot in whole seconds."""


def mark_children(out: str) -> None:
    """Mark this process's environment, so that the programs it starts from now on belong to the run of `out`.

    vLLM is told to start its processes as programs, unless the user says otherwise: forks would not show the mark. Its
    setproctitle is told to leave the environment readable, over which it would write the process's title.
    For command lines only, since a script without `if __name__ == "__main__"` cannot start processes in that way.
    """
    os.environ[_MARK] = _own_mark(out)
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
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
