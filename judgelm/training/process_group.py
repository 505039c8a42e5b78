"""TODO."""

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
"""Seconds without a change in the build folder after which a lock that no local process holds is stale."""


_POLL_S = 1.0


def connect_processes(args: Any, log: Callable[[str], object]) -> None:
    """Make sure that all started processes train together; call it before the base model is loaded.

    On the CPU accelerate 1.x connects the processes without telling DeepSpeed 0.17, which asks for their number while
    it splits the base model. Before DeepSpeed builds or loads its extensions, stale locks are removed, on any device.

    Args:
        args: the trainer's arguments.
        log: receives a line for each lock that is waited for or removed.

    Raises:
        ConfigError: a launcher started several processes, and each would train a judge of its own, since the trainer
            was not told to run on the CPU.
    """
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started != args.world_size:
        raise ConfigError(
            f"{started} processes were started, but the trainer sees {args.world_size}; on the CPU set use_cpu: true "
            "in the training config too (or --use_cpu true), since accelerate's own use_cpu does not reach it"
        )
    if args.deepspeed_plugin is not None:
        remove_stale_locks(log)
    if args.device.type == "cpu" and started > 1 and args.deepspeed_plugin is not None:
        import deepspeed  # takes seconds to import

        deepspeed.init_distributed(dist_backend="gloo", verbose=False)


def end_processes(trainer: Any, code: int) -> None:
    """Close the connections of several processes; on the CPU exit at once, after everything is written.

    With open connections a process sometimes ends in abort() (torch 2.x), and so does one on the CPU during Python's
    shutdown, in threads of gloo and DeepSpeed 0.17; the launcher then reports a failed training.

    Args:
        trainer: trained.
        code: the exit code.
    """
    if trainer.accelerator.num_processes > 1:
        trainer.accelerator.end_training()
    if trainer.args.device.type == "cpu" and trainer.args.world_size > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def remove_stale_locks(log: Callable[[str], object], *, timeout_s: float = LOCK_TIMEOUT_S) -> None:
    """Remove the stale locks of this machine's extension cache; call it on every process once they are connected.

    The first process of each machine does the work, and the others wait for it. A lock that a local process holds
    stays: torch waits for that build, which ends.

    Args:
        log: receives a line for each lock that is waited for, and for each that is removed.
        timeout_s: see `LOCK_TIMEOUT_S`.
    """
    state = PartialState()
    with state.local_main_process_first():
        if state.is_local_main_process:
            for lock in build_root().glob("*/lock"):
                _remove_if_stale(lock, log, timeout_s)


def build_root() -> Path:
    """The folder in which torch builds extensions, each in a folder of its name."""
    from torch.utils.cpp_extension import _get_build_directory  # imports setuptools, slowly

    return Path(_get_build_directory("", verbose=False))


def _remove_if_stale(lock: Path, log: Callable[[str], object], timeout_s: float) -> None:
    waiting = False
    while (idle_s := _idle_s(lock)) is not None and not _is_open(lock):
        if idle_s >= timeout_s:
            lock.unlink(missing_ok=True)
            log(f"removed {lock}: an interrupted build left it {idle_s / 60:.0f} minutes ago, and no process holds it")
            return
        if not waiting:
            waiting = True
            log(
                f"{lock}: no process of this machine holds this lock, but another machine may; waiting "
                f"{timeout_s - idle_s:.0f} s for a change in its folder; if nothing builds there, remove it by hand"
            )
        time.sleep(_POLL_S)


def _idle_s(lock: Path) -> float | None:
    """Seconds since anything in the lock's folder changed; None where the lock is gone."""
    if not lock.exists():
        return None
    changed = lock.parent.stat().st_mtime
    for path in lock.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a compiler's temporary file
            changed = max(changed, path.stat().st_mtime)
    return time.time() - changed


def _is_open(lock: Path) -> bool:
    """True if a process of this machine has the file open; processes of other users cannot be seen."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if any(os.path.samefile(file.path, lock) for file in process.open_files()):
                return True
    return False


T = TypeVar("T")


def broadcast_from_rank0(function: Callable[[], T]) -> T:
    """Call a function on the first process, and return its result or raise its error on every process.

    A single process that raised would leave the others waiting for it.

    Raises:
        JudgelmError: `function` raised it.
    """
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
    """Refuse to resume from a checkpoint that only the first machine sees; call it on every process.

    The other machines would silently begin at the first row.

    Raises:
        RunError: on every process, if one of them does not find the checkpoint.
    """
    if not all(gather_object([checkpoint.is_dir()])):
        raise RunError(
            f"{checkpoint}: not found on every machine, so they cannot resume from it together; put output_dir on a "
            "disk that all of them share"
        )
