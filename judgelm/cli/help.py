"""Print `--help` and `--help-all` in 80 columns."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from judgelm.cli.console import PlainConsole, echo

_ALL = "judgelm.help_all"
_FLAG, _VALUE, _NOTE = "bold cyan", "yellow", "dim"
_MAX_CHOICES_WIDTH = 12
_VALUE_NAMES = {bool: "", int: "N", float: "N", Path: "PATH"}


_Function = TypeVar("_Function", bound=Callable[..., None])


def essential(names: str) -> Callable[[_Function], _Function]:
    """Set the options that `--help` shows."""

    def mark(function: _Function) -> _Function:
        function.essential = names.split()  # type: ignore[attr-defined]
        return function

    return mark


def _show_all(context: typer.Context, value: bool) -> None:
    if value:
        context.meta[_ALL] = True
        echo(context.get_help())
        raise typer.Exit


HELP_ALL = inspect.Parameter(
    "help_all",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--help-all", is_eager=True, callback=_show_all, metavar="")],
)
"""The `--help-all` parameter for commands with `essential` options."""


def print_help(command: Any, context: Any, *, essential: Sequence[str] = (), commands: Iterable[Any] = ()) -> None:
    """Print the help of a command or group."""
    out, parameters = PlainConsole(), command.get_params(context)
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    pieces = [context.command_path, "[OPTIONS]", *(_usage(each) for each in arguments)]
    _paragraph(out, Text(f"Usage: {' '.join([*pieces, *(['COMMAND ...'] if commands else [])])}", "bold"))
    for paragraph in (command.help or "").split("\n\n"):
        _paragraph(out, " ".join(paragraph.split()))
    for each in parameters:
        if each.name == "help_all":
            each.help = f"Show all {len(parameters) - len(arguments) - 1} options."
    shown = _essential(parameters, essential) if essential and _ALL not in context.meta else parameters
    panels: dict[str, list[tuple[Text, Text]]] = {"Arguments": [], "Options": []}
    for each in shown:
        title = "Arguments" if each in arguments else (shown is parameters and each.rich_help_panel) or "Options"
        panels.setdefault(title, []).append((_names(each), _description(each)))
    for each in commands:
        panel = panels.setdefault(each.rich_help_panel or "Commands", [])
        panel.append((Text(each.name, _FLAG), Text(each.short_help)))
    _print_panels(out, panels)
    for paragraph in (command.epilog or "").split("\n\n"):
        _paragraph(out, paragraph)


def _paragraph(out: PlainConsole, text: str | Text) -> None:
    if text:
        out.print(Padding(text, (0, 1, 1, 1)))


def _essential(parameters: Sequence[Any], names: Sequence[str]) -> list[Any]:
    by_name = {each.name: each for each in parameters}
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    return [*arguments, *(by_name[name] for name in (*names, "help", "help_all"))]


def _print_panels(out: PlainConsole, panels: Mapping[str, list[tuple[Text, Text]]]) -> None:
    width = max((name.cell_len for rows in panels.values() for name, _ in rows), default=0)
    for title, rows in panels.items():
        if rows:
            table = Table.grid(padding=(0, 2))
            table.add_column(width=width, no_wrap=True)
            table.add_column()
            for row in rows:
                table.add_row(*row)
            out.print(Panel(table, title=title, title_align="left", border_style=_NOTE))


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _names(parameter: Any) -> Text:
    if parameter.param_type_name == "argument":
        return Text(parameter.metavar or parameter.name.upper(), _FLAG)
    flags = sorted(parameter.opts, key=len)
    if parameter.secondary_opts:
        flags = [f"--[no-]{flags[0].removeprefix('--')}"]
    return Text.assemble((", ".join(flags), _FLAG), (f" {parameter.metavar or ''}".rstrip(), _VALUE))


def _description(parameter: Any) -> Text:
    notes, default = [], parameter.default
    if parameter.show_default and default is not None and not isinstance(default, bool) and default != "":
        notes.append(f"default: {default}")
    notes += ["required"] if parameter.required else []
    return Text.assemble(parameter.help or "", (f" [{'; '.join(notes)}]", _NOTE) if notes else "")


def value_name(kind: Any) -> tuple[str, list[str]]:
    """Return the placeholder for an option's value, and the choices that the placeholder does not list."""
    kinds = {each for each in (get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,))} - {NoneType}
    [kind] = kinds
    if get_origin(kind) is list:
        return value_name(*get_args(kind))
    if get_origin(kind) is Literal:
        choices = [*map(str, get_args(kind))]
        short = "|".join(choices)
        return (short, []) if len(short) <= _MAX_CHOICES_WIDTH else ("NAME", choices)
    return _VALUE_NAMES.get(kind, "TEXT"), []
