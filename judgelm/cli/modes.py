"""`judgelm judges modes`: the judging modes and their options."""

from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, cast

import typer
from rich import box
from rich.table import Table

from judgelm.cli import options
from judgelm.cli.commands import described_fields, help_and_epilog
from judgelm.cli.console import JsonOut, PlainConsole, Results
from judgelm.cli.options import ModeFlags
from judgelm.modes import CARD_FIELDS, MODES, mode_type


def modes_command(
    name: Annotated[str | None, typer.Argument(metavar="[MODE]", autocompletion=options.modes)] = None,
    json_out: JsonOut = None,
) -> None:
    """List the judging modes, or show the options of one mode.

    Options:
        name: Mode to show. Default: list all modes.

    Examples:
        judgelm judges modes
        judgelm judges modes ssr
        judgelm judges modes --json -

    Exit codes: 0 done, 1 usage error.
    """
    shown = {known: mode_type(known) for known in (MODES if name is None else (name,))}
    if Results(json_out=json_out).write({known: _row(kind) for known, kind in shown.items()}):
        out = PlainConsole()
        if name is None:
            _print_all(shown, out)
        else:
            _print_one(shown[name], out)


def _print_all(modes: dict[str, Any], out: PlainConsole) -> None:
    table = Table("mode", "description", "samples with", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, kind in modes.items():
        row = _row(kind)
        table.add_row(name, row["judges"], row["answers"])
    out.print(table)
    out.print("Run judgelm judges modes MODE to show the options of a mode.")


def _print_one(kind: Any, out: PlainConsole) -> None:
    out.print(_prose(kind))
    out.print()
    table = Table("option", "default", "", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[0].no_wrap = True
    for option in _row(kind)["options"]:
        default = "required" if option["required"] else _shown(option["default"])
        table.add_row(option["flag"], default, option["help"])
    out.print(table)


def _row(kind: Any) -> dict[str, Any]:
    from judgelm.data.samples import count_range_text

    answers = getattr(kind, "answers", None)
    meanings = described_fields(kind)
    return {
        "judges": _prose(kind).split("\n\n")[0],
        "answers": count_range_text(answers) if isinstance(answers, tuple) else "depends on the options",
        "options": [
            _option(field, meanings.get(field.name, (None, ""))[1])
            for field in fields(cast(Any, kind))
            if field.name not in CARD_FIELDS
        ],
    }


def _option(field: Field[Any], meaning: str) -> dict[str, Any]:
    is_shared = field.name in ModeFlags.__dataclass_fields__
    flag = f"--{field.name.replace('_', '-')}" if is_shared else f"--mode-arg {field.name}="
    made = field.default if field.default_factory is MISSING else field.default_factory()
    required, default = made is MISSING, None if made is MISSING else made
    return {"name": field.name, "flag": flag, "required": required, "default": default, "help": meaning}


def _prose(kind: Any) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in help_and_epilog(kind)[0].split("\n\n"))


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if default or default == 0 else "none"
