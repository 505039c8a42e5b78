"""What the doctor's checks share: how they show facts and where they write."""

from pathlib import Path

import typer
from rich import box
from rich.table import Table

from judgelm.errors import RunError


def facts_table(title: str) -> Table:
    """An empty table of names and what is found."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def escaped(text: str) -> str:
    """A text that Rich shows as it is."""
    return text.replace("[", r"\[")


def write_text(path: Path, text: str) -> None:
    """To a file, or to standard output as `-`.

    Raises:
        RunError: it cannot be written.
    """
    if str(path) == "-":
        typer.echo(text)
        return
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror}; choose another place") from error
