"""Output shared by the doctor's checks."""

from pathlib import Path

from rich import box
from rich.table import Table

from judgelm.cli.console import PlainConsole, is_stdout


def console_for(json_out: Path | None, *, quiet: bool) -> PlainConsole:
    """Console for findings: standard output, unless `--json -` has it; nowhere with `--quiet`."""
    return PlainConsole(stderr=is_stdout(json_out), quiet=quiet)


def facts_table(title: str) -> Table:
    """An empty table of names and what is found."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table
