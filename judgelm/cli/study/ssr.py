"""`judgelm study ssr`: the judge's own answer as the reference never, always, or where its self-solves agree."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from judgelm.cli.study import options as study_options
from judgelm.cli.study.options import finish


def ssr_command(
    never: Annotated[Path, typer.Option(metavar="RUN", help="Run of mode ssr that judged without reference.")],
    always: Annotated[
        Path, typer.Option(metavar="RUN", help="Run of mode ssr that always showed the majority answer.")
    ],
    truth: Annotated[
        Path,
        typer.Option(
            "--truth",
            "-t",
            metavar="FILE",
            help="What is true of each judged pair, JSON lines: id, winner (1 or 2); answer (the right one) or "
            "judge_correct; question, category.",
        ),
    ],
    out: study_options.OutOption,
    selective: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="A run with its own gate, to be checked against the two others."),
    ] = None,
    tau: Annotated[float, typer.Option(help="Least agreement of the self-solves for a reference, 0 to 1.")] = 0.8,
    split: Annotated[
        Literal["wrong", "half", "tie"],
        typer.Option(help="How orders that name different answers count; the first table shows all three."),
    ] = "wrong",
    calibration_share: Annotated[
        float, typer.Option(help="Share of each category's questions on which tau is chosen.")
    ] = 0.5,
    overwrite: study_options.OverwriteOption = False,
    bootstrap: study_options.BootstrapOption = 2000,
    seed: study_options.SeedOption = 0,
    json: study_options.JsonOption = None,
) -> None:
    """Selective self-reference at every tau from two runs on the same self-solves: accuracy, gate, slices, cost.

    Example: judgelm study ssr --never never.jsonl --always always.jsonl -t truth.jsonl --tau 0.8 -o FOLDER
    """
    from judgelm.jsonl import read_jsonl
    from judgelm.metrics.resampling import Resampling  # statsmodels takes seconds to load
    from judgelm.runs.run_files import read_judgments
    from judgelm.studies.ssr.items import pair_truth_from_row
    from judgelm.studies.ssr.study import SsrOptions, ssr_study
    from judgelm.studies.truth_file import by_sample

    options = SsrOptions(
        tau=tau,
        split=split,
        calibration_share=calibration_share,
        resampling=Resampling(seed=seed, resamples=bootstrap),
    )
    truths = by_sample(pair_truth_from_row(row, f"{truth}:{number}") for number, row in read_jsonl(truth))
    result = ssr_study(
        read_judgments(never),
        read_judgments(always),
        truths,
        options,
        selective=None if selective is None else read_judgments(selective),
    )
    finish(result, out, overwrite=overwrite, json=json)
