"""Build commands from plain functions, and import each command when it is called.

The docstring of a command is its help. The parameters are described under `Options:` or the title of a panel. If a
parameter's type is a dataclass, the fields of the dataclass become options.
"""

import ast
import copy
import importlib
import inspect
import os
import re
import shlex
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

from judgelm.cli.console import console
from judgelm.cli.help import HELP_ALL, print_help, value_name
from judgelm.errors import UnknownFieldsError
from judgelm.jsonl import check_no_input

_MAX_NUMBER = 2**63
_OUTPUTS = ("out", "json_out", "json", "request_log")
"""Parameters that name a file to write."""
_WORDS = "judgelm.words"
_SECRET = re.compile(r"--?[\w-]*(?:key|password|token|secret)", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"(.*(?:key|password|token|secret|header)[^=]*=).+", re.IGNORECASE | re.DOTALL)
_CREDENTIALS = re.compile(r"//[^/@]+@")
_SECTION = re.compile(r"^([A-Z][\w ,-]*):\n((?: .*\n|\n(?= ))+)", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)
_NOT_PANELS = ("Options", "Attributes")


@dataclass(frozen=True, slots=True)
class Commands:
    """A group of commands.

    Attributes:
        help: help text of one sentence.
        places: name -> `module:function` in `judgelm.cli`, or a group.
        examples: text at the end of the help.
        alone: `module:function` to run if no subcommand is given.
        otherwise: subcommand to which an unknown name is passed as the argument.
        panels: first command in a panel -> title of the panel.
    """

    help: str
    places: "Mapping[str, str | Commands]"
    examples: str | None = None
    alone: str | None = None
    otherwise: str | None = None
    panels: Mapping[str, str] = field(default_factory=dict)

    def load(self, name: str) -> Any:
        """Build the group."""
        group = type("Group", (LazyGroup,), {"table": self})
        app = typer.Typer(name=name, cls=group, no_args_is_help=self.alone is None)
        function, text, epilog = _nothing, self.help, self.examples
        if self.alone is not None:
            function = _function(self.alone)
            text, epilog = help_and_epilog(function)
        app.callback(invoke_without_command=self.alone is not None, help=text, epilog=epilog)(with_options(function))
        return typer.main.get_group(app)


def _nothing() -> None:
    """Placeholder callback for groups."""


def _function(place: str) -> Callable[..., None]:
    module, _, name = place.partition(":")
    function: Callable[..., None] = getattr(importlib.import_module(f"judgelm.cli.{module}"), name)
    return function


def _first_sentence(place: str) -> str:
    module, _, name = place.partition(":")
    path = Path(__file__).parent / f"{module.replace('.', '/')}.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            text = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
            return re.split(r"(?<=\.) (?=[A-Z])", text)[0]
    raise LookupError(place)


class LazyGroup(TyperGroup):
    """A group that imports each command when it is called."""

    table: ClassVar[Commands]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _LoadedCommands(self.table.places)  # read-only

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order they appear in the help."""
        return list(self.table.places)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a stub of the command for help and completion."""
        place = self.table.places.get(cmd_name)
        if place is None:
            return None
        text = place.help if isinstance(place, Commands) else _first_sentence(place)
        names = list(self.table.places)
        panels = [title for name, title in self.table.panels.items() if names.index(name) <= names.index(cmd_name)]
        return TyperCommand(cmd_name, short_help=text, rich_help_panel=panels[-1] if panels else None)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        print_help(self, ctx, commands=[self.get_command(ctx, name) for name in self.list_commands(ctx)])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command so that it can be called or completed."""
        if self.table.otherwise is not None and args and args[0] not in self.table.places:
            args = [self.table.otherwise, *args]
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else self.commands[name], rest


class _LoadedCommands(UserDict[str, Any]):
    def __getitem__(self, name: str) -> Any:
        place = self.data[name]
        if isinstance(place, Commands):
            return place.load(name)
        app = typer.Typer(add_completion=False)
        add_command(app, _function(place), name)
        return typer.main.get_command(app)


def add_command(app: typer.Typer, function: Callable[..., None], name: str) -> None:
    """Add a function to an app as a command."""
    text, epilog = help_and_epilog(function)
    command = with_options(function)
    required = any(each.default is each.empty for each in inspect.signature(command).parameters.values())
    settings = getattr(function, "context_settings", None)
    kind = type("Command", (Command,), {"essential": getattr(function, "essential", ())})
    app.command(name, cls=kind, context_settings=settings, help=text, epilog=epilog, no_args_is_help=required)(command)


def help_and_epilog(function: Callable[..., None]) -> tuple[str, str | None]:
    """Return the parts of a command's docstring before and after its options."""
    text, _, end = (inspect.getdoc(function) or "").partition("\nExamples:\n")
    examples, *more = end.split("\n\n")
    lines = (re.sub(r"(?<!\\)\n +", " ", line.strip()) for line in re.split(r"\n {4}(?! )", examples))
    paragraphs = ["\n  ".join(["Examples:", *lines]), *(" ".join(each.split()) for each in more)]
    epilog = "\n\n".join(paragraphs) if end else None
    sections = _SECTION.search(f"{text}\n")
    return (text[: sections.start()] if sections else text).rstrip(), epilog


def described_fields(*described: Any) -> dict[str, tuple[str | None, str]]:
    """Parse the docstrings of functions or classes into name -> (panel, help)."""
    meanings: dict[str, tuple[str | None, str]] = {}
    for each in described:
        for base in reversed(getattr(each, "__mro__", (each,))):
            for title, entries in _SECTION.findall(f"{inspect.cleandoc(base.__doc__ or '')}\n"):
                panel = None if title in _NOT_PANELS else title
                meanings |= {name: (panel, " ".join(text.split())) for name, text in _ENTRY.findall(entries)}
    return meanings


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Wrap a function with a signature that Typer understands."""
    own = inspect.signature(function).parameters
    groups: dict[str, Any] = {name: each.annotation for name, each in own.items() if is_dataclass(each.annotation)}
    parameters = []
    for name, parameter in own.items():
        described = groups.get(name, function)
        meanings = described_fields(described)
        options = inspect.signature(described).parameters.values() if name in groups else (parameter,)
        parameters += [_option(option, *meanings.get(option.name, (None, None))) for option in options]

    @wraps(function)
    def run(help_all: bool = False, **values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        function(**values)

    if getattr(function, "essential", ()):
        parameters.append(HELP_ALL)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _option(parameter: inspect.Parameter, panel: str | None, text: str | None) -> inspect.Parameter:
    annotation = parameter.annotation
    kind, *infos = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    if kind is typer.Context:
        return parameter
    info: Any = copy.copy(infos[0]) if infos else typer.Option()
    info.help, info.rich_help_panel = text or info.help, panel or info.rich_help_panel
    if isinstance(info, OptionInfo):
        name, choices = value_name(kind)
        info.metavar = name if info.metavar is None or choices else info.metavar
        if not all(choice in str(info.help) for choice in choices):
            info.help = f"{info.help} [{', '.join(choices)}]"
        if info.default is ... and kind is bool and parameter.default is False:
            info.param_decls = (f"--{parameter.name.replace('_', '-')}",)
        elif info.default is ... and parameter.name == "out":
            info.param_decls = ("--out", "-o")
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info])


class Command(TyperCommand):
    """A command that refuses to overwrite its input files."""

    essential: ClassVar[tuple[str, ...]] = ()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        print_help(self, ctx, essential=self.essential)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        from judgelm.runs.run_files import run_paths  # imported late to keep --help fast

        named = {name: list(_texts(value)) for name, value in ctx.params.items()}
        outputs = [path for name in _OUTPUTS for path in named.get(name, ())]
        inputs = [path for name, paths in named.items() if name not in _OUTPUTS for path in paths]
        read = {path for path in inputs if path == "-" or os.path.isfile(path)}
        read |= {str(run_paths(Path(path))[1]) for path in read - {"-"}}  # a run's manifest is loaded with the run
        for output in outputs:
            written = [str(path) for path in run_paths(Path(output))] if output.endswith(".jsonl") else [output]
            check_no_input(written, read)
            read |= set(written) - {"-"}
        console.quiet = ctx.params.get("quiet", False)
        try:
            return super().invoke(ctx)
        except UnknownFieldsError as error:
            if not error.columns or "column" not in ctx.params:
                raise
            words = [*ctx.command_path.split(), *_without_secrets(ctx.meta[_WORDS])]
            for name, column in error.columns.items():
                words += ["--column", f"{name}={column}"]
            raise UnknownFieldsError(f"{error}\nto use these columns: {shlex.join(words)}", error.columns) from error
        finally:
            console.quiet = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line and the configuration file."""
        ctx.meta[_WORDS] = list(args)
        rest = super().parse_args(ctx, list(self._with_repeated_options(args)))
        for name, value in ctx.params.items():
            if isinstance(value, int | float) and not -_MAX_NUMBER < value < _MAX_NUMBER:
                flag = f"--{name.replace('_', '-')}"
                raise typer.BadParameter(f"{flag} is {str(value)[:40]}; expected a finite number below 2**63")
        return rest

    def _with_repeated_options(self, args: list[str]) -> Iterator[str]:
        """Repeat a `FILE...` option before each file, so that `--answers answers/*.jsonl` works."""
        several = {flag for option in self.params if option.metavar == "FILE..." for flag in option.opts}
        repeated = ""
        for word in args:
            if word in several:
                repeated = word
                continue
            repeated = "" if word.startswith("-") else repeated
            yield from (repeated, word) if repeated else (word,)


def _without_secrets(words: list[str]) -> list[str]:
    shown: list[str] = []
    for word in words:
        hidden = bool(shown) and _SECRET.fullmatch(shown[-1]) is not None
        shown.append("..." if hidden else _CREDENTIALS.sub("//...@", _SECRET_VALUE.sub(r"\1...", word)))
    return shown


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, str | Path) and str(value):
        yield str(value)
        if (file := str(value).partition("=")[2]) and os.path.exists(file):
            yield file
