"""`judgelm study ssr`: the judge's own answer as the reference never, always, or where its self-solves agree."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from judgelm.cli.study.options import StudyOutput


def ssr_command(
    never: Annotated[Path, typer.Option(metavar="RUN")],
    always: Annotated[Path, typer.Option(metavar="RUN")],
    truth: Annotated[Path, typer.Option("--truth", "-t", metavar="FILE")],
    selective: Annotated[Path | None, typer.Option(metavar="RUN")] = None,
    tau: float = 0.8,
    split: Literal["wrong", "half", "tie"] = "wrong",
    calibration_share: float = 0.5,
    *,
    output: StudyOutput,
) -> None:
    """Selective self-reference at every tau from two runs on the same self-solves: accuracy, gate, slices, cost.

    Example: judgelm study ssr --never never.jsonl --always always.jsonl -t truth.jsonl --tau 0.8 -o FOLDER

    Options:
        never: Run of mode ssr that judged without reference.
        always: Run of mode ssr that always showed the majority answer.
        truth: The truth about each judged pair, JSON lines: id, winner (1 or 2); answer (the right one) or
            judge_correct; question, category.
        selective: A run with its own gate, to be checked against the two others.
        tau: Least agreement of the self-solves for a reference, 0 to 1.
        split: How orders that name different answers count; the first table shows all three.
        calibration_share: Share of each category's questions on which tau is chosen.
    """
    from judgelm.runs.run_files import read_judgments  # statsmodels takes seconds to load
    from judgelm.studies.ssr import SsrOptions, ssr_study
    from judgelm.studies.ssr_items import pair_truth_from_row
    from judgelm.studies.truth_file import read_truths

    options = SsrOptions(tau=tau, split=split, calibration_share=calibration_share, resampling=output.resampling)
    truths = read_truths(truth, pair_truth_from_row)
    gated = None if selective is None else read_judgments(selective)
    output.write(ssr_study(read_judgments(never), read_judgments(always), truths, options, selective=gated))
