"""`judgelm doctor --spoofs`: attacks on a template, on a model's tokens, and how far they sway its judge."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from judgelm.cli.console import EXIT_USAGE, console
from judgelm.cli.doctor.output import escaped
from judgelm.cli.output import write_json
from judgelm.doctor.injection.checks import Checked, check_spoofs
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import choose_engine
from judgelm.judge import DEFAULT_TEMPLATE, Judge
from judgelm.metrics.resampling import Estimate
from judgelm.modes import Pairwise
from judgelm.prompts.catalog import get_template

_MOST_SHOWN = 20


def check_against_spoofs(
    asked: tuple[str, str, dict[str, Any]],
    *,
    template: str | None,
    seconds: float,
    out: Console,
    json_out: Path | None,
) -> None:
    """Attack a template, or a model with it, and print what came of it; exit code 1 where something got through.

    Args:
        asked: model (empty for none), engine, and the engine's own arguments.
        template: its id; None takes the model card's.
        seconds: how long attacked pairs are judged; 0 leaves that out.
        out: where it is shown.
        json_out: where all findings are written.
    """
    model, engine, arguments = asked
    mode = Pairwise(template=get_template(template or DEFAULT_TEMPLATE).id)
    judge = None
    if model:
        name = choose_engine()[0] if engine == "auto" else engine
        with console.status(f"loading {escaped(model)}"):
            judge = Judge(model, engine=name, template=template, engine_args=arguments)
            tokenizer = _tokenizer(model, name)
        mode = judge.pairwise()
    else:
        tokenizer = None
    with console.status("attacking"):
        checked = check_spoofs(get_template(mode.template), tokenizer)
    looked_at = "its special tokens and role markers too" if tokenizer is not None else "no model, so no tokens"
    out.print(f"attacks on {mode.template} and the parser; {looked_at}", highlight=False, soft_wrap=True)
    out.print(_families(checked))
    escaped_ones = [one for one in checked if one.escapes]
    _print_escapes(escaped_ones, out)
    found: dict[str, Any] = {"template": mode.template, "model": model, "attacks": [asdict(one) for one in checked]}
    if judge is not None:
        with judge:
            if seconds:
                found["swayed"] = _sway(judge, mode, checked, seconds, out)
    write_json(json_out, found)
    if escaped_ones:
        raise typer.Exit(EXIT_USAGE)


def _tokenizer(model: str, engine: str) -> Any:
    """The model's own, where an engine runs it here."""
    if engine not in {"transformers", "vllm"}:
        return None
    from judgelm.engines.model_files import load_tokenizer, split_adapter  # loads transformers

    options = EngineOptions(model=model)
    return load_tokenizer(*split_adapter(options), options)


def _families(checked: Sequence[Checked]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("family")
    for name in ("attacks", "defused", "got through"):
        table.add_column(name, justify="right")
    for family in dict.fromkeys(one.spoof.family for one in checked):
        members = [one for one in checked if one.spoof.family == family]
        _add_counts(table, family, members)
    _add_counts(table, "[bold]all[/]", checked)
    return table


def _add_counts(table: Table, name: str, members: Sequence[Checked]) -> None:
    through = sum(bool(one.escapes) for one in members)
    shown = f"[red]{through}[/]" if through else "[green]0[/]"
    table.add_row(name, str(len(members)), str(sum(one.defused > 0 for one in members)), shown)


def _print_escapes(found: Sequence[Checked], out: Console) -> None:
    if not found:
        out.print("[green]none got out of its block[/]")
    for one in found[:_MOST_SHOWN]:
        out.print(f"[red]got through[/] {escaped(one.spoof.id)} in {one.spoof.place}: {escaped(one.escapes[0])}")
    if len(found) > _MOST_SHOWN:
        out.print(f"{len(found) - _MOST_SHOWN} more in --json")


def _sway(judge: Judge, mode: Pairwise, checked: Sequence[Checked], seconds: float, out: Console) -> dict[str, Any]:
    from judgelm.doctor.injection.success import measure_swayed

    with console.status("judging attacked pairs"):
        found = measure_swayed(mode, judge.engine, [one.spoof for one in checked], seconds=seconds)
    table = Table(
        title="verdicts moved towards the attacker, with 95 % intervals (no pass or fail)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in ("family", "n", "moved"):
        table.add_column(name, justify="left" if name == "family" else "right")
    for family, one in found.by_family.items():
        table.add_row(family, str(one.n), _percent(one))
    if found.share is not None:
        table.add_row("[bold]all[/]", str(found.share.n), _percent(found.share))
    notes = (
        (found.already, "attacked answers won without the attack"),
        (found.unreadable, "attacks left no readable verdict"),
    )
    table.caption = "; ".join(f"{number} {what}" for number, what in notes if number) or None
    out.print(table)
    return asdict(found)


def _percent(one: Estimate) -> str:
    return f"{100 * one.value:.1f} % ({100 * one.low:.1f} to {100 * one.high:.1f})"
