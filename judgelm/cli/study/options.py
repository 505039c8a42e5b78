"""The options and the ending that all `judgelm study` commands share."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli.console import console
from judgelm.cli.output import JsonOut, is_stdout, write_json

if TYPE_CHECKING:
    from judgelm.metrics.resampling import Resampling
    from judgelm.studies.result import StudyResult


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOutput:
    """The values of the shared options: where a study is written, and how its intervals are drawn.

    Options:
        out: Folder to write: page, tables, figures.
        overwrite: Replace the study that the folder holds.
        seed: Seed of the resampling and of all other random draws.
        bootstrap: Resamples behind each interval.
    """

    out: Annotated[Path, typer.Option(metavar="FOLDER")]
    overwrite: bool = False
    seed: int = 0
    bootstrap: Annotated[int, typer.Option(min=100)] = 2000
    json: JsonOut = None

    @property
    def resampling(self) -> "Resampling":
        """Seed and number of resamples of every interval."""
        from judgelm.metrics.resampling import Resampling  # statsmodels takes seconds to load

        return Resampling(seed=self.seed, resamples=self.bootstrap)

    def write(self, result: "StudyResult") -> None:
        """Write a study into its folder and print its findings.

        Findings, warnings, counts and paths go to standard error: standard output holds nothing but `--json -`.

        Raises:
            RunError: the folder holds a study already, or a file cannot be written.
        """
        from judgelm.reports.study import write_study  # matplotlib takes seconds to load

        paths = write_study(result, self.out, overwrite=self.overwrite)
        for sentence in result.findings:
            print_plain(sentence)
        for sentence in result.warnings:
            console.message(sentence, label="note:", style="bold yellow")
        if result.counts:
            print_plain(", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in result.counts.items()))
        print_plain(result.protocol)
        print_plain(f"{len(paths)} files in {self.out}; the page is {paths[0]}")
        write_json(self.json, result.to_json())
        if self.json is not None and not is_stdout(self.json):
            print_plain(f"all numbers in {self.json}")


def named_run(text: str) -> tuple[str, Path]:
    """`NAME=FILE`, where the name may be left out: it is then the file's."""
    name, equals, path = text.partition("=")
    return (name, Path(path)) if equals and not Path(text).exists() else (Path(text).stem, Path(text))


def print_plain(text: str) -> None:
    """Print text in which Rich reads no markup: a file's or a judge's name may hold brackets."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
