"""The processes of a run: connections and shared decisions."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from judgelm.errors import ConfigError, JudgelmError, RunError


def connect_processes(args: Any, log: Callable[[str], object]) -> None:
    """Check that all started processes train together, and connect them.

    `log` gets a line for each lock of a torch extension: DeepSpeed waits for it even if its build was killed.
    """
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started != args.world_size:
        raise ConfigError(
            f"{started} processes were started, but the trainer sees {args.world_size}; set use_cpu: true"
        )
    if args.deepspeed_plugin is not None and PartialState().is_local_main_process:
        from torch.utils.cpp_extension import _get_build_directory  # imports setuptools, slowly

        for lock in Path(_get_build_directory("", verbose=False)).glob("*/lock"):
            log(f"waits for the build that holds {lock}; if no process builds there, delete the file")
    if args.device.type == "cpu" and started > 1 and args.deepspeed_plugin is not None:
        import deepspeed  # takes seconds; on a CPU, accelerate 1.x does not tell DeepSpeed 0.17 about the processes

        deepspeed.init_distributed(dist_backend="gloo", verbose=False)


def end_processes(trainer: Any, code: int) -> None:
    """Close the connections of several processes; on the CPU, exit immediately with `code`.

    Open connections (torch 2.x), and on the CPU threads of gloo and DeepSpeed 0.17, can end in abort() at shutdown.
    """
    if trainer.accelerator.num_processes > 1:
        trainer.accelerator.end_training()
    if trainer.args.device.type == "cpu" and trainer.args.world_size > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


T = TypeVar("T")


def broadcast_from_rank0(function: Callable[[], T]) -> T:
    """Call a function on the first process; return its result, or raise its error, on every process."""
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
    """Refuse to resume from a checkpoint that some machines cannot see; they would start from the first row."""
    if not all(gather_object([checkpoint.is_dir()])):
        raise RunError(f"{checkpoint}: not found on every machine; put output_dir on a disk that all machines share")
