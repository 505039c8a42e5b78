"""The lockfile of public data sets: which revision was downloaded first, and the sha256 of each of its files.

It stands in the working directory, beside the project's configuration, and is meant to be committed: data folders are
deleted and made again, and the next download must be the same one. A revision is only ever what the hub answered.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import yaml
from pydantic import ConfigDict, TypeAdapter

from judgelm.data.dataset_files import write_text
from judgelm.errors import ConfigError
from judgelm.yaml_files import read_yaml

LOCKFILE = "judgelm-data.lock.yaml"

_HEADER = "# Revisions of public data that `judgelm data get` downloaded. Commit this file; --update changes it.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedDataset:
    """A data set as it was first downloaded.

    Attributes:
        repo: id on the hub.
        revision: commit sha that the hub answered with.
        splits: split -> path of each of its files in the repository -> sha256 of the bytes.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    repo: str
    revision: str
    splits: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


_LOCK = TypeAdapter(dict[str, LockedDataset])


def read_lock(path: Path) -> dict[str, LockedDataset]:
    """All locked data sets by name; none where there is no file yet.

    Raises:
        ConfigError: the file cannot be read, or is no lockfile.
    """
    if not path.exists():
        return {}
    try:
        return _LOCK.validate_python(read_yaml(path) or {})
    except ValueError as error:  # pydantic's
        raise ConfigError(f"{path}: no lockfile of data sets: {error}; restore it, or delete it") from error


def lock_dataset(path: Path, name: str, locked: LockedDataset) -> None:
    """Write a data set's lock and leave the others; splits that were locked before stay where the revision does.

    Raises:
        ConfigError: the file that is there is no lockfile.
        RunError: the file cannot be written.
    """
    locks = read_lock(path)
    before = locks.get(name)
    if before is not None and before.revision == locked.revision:
        locked = replace(locked, splits={**before.splits, **locked.splits})
    locks[name] = locked
    content = yaml.safe_dump({key: asdict(locks[key]) for key in sorted(locks)}, sort_keys=False)
    write_text(path, _HEADER + content)
