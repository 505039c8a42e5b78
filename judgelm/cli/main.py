"""`judgelm <command>`."""

from collections.abc import Mapping
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

`judgelm COMMAND --help` shows examples. Exit codes: 0 done, 1 usage or input error, 2 too many \
failures, 130 interrupted.
"""


_ANSWERS = Commands(
    "Collect answers of models to questions, and turn them into pairs or rows to judge.",
    {
        "collect": "data.answers:collect_command",
        "pairs": "data.answers:pairs_command",
        "rows": "data.answers:rows_command",
    },
    """
Examples:

  judgelm data answers collect questions.jsonl -o answers/ --config c.yaml
  judgelm data answers pairs q.jsonl --answers answers/*.jsonl -o pairs.jsonl
  judgelm data answers rows q.jsonl --answers a/*.jsonl -o rows.jsonl

Exit codes: 0 done, 1 usage or input error, 2 answers failed, 130 interrupted.
""",
)
_DATA: Mapping[str, str | Commands] = {
    "build": "data.sets:build_command",
    "import": "data.sources:import_command",
    "import-judgments": "data.sources:import_judgments_command",
    "overlap": "data.sets:overlap_command",
    "sample": "data.sets:sample_command",
    "answers": _ANSWERS,
    "annotate": "data.annotate:annotate_command",
}
_STUDIES = {
    "judgelm": "study.pairs:judgelm_command",
    "self-reference": "study.answers:self_reference_command",
    "ssr": "study.answers:ssr_command",
    "qa": "study.answers:qa_command",
    "self-bias": "study.answers:self_bias_command",
    "position-bias": "study.pairs:position_bias_command",
    "benchmark": "study.pairs:benchmark_command",
    "calibration": "study.pairs:calibration_command",
    "compare-judges": "study.pairs:compare_judges_command",
    "leaderboard": "study.pairs:leaderboard_command",
    "estimate": "study.estimate:estimate_command",
    "panel": "study.panel:panel_command",
}
_JUDGES = {
    "show": "judges:show_command",
    "modes": "modes:modes_command",
    "words": "judges:words_command",
    "new": "judges:new_command",
    "install": "judges:install_command",
}
COMMANDS = Commands(
    "Fine-tune open judge models and run them locally.",
    {
        "batch": "batch:batch",
        "compare": "compare:compare_command",
        "serve": "serve:serve",
        "web": "serve:web",
        "eval": "eval:eval_command",
        "report": "report:report_command",
        "export": "export:export_command",
        "study": Commands("Analyse runs: tables, figures and a page for each study.", _STUDIES),
        "tune": "tune:tune_command",
        "train": "training:train_command",
        "data": Commands("Make training data for judges.", _DATA),
        "judges": Commands(
            "List, show and install the judges known by name.", _JUDGES, alone="judges:list_judges", otherwise="show"
        ),
        "prompts": Commands(
            "Describe your own judge prompts for judgelm serve --prompts.", {"suggest": "serve:suggest_command"}
        ),
        "doctor": "doctor:doctor",
    },
    panels={"batch": "Judge", "eval": "Check a judge", "tune": "Make a judge", "judges": "More"},
)


class _Commands(LazyGroup):
    table = COMMANDS


app = typer.Typer(
    name="judgelm",
    cls=_Commands,
    help=COMMANDS.help,
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
    """Run `judgelm`."""
    run_app(app)
