"""Placement, number and resources of workers; options are checked before Ray starts."""

from collections.abc import Sequence
from dataclasses import dataclass

from judgelm.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """Placement and number of workers.

    Attributes:
        address: `local` starts Ray on this machine for the length of the run; `auto` is the running cluster that this
            machine belongs to (or RAY_ADDRESS); else `HOST:PORT` of its head.
        workers: number of workers; None takes all GPUs, or one worker on each node where there are none.
        gpus: GPUs of this machine to use, with `local`; None takes all.
        cores: CPU cores, and so threads, of a worker; None takes 1 beside a GPU, else all cores of the nodes.
        placing_timeout_s: maximum wait for room for the first worker, or for another when all are lost.
        per_request_failures: for a server: a request that an engine refuses fails by itself, and the others go on.

    Raises:
        ConfigError: options that do not fit together.
    """

    address: str = "local"
    workers: int | None = None
    gpus: int | None = None
    cores: int | None = None
    placing_timeout_s: float = 300.0
    per_request_failures: bool = False

    def __post_init__(self) -> None:
        """Check the options against each other."""
        for name in ("workers", "gpus", "cores"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be 1 or more")
        if self.gpus is not None and self.address != "local":
            raise ConfigError("gpus are the GPUs of this machine; with a Ray cluster, give workers instead")
        if self.address.startswith("ray://"):
            raise ConfigError(
                f"address {self.address}: Ray Client is not supported; run this on a machine of the cluster with "
                "address auto, or submit it: ray job submit -- judgelm-batch ... --ray auto"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Resources of a machine of the cluster."""

    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """Number of workers, and the resources of each."""

    workers: int
    gpus: int
    cores: int

    def __str__(self) -> str:
        gpus = f"{counted(self.gpus, 'GPU')} and " if self.gpus else ""
        return f"{counted(self.workers, 'worker')} of {gpus}{counted(self.cores, 'core')}"


def make_plan(cluster: RayCluster, nodes: Sequence[Node], gpus: int) -> WorkerPlan:
    """Plan the workers for a cluster as it is now.

    Args:
        cluster: the user's options.
        nodes: the living nodes.
        gpus: GPUs that a worker needs; taken as 0 where no node has one.

    Raises:
        ConfigError: no node has room for one worker, or there is no node.
    """
    if not nodes:
        raise ConfigError("the cluster has no living node; start one with: ray start")
    if gpus and any(node.gpus for node in nodes):
        room = sum(node.gpus // gpus for node in nodes)
        if not room:
            most = max(node.gpus for node in nodes)
            raise ConfigError(f"a worker needs {gpus} GPUs on one node, and the largest has {most}; make it smaller")
        return WorkerPlan(workers=cluster.workers or room, gpus=gpus, cores=cluster.cores or 1)
    workers = cluster.workers or (sum(node.cpus // cluster.cores for node in nodes) if cluster.cores else len(nodes))
    return WorkerPlan(workers=max(1, workers), gpus=0, cores=cluster.cores or _most_cores(nodes, workers))


def _most_cores(nodes: Sequence[Node], workers: int) -> int:
    """The most cores that each of the workers can have; 1 where there are not enough."""
    most = max(node.cpus for node in nodes)
    return next((c for c in range(most, 0, -1) if sum(node.cpus // c for node in nodes) >= workers), 1)


def counted(count: int, name: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
