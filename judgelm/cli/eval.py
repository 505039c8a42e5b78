"""`judgelm eval` and `judgelm report`; light, so that their help comes at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from judgelm.cli.console import console
from judgelm.cli.options import LabelOptions
from judgelm.cli.output import JsonOut, Quiet, is_stdout, write_json, write_text
from judgelm.parsing.scores import LabelRule

LabelChoice = Literal["auto", "with", "without"]
ParserName = Literal["judgelm", "original", "anywhere"]

LabelsOption = Annotated[
    Path,
    typer.Option("--labels", "-l", metavar="FILE", help="Labels or teacher scores: JudgeLM, PandaLM or plain rows."),
]
LabelReferenceOption = Annotated[
    LabelChoice,
    typer.Option(help="Which of two labels counts, of rows judged with and without reference; auto asks the manifest."),
]
ParserOption = Annotated[
    ParserName,
    typer.Option(
        help="Reads pred_text; original: the JudgeLM authors' own parser; anywhere: scores wherever the reply states "
        "them, counted apart."
    ),
]
ScaleOption = Annotated[str, typer.Option(help="Scores accepted in pred_text: LOW-HIGH, or any.")]
ControlOption = Annotated[
    Literal["length", "length,style"] | None,
    typer.Option(help="Take the effect of length, or of length and Markdown, out of the judge's verdicts."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringOptions(LabelOptions):
    """The options of both commands.

    Options:
        judgments: A run file of judgelm-batch, JudgeLM outputs (pred_text), or PandaLM results.
        reversed_: Judgments of the swapped pairs, from a run of their own.
        protocol: pandalm: failures count as ties, and so does a conflict of two orders.
        failures: Treatment of failures that headlines (both are shown).
        order_rule: Two orders into one label; default: given, of runs that chose no rule of their own (pandalm: tie).
            probability needs a --distribution run.
        tie_threshold: Under probability: a tie is at most this far from 0.5; default: the run's.
        bootstrap: Resamples behind each 95 % interval.
        seed: Seed of the resampling.
    """

    judgments: Annotated[Path, typer.Argument()]
    labels: LabelsOption
    reversed_: Annotated[Path | None, typer.Option("--reversed")] = None
    protocol: Literal["judgelm", "pandalm"] = "judgelm"
    failures: Literal["excluded", "as_tie"] | None = None
    order_rule: LabelRule | None = None
    tie_threshold: Annotated[float | None, typer.Option(min=0.0, max=0.5)] = None
    label_reference: LabelReferenceOption = "auto"
    parser: ParserOption = "judgelm"
    scale: ScaleOption = "1-10"
    control: ControlOption = None
    bootstrap: Annotated[int, typer.Option(min=100)] = 2000
    seed: int = 0


def eval_command(scoring: ScoringOptions, json_out: JsonOut = None, quiet: Quiet = False) -> None:
    """Compare judgments with labels: agreement, position bias, failures, groups, people; 95 % intervals.

    Examples:
        judgelm eval judgments.jsonl --labels labelled.jsonl
        judgelm eval judgments.jsonl -l labelled.jsonl --protocol pandalm
        judgelm eval judgments.jsonl -l labelled.jsonl --quiet --json eval.json

    Exit codes: 0 done, 1 usage or input error, 2 too many labels unreadable (--max-reject-rate).
    """
    from judgelm.cli.evaluation import score  # scikit-learn and pandas take seconds to load
    from judgelm.cli.tables import print_evaluation

    scored = score(scoring)
    write_json(json_out, scored.to_json())
    if not (quiet or is_stdout(json_out)):
        print_evaluation(scored)
    scoring.check_rejected(scoring.labels, scored.labelled.rejected, scored.labelled.read)


def report_command(
    scoring: ScoringOptions,
    out: Path = Path("report.html"),
    title: str | None = None,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Write one self-contained HTML file with the metrics, figures, and every disagreement, flip and failure.

    Options:
        out: The HTML file to write.
        title: Title of the report.

    Examples:
        judgelm report judgments.jsonl --labels labelled.jsonl -o report.html
        judgelm report judgments.jsonl -l labelled.jsonl --title "My judge"

    Exit codes: 0 done, 1 usage or input error, 2 too many labels unreadable (--max-reject-rate).
    """
    from judgelm.cli.evaluation import score  # scikit-learn and matplotlib take seconds to load
    from judgelm.reports.html import render_report

    scored = score(scoring)
    page = render_report(
        scored.evaluation,
        judgments=scored.judgments,
        samples=scored.labelled.samples or None,
        labels=scored.labelled.labels,
        manifest=scored.manifest,
        cascade=scored.cascade,
        control=scored.control,
        claim=scored.claim,
        title=title or f"{scoring.judgments.stem} against {scoring.labels.stem}",
    )
    write_text(out, page)
    write_json(json_out, scored.to_json())
    if not quiet:
        console.print(f"report in {out}", markup=False, highlight=False)
    scoring.check_rejected(scoring.labels, scored.labelled.rejected, scored.labelled.read)
