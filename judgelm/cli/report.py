"""`judgelm report`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from judgelm.cli import options
from judgelm.cli.console import console
from judgelm.cli.options import ScoringOptions
from judgelm.cli.output import JsonOut, Quiet, write_json, write_text

EPILOG = """
Examples:

  judgelm report judgments.jsonl --labels labelled.jsonl -o report.html

  judgelm report judgments.jsonl -l labelled.jsonl --title "My judge"

Exit codes: 0 done, 1 usage or input error.
"""


def report_command(
    judgments: options.JudgmentsArgument,
    labels: options.LabelsOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Title of the report.")] = None,
    reversed_: options.ReversedOption = None,
    protocol: options.ProtocolOption = "judgelm",
    failures: options.FailuresOption = None,
    order_rule: options.RuleOption = None,
    tie_band: options.TieBandOption = None,
    label_reference: options.LabelReferenceOption = "auto",
    parser: options.ParserOption = "judgelm",
    scale: options.ScaleOption = "1-10",
    bootstrap: options.BootstrapOption = 2000,
    seed: options.SeedOption = 0,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Write one self-contained HTML file with the metrics, figures, and every disagreement, flip and failure."""
    asked = ScoringOptions(
        judgments=judgments,
        labels=labels,
        reverse=reversed_,
        protocol=protocol,
        failures=failures,
        order_rule=order_rule,
        tie_band=tie_band,
        label_reference=label_reference,
        parser=parser,
        scale=scale,
        bootstrap=bootstrap,
        seed=seed,
    )
    from judgelm.cli.evaluation import score  # scikit-learn and matplotlib take seconds to load
    from judgelm.reports.html import render_report

    scored = score(asked)
    page = render_report(
        scored.evaluation,
        judgments=scored.judgments,
        samples=scored.labelled.samples or None,
        labels=scored.labelled.labels,
        manifest=scored.manifest,
        cascade=scored.cascade,
        title=title or f"{judgments.stem} against {labels.stem}",
    )
    write_text(out, page)
    cascade = {} if scored.cascade is None else {"cascade": asdict(scored.cascade)}
    write_json(json_out, scored.evaluation.to_json() | cascade)
    if not quiet:
        console.print(f"report in {out}", markup=False, highlight=False)
