"""`judgelm data import-judgments`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgelm.cli.console import console, echo
from judgelm.cli.output import JsonOut, Quiet, is_stdout, write_json
from judgelm.data.readers.rows import RejectCounts
from judgelm.errors import ConfigError

if TYPE_CHECKING:
    from judgelm.runs.published import JudgmentImportResult


def import_judgments_command(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE...")] = None,
    out: Annotated[Path | None, typer.Option(metavar="OUT.jsonl")] = None,
    published_format: Annotated[str | None, typer.Option("--format", metavar="NAME")] = None,
    judge: str | None = None,
    id_template: Annotated[str | None, typer.Option("--id", metavar="TEMPLATE")] = None,
    rows: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    overwrite: bool = False,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Turn published judgments into run files, so that eval and all studies score them like one's own.

    LLMBar, JudgeBench, Auto-J and PandaLM outputs, AlpacaEval annotations, FastChat and Arena-Hard judgments, reviews
    of Vicuna, QLoRA and Cherry LLM, MMLU-Pro results. Writes OUT.jsonl, its manifest, and the rows it could not use.

    Options:
        files: Published files of one judge.
        out: The run file.
        published_format: Format, where the fields do not tell it.
        judge: The judge to take, of files with several; else the judge's name.
        id_template: Ids made of fields of the rows, such as 'faireval-{question_id}'; default: those of judgelm data
            import.
        rows: Pairs whose ids to take, found by question and answers.
        overwrite: Replace an earlier import.

    Examples:
        judgelm data import-judgments
        judgelm data import-judgments gpt-4_pair.jsonl -o gpt-4.jsonl
        judgelm data import-judgments a-vs-b.jsonl b-vs-a.jsonl -o reviews.jsonl

    The first lists all formats and the files that each takes. Exit codes: 0 done, 1 usage or input error.
    """
    from judgelm.data.sources.source import publications

    if not files:
        published = publications().judgments
        write_json(json_out, {name: publication.files for name, publication in published.items()})
        if not is_stdout(json_out):
            for name, publication in published.items():
                echo(f"{name:16} {publication.files}{' (unverified)' if publication.unverified else ''}")
        return
    if out is None:
        raise ConfigError("-o is missing; name the run file, such as -o published.jsonl")
    from judgelm.runs.published import JudgmentImport, import_judgments

    options = JudgmentImport(
        files=[str(file) for file in files],
        out=out,
        format=published_format,
        judge=judge,
        id_template=id_template,
        rows=None if rows is None else str(rows),
        overwrite=overwrite,
    )
    result = import_judgments(options)
    write_json(json_out, _row(result))
    if not quiet:
        _show(result, out)


def _row(result: "JudgmentImportResult") -> dict[str, Any]:
    from judgelm.data.sources.source import publications

    counts, published = result.stats.row(), publications().judgments[result.source.name]
    return {
        "format": result.source.name,
        "judge": result.judge,
        "source": published.paper,
        "unverified": published.unverified,
        **{name: counts[name] for name in ("winners", "labels", "grades", "failures")},
        "rejected": len(result.rejects),
        "rejected_by_reason": dict(RejectCounts(result.rejects).by_reason.most_common()),
    }


def _show(result: "JudgmentImportResult", out: Path) -> None:
    from judgelm.data.sources.source import publications

    stats, published = result.stats, publications().judgments[result.source.name]
    verdicts = {**stats.winners, **stats.labels, **({"grades": stats.grades} if stats.grades else {})}
    parts = [f"{name}: {count:,}" for name, count in verdicts.items()]
    parts += [f"{count:,} failed ({code})" for code, count in stats.failures.items()]
    _print(f"{result.source.name}, judge {result.judge}: {', '.join(parts)}")
    if published.unverified:
        _print(f"note: this format is unverified: {published.unverified}")
    if result.rejects:
        _print(f"{len(result.rejects):,} rows rejected; they are in the rejects file:")
    for line in RejectCounts(result.rejects).lines():
        _print(f"  {line}")
    _print(f"source: {published.paper}")
    _print(f"written: {out}")


def _print(text: str) -> None:
    """Plain text: file names and rows may hold what Rich would read as markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
