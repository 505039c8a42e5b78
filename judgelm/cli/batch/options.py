"""The options of `judgelm-batch`; light, so that its help comes at once."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import typer

from judgelm.cli.options import JUDGING, parse_pairs
from judgelm.errors import ConfigError
from judgelm.parsing.scores import OrderRule

_TRUST, _MODEL = "Probabilities, reasons and retries", "Model and engine"

Limit = Annotated[int | None, typer.Option(min=0, help="Judge only the first N samples.")]
Retries = Annotated[Literal["engine", "failed"], typer.Option(help="Earlier failures that a rerun judges again.")]
Overwrite = Annotated[bool, typer.Option(help="Start over, deleting OUT and its manifest.")]
MaxFailureRate = Annotated[float, typer.Option(min=0.0, max=1.0, help="Exit with code 2 above this share of failures.")]
References = Annotated[str | None, typer.Option(help="File with references by id.", rich_help_panel=JUDGING)]
BothOrders = Annotated[bool, typer.Option(help="Judge each pair in both orders.", rich_help_panel=JUDGING)]
Temperature = Annotated[
    float, typer.Option(min=0.0, help="Sampling temperature; 0 is greedy.", rich_help_panel=JUDGING)
]
Seed = Annotated[int, typer.Option(help="Seed for temperature above 0.", rich_help_panel=JUDGING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeFlags:
    """Flags that are fields of the pair mode, and of the other modes that have a field of that name.

    How to judge:
        order_rule: Orders into one verdict: by the mean score, by the given order, a conflict is a tie, or by P(first
            better).
        tie_threshold: For probability: maximum distance from 0.5 of a tie.
        accept_one_order: If one order fails, use the verdict of the other.
        reference: Show references: if available, always, never.
        max_tokens: Maximum tokens of the score line.

    Probabilities, reasons and retries:
        distribution: Compute the probability of every score line: P(first better), expected scores.
        reasons: Explain all judgments, those close to a tie, or those whose orders disagree.
        close_threshold: For close: maximum distance of P(first better) from 0.5.
        reason_tokens: Maximum tokens of a reason, within the judge's window.
        retry_unparseable: Retry unparseable replies: held to the grammar of score lines (not every engine can); in
            modes with labels for the more probable one.
    """

    both_orders: BothOrders = False
    order_rule: OrderRule = "mean"
    tie_threshold: Annotated[float, typer.Option(min=0.0, max=0.5)] = 0.05
    accept_one_order: bool = False
    reference: Literal["auto", "use", "ignore"] = "auto"
    temperature: Temperature = 0.0
    seed: Seed = 0
    max_tokens: Annotated[int, typer.Option(min=1)] = 24
    distribution: bool = False
    reasons: Literal["none", "all", "close", "flips"] = "none"
    close_threshold: Annotated[float, typer.Option(min=0.0, max=0.5)] = 0.1
    reason_tokens: Annotated[int, typer.Option(min=1)] = 512
    retry_unparseable: bool = False


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
