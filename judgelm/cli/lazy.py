"""A group of commands that are imported when one of them is called, so that help and completion come at once."""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a command is, and what its group's help says of it.

    Attributes:
        module: imported when the command is called; its `EPILOG`, where there is one, ends a function's help.
        name: of the function, or of the Typer app of further commands, in that module.
        help: the command's first sentence; the module has it too, and a test holds the two together.
        no_args_is_help: whether the command called with nothing shows its help.
    """

    module: str
    name: str
    help: str
    no_args_is_help: bool = True


class LazyGroup(TyperGroup):
    """A Typer group; a class derived from it says in `places` what its commands are."""

    places: ClassVar[Mapping[str, Place]] = {}

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Commands(self.places)  # type: ignore[assignment]  # nothing is added to them

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands' names, in the order of their places."""
        return list(self.places)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command as help and completion list it: name and first sentence, nothing imported."""
        place = self.places.get(cmd_name)
        return None if place is None else TyperCommand(cmd_name, short_help=place.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself, about to be called, or to complete its own arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else self.commands[name], rest


class _Commands(Mapping[str, Any]):
    """The commands themselves by name, each imported where it is first looked up."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> Any:
        place = self._places[name]
        module = importlib.import_module(place.module)
        found = getattr(module, place.name)
        if not isinstance(found, typer.Typer):
            app = typer.Typer(add_completion=False)
            epilog = getattr(module, "EPILOG", None)
            app.command(name, epilog=epilog, no_args_is_help=place.no_args_is_help)(found)
            return typer.main.get_command(app)
        group = typer.main.get_group(found)
        group.name = name
        return group

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
