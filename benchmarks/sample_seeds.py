"""Sample seed questions with reference answers from the user's files, in a given mix of sources.

    python data_tools/sample_seeds.py --config configs/data/seeds.yaml -o runs/seeds.jsonl

Writes rows with `id, question, reference, category, source, origin`; `origin` is file and line. Questions are distinct
across sources, and the seeds do not depend on the order of files and rows. Unusable rows are listed with file, line,
and reason in OUT.rejects.jsonl. Each file appears only once complete.
"""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.seeds import SeedKind, SeedSample, SeedSource, sample_seeds
from judgelm.cli.console import echo
from judgelm.errors import ConfigError, JudgelmError
from judgelm.jsonl import atomic_write, check_no_input
from judgelm.yaml_files import read_yaml


class SourceConfig(BaseModel):
    """One source; see `benchmarks.seeds.SeedSource`."""

    model_config = ConfigDict(extra="forbid")
    paths: list[str]
    kind: SeedKind | None = None
    categories: list[str] = []


class SeedsConfig(BaseModel):
    """The config file; see `benchmarks.seeds.sample_seeds`."""

    model_config = ConfigDict(extra="forbid")
    sources: dict[str, SourceConfig]
    mix: dict[str, float]
    size: int
    seed: int = 0
    redistribute: bool = False


def main() -> int:
    """Read the options, sample, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=Path, metavar="FILE.yaml")
    parser.add_argument("-o", "--out", required=True, type=Path, metavar="OUT.jsonl")
    options = parser.parse_args()
    try:
        sample = write(read_config(options.config), options.out)
    except JudgelmError as error:
        echo(str(error), err=True)
        return 1
    report(sample)
    return 0


def read_config(path: Path) -> SeedsConfig:
    """Read the config file.

    Raises:
        ConfigError: It cannot be read, or an option is unknown or wrong.
    """
    try:
        return SeedsConfig.model_validate(read_yaml(path))
    except ValidationError as error:
        first = error.errors()[0]
        option = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigError(f"{path}: {option}: {first['msg']}; see configs/data/seeds.yaml") from error


def write(config: SeedsConfig, out: Path) -> SeedSample:
    """Write the chosen seeds and the rejects."""
    rejects = Path(f"{out.with_suffix('') if out.suffix == '.jsonl' else out}.rejects.jsonl")
    sources = {
        name: SeedSource(paths=tuple(source.paths), kind=source.kind, categories=tuple(source.categories))
        for name, source in config.sources.items()
    }
    check_no_input([out, rejects], [path for source in sources.values() for path in source.paths])
    with atomic_write(out) as seeds_file, atomic_write(rejects) as rejects_file:
        sample = sample_seeds(
            sources,
            config.mix,
            config.size,
            config.seed,
            redistribute=config.redistribute,
            on_reject=lambda reject: rejects_file.write(asdict(reject)),
        )
        for seed in sample:
            seeds_file.write(asdict(seed))
    if not rejects.stat().st_size:
        rejects.unlink()
    return sample


def report(sample: SeedSample) -> None:
    """Return a line per source."""
    columns = ("read", "rejected", "other_category", "duplicates", "available", "requested", "taken")
    echo(f"{'source':<16}" + "".join(f"{column:>16}" for column in columns))
    for name, count in sample.counts.items():
        echo(f"{name:<16}" + "".join(f"{asdict(count)[column]:>16}" for column in columns))


if __name__ == "__main__":
    sys.exit(main())
