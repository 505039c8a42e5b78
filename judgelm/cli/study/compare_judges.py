"""`judgelm study compare-judges`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from judgelm.cli.eval import LabelReferenceOption, LabelsOption, ParserOption, ScaleOption
from judgelm.cli.options import LabelOptions
from judgelm.cli.study.options import StudyOutput
from judgelm.parsing.scores import LabelRule


def compare_judges_command(
    judgments: Annotated[list[Path], typer.Argument(metavar="RUN")],
    labels: LabelsOption,
    name: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
    failures: Literal["excluded", "as_tie"] = "excluded",
    order_rule: LabelRule = "as_judged",
    tie_threshold: Annotated[float, typer.Option(min=0.0, max=0.5)] = 0.05,
    label_reference: LabelReferenceOption = "auto",
    parser: ParserOption = "judgelm",
    scale: ScaleOption = "1-10",
    *,
    rows_as: LabelOptions,
    output: StudyOutput,
) -> None:
    """Compare judges on the same labelled pairs: paired differences, kappa, flips, order effects, by category.

    Example: judgelm study compare-judges a.jsonl b.jsonl --labels labels.jsonl -o compared

    Options:
        judgments: Two or more: run files, JudgeLM outputs (pred_text), PandaLM results.
        name: Name of a judge, once for each file, in order.
        failures: Leave failed judgments out, or count them as ties.
        order_rule: Two orders into one label, for all judges alike; given is the rule of `judgelm eval`.
        tie_threshold: Under rule probability: a tie is at most this far from 0.5.
    """
    from judgelm.cli.study.inputs import read_fitting_labels, read_judges  # scikit-learn takes seconds to load
    from judgelm.studies.compare_judges import CompareOptions, compare_judges

    options = CompareOptions(
        failures=failures, order_rule=order_rule, tie_threshold=tie_threshold, resampling=output.resampling
    )
    judges = read_judges(judgments, name or [], parser=parser, scale=scale)
    labelled = read_fitting_labels(labels, judgments[0], label_reference, rows_as.reading)
    output.write(compare_judges(judges, labelled, options))
    rows_as.check_rejected(labels, labelled.rejected, labelled.read)
