"""`judgelm study calibration`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from judgelm.cli.options import LabelReferenceOption, LabelsOption
from judgelm.cli.study.options import BootstrapOption, JsonOption, OutOption, OverwriteOption, SeedOption, finish


def calibration_command(
    judgments: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run file with probabilities, of judgelm-batch --distribution.")
    ],
    labels: LabelsOption,
    out: OutOption,
    bins: Annotated[int, typer.Option(min=2, max=100, help="Bins of the reliability curve.")] = 10,
    binning: Annotated[
        Literal["uniform", "quantile"], typer.Option(help="Bins of equal width, or with as many pairs in each.")
    ] = "uniform",
    fit_share: Annotated[
        float, typer.Option(min=0.0, max=0.95, help="Share of the questions to fit scalings on; 0 fits none.")
    ] = 0.5,
    label_reference: LabelReferenceOption = "auto",
    overwrite: OverwriteOption = False,
    seed: SeedOption = 0,
    bootstrap: BootstrapOption = 2000,
    json: JsonOption = None,
) -> None:
    """Do the judge's probabilities mean what they say, and what does a temperature or a Platt scaling mend?

    Example: judgelm study calibration judgments.jsonl --labels labels.jsonl -o calibration
    """
    from judgelm.cli.study.inputs import read_fitting_labels, read_judges  # scikit-learn takes seconds to load
    from judgelm.metrics.resampling import Resampling
    from judgelm.studies.calibration.measures import CalibrationOptions
    from judgelm.studies.calibration.study import calibration_study

    [found] = read_judges([judgments], [], parser="judgelm", scale="any").values()
    result = calibration_study(
        found,
        read_fitting_labels(labels, judgments, label_reference),
        CalibrationOptions(
            bins=bins, binning=binning, fit_share=fit_share, resampling=Resampling(seed=seed, resamples=bootstrap)
        ),
    )
    finish(result, out, overwrite=overwrite, json=json)
