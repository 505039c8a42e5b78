"""`judgelm eval` and `judgelm report`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from judgelm.cli import scoring
from judgelm.cli.console import console, json_default
from judgelm.cli.scoring import Scored, ScoringOptions, score
from judgelm.errors import RunError
from judgelm.metrics.resampling import Estimate
from judgelm.reports.html import render_report
from judgelm.reports.wording import headline
from judgelm.studies.evaluation import Evaluation

_ROWS = ("accuracy", "precision", "recall", "f1", "majority", "gain")
_NAMES = {"accuracy": "agreement (accuracy)", "majority": "always the most frequent label", "gain": "gain over that"}
_POSITION = ("consistency", "toward_first", "toward_second", "delta")
_SHOWN_GROUPS = 12


def eval_command(
    judgments: scoring.JudgmentsArgument,
    labels: scoring.LabelsOption,
    reversed_: scoring.ReversedOption = None,
    protocol: scoring.ProtocolOption = "judgelm",
    failures: scoring.FailuresOption = None,
    order_rule: scoring.RuleOption = None,
    label_reference: scoring.LabelReferenceOption = "auto",
    parser: scoring.ParserOption = "judgelm",
    scale: scoring.ScaleOption = "1-10",
    bootstrap: scoring.BootstrapOption = 2000,
    seed: scoring.SeedOption = 0,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write all numbers as JSON; - is stdout.")] = None,
) -> None:
    """Compare judgments with labels: agreement, position bias, failures, groups, people; 95 % intervals."""
    scored = score(
        ScoringOptions(
            judgments=judgments,
            labels=labels,
            reverse=reversed_,
            protocol=protocol,
            failures=failures,
            order_rule=order_rule,
            label_reference=label_reference,
            parser=parser,
            scale=scale,
            bootstrap=bootstrap,
            seed=seed,
        )
    )
    text = json.dumps(scored.evaluation.to_json(), indent=1, default=json_default)
    if json_out is not None and str(json_out) == "-":
        typer.echo(text)
        return
    if json_out is not None:
        _write(json_out, text)
    _print(scored)


def report_command(
    judgments: scoring.JudgmentsArgument,
    labels: scoring.LabelsOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Title of the report.")] = None,
    reversed_: scoring.ReversedOption = None,
    protocol: scoring.ProtocolOption = "judgelm",
    failures: scoring.FailuresOption = None,
    order_rule: scoring.RuleOption = None,
    label_reference: scoring.LabelReferenceOption = "auto",
    parser: scoring.ParserOption = "judgelm",
    scale: scoring.ScaleOption = "1-10",
    bootstrap: scoring.BootstrapOption = 2000,
    seed: scoring.SeedOption = 0,
) -> None:
    """Write one self-contained HTML file with the metrics, figures, and every disagreement, flip and failure."""
    scored = score(
        ScoringOptions(
            judgments=judgments,
            labels=labels,
            reverse=reversed_,
            protocol=protocol,
            failures=failures,
            order_rule=order_rule,
            label_reference=label_reference,
            parser=parser,
            scale=scale,
            bootstrap=bootstrap,
            seed=seed,
        )
    )
    page = render_report(
        scored.evaluation,
        judgments=scored.judgments,
        samples=scored.labelled.samples or None,
        labels=scored.labelled.labels,
        manifest=scored.manifest,
        title=title or f"{judgments.stem} against {labels.stem}",
    )
    _write(out, page)
    console.print(f"report in {out}", highlight=False)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror}; choose another place") from error


def _print(scored: Scored) -> None:
    """The evaluation as tables on standard output."""
    out = Console()
    evaluation = scored.evaluation
    for sentence in headline(evaluation):
        out.print(sentence, highlight=False)
    out.print(_metrics_table(evaluation))
    for name, rows in evaluation.groups.items():
        table = Table(title=f"by {name}", title_justify="left")
        for column in (name, "n", "failed", "agreement", "95 % interval", "most frequent label"):
            table.add_column(column, justify="left" if column == name else "right")
        for row in rows[:_SHOWN_GROUPS]:
            accuracy = _cells(row.accuracy)
            share = "-" if row.majority_share is None else f"{100 * row.majority_share:.1f} %"
            table.add_row(row.value, str(row.n), str(row.failed), *accuracy, share)
        out.print(table)
        if len(rows) > _SHOWN_GROUPS:
            out.print(f"{len(rows) - _SHOWN_GROUPS} more in --json and in the report", highlight=False)
    out.print(evaluation.protocol, highlight=False)
    _print_counts(out, scored)


def _print_counts(out: Console, scored: Scored) -> None:
    """What did not take part, by reason; never silent."""
    counts = scored.evaluation.counts
    codes = ", ".join(f"{code} {number}" for code, number in scored.evaluation.failure_codes.items()) or "none"
    out.print(f"failures: {codes}", highlight=False)
    for number, what in (
        (counts.labels_without_judgment, "labels without judgment"),
        (counts.judgments_without_label, "judgments without label"),
        (scored.labelled.unlabelled, "rows of the labels file without label"),
        (scored.labelled.rejected, "unusable rows of the labels file"),
    ):
        if number:
            out.print(f"{number} {what}", highlight=False)


def _metrics_table(evaluation: Evaluation) -> Table:
    table = Table(title="against the labels, in percent, with 95 % intervals", title_justify="left")
    table.add_column("metric")
    table.add_column("failures excluded", justify="right")
    table.add_column("failures as ties", justify="right")
    treatments = (evaluation.excluded, evaluation.as_tie)
    table.add_row("n", *(str(one.n) if one else "0" for one in treatments))
    for name in _ROWS:
        found = [getattr(one, name, None) for one in treatments]
        table.add_row(_NAMES.get(name, name), *(_cell(estimate) for estimate in found))
    if evaluation.as_tie.position is not None:
        for name in _POSITION:
            found = [getattr(one.position, name, None) if one else None for one in treatments]
            table.add_row(name.replace("_", " "), *(_cell(estimate) for estimate in found))
    return table


def _cell(estimate: Estimate | None) -> str:
    return "-" if estimate is None else "{} ({})".format(*_cells(estimate))


def _cells(estimate: Estimate | None) -> tuple[str, str]:
    """An estimate and its interval, both in percent."""
    if estimate is None:
        return "-", "-"
    return f"{100 * estimate.value:.2f}", f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}"
