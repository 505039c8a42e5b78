"""`judgelm panel`: several judges' runs over the same samples, joined into one."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from judgelm.cli.console import console
from judgelm.cli.output import JsonOut, Quiet, write_json
from judgelm.errors import InputError
from judgelm.yaml_files import read_yaml

if TYPE_CHECKING:
    from judgelm.runs.stats import PanelStats, RunStats


def panel_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...")],
    out: Annotated[Path, typer.Option(metavar="OUT.jsonl")],
    rule: Literal["vote", "mean"] = "vote",
    families: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    quorum: Annotated[int | None, typer.Option(min=1)] = None,
    overwrite: bool = False,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Join several judges' runs over the same samples into one, by vote or by mean score.

    A judge is named by its run file, or its model. Failed and missing judgments are no votes.

    Options:
        runs: Run files of judgelm-batch, one per judge.
        out: The joined run file.
        rule: Count verdicts, or compare mean scores.
        families: YAML or JSON from each family to a list of its judges; a family has one vote.
        quorum: Minimum of judges (families) with a verdict; default: more than half.
        overwrite: Start OUT over.

    Examples:
        judgelm panel gpt.jsonl llama.jsonl mistral.jsonl -o panel.jsonl
        judgelm panel a.jsonl b.jsonl c.jsonl -o panel.jsonl --rule mean

    Exit codes: 0 done, 1 usage or input error.
    """
    from judgelm.runs.panel import Panel, aggregate

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
    stats, counts = aggregate(panel)
    write_json(json_out, stats.row() | asdict(counts))
    if quiet:
        return
    console.print(_judges(counts))
    console.print(_summary(stats, counts))
    if not counts.same_input:
        console.message("the runs read different files; they are joined by id", label="note:", style="bold yellow")
    console.print(f"judgments in {out}", markup=False, highlight=False)


def _families(path: Path) -> dict[str, list[str]]:
    families = read_yaml(path)
    if not isinstance(families, dict):
        raise InputError(f"{path}: expected a mapping from family to a list of judges")
    for family, judges in families.items():
        if not isinstance(judges, list) or not all(isinstance(judge, str) for judge in judges):
            raise InputError(f"{path}: family {family}: expected a list of names, numbers in quotes")
    return {str(family): judges for family, judges in families.items()}


def _judges(counts: "PanelStats") -> Table:
    table = Table(title="judges of the panel", title_justify="left")
    for head in ("judge", "family", "verdicts", "failed", "missing", "same verdict as the panel"):
        table.add_column(head, justify="left" if head in ("judge", "family") else "right")
    for name, judge in counts.judges.items():
        share = f"{judge.same / judge.verdicts:.1%} of {judge.verdicts}" if judge.verdicts else "no verdicts"
        table.add_row(name, judge.family, str(judge.verdicts), str(judge.failed), str(judge.missing), share)
    return table


def _summary(stats: "RunStats", counts: "PanelStats") -> Table:
    table = Table(title="judgments", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("joined", str(stats.judged))
    if stats.winners:
        table.add_row("first / tie / second better", " / ".join(str(stats.winners[key]) for key in ("1", "tie", "2")))
    for label, count in stats.labels.most_common():
        table.add_row(label, str(count))
    if stats.rankings:
        table.add_row("ranked", str(stats.rankings))
    if stats.grades:
        table.add_row("graded, mean", f"{stats.grades}, {stats.grade_sum / stats.grades:.2f}")
    table.add_row("undecided", str(sum(stats.failures.values())))
    table.add_row("unanimous", str(counts.unanimous))
    return table
