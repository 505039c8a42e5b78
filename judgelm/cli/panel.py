"""`judgelm panel`: several judges' runs over the same samples, joined into one."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import yaml
from rich.table import Table

from judgelm.cli.console import console
from judgelm.errors import InputError
from judgelm.panel import Panel, PanelCounts, convene
from judgelm.tally import Tally


def panel_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run files of judgelm-batch, one per judge.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OUT.jsonl", help="The joined run file.")],
    rule: Annotated[Literal["vote", "mean"], typer.Option(help="Count verdicts, or compare mean scores.")] = "vote",
    families: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="YAML or JSON from each family to a list of its judges; a family has one vote."
        ),
    ] = None,
    quorum: Annotated[
        int | None, typer.Option(min=1, help="Judges (families) that must have a verdict; default: more than half.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", metavar="", help="Start OUT over.")] = False,
) -> None:
    """Join several judges' runs over the same samples into one, by vote or by mean score.

    A judge is named by its run file, or its model. What a judge failed on or lacks is no vote. For example:

    judgelm panel gpt.jsonl llama.jsonl mistral.jsonl -o panel.jsonl --rule vote
    """
    if out.suffix != ".jsonl":
        raise InputError(f"-o {out}: the judgments are JSONL; give it the ending .jsonl")
    panel = Panel(
        runs=tuple(runs),
        out=out,
        rule=rule,
        families={} if families is None else _families(families),
        quorum=quorum,
        overwrite=overwrite,
    )
    tally, counts = convene(panel)
    console.print(_judges(counts))
    console.print(_summary(tally, counts))
    if not counts.same_input:
        console.print("[bold yellow]note:[/] the runs read different files; they are joined by id all the same")
    console.print(f"judgments in {out}", markup=False, highlight=False)


def _families(path: Path) -> dict[str, list[str]]:
    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot read: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: expected a mapping from family to a list of judges")
    for family, judges in found.items():
        if not isinstance(judges, list) or not all(isinstance(one, str) for one in judges):
            raise InputError(f"{path}: family {family}: expected a list of names, numbers in quotes")
    return {str(family): judges for family, judges in found.items()}


def _judges(counts: PanelCounts) -> Table:
    table = Table(title="judges of the panel", title_justify="left")
    for head in ("judge", "family", "verdicts", "failed", "missing", "same verdict as the panel"):
        table.add_column(head, justify="left" if head in ("judge", "family") else "right")
    for name, one in counts.judges.items():
        share = f"{one.same / one.verdicts:.1%} of {one.verdicts}" if one.verdicts else "no verdicts"
        table.add_row(name, one.family, str(one.verdicts), str(one.failed), str(one.missing), share)
    return table


def _summary(tally: Tally, counts: PanelCounts) -> Table:
    table = Table(title="judgments", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("joined", str(tally.judged))
    if tally.winners:
        table.add_row("first / tie / second better", " / ".join(str(tally.winners[one]) for one in ("1", "tie", "2")))
    for label, count in tally.labels.most_common():
        table.add_row(label, str(count))
    if tally.rankings:
        table.add_row("ranked", str(tally.rankings))
    if tally.grades:
        table.add_row("graded, mean", f"{tally.grades}, {tally.grade_sum / tally.grades:.2f}")
    table.add_row("undecided", str(sum(tally.failures.values())))
    table.add_row("unanimous", str(counts.unanimous))
    return table
