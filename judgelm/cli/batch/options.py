"""The options of `judgelm-batch`; light, so that its help comes at once."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import typer

from judgelm.cli import completion
from judgelm.cli.options import JUDGING, parse_pairs
from judgelm.errors import ConfigError
from judgelm.parsing.distribution import OrderRule

_TRUST, _MODEL = "Probabilities, reasons and retries", "Model and engine"

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Files or folders of pairs (JSONL, JSON list, CSV, TSV, Parquet; also compressed), two files of "
        "AlpacaEval outputs, or - for standard input.",
    ),
]
Out = Annotated[str | None, typer.Option("--out", "-o", help="Judgments as JSONL; - is standard output (no resume).")]
Limit = Annotated[int | None, typer.Option(min=0, help="Judge only the first N samples.")]
Retries = Annotated[Literal["engine", "failed"], typer.Option(help="Earlier failures that a rerun judges again.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", metavar="", help="Start over, deleting OUT and its manifest.")]
MaxFailureRate = Annotated[float, typer.Option(min=0.0, max=1.0, help="Exit with code 2 above this share of failures.")]
ModeName = Annotated[
    str,
    typer.Option(
        help=f"Mode: {', '.join(completion.MODE_NAMES)}; see judgelm modes.",
        rich_help_panel=JUDGING,
        autocompletion=completion.modes,
    ),
]
ModeArgs = Annotated[
    list[str] | None,
    typer.Option(
        "--mode-arg",
        metavar="KEY=VALUE",
        help="An option of this mode; the value is YAML. Repeatable.",
        rich_help_panel=JUDGING,
        autocompletion=completion.mode_args,
    ),
]
BothOrders = Annotated[
    bool, typer.Option("--both-orders", metavar="", help="Judge each pair in both orders.", rich_help_panel=JUDGING)
]
References = Annotated[str | None, typer.Option(help="File with references by id.", rich_help_panel=JUDGING)]
SelfAnswers = Annotated[
    str | None,
    typer.Option(
        help="Run file whose judge's own answers are reused (modes with self-reference).",
        rich_help_panel=JUDGING,
    ),
]
Temperature = Annotated[
    float, typer.Option(min=0.0, help="Sampling temperature; 0 is greedy.", rich_help_panel=JUDGING)
]
Seed = Annotated[int, typer.Option(help="Seed for temperature above 0.", rich_help_panel=JUDGING)]
Cascade = Annotated[
    str | None,
    typer.Option(
        metavar="SMALL,LARGE",
        help="Two judges instead of --model: the second judges only what the first is unsure about.",
        rich_help_panel=_MODEL,
    ),
]
CascadeBand = Annotated[
    str | None,
    typer.Option(
        metavar="LOW,HIGH",
        help="Unsure means P(first better) from LOW to HIGH; default 0.3,0.7.",
        rich_help_panel=_MODEL,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="Local folder, GGUF file, hub id or name (judgelm judges) of the judge, or its name on a server; default: "
        "small-judge.",
        rich_help_panel=_MODEL,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeFlags:
    """Flags that are fields of the pair mode, and of the other modes that have a field of that name."""

    both_orders: BothOrders = False
    order_rule: Annotated[
        OrderRule,
        typer.Option(
            help="Orders into one verdict: by the mean score, by the given order, a conflict is a tie, or by "
            "P(first better).",
            rich_help_panel=JUDGING,
        ),
    ] = "mean"
    tie_threshold: Annotated[
        float,
        typer.Option(
            min=0.0, max=0.5, help="For probability: maximum distance from 0.5 of a tie.", rich_help_panel=JUDGING
        ),
    ] = 0.05
    accept_one_order: Annotated[
        bool,
        typer.Option(
            "--accept-one-order",
            metavar="",
            help="If one order fails, use the verdict of the other.",
            rich_help_panel=JUDGING,
        ),
    ] = False
    reference: Annotated[
        Literal["auto", "use", "ignore"],
        typer.Option(help="Show references: if available, always, never.", rich_help_panel=JUDGING),
    ] = "auto"
    temperature: Temperature = 0.0
    seed: Seed = 0
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Maximum tokens of the score line.", rich_help_panel=JUDGING)
    ] = 24
    distribution: Annotated[
        bool,
        typer.Option(
            "--distribution",
            metavar="",
            help="Compute the probability of every score line: P(first better), expected scores.",
            rich_help_panel=_TRUST,
        ),
    ] = False
    reasons: Annotated[
        Literal["none", "all", "close", "flips"],
        typer.Option(
            help="Explain all judgments, those close to a tie, or those whose orders disagree.",
            rich_help_panel=_TRUST,
        ),
    ] = "none"
    close_threshold: Annotated[
        float,
        typer.Option(
            min=0.0, max=0.5, help="For close: maximum distance of P(first better) from 0.5.", rich_help_panel=_TRUST
        ),
    ] = 0.1
    reason_tokens: Annotated[
        int,
        typer.Option(min=1, help="Maximum tokens of a reason, within the judge's window.", rich_help_panel=_TRUST),
    ] = 512
    retry_unparseable: Annotated[
        bool,
        typer.Option(
            "--retry-unparseable",
            metavar="",
            help="Retry unparseable replies: held to the grammar of score lines (not every engine can); in modes with "
            "labels for the more probable one.",
            rich_help_panel=_TRUST,
        ),
    ] = False


def is_default(context: typer.Context, name: str) -> bool:
    """True if neither the command line nor a config file sets a parameter."""
    return (source := context.get_parameter_source(name)) is None or source.name == "DEFAULT"


def mode_options(context: typer.Context, mode_args: Sequence[str]) -> dict[str, Any]:
    """The options of the mode that a command line or a config file sets; defaults are left out.

    Raises:
        ConfigError: an argument of the mode that is no KEY=VALUE, or that a flag gives as well.
    """
    flags = {flag.name: context.params[flag.name] for flag in fields(ModeFlags) if not is_default(context, flag.name)}
    arguments = parse_pairs(mode_args, "--mode-arg")
    if twice := sorted(flags.keys() & arguments.keys()):
        name = twice[0]
        raise ConfigError(f"--mode-arg {name}=... and --{name.replace('_', '-')} set the same option; keep one of them")
    return flags | arguments
