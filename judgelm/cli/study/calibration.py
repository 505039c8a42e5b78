"""`judgelm study calibration`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from judgelm.cli.eval import LabelReferenceOption, LabelsOption
from judgelm.cli.options import LabelOptions
from judgelm.cli.study.options import StudyOutput


def calibration_command(
    judgments: Annotated[Path, typer.Argument(metavar="RUN")],
    labels: LabelsOption,
    bins: Annotated[int, typer.Option(min=2, max=100)] = 10,
    binning: Literal["uniform", "quantile"] = "uniform",
    fit_share: Annotated[float, typer.Option(min=0.0, max=0.95)] = 0.5,
    label_reference: LabelReferenceOption = "auto",
    *,
    rows_as: LabelOptions,
    output: StudyOutput,
) -> None:
    """Reliability of the judge's probabilities, and the effect of a temperature or a Platt scaling.

    Example: judgelm study calibration judgments.jsonl --labels labels.jsonl -o calibration

    Options:
        judgments: A run file with probabilities, of judgelm-batch --distribution.
        bins: Bins of the reliability curve.
        binning: Bins of equal width, or of equal numbers of pairs.
        fit_share: Share of the questions to fit scalings on; 0 fits none.
    """
    from judgelm.cli.study.inputs import read_fitting_labels, read_run  # scikit-learn takes seconds to load
    from judgelm.studies.calibration import CalibrationOptions, calibration_study

    options = CalibrationOptions(bins=bins, binning=binning, fit_share=fit_share, resampling=output.resampling)
    labelled = read_fitting_labels(labels, judgments, label_reference, rows_as.reading)
    output.write(calibration_study(read_run(judgments), labelled, options))
    rows_as.check_rejected(labels, labelled.rejected, labelled.read)
