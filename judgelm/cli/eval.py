"""Commands on a finished run: `judgelm eval`, `report`, `estimate`, `show`; light, so that help comes at once."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from judgelm.cli.console import PlainConsole, Results, console, printable, printed_rejects, write_text
from judgelm.cli.options import ControlOption, LabelOptions, LabelsOption, ScoringOptions
from judgelm.errors import InputError
from judgelm.records import Judgment, Label, PairVerdict, Sample, failure_name

_WINNERS = {1: "first better", 2: "second better", "tie": "tie"}
_CONSISTENT = {True: "agree", False: "differ", None: "-"}


def eval_command(scoring: ScoringOptions, results: Results) -> None:
    """Compare judgments with labels: agreement, position bias, failures, groups, people; 95 % intervals.

    Examples:
        judgelm eval judgments.jsonl --labels labelled.jsonl
        judgelm eval judgments.jsonl -l labelled.jsonl --protocol pandalm
        judgelm eval judgments.jsonl -l labelled.jsonl --quiet --json eval.json

    Exit codes: 0 done, 1 usage or input error, 2 too many labels unreadable (--max-reject-rate).
    """
    scoring.check_files()
    from judgelm.cli.evaluation import score  # scikit-learn and pandas take seconds to load
    from judgelm.cli.tables import print_evaluation

    scored = score(scoring)
    if results.write(None if results.json_out is None else scored.to_json()):
        print_evaluation(scored)
    scoring.check_rejected(scoring.labels, scored.labelled.rejected, scored.labelled.read)


def report_command(
    scoring: ScoringOptions,
    out: Path = Path("report.html"),
    title: str | None = None,
    beside: Annotated[Path | None, typer.Option(metavar="RUN")] = None,
    *,
    results: Results,
) -> None:
    """Write one self-contained HTML file with the metrics, figures, and every disagreement, flip and failure.

    Options:
        out: The HTML file to write.
        title: Title of the report.
        beside: Another judge's run on the same pairs, compared with this one.

    Examples:
        judgelm report judgments.jsonl --labels labelled.jsonl -o report.html
        judgelm report judgments.jsonl -l labelled.jsonl --title "My judge"
        judgelm report judgments.jsonl -l labelled.jsonl --beside other.jsonl

    Exit codes: 0 done, 1 usage or input error, 2 too many labels unreadable (--max-reject-rate).
    """
    scoring.check_files()
    if beside is not None and not beside.is_file():
        raise InputError(f"{beside}: no such file; give the run of another judge as --beside")
    from judgelm.cli.evaluation import compare_with, score  # scikit-learn and matplotlib take seconds to load
    from judgelm.reports.html import render_report
    from judgelm.reports.study import page_table

    scored = score(scoring)
    compared = None if beside is None else compare_with(scoring, scored, beside)
    page = render_report(
        scored.evaluation,
        judgments=scored.judgments,
        samples=scored.labelled.samples or None,
        labels=scored.labelled.labels,
        manifest=scored.manifest,
        control=scored.control,
        claim=scored.claim,
        beside=compared,
        judges=None if compared is None else page_table(compared.tables[0], ""),
        title=title or f"{scoring.judgments.stem} against {scoring.labels.stem}",
    )
    write_text(out, page)
    results.write(None if results.json_out is None else scored.to_json())
    if not results.quiet:
        console.print(f"report in {out}")
    scoring.check_rejected(scoring.labels, scored.labelled.rejected, scored.labelled.read)


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
    results: Results,
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
    from judgelm.cli.evaluation import load_labels, load_manifest
    from judgelm.cli.tables import print_claim  # statsmodels takes seconds to load
    from judgelm.data.judged_texts import match_samples
    from judgelm.data.labelled_set import match_labels
    from judgelm.data.samples import SampleStream
    from judgelm.runs.run_files import read_judgments
    from judgelm.studies.claim import ClaimOptions, claim_win_rate

    run = read_judgments(judgments)
    loaded = load_labels(labels, "auto", load_manifest(judgments), rows.reading_of(labels, judgments, beside=samples))
    labelled, texts = match_labels(run, loaded, name=str(labels))
    pairs = dict(labelled.samples)
    if samples is not None:
        with printed_rejects("row left out") as rejects:
            reading = rows.reading_of(samples, judgments, beside=labels)
            stream = SampleStream([str(samples)], on_reject=rejects, reading=reading)
            given = {sample.id: sample for sample in stream}
        pairs |= match_samples(run, given, name=str(samples))[0]
    options = ClaimOptions(model=model, against=against, control=control, width=width)
    claim = claim_win_rate(run, labelled.labels, pairs, options)
    claim = replace(claim, warnings=(*claim.warnings, *replace(labelled, samples=pairs).notes(), *texts.notes()))
    if results.write(claim.to_json()):
        print_claim(claim)
    rows.check_rejected(labels, labelled.rejected, labelled.read)


def show(
    judgments: Annotated[Path, typer.Argument()],
    samples: Annotated[Path | None, typer.Option("--samples", "-s", metavar="FILE")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 100,
    out: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    *,
    rows_as: LabelOptions,
    results: Results,
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
    from judgelm.data.judged_texts import TextComparison
    from judgelm.data.labelled_set import LabelledSet, match_labels, read_labelled_set
    from judgelm.runs.run_files import read_judgments, read_manifest

    run = read_judgments(judgments)
    labelled, texts = LabelledSet(samples={}, labels={}, groups={}), TextComparison()
    if samples is not None:
        with printed_rejects("row left out") as rejects:
            reading = rows_as.reading_of(samples, judgments)
            given = read_labelled_set(str(samples), on_reject=rejects, reading=reading)
        labelled, texts = match_labels(run, given, name=str(samples))
        texts = replace(texts, without_row=len(run.keys() - labelled.samples.keys()))
    pairs, labels = labelled.samples, labelled.labels
    rows = [_row(judgment, pairs.get(name), labels.get(name)) for name, judgment in run.items()]
    summary = [*_summary(rows), *labelled.notes(), *texts.notes()]
    if results.write(rows):
        _print_verdicts(rows, summary, limit)
    if out is not None:
        from judgelm.reports.html import render_verdicts  # loads scikit-learn and matplotlib

        title, manifest = f"Verdicts of {judgments.stem}", read_manifest(judgments) or {}
        page = render_verdicts(run, samples=pairs, labels=labels, manifest=manifest, title=title, summary=summary)
        write_text(out, page)
        if not results.quiet:
            console.message(f"page in {out}")
    if samples is not None:
        rows_as.check_rejected(samples, labelled.rejected, labelled.read)


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
        out.print(f"{len(rows) - limit:,} more: see --limit")
    for sentence in summary:
        out.print(sentence)


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
