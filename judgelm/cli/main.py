"""`judgelm <command>`."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from judgelm.cli.console import run_app
from judgelm.cli.lazy import LazyCommand, LazyGroup
from judgelm.package import VERSION

_EPILOG = """
Examples:

  judgelm doctor

  judgelm-batch pairs.jsonl -o judgments.jsonl --model my-judge --both-orders

  judgelm eval judgments.jsonl --labels labelled.jsonl

  judgelm serve my-judge --name gpt-4

`judgelm COMMAND --help` has examples of each. Exit codes of all: 0 done, 1 usage or input error, or something to \
mend, 2 more failures than --max-failure-rate, 3 the judge drifted from its canary, 130 interrupted.
"""


COMMANDS: Mapping[str, LazyCommand] = {
    "batch": LazyCommand(
        module="judgelm.cli.batch.command",
        name="batch",
        help="Judge answers with a local judge model: pairs, or as --mode says.",
    ),
    "eval": LazyCommand(
        module="judgelm.cli.eval",
        name="eval_command",
        help="Compare judgments with labels: agreement, position bias, failures, groups, people; 95 % intervals.",
    ),
    "report": LazyCommand(
        module="judgelm.cli.eval",
        name="report_command",
        epilog="REPORT_EPILOG",
        help="Write one self-contained HTML file with the metrics, figures, and every disagreement, flip and failure.",
    ),
    "estimate": LazyCommand(
        module="judgelm.cli.estimate",
        name="estimate_command",
        help="Estimate how often a model really beats another: by the judge, the labels, Rogan-Gladen and PPI++.",
    ),
    "show": LazyCommand(
        module="judgelm.cli.show",
        name="show",
        help="Print the verdicts of a run over pairs, with probabilities; needs no labels.",
    ),
    "doctor": LazyCommand(
        module="judgelm.cli.doctor.command",
        name="doctor",
        help="Look at packages, devices and speed, and say what to mend.",
        no_args_is_help=False,
    ),
    "modes": LazyCommand(
        module="judgelm.cli.modes",
        name="modes_command",
        help="List the ways of judging, or what one of them does and its options.",
        no_args_is_help=False,
    ),
    "judges": LazyCommand(
        module="judgelm.cli.judges",
        name="app",
        help="List the judges that are known by name, or show or install one of them.",
        no_args_is_help=False,
    ),
    "canary": LazyCommand(
        module="judgelm.cli.canary",
        name="app",
        help="Record a judge's verdicts on a fixed set of pairs, or check that it still is the same judge.",
    ),
    "panel": LazyCommand(
        module="judgelm.cli.panel",
        name="panel_command",
        help="Join several judges' runs over the same samples into one, by vote or by mean score.",
    ),
    "serve": LazyCommand(
        module="judgelm.cli.serve",
        name="serve",
        help="Serve a judge to clients of GPT-4: OpenAI's API, answered in each judging client's own words.",
        no_args_is_help=False,
    ),
    "web": LazyCommand(
        module="judgelm.cli.web",
        name="web",
        help="Judge by hand on a page, talk about a judgment, browse run files, compare and label them.",
        no_args_is_help=False,
    ),
    "recipe": LazyCommand(
        module="judgelm.cli.recipe", name="app", help="Run a list of commands from a file, step by step."
    ),
    "share": LazyCommand(
        module="judgelm.cli.share",
        name="share_command",
        help="Upload a judge with its cards to the Hugging Face hub, or show what would be sent.",
    ),
    "data": LazyCommand(module="judgelm.cli.data", name="app", help="Make training data for judges."),
    "study": LazyCommand(
        module="judgelm.cli.study",
        name="study_app",
        help="Analyses of judgments: tables, figures and a page.",
    ),
}


class _Commands(LazyGroup):
    lazy_commands: ClassVar = COMMANDS


app = typer.Typer(
    name="judgelm",
    cls=_Commands,
    help="Fine-tune open judge models and run them locally.",
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
    """Entry point of `judgelm`."""
    run_app(app)
