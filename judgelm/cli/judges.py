"""`judgelm judges`: judges known by name, which of them are installed, and their installation."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from judgelm.cli.completion import judge_names
from judgelm.cli.console import console
from judgelm.cli.options import Command
from judgelm.cli.output import JsonOut, Quiet, is_stdout, write_json
from judgelm.engines.model_cache import cache_root, gguf_folder
from judgelm.errors import ModelError
from judgelm.judges.adapter_package import install_package, package_source
from judgelm.judges.base_weights import install_base
from judgelm.judges.cards import JudgeCard, card_names, judge_card
from judgelm.judges.installed import find_package, installed_judge

EPILOG = """
Examples:

  judgelm judges

  judgelm judges install small-judge

Exit codes: 0 done, 1 usage error.
"""
INSTALL_EPILOG = """
Examples:

  judgelm judges install small-judge

  judgelm judges install small-judge --from examples/small_judge

No other command downloads a judge. Exit codes: 0 installed, also where it was before; 1 usage error, or a part cannot
be had.
"""

app = typer.Typer(help="List the judges that are known by name, or install one of them.")


@app.callback(invoke_without_command=True, epilog=EPILOG)
def list_judges(context: typer.Context, json_out: JsonOut = None) -> None:
    """List the judges that are known by name, or install one of them.

    The default judge is used where no model is named.
    """
    if context.invoked_subcommand is not None:
        return
    rows = [_row(judge_card(name)) for name in card_names()]
    write_json(json_out, rows)
    if is_stdout(json_out):
        return
    out = Console()
    for row in rows:
        state = f"installed, version {row['version']}" if row["installed"] else "not installed"
        lines = (
            f"{row['name']}{' (default)' if row['default'] else ''}: {state}",
            f"  {row['summary']}",
            f"  adapter under {row['adapter_licence']} ({row['adapter_terms']}), base under {row['base_licence']}",
            *(f"  {sentence}" for sentence in row["formats"]),
            *([] if row["installed"] else [f"  {row['finding']}"]),
        )
        for line in lines:
            out.print(line, markup=False, highlight=False, soft_wrap=True)


@app.command("install", cls=Command, epilog=INSTALL_EPILOG, no_args_is_help=True)
def install_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The judge.", autocompletion=judge_names)],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Folder (installed in editable mode) or wheel of the adapter's distribution; default: the folder in "
            "judgelm's checkout, else the package index.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Install a judge: its adapter by pip, and its base, downloaded and dequantised into the cache."""
    card = judge_card(name)
    needs_package = source is not None or find_package(card) is None
    needs_base = not gguf_folder(card.base.gguf_sha256).is_dir()
    if needs_package:
        pip_source = package_source(card, source)
        if not quiet:
            _announce_package(card, pip_source)
    if needs_base and not quiet:
        _announce_base(card)
    if needs_package:
        with console.status(f"installing {card.adapter.distribution}"):
            install_package(card, pip_source)
    if needs_base:
        with console.status(f"downloading and dequantising {card.base.name}"):
            install_base(card.base)
    if not quiet:
        done = "is installed" if needs_package or needs_base else "was installed before"
        console.print(f"{name} {done}; {_use(card)}", markup=False, highlight=False, soft_wrap=True)


def _announce_package(card: JudgeCard, source: str) -> None:
    adapter = card.adapter
    line = (
        f"adapter: {adapter.distribution}, at most {adapter.megabytes:g} MB, {adapter.licence} ({adapter.terms}), "
        f"from {source}"
    )
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _announce_base(card: JudgeCard) -> None:
    base = card.base
    line = (
        f"base: {base.name}, {base.licence}, a download of {base.download_megabytes:g} MB ({base.distribution} "
        f"{base.version} from the package index), {base.disk_megabytes:g} MB in {cache_root()}"
    )
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _use(card: JudgeCard) -> str:
    if card.default:
        return "it judges wherever no model is named"
    return f"use it with --model {card.name}"


def _row(card: JudgeCard) -> dict[str, Any]:
    """A judge, as `--json` writes it."""
    row: dict[str, Any] = {
        "name": card.name,
        "summary": card.summary,
        "default": card.default,
        "adapter_licence": card.adapter.licence,
        "adapter_terms": card.adapter.terms,
        "base_licence": card.base.licence,
        "formats": [change.sentence for change in card.changed_verdicts],
    }
    try:
        judge = installed_judge(card)
    except ModelError as error:
        return row | {"installed": False, "finding": str(error)}
    return row | {
        "installed": True,
        "version": judge.version,
        "adapter": str(judge.adapter),
        "base": str(judge.base),
    }
