"""What the `judgelm study` commands share: their common options, and how each of them ends."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli.console import console
from judgelm.cli.output import JsonOut, is_stdout, write_json

if TYPE_CHECKING:
    from judgelm.studies.result import StudyResult

OutOption = Annotated[
    Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder to write: page, tables, figures.")
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", metavar="", help="Replace the study that the folder holds.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of the resampling, and of whatever else is drawn.")]
BootstrapOption = Annotated[int, typer.Option("--bootstrap", min=100, help="Resamples behind each interval.")]
JsonOption = JsonOut


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
    from judgelm.reports.study.folder import write_study  # matplotlib takes seconds to load

    paths = write_study(result, out, overwrite=overwrite)
    _say(result)
    _print(f"{len(paths)} files in {out}; the page is {paths[0]}")
    if json is None:
        return
    write_json(json, result.to_json())
    if not is_stdout(json):
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
