"""Input files of study commands on judged pairs: judgments, and the labels that fit how they were made."""

from collections.abc import Sequence
from pathlib import Path

from judgelm.cli.eval import LabelChoice, ParserName, ScoringOptions
from judgelm.cli.evaluation import load_judgments, load_labels, load_manifest
from judgelm.data.labelled_set import LabelledSet
from judgelm.data.samples import Reading
from judgelm.errors import ConfigError
from judgelm.records import Judgment


def read_judges(
    paths: Sequence[Path], names: Sequence[str], *, parser: ParserName, scale: str
) -> dict[str, dict[str, Judgment]]:
    """Read judgments of several files by the judge's name: as given, else the file's, with its folder's if needed.

    Raises:
        InputError: a file cannot be read.
        ConfigError: not as many names as files, or two alike.
    """
    if names and len(names) != len(paths):
        raise ConfigError(f"--name: {len(names)} given for {len(paths)} files; give one for each, in their order")
    named = list(names) or [path.stem for path in paths]
    if not names and len(set(named)) < len(named):
        named = [f"{path.resolve().parent.name}/{path.stem}" for path in paths]
    if len(set(named)) < len(named):
        raise ConfigError(f"judges named alike ({', '.join(named)}); give each a name with --name")
    return {
        name: load_judgments(path, ScoringOptions(judgments=path, labels=path, parser=parser, scale=scale))
        for name, path in zip(named, paths, strict=True)
    }


def read_run(path: Path) -> dict[str, Judgment]:
    """Read the judgments of a run file, on any scale.

    Raises:
        InputError: the file cannot be read.
    """
    return load_judgments(path, ScoringOptions(judgments=path, labels=path, scale="any"))


def read_fitting_labels(path: Path, judgments: Path, choice: LabelChoice, reading: Reading) -> LabelledSet:
    """Read the labels made as the run was, with or without reference; `auto` asks its manifest.

    Raises:
        InputError: the file cannot be read, or has no label.
    """
    return load_labels(path, choice, load_manifest(judgments), reading)
