"""`judgelm modes`: the ways of judging, and what can be said of each."""

import inspect
from dataclasses import MISSING, fields
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table

from judgelm.data.samples import in_words
from judgelm.modes import MODES
from judgelm.modes.making import JUDGES_OWN, mode_type


def modes_command(
    name: Annotated[str | None, typer.Argument(help="Show this mode's options; without it, all modes.")] = None,
) -> None:
    """List the ways of judging, or what one of them does and its options.

    Example: judgelm modes ssr
    """
    out = Console()
    if name is None:
        table = Table("mode", "judges", "of samples with", show_edge=False)
        for known, kind in MODES.items():
            table.add_row(known, _summary(kind), _answers(kind))
        out.print(table)
        out.print("judgelm modes NAME shows one mode's options; judgelm-batch --mode NAME --mode-arg OPTION=VALUE.")
        return
    kind = mode_type(name)
    out.print(inspect.getdoc(kind) or "", markup=False, highlight=False)
    table = Table("option", "default", show_edge=False)
    for one in fields(cast(Any, kind)):
        if one.name not in JUDGES_OWN:
            table.add_row(one.name, "none: must be given" if one.default is MISSING else repr(one.default))
    out.print()
    out.print(table)


def _summary(kind: type) -> str:
    return (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")


def _answers(kind: type) -> str:
    answers = getattr(kind, "answers", None)
    return in_words(answers) if isinstance(answers, tuple) else "what the mode's options ask for"
