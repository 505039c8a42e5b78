"""`judgelm report`: write an HTML page for a run, with or without labels."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from judgelm.cli.console import PlainConsole, Results, console, printable, printed_rejects, write_text
from judgelm.cli.help import essential
from judgelm.cli.options import ScoringFlags, ScoringOptions, refuse
from judgelm.errors import InputError
from judgelm.records import AbstainVerdict, Judgment, Label, PairVerdict, Sample, failure_name

_WINNERS = {1: "first better", 2: "second better", "tie": "tie", "abstain": "abstained"}
_CONSISTENT = {True: "agree", False: "differ", None: "-"}


@essential("labels out title baseline samples limit control column label_code json_out quiet")
def report_command(
    context: typer.Context,
    scoring: ScoringFlags,
    labels: Annotated[Path | None, typer.Option("--labels", "-l", metavar="FILE")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    title: str | None = None,
    baseline: Annotated[Path | None, typer.Option(metavar="RUN")] = None,
    samples: Annotated[Path | None, typer.Option("--samples", "-s", metavar="FILE")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 100,
    *,
    results: Results,
) -> None:
    """Write an HTML report that compares a run with labels, or print the verdicts of a run.

    With `--labels`, the report contains metrics, figures, and all disagreements, order flips, and failures. Without
    labels, the command prints the verdicts for pairs; add `-o` to also write the verdicts to a page.

    Options:
        labels: Labels or teacher scores: JudgeLM, PandaLM, or plain rows.
        out: HTML file to write. Default with --labels: report.html.
        title: Title of the page.
        baseline: With --labels, a run by another judge on the same pairs, for comparison.

    Without labels:
        samples: File with the judged pairs, used to print their questions.
        limit: Maximum number of verdicts to print.

    Examples:
        judgelm report judgments.jsonl --samples pairs.jsonl
        judgelm report judgments.jsonl --samples pairs.jsonl -o verdicts.html
        judgelm report judgments.jsonl --labels labelled.jsonl -o report.html
        judgelm report judgments.jsonl -l labelled.jsonl --baseline other.jsonl

    Exit codes: 0 done, 1 usage or input error, 2 too many unreadable rows (--max-reject-rate).
    """
    if labels is None:
        need_labels = ("baseline", *(ScoringFlags.__annotations__.keys() - {"judgments"}))
        refuse(context, need_labels, "requires labels; add --labels FILE or remove it")
        _report_verdicts(scoring, samples, limit, out=out, title=title, results=results)
        return
    refuse(context, ["samples", "limit"], "cannot be combined with --labels; remove it")
    if baseline is not None and not baseline.is_file():
        raise InputError(f"{baseline}: no such file; expected a run by another judge")
    options = ScoringOptions(labels=labels, **{field.name: getattr(scoring, field.name) for field in fields(scoring)})
    _report_agreement(options, out or Path("report.html"), title, baseline, results)


def _report_agreement(
    options: ScoringOptions, out: Path, title: str | None, baseline: Path | None, results: Results
) -> None:
    options.check_files()
    from judgelm.cli.evaluation import compare_with, score  # scikit-learn and matplotlib take seconds to load
    from judgelm.reports.html import render_report
    from judgelm.reports.study import page_table

    scored = score(options)
    compared = None if baseline is None else compare_with(options, scored, baseline)
    page = render_report(
        scored.evaluation,
        judgments=scored.judgments,
        samples=scored.labelled.samples or None,
        labels=scored.labelled.labels,
        manifest=scored.manifest,
        control=scored.control,
        claim=scored.claim,
        comparison=compared,
        judges=None if compared is None else page_table(compared.tables[0], ""),
        title=title or f"{options.judgments.stem} compared with {options.labels.stem}",
    )
    write_text(out, page)
    results.write(None if results.json_out is None else scored.to_json())
    console.print(f"wrote the report to {out}")
    options.check_rejected(options.labels, scored.labelled.rejected, scored.labelled.read)


def _report_verdicts(
    options: ScoringFlags, samples: Path | None, limit: int, *, out: Path | None, title: str | None, results: Results
) -> None:
    from judgelm.data.judged_texts import TextComparison
    from judgelm.data.labelled_set import LabelledSet, match_labels, read_labelled_set
    from judgelm.runs.run_files import read_judgments, read_manifest

    judgments, run = options.judgments, read_judgments(options.judgments)
    labelled, texts = LabelledSet(samples={}, labels={}, groups={}), TextComparison()
    if samples is not None:
        with printed_rejects("row skipped") as rejects:
            reading = options.reading_of(samples, judgments)
            rows_given = read_labelled_set(str(samples), on_reject=rejects, reading=reading)
        labelled, texts = match_labels(run, rows_given, name=str(samples))
        texts = replace(texts, without_row=len(run.keys() - labelled.samples.keys()))
    pairs, labels = labelled.samples, labelled.labels
    from judgelm.reports.parts import parts_of

    has_parts = any(map(parts_of, run.values()))
    if has_parts:
        rows = _parts_rows(run, pairs, judgments)
        summary = [*_parts_summary(rows), *labelled.notes(), *texts.notes()]
    else:
        rows = [_row(judgment, pairs.get(name), labels.get(name)) for name, judgment in run.items()]
        summary = [*_summary(rows), *labelled.notes(), *texts.notes()]
    if results.write(rows):
        (_print_parts if has_parts else _print_verdicts)(rows, summary, limit)
    if out is not None:
        from judgelm.reports.html import render_verdicts  # loads scikit-learn and matplotlib

        title, manifest = title or f"Verdicts of {judgments.stem}", read_manifest(judgments) or {}
        page = render_verdicts(run, samples=pairs, labels=labels, manifest=manifest, title=title, summary=summary)
        write_text(out, page)
        console.message(f"wrote the page to {out}")
    if samples is not None:
        options.check_rejected(samples, labelled.rejected, labelled.read)


def _row(judgment: Judgment, sample: Sample | None, label: Label | None) -> dict[str, Any]:
    if judgment.verdict is not None and not isinstance(judgment.verdict, PairVerdict | AbstainVerdict):
        raise InputError(f"judgment {judgment.sample_id}: mode {judgment.mode} has no winner; pass a run over pairs")
    winner = "abstain" if judgment.abstained else judgment.winner
    return {
        "id": judgment.sample_id,
        "question": None if sample is None else sample.question,
        "winner": winner,
        "probability": judgment.probability,
        "consistent": judgment.consistent,
        "failure": None if judgment.failure is None else judgment.failure.code,
        "label": None if label is None else label.winner,
    }


def _parts_rows(run: Mapping[str, Judgment], samples: Mapping[str, Sample], path: Path) -> list[dict[str, Any]]:
    """Return a row for each answer of a judgment with parts."""
    from judgelm.modes.votes import verdict_text
    from judgelm.reports.html import threshold_of
    from judgelm.reports.parts import parts_of, summarise
    from judgelm.runs.run_files import read_manifest

    threshold = threshold_of(read_manifest(path) or {})
    rows = []
    for name, judgment in run.items():
        verdict = None if judgment.verdict is None else str(verdict_text(judgment.verdict))
        for index, shown in sorted(parts_of(judgment).items() or [(0, [])]):
            summary = summarise(shown, threshold)
            rows.append(
                {
                    "id": name,
                    "answer": index + 1,
                    "question": samples[name].question if name in samples else None,
                    "verdict": verdict,
                    "failure": None if judgment.failure is None else judgment.failure.code,
                    "parts": len(shown),
                    **dict.fromkeys(("minimum", "mean", "share"), None),
                    **({} if summary is None else summary._asdict()),
                }
            )
    return rows


def _print_parts(rows: list[dict[str, Any]], summary: list[str], limit: int) -> None:
    out = PlainConsole()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("verdict", "parts", "minimum", "mean", "share"):
        table.add_column(name, min_width=11 if name == "verdict" else len(name))
    table.add_column("question", no_wrap=True, max_width=max(20, out.width - 48))
    for row in rows[:limit]:
        verdict = row["verdict"] or failure_name(row["failure"] or "failed")
        numbers = ("-" if row[name] is None else f"{row[name]:.2f}" for name in ("minimum", "mean", "share"))
        cells = (verdict, str(row["parts"]), *numbers, _one_line(row["question"] or row["id"]))
        table.add_row(*(Text(cell, overflow="ellipsis", no_wrap=True) for cell in cells))
    out.print(table)
    if len(rows) > limit:
        out.print(f"{len(rows) - limit:,} more; use --limit to show them")
    out.lines(summary)


def _parts_summary(rows: list[dict[str, Any]]) -> list[str]:
    verdicts = Counter(row["verdict"] or "failed" for row in {row["id"]: row for row in rows}.values())
    listed = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.most_common(5))
    parts = sum(row["parts"] for row in rows)
    return [f"{sum(verdicts.values()):,} judgments with {parts:,} parts: {listed}."]


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
        out.print(f"{len(rows) - limit:,} more; use --limit to show them")
    out.lines(summary)


def _one_line(text: str) -> str:

    return printable(" ".join(text.splitlines()).replace("\t", " "))


def _summary(rows: list[dict[str, Any]]) -> list[str]:
    winners = Counter(row["winner"] for row in rows)
    ties = "1 tie" if winners["tie"] == 1 else f"{winners['tie']:,} ties"
    failed = f", {winners['abstain']:,} abstained" if winners["abstain"] else ""
    failed += f", {winners[None]:,} failed" if winners[None] else ""
    sentences = [f"{len(rows):,} pairs: {winners[1]:,} first better, {ties}, {winners[2]:,} second better{failed}."]
    if any(row["probability"] is not None for row in rows):
        sentences.append("P(first) is the judge's probability that the first answer is better.")
    both = [row["consistent"] for row in rows if row["consistent"] is not None]
    if both:
        sentences.append(f"Both orders give the same winner in {sum(both):,} of {len(both):,} pairs.")
    compared = [
        row["winner"] == row["label"] for row in rows if row["label"] is not None and row["winner"] != "abstain"
    ]
    if compared:
        sentences.append(f"The verdict matches the label in {sum(compared):,} of {len(compared):,} labelled pairs.")
    return sentences
