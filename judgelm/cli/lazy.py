"""Groups of commands that are imported when one of them is called, so that help and completion come at once."""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from judgelm.cli.options import Command


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyCommand:
    """A command that is imported when it is called.

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


class LazyGroup(TyperGroup):
    """A Typer group; a subclass names its commands in `lazy_commands`."""

    lazy_commands: ClassVar[Mapping[str, LazyCommand]] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _LoadedCommands(self.lazy_commands)  # type: ignore[assignment]  # nothing is added to them

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in the order of the help."""
        return list(self.lazy_commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command as help and completion list it: name and first sentence, nothing imported."""
        command = self.lazy_commands.get(cmd_name)
        return None if command is None else TyperCommand(cmd_name, short_help=command.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself, about to be called, or to complete its own arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else self.commands[name], rest


class _LoadedCommands(Mapping[str, Any]):
    """The commands by name, each imported where it is looked up."""

    def __init__(self, lazy_commands: Mapping[str, LazyCommand]) -> None:
        self._lazy_commands = lazy_commands

    def __getitem__(self, name: str) -> Any:
        return self._lazy_commands[name].load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._lazy_commands)

    def __len__(self) -> int:
        return len(self._lazy_commands)
