"""`judgelm <command>`."""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from judgelm.cli.console import run_app
from judgelm.cli.options import Command
from judgelm.version import VERSION

_EPILOG = """
Examples:

  judgelm doctor

  judgelm-batch pairs.jsonl -o judgments.jsonl --model my-judge --both-orders

  judgelm eval judgments.jsonl --labels labelled.jsonl

  judgelm serve my-judge --name gpt-4

`judgelm COMMAND --help` has examples of each. Exit codes of all: 0 done, 1 usage or input error, or something to \
mend, 2 more failures than --max-failure-rate, 130 interrupted.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyCommand:
    """A command that is imported when it is called, so that help and completion come at once.

    Attributes:
        module: where the command is.
        name: of the function, or of the Typer app of further commands, in that module.
        help: the command's first sentence, for the list of commands; a test compares it with the command's own.
        epilog: name of the text in that module that ends a function's help.
        no_args_is_help: True where the command without arguments shows its help.
    """

    module: str
    name: str
    help: str
    epilog: str = "EPILOG"
    no_args_is_help: bool = True

    def load(self, name: str) -> Any:
        """Import the command and make it a command of that name."""
        module = importlib.import_module(self.module)
        target = getattr(module, self.name)
        if isinstance(target, typer.Typer):
            group = typer.main.get_group(target)
            group.name = name
            return group
        command = typer.Typer(add_completion=False)
        epilog = getattr(module, self.epilog, None)
        command.command(name, cls=Command, epilog=epilog, no_args_is_help=self.no_args_is_help)(target)
        return typer.main.get_command(command)


COMMANDS: Mapping[str, LazyCommand] = {
    "batch": LazyCommand(
        module="judgelm.cli.batch.command",
        name="batch",
        help="Judge answers with a local judge model: pairs, or as --mode says.",
    ),
    "eval": LazyCommand(
        module="judgelm.cli.eval",
        name="eval_command",
        help="Compare judgments with labels: agreement, position bias, failures, groups, people; 95 % intervals.",
    ),
    "report": LazyCommand(
        module="judgelm.cli.eval",
        name="report_command",
        epilog="REPORT_EPILOG",
        help="Write one self-contained HTML file with the metrics, figures, and every disagreement, flip and failure.",
    ),
    "doctor": LazyCommand(
        module="judgelm.cli.doctor.command",
        name="doctor",
        help="Look at packages, devices and speed, and say what to mend.",
        no_args_is_help=False,
    ),
    "modes": LazyCommand(
        module="judgelm.cli.modes",
        name="modes_command",
        help="List the ways of judging, or what one of them does and its options.",
        no_args_is_help=False,
    ),
    "panel": LazyCommand(
        module="judgelm.cli.panel",
        name="panel_command",
        help="Join several judges' runs over the same samples into one, by vote or by mean score.",
    ),
    "serve": LazyCommand(
        module="judgelm.cli.serve",
        name="serve",
        help="Serve a judge to clients of GPT-4: OpenAI's API, answered in each judging client's own words.",
    ),
    "web": LazyCommand(
        module="judgelm.cli.web",
        name="web",
        help="Judge by hand on a page, talk about a judgment, browse run files, compare and label them.",
    ),
    "data": LazyCommand(module="judgelm.cli.data", name="app", help="Make training data for judges."),
    "study": LazyCommand(
        module="judgelm.cli.study",
        name="study_app",
        help="Analyses of judgments: tables, figures and a page.",
    ),
}


class _LoadedCommands(Mapping[str, Any]):
    """The commands by name, each imported where it is looked up."""

    def __getitem__(self, name: str) -> Any:
        return COMMANDS[name].load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Group(TyperGroup):
    """The commands of `judgelm`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _LoadedCommands()  # type: ignore[assignment]  # nothing is added to them

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command as help and completion list it: name and first sentence, nothing imported."""
        command = COMMANDS.get(cmd_name)
        return None if command is None else TyperCommand(cmd_name, short_help=command.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself, about to be called, or to complete its own arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else self.commands[name], rest


app = typer.Typer(
    name="judgelm",
    cls=_Group,
    help="Fine-tune open judge models and run them locally.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


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
