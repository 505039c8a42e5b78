"""`judgelm study estimate`: estimate a model's win rate, corrected with labels for some of the pairs."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from judgelm.cli.console import Results, printed_rejects
from judgelm.cli.options import Control, LabelOptions, Labels


def estimate_command(
    judgments: Annotated[Path, typer.Argument()],
    labels: Labels,
    samples: Annotated[Path | None, typer.Option("--samples", "-s", metavar="FILE")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    against: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    width: Annotated[float | None, typer.Option(min=0.001, max=1.0)] = None,
    control: Control = None,
    *,
    rows: LabelOptions,
    results: Results,
) -> None:
    """Estimate a model's win rate from judgments and labels, with Rogan-Gladen and PPI++ corrections.

    The labelled pairs must be a random sample of the judged pairs. A tie counts as half a win.

    Options:
        judgments: Run file with judged pairs.
        samples: File with the judged pairs, if the labels file does not contain all pairs.
        model: Model to estimate the win rate for. Default: the first of two models.
        against: Use only pairs against this model.
        width: Also print the number of labels needed for an interval of this width (0.1 is 10 points).

    Examples:
        judgelm study estimate run.jsonl --labels labelled.jsonl --samples pairs.jsonl
        judgelm study estimate run.jsonl -l some.jsonl -s pairs.jsonl --width 0.1
        judgelm study estimate run.jsonl -l some.jsonl -s pairs.jsonl --control length

    Exit codes: 0 done, 1 usage or input error, 2 too many unreadable labels (--max-reject-rate).
    """
    from judgelm.cli.evaluation import decided, load_labels, load_manifest
    from judgelm.cli.tables import print_claim  # statsmodels is slow to import
    from judgelm.data.judged_texts import match_samples
    from judgelm.data.labelled_set import match_labels
    from judgelm.data.samples import SampleStream
    from judgelm.runs.run_files import read_judgments
    from judgelm.studies.claim import ClaimOptions, claim_win_rate

    run = decided(read_judgments(judgments), judgments)
    loaded = load_labels(labels, "auto", load_manifest(judgments), rows.reading_of(labels, judgments, other=samples))
    labelled, texts = match_labels(run, loaded, name=str(labels))
    pairs = dict(labelled.samples)
    if samples is not None:
        with printed_rejects("row skipped") as rejects:
            reading = rows.reading_of(samples, judgments, other=labels)
            stream = SampleStream([str(samples)], on_reject=rejects, reading=reading)
            by_id = {sample.id: sample for sample in stream}
        pairs |= match_samples(run, by_id, name=str(samples))[0]
    options = ClaimOptions(model=model, against=against, control=control, width=width)
    claim = claim_win_rate(run, labelled.labels, pairs, options)
    claim = replace(claim, warnings=(*claim.warnings, *replace(labelled, samples=pairs).notes(), *texts.notes()))
    if results.write(claim.to_json()):
        print_claim(claim)
    rows.check_rejected(labels, labelled.rejected, labelled.read)
