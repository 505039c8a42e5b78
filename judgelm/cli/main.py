"""`judgelm <command>`."""

from typing import Annotated

import typer

from judgelm.cli.commands import Commands, LazyGroup
from judgelm.cli.console import run_app
from judgelm.package import VERSION

_EPILOG = """
Examples:
  judgelm doctor
  judgelm-batch pairs.jsonl -o judgments.jsonl --model my-judge --both-orders
  judgelm eval judgments.jsonl --labels labelled.jsonl
  judgelm serve my-judge

Run `judgelm COMMAND --help` for more examples. Exit codes: 0 done, 1 usage or input error, 2 too many \
failures, 130 interrupted.
"""


def _places(module: str, names: str) -> dict[str, str | Commands]:
    return {name: f"{module}:{name.replace('-', '_')}_command" for name in names.split()}


_ANSWERS = Commands(
    "Collect model answers to questions, and turn them into pairs or rows to judge.",
    _places("data.answers", "collect pairs rows"),
    """
Examples:
  judgelm data answers collect questions.jsonl -o answers/ --config c.yaml
  judgelm data answers pairs q.jsonl --answers answers/*.jsonl -o pairs.jsonl
  judgelm data answers rows q.jsonl --answers a/*.jsonl -o rows.jsonl

Exit codes: 0 done, 1 usage or input error, 2 answers failed, 130 interrupted.
""",
)
_DATA = (
    _places("data.sets", "build sample overlap")
    | _places("data.sources", "import import-judgments")
    | {"answers": _ANSWERS}
    | _places("data.annotate", "annotate")
)
_STUDIES = (
    _places("study.pairs", "judgelm compare-judges position-bias calibration benchmark leaderboard")
    | _places("study.answers", "self-reference ssr qa self-bias")
    | _places("study.estimate", "estimate")
    | _places("study.panel", "panel")
)
_JUDGES = _places("judges", "show install words new checkpoint") | _places("modes", "modes")
COMMANDS = Commands(
    "Fine-tune open judge models and run them locally.",
    {
        "batch": "batch:batch",
        "compare": "compare:compare_command",
        "serve": "serve:serve",
        "web": "serve:web",
        "eval": "eval:eval_command",
        "report": "report:report_command",
        "gate": "gate:gate_command",
        "export": "export:export_command",
        "study": Commands("Analyse runs with studies; each writes tables, figures, and a page.", _STUDIES),
        "tune": "tune:tune_command",
        "train": "training:train_command",
        "data": Commands("Create training data for judges.", _DATA),
        "judges": Commands(
            "List, show, install, and convert judges.", _JUDGES, alone="judges:list_judges", otherwise="show"
        ),
        "prompts": Commands("Write and check your own judge prompts.", _places("prompts", "new check suggest")),
        "doctor": "doctor:doctor",
    },
    panels={"batch": "Judge", "eval": "Check a judge", "tune": "Make a judge", "judges": "More"},
)


class _Commands(LazyGroup):
    table = COMMANDS


app = typer.Typer(name="judgelm", cls=_Commands, epilog=_EPILOG, no_args_is_help=True, pretty_exceptions_enable=False)


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
    """Run `judgelm`."""
    run_app(app)
