"""Measure available memory."""

from collections.abc import Iterator
from pathlib import Path

import psutil


def available_bytes(root: Path = Path("/")) -> int:
    """Return the memory available without swapping, within the limits of the process's cgroups."""
    return max(0, min([int(psutil.virtual_memory().available), *_left_by_groups(root)]))


def _left_by_groups(root: Path) -> Iterator[int]:
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(mount):  # in a container, the path is often the host's, and only the mount exists
                yield from _left(folder, *names)


def _left(folder: Path, limit: str, used: str, cached: str) -> Iterator[int]:
    try:
        maximum, now = (int((folder / name).read_text(encoding="ascii")) for name in (limit, used))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        yield maximum - now + int(stat.get(cached, 0))
    except (OSError, ValueError):
        return  # no limit ("max"), or no such group
