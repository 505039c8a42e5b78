"""`judgelm <command>`."""

from typing import Annotated

import typer

from judgelm.cli import data
from judgelm.cli.batch import batch
from judgelm.cli.console import run_app
from judgelm.cli.doctor import doctor
from judgelm.cli.evaluation import eval_command, report_command
from judgelm.cli.modes import modes_command
from judgelm.cli.panel import panel_command
from judgelm.cli.serve import EPILOG, serve
from judgelm.cli.study import study_app
from judgelm.cli.web import EPILOG as WEB_EPILOG
from judgelm.cli.web import web
from judgelm.version import VERSION

app = typer.Typer(
    name="judgelm",
    help="Fine-tune open judge models and run them locally.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("batch", no_args_is_help=True)(batch)
app.command("eval", no_args_is_help=True)(eval_command)
app.command("report", no_args_is_help=True)(report_command)
app.command("doctor")(doctor)
app.command("modes")(modes_command)
app.command("panel", no_args_is_help=True)(panel_command)
app.command("serve", epilog=EPILOG, no_args_is_help=True)(serve)
app.command("web", epilog=WEB_EPILOG, no_args_is_help=True)(web)
app.add_typer(data.app, name="data")
app.add_typer(study_app, name="study")


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"judgelm {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Fine-tune open judge models and run them locally."""


def main() -> None:
    """Entry point of `judgelm`."""
    run_app(app)
