"""`judgelm data build`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from judgelm.cli.console import EXIT_FAILURES, console
from judgelm.cli.output import JsonOut, Quiet, write_json
from judgelm.errors import ConfigError
from judgelm.yaml_files import parse_yaml, read_yaml


def build_command(
    config: Path,
    changes: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Clean, split and augment labelled pairs into training and validation sets, with a report.

    Options:
        config: YAML file of the build; see configs/data/.
        changes: Options that override the file's.

    Examples:
        judgelm data build --config configs/data/build.yaml
        judgelm data build --config configs/data/build.yaml seed=1 out=data/seed1

    Exit codes: 0 done, 1 usage or input error, 2 too many rows unreadable (max_reject_rate).
    """
    from judgelm.data.builder.options import build_options  # numpy and scipy take a second to load

    options = build_options(_values(config, changes or []), str(config))
    from judgelm.reports.data_set import build_data_set

    if quiet:
        built = build_data_set(options)
    else:
        with console.activity("reading") as show:
            built = build_data_set(options, progress=lambda stage, pairs: show(f"{stage}: {pairs:,} pairs"))
        console.print(_summary(built, options.out))
    if json_out is not None:
        write_json(json_out, json.loads((Path(options.out) / "build.json").read_text(encoding="utf-8")))
    rejected, read = sum(built.counts.rejected.values()), sum(built.counts.read.values())
    if rejected > options.max_reject_rate * read:
        finding = f"{rejected:,} of {read:,} rows ({rejected / read:.1%}) could not be read"
        console.print(f"{finding} (limit max_reject_rate={options.max_reject_rate}); see the rejects in {options.out}")
        raise typer.Exit(EXIT_FAILURES)


def _values(config: Path, changes: list[str]) -> dict[str, Any]:
    """The file's options, overridden by those of the command line.

    Raises:
        ConfigError: the file cannot be read, or an argument is not `key=value`.
    """
    values = read_yaml(config) or {}
    if not isinstance(values, dict):
        raise ConfigError(f"{config}: expected a mapping of options, got {type(values).__name__}")
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise ConfigError(f"{change}: expected key=value, such as seed=1")
        try:
            values[name] = parse_yaml(value)
        except ConfigError as error:
            raise ConfigError(f"{change}: the value is not YAML: {error}") from error
    return values


def _summary(built: Any, out: str) -> Table:
    table = Table(title=f"data set in {out}", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    counts = built.counts
    table.add_row("rows read", f"{sum(counts.read.values()):,}")
    for outcome in ("rejected", "dropped", "repaired"):
        for (source, finding), rows in sorted(getattr(counts, outcome).items()):
            table.add_row(f"  {outcome}, {source}: {finding}", f"{rows:,}")
    table.add_row("clean pairs", f"{counts.before.pairs:,}")
    for name, title in (("swapped", ""), ("ambiguous", "ambiguous reason: "), ("references", "reference: ")):
        for finding, pairs in sorted(getattr(counts, name).items()):
            table.add_row(f"  {title}{finding}", f"{pairs:,}")
    for name, rows in built.files.items():
        table.add_row(name, f"{rows:,}")
    for row in built.baselines:
        rules = (("first", row.first), ("longer", row.longer), ("model's win rate", row.model))
        words = ", ".join(f"{name} {share:.1%}" for name, share in rules if share is not None)
        table.add_row(f"  {row.set} {row.stage} balancing: {words}", f"{row.decided:,}")
    for size in built.subsets.too_large:
        table.add_row(f"no subset of {size:,}", "too few pairs")
    return table
