"""Several processes that train together, where accelerate, DeepSpeed and torch need to be told of each other."""

import os
import sys
from collections.abc import Callable
from typing import Any

from judgelm.errors import ConfigError
from judgelm.training.extension_locks import release_stale_locks


def join_processes(args: Any, say: Callable[[str], object]) -> None:
    """See to it that all processes train together; to be called before the base model is loaded.

    On the CPU it is accelerate that connects the processes, and DeepSpeed, asked how many there are while it splits the
    base model, knows of none: it has to be told that there is a connection already. Before DeepSpeed builds or loads
    its extensions, the locks of interrupted builds are removed, on the CPU and on GPUs.

    Args:
        args: the trainer's arguments.
        say: gets a line for each lock that is waited for or removed.

    Raises:
        ConfigError: a launcher started several processes, of which each would train a judge of its own, since nothing
            told the trainer that it runs on the CPU.
    """
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started != args.world_size:
        raise ConfigError(
            f"{started} processes were started, but the trainer sees {args.world_size}; on the CPU set use_cpu: true "
            "in the training config too (or --use_cpu true), since accelerate's own use_cpu does not reach it"
        )
    if args.deepspeed_plugin is not None:
        release_stale_locks(say)
    if args.device.type == "cpu" and started > 1 and args.deepspeed_plugin is not None:
        import deepspeed  # takes seconds, for those few only who need it here

        deepspeed.init_distributed(dist_backend="gloo", verbose=False)


def end_process(args: Any, code: int) -> None:
    """End a process of several on the CPU at once, after all is written; nothing for any other.

    While Python shuts down, threads of gloo and DeepSpeed now and then abort a process that has finished ("terminate
    called without an active exception"), and the launcher then reports a failed training.

    Args:
        args: the trainer's arguments.
        code: the exit code.
    """
    if args.device.type == "cpu" and args.world_size > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
