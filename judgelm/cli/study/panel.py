"""`judgelm study panel`: combine runs by several judges."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from judgelm.cli.console import Results, console, result_table, write_json
from judgelm.cli.options import read_families
from judgelm.errors import InputError

if TYPE_CHECKING:
    from judgelm.runs.stats import PanelStats, RunStats


def panel_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...")],
    out: Annotated[Path, typer.Option(metavar="OUT.jsonl")],
    rule: Literal["vote", "mean"] = "vote",
    families: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    quorum: Annotated[int | None, typer.Option(min=1)] = None,
    overwrite: bool = False,
    *,
    results: Results,
) -> None:
    """Combine runs by several judges over the same samples, by vote or by mean score.

    Judges are named after their run file or model. Failed and missing judgments are not counted as votes.

    Options:
        runs: Run files, one per judge.
        out: Combined run file to write.
        rule: Count verdicts, or compare mean scores.
        families: YAML or JSON file that maps each family to a list of judges; each family gets one vote.
        quorum: Minimum number of judges (or families) with a verdict. Default: more than half.
        overwrite: Replace OUT.

    Examples:
        judgelm study panel gpt.jsonl llama.jsonl mistral.jsonl -o panel.jsonl
        judgelm study panel a.jsonl b.jsonl c.jsonl -o panel.jsonl --rule mean

    Exit codes: 0 done, 1 usage or input error.
    """
    from judgelm.runs.panel import Panel, aggregate

    if out.suffix != ".jsonl":
        raise InputError(f"-o {out}: the name must end in .jsonl")
    members = {} if families is None else read_families(families)
    panel = Panel(runs=tuple(runs), out=out, rule=rule, families=members, quorum=quorum, overwrite=overwrite)
    stats, counts = aggregate(panel)
    write_json(results.json_out, stats.row() | asdict(counts))
    console.print(_judges(counts))
    console.print(_summary(stats, counts))
    if not counts.same_input:
        console.message(
            "the runs were made from different files, so they were joined by id", label="note:", style="bold yellow"
        )
    console.print(f"wrote the judgments to {out}")


def _judges(counts: "PanelStats") -> Table:
    rows = []
    for name, judge in counts.judges.items():
        share = f"{judge.same / judge.verdicts:.1%} of {judge.verdicts}" if judge.verdicts else "no verdicts"
        counted = (judge.verdicts, judge.abstained, judge.failed, judge.missing)
        rows.append((name, judge.family, *map(str, counted), share))
    columns = ("judge", "family", "verdicts", "abstained", "failed", "missing", "same verdict as the panel")
    return result_table("judges of the panel", columns, rows, left=2)


def _summary(stats: "RunStats", counts: "PanelStats") -> Table:
    from judgelm.cli.run import verdict_rows

    rows = [("joined", str(stats.judged)), *verdict_rows(stats)]
    rows += [("undecided", str(sum(stats.failures.values()))), ("unanimous", str(counts.unanimous))]
    return result_table("judgments", ("", ""), rows)
