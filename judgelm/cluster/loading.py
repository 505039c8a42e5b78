"""The door to the workers: options that cannot hold are refused before Ray starts."""

import os
from dataclasses import replace

from judgelm.cluster.plan import Cluster, counted, gpus_each
from judgelm.engines.base import Engine, EngineOptions, require
from judgelm.errors import ConfigError


def load_workers(name: str, options: EngineOptions, cluster: Cluster) -> Engine:
    """An engine that is many: workers with the engine of that name, loaded.

    Raises:
        MissingExtraError: ray is not installed.
        ConfigError: options that do not fit a cluster or each other.
        ModelError: a worker cannot load the model.
        EngineError: no worker can be had, or two of them do not agree on what they have loaded.
    """
    if name == "openai" and options.engine_args.get("max_cost_usd") is not None:
        raise ConfigError(
            "max_cost_usd caps one client, and every worker is one; leave the cluster out, since one client of a "
            "server has as many requests under way as it takes"
        )
    if options.device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device {options.device}: each worker gets its own GPUs; give auto, cpu or cuda")
    require("ray", extra="ray")
    if cluster.gpus is not None:
        _check_gpus(cluster.gpus, gpus_each(name, options))
    from judgelm.cluster.engine import RayEngine

    options = replace(options, model=_absolute(options.model), adapter=options.adapter and _absolute(options.adapter))
    return RayEngine.load(name, options, cluster)


def _check_gpus(wanted: int, each: int) -> None:
    import torch

    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not there:
        raise ConfigError("--gpus: torch sees no CUDA device on this machine; on CPUs use --ray local --workers N")
    if wanted > there:
        raise ConfigError(f"--gpus {wanted}: torch sees {counted(there, 'CUDA device')} on this machine")
    if not each or wanted % each:
        raise ConfigError(
            f"--gpus {wanted}: a worker takes {counted(each, 'GPU')} (tensor_parallel_size x pipeline_parallel_size), "
            "which leaves some over; give a multiple of it, and an engine that uses GPUs"
        )


def _absolute(model: str) -> str:
    """A path that is there as it must be named to another process; anything else (a hub id) as it is."""
    return os.path.abspath(model) if os.path.exists(model) else model
