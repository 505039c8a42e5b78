"""`--json` and `--quiet`, with one meaning in every command."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from judgelm.cli.console import json_default
from judgelm.errors import RunError
from judgelm.jsonl import json_ready

Quiet = Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="Print errors only.")]
JsonOut = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Also write all results as JSON; - is standard output."),
]


def write_json(path: Path | None, content: Any) -> None:
    """Write results as JSON to the path of `--json`, where there is one.

    Raises:
        RunError: it cannot be written.
    """
    if path is not None:
        write_text(path, json.dumps(json_ready(content), indent=1, default=json_default, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all; `-` is standard output.

    Raises:
        RunError: it cannot be written.
    """
    if str(path) == "-":
        typer.echo(text, nl=not text.endswith("\n"))
        return
    if path.is_file() or not path.exists():
        from judgelm.data.dataset_files import write_text as write_whole  # late, since it loads pyarrow

        return write_whole(path, text)
    try:  # a device, a pipe: not to be replaced by a file
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror}; choose another place") from error


def is_stdout(path: Path | None) -> bool:
    """True for `--json -`: standard output then holds nothing else."""
    return str(path) == "-"
