"""Locks that an interrupted build of a DeepSpeed extension leaves behind, for which torch would wait for ever.

torch compiles an extension into a folder of its cache and holds the file `lock` open in it meanwhile; a process that
finds one waits until it is gone, without a word. A build that was killed leaves the file. A process of this machine
that builds has the file open; a build on another machine that shares the cache writes into the folder. Where neither
is seen for some minutes, the lock is stale.

Source: `torch/utils/file_baton.py` and `_jit_compile` in `torch/utils/cpp_extension.py`.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from accelerate import PartialState

QUIET_S = 300.0
"""Seconds without a change in the build folder after which a lock that no process here holds is stale."""
_LOOK_AGAIN_S = 1.0


def release_stale_locks(say: Callable[[str], object], *, quiet_s: float = QUIET_S) -> None:
    """Remove the stale locks of this machine's cache; to be called on every process once they are connected.

    The first process of each machine looks and waits where it must, the others wait for it. A lock that a process here
    holds is left: torch waits for that build, which ends.

    Args:
        say: gets a line for each lock that is waited for, and for each that is removed.
        quiet_s: see `QUIET_S`.
    """
    state = PartialState()
    with state.local_main_process_first():
        if state.is_local_main_process:
            for lock in build_root().glob("*/lock"):
                _release(lock, say, quiet_s)


def build_root() -> Path:
    """The folder in which torch builds extensions, each in a folder of its name."""
    from torch.utils.cpp_extension import _get_build_directory  # imports setuptools, slowly

    return Path(_get_build_directory("", verbose=False))


def _release(lock: Path, say: Callable[[str], object], quiet_s: float) -> None:
    waiting = False
    while (idle_s := _idle_s(lock)) is not None and not _held(lock):
        if idle_s >= quiet_s:
            lock.unlink(missing_ok=True)
            say(f"removed {lock}: an interrupted build left it {idle_s / 60:.0f} minutes ago, and no process holds it")
            return
        if not waiting:
            waiting = True
            say(
                f"{lock}: no process of this machine holds this lock, but another machine may; waiting "
                f"{quiet_s - idle_s:.0f} s for a change in its folder; if nothing builds there, remove it by hand"
            )
        time.sleep(_LOOK_AGAIN_S)


def _idle_s(lock: Path) -> float | None:
    """Seconds since anything in the lock's folder changed; None where the lock is gone."""
    if not lock.exists():
        return None
    return time.time() - max(lock.parent.stat().st_mtime, *_changed(lock.parent))


def _changed(folder: Path) -> Iterator[float]:
    for path in folder.iterdir():
        try:
            yield path.stat().st_mtime
        except FileNotFoundError:  # a compiler's temporary file
            continue


def _held(lock: Path) -> bool:
    """Whether a process of this machine has the file open; those of other users cannot be seen."""
    for descriptors in Path("/proc").glob("[0-9]*/fd"):
        try:
            names = os.listdir(descriptors)
        except OSError:
            continue
        for name in names:
            try:
                if os.path.samefile(descriptors / name, lock):
                    return True
            except OSError:
                continue
    return False
