"""Ray workers that act as a single engine. Each worker runs an engine, and a driver distributes requests."""

import os
from dataclasses import replace

from judgelm.cluster.plan import RayCluster, counted
from judgelm.engines.base import Engine, EngineOptions
from judgelm.engines.catalog import GPU_FACTORS, gpus_each, visible_gpus
from judgelm.engines.dependencies import require
from judgelm.errors import ConfigError


def load_workers(name: str, options: EngineOptions, cluster: RayCluster) -> Engine:
    """Load an engine on several workers."""
    if name == "openai" and options.engine_args.get("max_cost_usd") is not None:
        raise ConfigError("max_cost_usd is not supported with a cluster; remove one of them")
    if options.device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device {options.device}: Ray assigns GPUs to workers; use auto, cpu, or cuda")
    require("ray", extra="ray")
    if cluster.gpus is not None:
        _check_gpus(cluster.gpus, gpus_each(name, options))
    from judgelm.cluster.engine import RayEngine

    options = replace(options, model=_absolute(options.model), adapter=options.adapter and _absolute(options.adapter))
    return RayEngine.load(name, options, cluster)


def _check_gpus(wanted: int, per_worker: int) -> None:
    available = visible_gpus()
    if not available:
        raise ConfigError("--gpus: torch sees no CUDA device on this machine; for CPUs, use --ray local --workers N")
    if wanted > available:
        raise ConfigError(f"--gpus {wanted}: torch sees {counted(available, 'CUDA device')} on this machine")
    if not per_worker or wanted % per_worker:
        needed = f"{counted(per_worker, 'GPU')} ({' x '.join(GPU_FACTORS)})"
        raise ConfigError(
            f"--gpus {wanted}: each worker requires {needed}; use a multiple of that, with an engine that supports GPUs"
        )


def _absolute(model: str) -> str:
    """Make a path absolute, because other machines and processes have different working directories."""
    return os.path.abspath(model) if os.path.exists(model) else model
