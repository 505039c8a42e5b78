"""Public data sets by name: a YAML card each in `cards/`, with a source for every fact, and the lockfile of revisions.

The lockfile records the revision that was downloaded first, and the sha256 of each of its files. It is kept in the
working directory and is meant to be committed: data folders are deleted and made again, and the next download must be
the same one. A revision is always one that the hub answered.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

import yaml
from pydantic import ConfigDict, TypeAdapter

from judgelm.data.dataset_files import write_text
from judgelm.errors import ConfigError, not_found
from judgelm.yaml_files import read_yaml

_FOLDER = Path(__file__).parent / "cards"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCard:
    """The files of one split; exactly one of `hub` and `files` is given.

    Attributes:
        hub: the split's name in the hub's own metadata, from which `datasets` finds the files.
        files: paths in the repository, where that metadata does not name the split.
        rows: as published; None where no source states it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    hub: str | None = None
    files: tuple[str, ...] = ()
    rows: int | None = None

    def __post_init__(self) -> None:
        if (self.hub is None) == (not self.files):
            raise ValueError("a split names either hub or files")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetCard:
    """A public data set that judgelm knows by name.

    Attributes:
        name: what `judgelm data get` takes.
        summary: in a line.
        repo: id of the data set on the hub.
        config: its configuration there, where there are several.
        licence: SPDX identifier as the source states it, or `not stated`.
        terms: what a user must know beside the licence.
        gated: whether the hub asks users to accept conditions before the download.
        purpose: `training`, or `evaluation` of judges, whose rows no judge should be trained on.
        reader: name of the published schema; see `judgelm.data.sources.preferences`.
        splits: by the name that users select, which is also the name of the file that is written.
        verified: whether the schema was seen in files that came from the hub itself.
        sources: fact (`licence`, `files`, `schema`, ...) -> where it was read.
        notes: further facts, such as which rows are rejected by design.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    summary: str
    repo: str
    licence: str
    terms: str
    reader: str
    splits: Mapping[str, SplitCard]
    sources: Mapping[str, str]
    verified: bool
    purpose: Literal["training", "evaluation"] = "training"
    gated: bool = False
    config: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int | None:
        """The published rows of all splits; None where one is not stated."""
        counts = [split.rows for split in self.splits.values()]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def page(self) -> str:
        """The data set's page on the public hub."""
        return f"https://huggingface.co/datasets/{self.repo}"

    def selected(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The splits to read: those named, else all.

        Raises:
            ConfigError: the data set has no split of a name.
        """
        for name in names:
            if name not in self.splits:
                raise not_found(f"{self.name}: split", name, self.splits)
        return tuple(name for name in self.splits if name in names or not names)


_CARD = TypeAdapter(DatasetCard)


def dataset_names() -> list[str]:
    """The names of all cards, without reading them."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def dataset_card(name: str) -> DatasetCard:
    """The card of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in dataset_names():
        raise not_found("data set", name, dataset_names())
    return read_card(_FOLDER / f"{name}.yaml")


def read_card(path: Path) -> DatasetCard:
    """The card in a file.

    Raises:
        ConfigError: the file cannot be read, or a field is missing, unknown or of another type.
    """
    try:
        return _CARD.validate_python(read_yaml(path))
    except ValueError as error:  # pydantic's
        raise ConfigError(f"{path}: no card of a data set: {error}") from error


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
