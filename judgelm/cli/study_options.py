"""What the `judgelm study` commands share: their common options, and how each of them ends."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli.console import console, json_default
from judgelm.errors import RunError

if TYPE_CHECKING:
    from judgelm.studies.result import StudyResult

OutOption = Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder of the tables, figures, page.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace the study that the folder holds.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of the resampling, and of whatever else is drawn.")]
BootstrapOption = Annotated[int, typer.Option("--bootstrap", min=100, help="Resamples behind each interval.")]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Write all numbers as JSON there too; - is standard output.")
]


def finish(result: "StudyResult", out: Path, *, overwrite: bool = False, json: Path | None = None) -> None:
    """Write a study into its folder and say what it found.

    Findings, warnings, counts and paths go to standard error, so that standard output holds nothing but `--json -`.

    Args:
        result: of the study.
        out: its folder.
        overwrite: replace the study that the folder holds.
        json: a file for all numbers, `-` for standard output.

    Raises:
        RunError: the folder holds a study already, or something cannot be written.
    """
    from judgelm.reports.study import write_study  # matplotlib takes seconds to load

    paths = write_study(result, out, overwrite=overwrite)
    _say(result)
    _print(f"{len(paths)} files in {out}; the page is {paths[0]}")
    if json is None:
        return
    text = json_format.dumps(result.to_json(), indent=1, default=json_default)
    if str(json) == "-":
        typer.echo(text)
        return
    try:
        json.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{json}: cannot write: {error.strerror}; choose another place") from error
    _print(f"all numbers in {json}")


def _say(result: "StudyResult") -> None:
    for sentence in result.findings:
        _print(sentence)
    for sentence in result.warnings:
        console.print("[bold yellow]note:[/] ", end="")
        _print(sentence)
    if result.counts:
        _print(", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in result.counts.items()))
    _print(result.protocol)


def _print(text: str) -> None:
    """Plain text: a file name or a judge's may hold what Rich would read as markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
