"""Connect processes, make joint decisions, and remove stale locks from extension builds.

If the build of a torch extension is killed, its `lock` file remains, and other processes wait for it forever (torch
2.x, `torch/utils/file_baton.py`).
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from judgelm.errors import ConfigError, JudgelmError, RunError

LOCK_TIMEOUT_S = 300.0
"""A lock is stale if no local process holds it and its folder has not changed for this long."""
_POLL_S = 1.0


def connect_processes(args: Any, log: Callable[[str], object]) -> None:
    """Check that all started processes train together, and remove stale locks, which are passed to `log`."""
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started != args.world_size:
        count = f"the trainer sees {args.world_size}"
        raise ConfigError(f"{started} processes were started, but {count}; set use_cpu: true")
    if args.deepspeed_plugin is not None:
        remove_stale_locks(log)
    if args.device.type == "cpu" and started > 1 and args.deepspeed_plugin is not None:
        import deepspeed  # slow to import; on a CPU, accelerate 1.x does not pass the processes to DeepSpeed 0.17

        deepspeed.init_distributed(dist_backend="gloo", verbose=False)


def end_processes(trainer: Any, code: int) -> None:
    """Close connections between processes. On the CPU, exit immediately with `code`.

    At shutdown, open connections (torch 2.x), and gloo and DeepSpeed 0.17 threads on the CPU, can call abort().
    """
    if trainer.accelerator.num_processes > 1:
        trainer.accelerator.end_training()
    if trainer.args.device.type == "cpu" and trainer.args.world_size > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def remove_stale_locks(log: Callable[[str], object], *, timeout_s: float = LOCK_TIMEOUT_S) -> None:
    """Remove stale locks from the extension cache of each machine. Call this on every connected process."""
    state = PartialState()
    with state.local_main_process_first():
        if state.is_local_main_process:
            for lock in build_root().glob("*/lock"):
                _remove_if_stale(lock, log, timeout_s)


def build_root() -> Path:
    """Return the folder in which torch builds extensions."""
    from torch.utils.cpp_extension import _get_build_directory  # imports setuptools, which is slow

    return Path(_get_build_directory("", verbose=False))


def _remove_if_stale(lock: Path, log: Callable[[str], object], timeout_s: float) -> None:
    waiting = False
    while (idle_s := _idle_s(lock)) is not None and not _is_open(lock):
        if idle_s >= timeout_s:
            lock.unlink(missing_ok=True)
            log(
                f"removed {lock}: it was left {idle_s / 60:.0f} minutes ago by an interrupted build, and no process "
                "holds it"
            )
            return
        if not waiting:
            waiting = True
            log(
                f"{lock}: no local process holds this lock, but another machine might; waiting "
                f"{timeout_s - idle_s:.0f} s for changes in its folder; delete the lock if no build is running"
            )
        time.sleep(_POLL_S)


def _idle_s(lock: Path) -> float | None:
    if not lock.exists():
        return None
    changed = lock.parent.stat().st_mtime
    for path in lock.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a temporary file of the compiler
            changed = max(changed, path.stat().st_mtime)
    return time.time() - changed


def _is_open(lock: Path) -> bool:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if any(os.path.samefile(file.path, lock) for file in process.open_files()):
                return True
    return False


T = TypeVar("T")


def broadcast_from_rank0(function: Callable[[], T]) -> T:
    """Run the function on the first process, then return its result or raise its error on every process."""
    outcome: list[Any] = [None, None]
    if PartialState().is_main_process:
        try:
            outcome[0] = function()
        except JudgelmError as error:
            outcome[1] = error
    broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    result: T = outcome[0]
    return result


def require_shared_disk(checkpoint: Path) -> None:
    """Raise RunError if any machine cannot see the checkpoint, because that machine would start from the first row."""
    if not all(gather_object([checkpoint.is_dir()])):
        raise RunError(f"{checkpoint}: not found on every machine; set output_dir to a folder that all machines share")
