"""Where workers run, how many there are and what each gets."""

from collections.abc import Sequence
from dataclasses import dataclass

from judgelm.engines.base import MODEL_ENGINES, EngineOptions
from judgelm.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where workers run and how many.

    Attributes:
        address: `local` starts Ray on this machine for the length of the run; `auto` is the running cluster that this
            machine belongs to (or RAY_ADDRESS); else `HOST:PORT` of its head.
        workers: how many; None takes all GPUs, or one worker on each node where there are none.
        gpus: how many GPUs of this machine to use, with `local`; None takes all.
        cores: CPU cores, and so threads, of a worker; None takes 1 beside a GPU, else what the nodes have.
        placing_timeout_s: how long to wait for a place for the first worker, or for another when all are lost.

    Raises:
        ConfigError: options that do not fit together.
    """

    address: str = "local"
    workers: int | None = None
    gpus: int | None = None
    cores: int | None = None
    placing_timeout_s: float = 300.0

    def __post_init__(self) -> None:
        """Check the options against each other."""
        for name in ("workers", "gpus", "cores"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be 1 or more")
        if self.gpus is not None and self.address != "local":
            raise ConfigError(
                "gpus counts the GPUs of this machine; with a Ray cluster leave it out and give workers instead"
            )
        if self.address.startswith("ray://"):
            raise ConfigError(
                f"address {self.address}: Ray Client is not supported; run this on a machine of the cluster with "
                "address auto, or submit it: ray job submit -- judgelm-batch ... --ray auto"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What a machine of the cluster has."""

    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many workers, and what each gets."""

    workers: int
    gpus: int
    cores: int

    def __str__(self) -> str:
        gpus = f"{counted(self.gpus, 'GPU')} and " if self.gpus else ""
        return f"{counted(self.workers, 'worker')} of {gpus}{counted(self.cores, 'core')}"


def gpus_each(name: str, options: EngineOptions) -> int:
    """GPUs of one worker, where there are any: vLLM's devices for one copy of the model."""
    if name not in MODEL_ENGINES or options.device == "cpu":
        return 0
    given = options.engine_args
    return int(given.get("tensor_parallel_size", 1)) * int(given.get("pipeline_parallel_size", 1))


def make_plan(cluster: Cluster, nodes: Sequence[Node], gpus: int) -> Plan:
    """Workers for a cluster as it is now.

    Args:
        cluster: what the user wants.
        nodes: what there is.
        gpus: what a worker wants of GPUs; taken as 0 where no node has one.

    Raises:
        ConfigError: no node has room for one worker, or none is there.
    """
    if not nodes:
        raise ConfigError("the cluster has no living node; start one with: ray start")
    if gpus and any(node.gpus for node in nodes):
        room = sum(node.gpus // gpus for node in nodes)
        if not room:
            most = max(node.gpus for node in nodes)
            raise ConfigError(
                f"a worker needs {gpus} GPUs of one node (tensor_parallel_size x pipeline_parallel_size), and the "
                f"largest has {most}; make the group smaller"
            )
        return Plan(workers=cluster.workers or room, gpus=gpus, cores=cluster.cores or 1)
    workers = cluster.workers or (sum(node.cpus // cluster.cores for node in nodes) if cluster.cores else len(nodes))
    return Plan(workers=max(1, workers), gpus=0, cores=cluster.cores or _most_cores(nodes, workers))


def _most_cores(nodes: Sequence[Node], workers: int) -> int:
    """The most cores that so many workers can each have; 1 where there are not enough."""
    most = max(node.cpus for node in nodes)
    return next((c for c in range(most, 0, -1) if sum(node.cpus // c for node in nodes) >= workers), 1)


def counted(count: int, name: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
