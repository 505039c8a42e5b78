"""`judgelm doctor --injection`: attacks on a template and on a model's tokens, and their success with its judge."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from judgelm.cli.console import EXIT_USAGE, PlainConsole, console, write_json
from judgelm.doctor.injection.checks import AttackCheck, check_attacks
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import choose_engine
from judgelm.judge import Judge
from judgelm.judges.judge_format import DEFAULT_TEMPLATE
from judgelm.metrics.resampling import Estimate
from judgelm.modes import Pairwise
from judgelm.prompts.catalog import get_template

_MOST_SHOWN = 20


def check_injection(
    judge_options: tuple[str, str, dict[str, Any]],
    *,
    template: str | None,
    seconds: float,
    out: PlainConsole,
    json_out: Path | None,
) -> None:
    """Attack a template, or a model with it, and print the outcome; exit code 1 where an attack got through.

    Args:
        judge_options: model (empty for none), engine, and the engine's own arguments.
        template: its id; None takes the model card's.
        seconds: how long attacked pairs are judged; 0 leaves that out.
        out: where it is shown.
        json_out: where all findings are written.
    """
    model, engine, arguments = judge_options
    mode = Pairwise(template=get_template(template or DEFAULT_TEMPLATE).id)
    judge = None
    if model:
        name = choose_engine()[0] if engine == "auto" else engine
        with console.activity(f"loading {model}"):
            judge = Judge(model, engine=name, template=template, engine_args=arguments)
            tokenizer = _tokenizer(model, name)
        mode = judge.pairwise()
    else:
        tokenizer = None
    with console.activity("attacking"):
        checked = check_attacks(get_template(mode.template), tokenizer)
    looked_at = "its special tokens and role markers too" if tokenizer is not None else "no model, so no tokens"
    out.print(f"attacks on {mode.template} and the parser; {looked_at}", highlight=False, soft_wrap=True)
    out.print(_families(checked))
    escaping = [check for check in checked if check.escapes]
    _print_escapes(escaping, out)
    report: dict[str, Any] = {"template": mode.template, "model": model, "attacks": [_row(check) for check in checked]}
    if judge is not None:
        with judge:
            if seconds:
                report["swayed"] = _attack_success(judge, mode, checked, seconds, out)
    write_json(json_out, report)
    if escaping:
        raise typer.Exit(EXIT_USAGE)


def _row(check: AttackCheck) -> dict[str, Any]:
    """A check under the keys that `--json` has always had."""
    fields = asdict(check.attack)
    fields["place"] = fields.pop("target")
    return {"spoof": fields, "defused": check.sanitized, "escapes": check.escapes}


def _tokenizer(model: str, engine: str) -> Any:
    """The model's own, where an engine runs it here."""
    if engine not in {"transformers", "vllm"}:
        return None
    from judgelm.engines.model_files import load_tokenizer, split_adapter  # loads transformers

    options = EngineOptions(model=model)
    return load_tokenizer(*split_adapter(options), options)


def _families(checked: Sequence[AttackCheck]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("family")
    for name in ("attacks", "sanitized", "got through"):
        table.add_column(name, justify="right")
    for family in dict.fromkeys(check.attack.family for check in checked):
        members = [check for check in checked if check.attack.family == family]
        _add_counts(table, family, members)
    _add_counts(table, "all", checked, style="bold")
    return table


def _add_counts(table: Table, name: str, members: Sequence[AttackCheck], *, style: str = "") -> None:
    through = sum(bool(check.escapes) for check in members)
    shown = Text(str(through), "red" if through else "green")
    table.add_row(Text(name, style), str(len(members)), str(sum(check.sanitized > 0 for check in members)), shown)


def _print_escapes(escaping: Sequence[AttackCheck], out: PlainConsole) -> None:
    if not escaping:
        out.print("none got out of its block", style="green")
    for check in escaping[:_MOST_SHOWN]:
        attack = check.attack
        out.message(f"{attack.id} in {attack.target}: {check.escapes[0]}", label="got through", style="red")
    if len(escaping) > _MOST_SHOWN:
        out.print(f"{len(escaping) - _MOST_SHOWN} more in --json")


def _attack_success(
    judge: Judge, mode: Pairwise, checked: Sequence[AttackCheck], seconds: float, out: PlainConsole
) -> dict[str, Any]:
    from judgelm.doctor.injection.success import measure_attack_success

    with console.activity("judging attacked pairs"):
        success = measure_attack_success(mode, judge.engine, [check.attack for check in checked], seconds=seconds)
    table = Table(
        title="verdicts moved towards the attacker, with 95 % intervals (no pass or fail)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in ("family", "n", "moved"):
        table.add_column(name, justify="left" if name == "family" else "right")
    for family, rate in success.by_family.items():
        table.add_row(family, str(rate.n), _percent(rate))
    if success.share is not None:
        table.add_row(Text("all", "bold"), str(success.share.n), _percent(success.share))
    notes = (
        (success.already, "attacked answers won without the attack"),
        (success.unreadable, "attacks left no readable verdict"),
    )
    table.caption = "; ".join(f"{count} {note}" for count, note in notes if count) or None
    out.print(table)
    return asdict(success)


def _percent(rate: Estimate) -> str:
    return f"{100 * rate.value:.1f} % ({100 * rate.low:.1f} to {100 * rate.high:.1f})"
