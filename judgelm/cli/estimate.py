"""`judgelm estimate`: from many judgments and few labels to a win rate with an interval that holds."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli.console import console
from judgelm.cli.eval import ControlOption, LabelsOption
from judgelm.cli.options import LabelOptions
from judgelm.cli.output import JsonOut, Quiet, is_stdout, write_json

if TYPE_CHECKING:
    from judgelm.data.samples import Reading
    from judgelm.records import Sample


def estimate_command(
    judgments: Annotated[Path, typer.Argument()],
    labels: LabelsOption,
    samples: Annotated[Path | None, typer.Option("--samples", "-s", metavar="FILE")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    against: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    width: Annotated[float | None, typer.Option(min=0.001, max=1.0)] = None,
    control: ControlOption = None,
    *,
    rows: LabelOptions,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Estimate how often a model really beats another: by the judge, the labels, Rogan-Gladen and PPI++.

    The labelled pairs must be a random part of those judged. A tie is half a win.

    Options:
        judgments: A run file of judgelm-batch over pairs.
        samples: The pairs that were judged, where the labels file lacks some.
        model: Model whose wins are counted; default: the first of two.
        against: Only pairs against this model.
        width: Also say how many labels an interval this wide (0.1: 10 points) needs.

    Examples:
        judgelm estimate run.jsonl --labels labelled.jsonl --samples pairs.jsonl
        judgelm estimate run.jsonl -l some.jsonl -s pairs.jsonl --width 0.1
        judgelm estimate run.jsonl -l some.jsonl -s pairs.jsonl --control length

    Exit codes: 0 done, 1 usage or input error, 2 too many labels unreadable (--max-reject-rate).
    """
    from judgelm.cli.claim_tables import print_claim  # statsmodels takes seconds to load
    from judgelm.cli.evaluation import load_labels, load_manifest
    from judgelm.data.judged_texts import match_samples
    from judgelm.data.labelled_set import match_labels
    from judgelm.runs.run_files import read_judgments
    from judgelm.studies.claim import ClaimOptions, claim_win_rate

    run = read_judgments(judgments)
    loaded = load_labels(labels, "auto", load_manifest(judgments), rows.reading)
    labelled, texts = match_labels(run, loaded, name=str(labels))
    pairs = dict(labelled.samples)
    if samples is not None:
        pairs |= match_samples(run, read_samples(samples, rows.reading), name=str(samples))[0]
    options = ClaimOptions(model=model, against=against, control=control, width=width)
    claim = claim_win_rate(run, labelled.labels, pairs, options)
    claim = replace(claim, warnings=(*claim.warnings, *labelled.notes(), *texts.notes()))
    write_json(json_out, claim.to_json())
    if not (quiet or is_stdout(json_out)):
        print_claim(claim)
    rows.check_rejected(labels, labelled.rejected, labelled.read)


def read_samples(path: Path, reading: "Reading") -> "dict[str, Sample]":
    """The samples of a file by id; rows that cannot be used are shown by reason.

    Raises:
        InputError: the file cannot be read.
    """
    from judgelm.data.readers.rows import RejectCounts
    from judgelm.data.samples import SampleStream

    rejects = RejectCounts()
    pairs = {sample.id: sample for sample in SampleStream([str(path)], on_reject=rejects, reading=reading)}
    for line in rejects.lines():
        console.print(f"row left out: {line}", markup=False, highlight=False, soft_wrap=True)
    return pairs
