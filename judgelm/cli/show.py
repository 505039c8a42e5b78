"""`judgelm show`: the verdicts of a run over pairs, in a terminal and as a page."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from judgelm.cli.console import PlainConsole, console, printable
from judgelm.cli.options import LabelOptions
from judgelm.cli.output import JsonOut, Quiet, is_stdout, write_json, write_text
from judgelm.data.judged_texts import TextComparison
from judgelm.data.labelled_set import LabelledSet, match_labels, read_labelled_set
from judgelm.data.readers.rows import RejectCounts
from judgelm.data.samples import Reading
from judgelm.errors import InputError
from judgelm.records import Judgment, Label, PairVerdict, Sample, failure_name
from judgelm.runs.run_files import read_judgments, read_manifest

_WINNERS = {1: "first better", 2: "second better", "tie": "tie"}
_CONSISTENT = {True: "agree", False: "differ", None: "-"}


def show(
    judgments: Annotated[Path, typer.Argument()],
    samples: Annotated[Path | None, typer.Option("--samples", "-s", metavar="FILE")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 100,
    out: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    *,
    rows_as: LabelOptions,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Print the verdicts of a run over pairs, with probabilities; needs no labels.

    Options:
        judgments: A run file of judgelm-batch over pairs.
        samples: The pairs that were judged.
        limit: Maximum number of verdicts to print.
        out: Also write an HTML file with the replies.

    Examples:
        judgelm show judgments.jsonl --samples pairs.jsonl
        judgelm show judgments.jsonl --samples pairs.jsonl -o verdicts.html

    Exit codes: 0 done, 1 usage or input error, 2 too many rows unreadable (--max-reject-rate).
    """
    run = read_judgments(judgments)
    labelled, texts = LabelledSet(samples={}, labels={}, groups={}), TextComparison()
    if samples is not None:
        labelled, texts = match_labels(run, _read_samples(samples, rows_as.reading), name=str(samples))
    pairs, labels = labelled.samples, labelled.labels
    rows = [_row(judgment, pairs.get(name), labels.get(name)) for name, judgment in run.items()]
    summary = [*_summary(rows), *labelled.notes(), *texts.notes()]
    write_json(json_out, rows)
    if not (quiet or is_stdout(json_out)):
        _print_verdicts(rows, summary, limit)
    if out is not None:
        from judgelm.reports.html import render_verdicts  # loads scikit-learn and matplotlib

        title, manifest = f"Verdicts of {judgments.stem}", read_manifest(judgments) or {}
        page = render_verdicts(run, samples=pairs, labels=labels, manifest=manifest, title=title, summary=summary)
        write_text(out, page)
        if not quiet:
            console.print(f"page in {out}", markup=False, highlight=False, soft_wrap=True)
    if samples is not None:
        rows_as.check_rejected(samples, labelled.rejected, labelled.read)


def _read_samples(path: Path, reading: Reading) -> LabelledSet:
    """The samples of a file, with the labels that it has; unusable rows are printed by reason."""
    rejects = RejectCounts()
    labelled = read_labelled_set(str(path), on_reject=rejects, reading=reading)
    for line in rejects.lines():
        console.print(f"row left out: {line}", markup=False, highlight=False, soft_wrap=True)
    return labelled


def _row(judgment: Judgment, sample: Sample | None, label: Label | None) -> dict[str, Any]:
    """A verdict, as `--json` writes it.

    Raises:
        InputError: the judgment is not of a pair.
    """
    if judgment.verdict is not None and not isinstance(judgment.verdict, PairVerdict):
        raise InputError(f"judgment {judgment.sample_id}: mode {judgment.mode} names no winner; give a run over pairs")
    return {
        "id": judgment.sample_id,
        "question": None if sample is None else sample.question,
        "winner": judgment.winner,
        "probability": judgment.probability,
        "consistent": judgment.consistent,
        "failure": None if judgment.failure is None else judgment.failure.code,
        "label": None if label is None else label.winner,
    }


def _print_verdicts(rows: list[dict[str, Any]], summary: list[str], limit: int) -> None:
    out, has_label = PlainConsole(), any(row["label"] is not None for row in rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("verdict", "P(first)", "orders", *(["label"] if has_label else [])):
        table.add_column(name, min_width=13 if name in ("verdict", "label") else len(name))
    table.add_column("question", no_wrap=True, max_width=max(20, out.width - (54 if has_label else 38)))
    for row in rows[:limit]:
        verdict = _WINNERS.get(row["winner"], failure_name(row["failure"] or "failed"))
        probability = "-" if row["probability"] is None else f"{row['probability']:.2f}"
        label = [_WINNERS.get(row["label"], "-")] if has_label else []
        cells = (verdict, probability, _CONSISTENT[row["consistent"]], *label, _one_line(row["question"] or row["id"]))
        table.add_row(*(Text(cell, overflow="ellipsis", no_wrap=True) for cell in cells))
    out.print(table)
    if len(rows) > limit:
        out.print(f"{len(rows) - limit:,} more: see --limit", highlight=False)
    for sentence in summary:
        out.print(sentence, highlight=False)


def _one_line(text: str) -> str:
    """Text of a data set in one line, with what a terminal would obey escaped."""
    return printable(" ".join(text.splitlines()).replace("\t", " "))


def _summary(rows: list[dict[str, Any]]) -> list[str]:
    """Counts of the run in a few sentences."""
    winners = Counter(row["winner"] for row in rows)
    ties = "1 tie" if winners["tie"] == 1 else f"{winners['tie']:,} ties"
    failed = f", {winners[None]:,} failed" if winners[None] else ""
    sentences = [f"{len(rows):,} pairs: {winners[1]:,} first better, {ties}, {winners[2]:,} second better{failed}."]
    if any(row["probability"] is not None for row in rows):
        sentences.append("P(first) is the judge's probability that the first answer is better.")
    both = [row["consistent"] for row in rows if row["consistent"] is not None]
    if both:
        sentences.append(f"Both orders give the same winner in {sum(both):,} of {len(both):,} pairs.")
    compared = [row["winner"] == row["label"] for row in rows if row["label"] is not None]
    if compared:
        sentences.append(f"The verdict is the label in {sum(compared):,} of {len(compared):,} labelled pairs.")
    return sentences
