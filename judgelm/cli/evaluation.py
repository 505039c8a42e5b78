"""`judgelm eval` and `judgelm report`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from judgelm.cli import options
from judgelm.cli.console import console, json_default
from judgelm.cli.options import ScoringOptions
from judgelm.errors import RunError


def eval_command(
    judgments: options.JudgmentsArgument,
    labels: options.LabelsOption,
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
    json_out: Annotated[Path | None, typer.Option("--json", help="Write all numbers as JSON; - is stdout.")] = None,
) -> None:
    """Compare judgments with labels: agreement, position bias, failures, groups, people; 95 % intervals."""
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
    from judgelm.cli.scoring import score  # scikit-learn and pandas take seconds to load
    from judgelm.cli.tables import print_evaluation

    scored = score(asked)
    found = scored.evaluation.to_json() | ({} if scored.cascade is None else {"cascade": asdict(scored.cascade)})
    text = json.dumps(found, indent=1, default=json_default)
    if json_out is not None and str(json_out) == "-":
        typer.echo(text)
        return
    if json_out is not None:
        _write(json_out, text)
    print_evaluation(scored)


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
    from judgelm.cli.scoring import score  # scikit-learn and matplotlib take seconds to load
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
    _write(out, page)
    console.print(f"report in {out}", markup=False, highlight=False)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror}; choose another place") from error
