"""The options that `judgelm eval` and `judgelm report` share; light, so that their help comes at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from judgelm.parsing.distribution import LabelRule

LabelChoice = Literal["auto", "with", "without"]

JudgmentsArgument = Annotated[
    Path, typer.Argument(help="A run file of judgelm-batch, JudgeLM outputs (pred_text), or PandaLM results.")
]
LabelsOption = Annotated[
    Path,
    typer.Option("--labels", "-l", metavar="FILE", help="Labels or teacher scores: JudgeLM, PandaLM or plain rows."),
]
ReversedOption = Annotated[
    Path | None, typer.Option("--reversed", help="Judgments of the swapped pairs, from a run of their own.")
]
ProtocolOption = Annotated[
    Literal["judgelm", "pandalm"],
    typer.Option(help="pandalm: failures count as ties, and so does a conflict of two orders."),
]
FailuresOption = Annotated[
    Literal["excluded", "as_tie"] | None, typer.Option(help="Treatment of failures that headlines (both are shown).")
]
RuleOption = Annotated[
    LabelRule | None,
    typer.Option(
        help="Two orders into one label; default: given, of runs that chose no rule of their own (pandalm: tie). "
        "probability needs a --distribution run."
    ),
]
TieBandOption = Annotated[
    float | None,
    typer.Option(min=0.0, max=0.5, help="Under probability: a tie is at most this far from 0.5; default: the run's."),
]
LabelReferenceOption = Annotated[
    LabelChoice,
    typer.Option(help="Which of two labels counts, of rows judged with and without reference; auto asks the manifest."),
]
ParserName = Literal["judgelm", "original", "anywhere"]
ParserOption = Annotated[
    ParserName,
    typer.Option(
        help="Reads pred_text; original: the JudgeLM authors' own parser; anywhere: scores wherever the reply states "
        "them, counted apart."
    ),
]
ScaleOption = Annotated[str, typer.Option(help="Scores accepted in pred_text: LOW-HIGH, or any.")]
BootstrapOption = Annotated[int, typer.Option(min=100, help="Resamples behind each 95 % interval.")]
SeedOption = Annotated[int, typer.Option(help="Seed of the resampling.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringOptions:
    """The options of both commands, as they were given."""

    judgments: Path
    labels: Path
    reverse: Path | None
    protocol: Literal["judgelm", "pandalm"]
    failures: Literal["excluded", "as_tie"] | None
    order_rule: LabelRule | None
    tie_band: float | None
    label_reference: LabelChoice
    parser: ParserName
    scale: str
    bootstrap: int
    seed: int
