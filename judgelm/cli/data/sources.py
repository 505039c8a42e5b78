"""`judgelm data import` and `judgelm data import-judgments`, for published files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgelm.cli import options
from judgelm.cli.console import Results, console, echo, picked
from judgelm.cli.options import LabelOptions
from judgelm.data.readers.rows import Reject, RejectCounts
from judgelm.data.sources.source import protocol_of, publications
from judgelm.errors import ConfigError

if TYPE_CHECKING:
    from judgelm.data.sources.importer import ImportResult
    from judgelm.runs.published import JudgmentImportResult


def import_command(
    name: Annotated[str | None, typer.Argument(autocompletion=options.benchmarks)] = None,
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE...")] = None,
    out: Path | None = None,
    overwrite: bool = False,
    *,
    rows_as: LabelOptions,
    results: Results,
) -> None:
    """Convert a published benchmark to rows for judgelm-batch and judgelm eval.

    Supports PandaLM, LLMBar, JudgeBench, Auto-J, MT-Bench, FairEval, RewardBench 1 and 2, RM-Bench, preference sets,
    EVOUNA, GSM8K, MMLU-Pro, HotpotQA, 2WikiMultiHopQA, DROP, Quoref, MM-Vet, and AlpacaEval's judgments. The command
    prints the benchmark's metric and writes it to OUT.protocol.json. Files in other formats are rejected.

    Options:
        name: Name of the benchmark. If omitted, the command lists all benchmarks and their files.
        files: The published files.
        out: JSONL file for the rows; the protocol is written next to it.
        overwrite: Replace an earlier import.

    Examples:
        judgelm data import
        judgelm data import pandalm testset-v1.json -o pandalm.jsonl

    Exit codes: 0 done, 1 usage or input error.
    """
    from judgelm.data.sources.registry import benchmarks, get_benchmark

    if name is None:
        files_of = {known: protocol_of(listed).files for known, listed in benchmarks().items()}
        if results.write(files_of):
            for known, published in files_of.items():
                echo(f"{known:16} {published}")
        return
    protocol = protocol_of(get_benchmark(name))
    if not files:
        raise ConfigError(f"{name}: no files given; expected {protocol.files}")
    if out is None:
        raise ConfigError(f"-o is missing; set the output file, such as -o {name}.jsonl")
    from judgelm.data.sources.importer import import_benchmark

    result = import_benchmark(name, [str(file) for file in files], out, overwrite=overwrite, reading=rows_as.reading)
    results.write(_benchmark_row(result))
    _show_benchmark(result)


def _benchmark_row(result: "ImportResult") -> dict[str, Any]:

    return picked(result, "rows", "categories") | {
        "benchmark": result.benchmark.name,
        "labels": result.winners,
        "without_label": result.unlabelled,
        "with_a_known_truth": result.truths,
        "rejected": len(result.rejects),
        "rejected_by_reason": dict(RejectCounts(result.rejects).by_reason.most_common()),
        "protocol": protocol_of(result.benchmark).metric,
        "written": result.paths,
    }


def _show_rejects(rejects: "Sequence[Reject]") -> None:
    if rejects:
        console.message(f"{len(rejects):,} rows rejected (see the rejects file):")
    console.messages(f"  {line}" for line in RejectCounts(rejects).lines())


def _show_benchmark(result: "ImportResult") -> None:

    protocol = protocol_of(result.benchmark)
    labels = ", ".join(f"{label}: {count:,}" for label, count in sorted(result.winners.items()))
    counts = [f"{result.rows:,} rows"]
    counts += [f"labels {labels}"] if labels else []
    counts += [f"{result.unlabelled:,} without a label"] if result.unlabelled and labels else []
    counts += [f"{result.truths:,} with ground truth"] if result.truths else []
    count = len(result.categories)
    counts += [f"{count:,} {'category' if count == 1 else 'categories'}"] if count else []
    console.message(f"{result.benchmark.name}: {', '.join(counts)}")
    _show_rejects(result.rejects)
    console.message(f"protocol: {protocol.metric}")
    if protocol.unverified:
        console.message(f"unverified: {protocol.unverified}")
    if protocol.judge_with:
        console.message(f"to judge: judgelm-batch {protocol.judge_with}")
    console.message(f"wrote {', '.join(str(path) for path in result.paths)}")


def import_judgments_command(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE...")] = None,
    out: Annotated[Path | None, typer.Option(metavar="OUT.jsonl")] = None,
    published_format: Annotated[str | None, typer.Option("--format", metavar="NAME")] = None,
    judge: str | None = None,
    id_template: Annotated[str | None, typer.Option("--id", metavar="TEMPLATE")] = None,
    rows: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    overwrite: bool = False,
    *,
    results: Results,
) -> None:
    """Convert published judgments to run files, so that eval and studies can score them.

    Supports outputs of LLMBar, JudgeBench, Auto-J, PandaLM, and MMLU-Pro, AlpacaEval annotations, FastChat judgments,
    and reviews from Vicuna, QLoRA, and Cherry LLM. Writes OUT.jsonl, its manifest, and a file of unusable rows.

    Options:
        files: Published files with one judge's outputs. If omitted, the command lists all formats.
        out: Run file to write.
        published_format: Format of the files, if it cannot be detected from the fields.
        judge: Judge to extract if the files contain several judges, otherwise the judge's new name.
        id_template: Template for ids, such as 'faireval-{question_id}'. Default: the ids assigned by judgelm data
            import.
        rows: Take ids from these pairs, matched by question and answers.
        overwrite: Replace an earlier import.

    Examples:
        judgelm data import-judgments
        judgelm data import-judgments gpt-4_pair.jsonl -o gpt-4.jsonl
        judgelm data import-judgments a-vs-b.jsonl b-vs-a.jsonl -o reviews.jsonl

    Exit codes: 0 done, 1 usage or input error.
    """
    if not files:
        published = publications().judgments
        if results.write({name: publication.files for name, publication in published.items()}):
            for name, publication in published.items():
                echo(f"{name:16} {publication.files}{' (unverified)' if publication.unverified else ''}")
        return
    if out is None:
        raise ConfigError("-o is missing; set the run file, such as -o published.jsonl")
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
    results.write(_judgments_row(result))
    _show_judgments(result, out)


def _judgments_row(result: "JudgmentImportResult") -> dict[str, Any]:

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


def _show_judgments(result: "JudgmentImportResult", out: Path) -> None:

    stats, published = result.stats, publications().judgments[result.source.name]
    verdicts = {**stats.winners, **stats.labels, **({"grades": stats.grades} if stats.grades else {})}
    parts = [f"{name}: {count:,}" for name, count in verdicts.items()]
    parts += [f"{count:,} failed ({code})" for code, count in stats.failures.items()]
    console.message(f"{result.source.name}, judge {result.judge}: {', '.join(parts)}")
    if published.unverified:
        console.message(f"unverified format: {published.unverified}")
    _show_rejects(result.rejects)
    console.message(f"source: {published.paper}")
    console.message(f"wrote {out}")
