"""Plan the number, placement, and resources of workers before Ray starts."""

from collections.abc import Sequence
from dataclasses import dataclass

from judgelm.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """Placement and number of workers.

    Attributes:
        address: `local` starts Ray on this machine for this run, `auto` joins the running cluster or RAY_ADDRESS, and
            `HOST:PORT` joins another cluster.
        workers: None means one per GPU, or one per node if there are no GPUs.
        gpus: number of GPUs to use on this machine with `local`; None means all.
        cores: CPU cores and threads per worker; None means 1 with a GPU, otherwise all cores of the nodes.
        placing_timeout_s: maximum time to wait for resources for the first worker, or for a new worker after all
            workers are lost.
        per_request_failures: whether a rejected request becomes a failed completion, as servers require.
    """

    address: str = "local"
    workers: int | None = None
    gpus: int | None = None
    cores: int | None = None
    placing_timeout_s: float = 300.0
    per_request_failures: bool = False

    def __post_init__(self) -> None:
        for name in ("workers", "gpus", "cores"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1")
        if self.gpus is not None and self.address != "local":
            raise ConfigError("gpus is only supported on this machine; for a Ray cluster, pass workers instead")
        if self.address.startswith("ray://"):
            way_out = "in the cluster, run: ray job submit -- judgelm-batch ... --ray auto"
            raise ConfigError(f"address {self.address}: Ray Client is not supported; {way_out}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Resources of one machine."""

    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """Number and resources of workers."""

    workers: int
    gpus: int
    cores: int

    def __str__(self) -> str:
        gpus = f"{counted(self.gpus, 'GPU')} and " if self.gpus else ""
        return f"{counted(self.workers, 'worker')} of {gpus}{counted(self.cores, 'core')}"


def make_plan(cluster: RayCluster, nodes: Sequence[Node], gpus: int) -> WorkerPlan:
    """Plan the workers for the live nodes. `gpus` is the number per worker, and is ignored if no node has GPUs."""
    if not nodes:
        raise ConfigError("the cluster has no running nodes; start one with: ray start")
    if gpus and any(node.gpus for node in nodes):
        room = sum(node.gpus // gpus for node in nodes)
        if not room:
            most = max(node.gpus for node in nodes)
            raise ConfigError(f"a worker requires {gpus} GPUs on one node, but no node has more than {most}; use fewer")
        return WorkerPlan(workers=cluster.workers or room, gpus=gpus, cores=cluster.cores or 1)
    workers = cluster.workers or (sum(node.cpus // cluster.cores for node in nodes) if cluster.cores else len(nodes))
    return WorkerPlan(workers=max(1, workers), gpus=0, cores=cluster.cores or _most_cores(nodes, workers))


def _most_cores(nodes: Sequence[Node], workers: int) -> int:
    most = max(node.cpus for node in nodes)
    return next((c for c in range(most, 0, -1) if sum(node.cpus // c for node in nodes) >= workers), 1)


def counted(count: int, name: str) -> str:
    """Return text such as `1 GPU` or `2 GPUs`."""
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
