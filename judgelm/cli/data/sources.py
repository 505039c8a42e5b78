"""Published files: `judgelm data get`, `judgelm data import` and `judgelm data import-judgments`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgelm.cli import options
from judgelm.cli.console import Results, console, echo, is_stdout, picked, write_json
from judgelm.cli.options import LabelOptions
from judgelm.data.readers.rows import RejectCounts
from judgelm.engines.base import require
from judgelm.errors import ConfigError

if TYPE_CHECKING:
    from judgelm.data.readers.rows import Reject
    from judgelm.data.sources.hub import DatasetResult, Revision
    from judgelm.data.sources.importer import ImportResult
    from judgelm.data.sources.public_datasets import DatasetCard
    from judgelm.runs.published import JudgmentImportResult


_UNVERIFIED = "unverified: read as its publisher describes it, never yet seen in files from the hub"


def get_command(
    name: Annotated[str | None, typer.Argument(autocompletion=options.datasets)] = None,
    out: Annotated[Path | None, typer.Option(show_default=False)] = None,
    split: list[str] | None = None,
    lock: Annotated[Path, typer.Option(metavar="FILE")] = Path("judgelm-data.lock.yaml"),
    update: bool = False,
    overwrite: bool = False,
    dry_run: bool = False,
    *,
    results: Results,
) -> None:
    """Download a public data set by name into rows that judgelm data build reads.

    Licence and terms are printed first. The revision that the hub answers with is recorded in a lockfile at the first
    download, and taken again afterwards. HF_TOKEN, HF_HOME and HF_ENDPOINT count as in every client of the hub.

    Options:
        name: Data set; without it, all are listed.
        out: Folder for the rows; default: data/NAME.
        split: Split to read; may be given again. Default: all.
        lock: Where the revision is recorded, and checked afterwards.
        update: Take and record the hub's present revision.
        overwrite: Replace earlier rows.
        dry_run: Print licence, terms and sources; download nothing.

    Examples:
        judgelm data get
        judgelm data get judgelm-100k --dry-run
        judgelm data get judgelm-100k --split train -o data/judgelm-100k

    The first lists all data sets. Exit codes: 0 done, 1 usage or input error.
    """
    from judgelm.data.sources.public_datasets import dataset_card

    if name is None:
        if out is not None or split or update or dry_run:
            raise ConfigError("no data set named; judgelm data get without options lists them")
        _list(results)
        return
    card = dataset_card(name)
    names = card.selected(tuple(split or ()))
    if not results.quiet or dry_run:
        _announce(card)
    if dry_run:
        for fact, source in card.sources.items():
            console.message(f"  source of {fact}: {source}")
        results.write(_card_row(card))
        return
    require("huggingface_hub", extra="data")
    from huggingface_hub.utils.tqdm import disable_progress_bars

    from judgelm.data.sources.hub import import_dataset  # loads huggingface_hub, for which no list waits

    if results.quiet:
        disable_progress_bars()
    result = import_dataset(
        card,
        Path("data", name) if out is None else out,
        splits=names,
        lockfile=lock,
        update=update,
        overwrite=overwrite,
        on_revision=lambda revision: None if results.quiet else _show_revision(card, revision, lock),
    )
    results.write(_result_row(result))
    if not results.quiet:
        _show_dataset(result, lock)


def _list(results: Results) -> None:
    from judgelm.data.sources.public_datasets import dataset_card, dataset_names

    cards = [dataset_card(known) for known in dataset_names()]
    write_json(results.json_out, [_card_row(card) for card in cards])
    if is_stdout(results.json_out):
        return
    for card in cards:
        rows = "rows not stated" if card.rows is None else f"{card.rows:,} rows"
        facts = [card.licence, rows, ", ".join(card.splits), "verified" if card.verified else "unverified"]
        facts += ["gated"] if card.gated else []
        facts += ["for evaluation only"] if card.purpose == "evaluation" else []
        echo(f"{card.name:28} {'; '.join(facts)}")
        echo(f"{'':28} {card.summary}")
    if not all(card.verified for card in cards):
        echo(f"\n{_UNVERIFIED}. What cannot be read is counted and named.")


def _announce(card: "DatasetCard") -> None:
    splits = (
        f"{name} ({'rows not stated' if split.rows is None else f'{split.rows:,} rows'})"
        for name, split in card.splits.items()
    )
    lines = [
        f"{card.name}: {card.summary}",
        f"  from: {card.page}",
        f"  licence: {card.licence}; {card.terms}",
        f"  splits: {', '.join(splits)}",
        f"  schema: {'verified' if card.verified else _UNVERIFIED}",
        *(f"  note: {note}" for note in card.notes),
    ]
    if card.purpose == "evaluation":
        lines.append("  purpose: evaluation of judges; do not train a judge on it that is to be measured by it")
    if card.gated:
        from judgelm.data.sources.hub import token_advice

        lines.append(f"  access: gated; {token_advice(card)}")
    for line in lines:
        console.message(line)


def _show_revision(card: "DatasetCard", revision: "Revision", lock: Path) -> None:
    if revision.hub is None:
        console.message(f"revision: {revision.sha}, of {lock}; the hub does not answer, so it was not compared")
    elif revision.is_outdated:
        console.message(
            f"revision: {revision.sha}, of {lock}; the hub has another now, {revision.hub.revision}: --update takes it"
        )
    else:
        console.message(f"revision: {revision.sha}, {'as locked' if revision.locked else 'now on the hub'}")
    stated = None if revision.hub is None else revision.hub.licence
    if stated is not None and stated.lower() != card.licence.lower():
        console.message(
            f"licence on the hub now: {stated}; the card says {card.licence}. Read the data set's page: {card.page}"
        )


def _show_dataset(result: "DatasetResult", lock: Path) -> None:
    for name, split in result.splits.items():
        labels = ", ".join(f"{label}: {count:,}" for label, count in sorted(split.winners.items()))
        console.message(f"{name}: {split.rows:,} rows, labels {labels or 'none'}")
        if split.rejected:
            console.message(f"  {split.rejected:,} rows rejected; they are in {name}.rejects.jsonl:")
        for line in split.rejects.lines():
            console.message(f"    {line}")
        if split.rejected > split.rows:
            console.message(
                "  most rows were rejected: the published schema may have changed since the card was written"
            )
    console.message(f"recorded: revision {result.revision.sha} in {lock}")
    console.message(f"written: {', '.join(str(path) for path in result.paths)}")


def _card_row(card: "DatasetCard") -> dict[str, Any]:
    """A data set, as `--json` lists it."""
    names = ("name", "summary", "repo", "licence", "terms", "gated", "purpose", "verified", "sources")
    return picked(card, *names) | {"splits": {name: split.rows for name, split in card.splits.items()}}


def _result_row(result: "DatasetResult") -> dict[str, Any]:
    splits = {
        name: picked(split, "rows", "rejected") | {"labels": split.winners} | _by_reason(split.rejects)
        for name, split in result.splits.items()
    }
    return picked(result.card, "name", "repo") | {
        "revision": result.revision.sha,
        "outdated": result.revision.is_outdated,
        "files": {name: dict(files) for name, files in result.files.items()},
        "splits": splits,
        "written": result.paths,
    }


def _by_reason(rejects: RejectCounts) -> dict[str, Any]:
    return {"rejected_by_reason": dict(rejects.by_reason.most_common())}


def import_command(
    name: Annotated[str | None, typer.Argument(autocompletion=options.benchmarks)] = None,
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE...")] = None,
    out: Path | None = None,
    overwrite: bool = False,
    *,
    rows_as: LabelOptions,
    results: Results,
) -> None:
    """Read a published benchmark into rows that judgelm-batch judges and judgelm eval compares with.

    PandaLM, LLMBar, JudgeBench, Auto-J, MT-Bench, FairEval, RewardBench 1 and 2, RM-Bench, preference sets,
    EVOUNA, GSM8K, MMLU-Pro, HotpotQA, 2WikiMultiHopQA, DROP, Quoref,
    MM-Vet, AlpacaEval's judgments. How each one's metric is taken is printed
    and kept in OUT.protocol.json; a file of another shape is refused.

    Options:
        name: Benchmark; without it, all are listed.
        files: Its published files.
        out: Rows as JSONL; the protocol is written beside it.
        overwrite: Replace an earlier import.

    Examples:
        judgelm data import
        judgelm data import pandalm testset-v1.json -o pandalm.jsonl

    The first lists all benchmarks and the files that each takes. Exit codes: 0 done, 1 usage or input error.
    """
    from judgelm.data.sources.registry import benchmarks, get_benchmark
    from judgelm.data.sources.source import protocol_of

    if name is None:
        files_of = {known: protocol_of(listed).files for known, listed in benchmarks().items()}
        write_json(results.json_out, files_of)
        if not is_stdout(results.json_out):
            for known, published in files_of.items():
                echo(f"{known:16} {published}")
        return
    protocol = protocol_of(get_benchmark(name))
    if not files:
        raise ConfigError(f"{name}: no file given; it takes {protocol.files}")
    if out is None:
        raise ConfigError(f"-o is missing; name the file for the rows, such as -o {name}.jsonl")
    from judgelm.data.sources.importer import import_benchmark

    result = import_benchmark(name, [str(file) for file in files], out, overwrite=overwrite, reading=rows_as.reading)
    results.write(_benchmark_row(result))
    if not results.quiet:
        _show_benchmark(result)


def _benchmark_row(result: "ImportResult") -> dict[str, Any]:
    from judgelm.data.sources.source import protocol_of

    return picked(result, "rows", "categories") | {
        "benchmark": result.benchmark.name,
        "labels": result.winners,
        "without_label": result.unlabelled,
        "with_a_known_truth": result.truths,
        "rejected": len(result.rejects),
        **_by_reason(RejectCounts(result.rejects)),
        "protocol": protocol_of(result.benchmark).metric,
        "written": result.paths,
    }


def _show_rejects(rejects: "Sequence[Reject]") -> None:
    if rejects:
        console.message(f"{len(rejects):,} rows rejected; they are in the rejects file:")
    for line in RejectCounts(rejects).lines():
        console.message(f"  {line}")


def _show_benchmark(result: "ImportResult") -> None:
    from judgelm.data.sources.source import protocol_of

    protocol = protocol_of(result.benchmark)
    labels = ", ".join(f"{label}: {count:,}" for label, count in sorted(result.winners.items()))
    counts = [f"{result.rows:,} rows"]
    counts += [f"labels {labels}"] if labels else []
    counts += [f"{result.unlabelled:,} without label"] if result.unlabelled and labels else []
    counts += [f"{result.truths:,} with a known truth"] if result.truths else []
    count = len(result.categories)
    counts += [f"{count:,} {'category' if count == 1 else 'categories'}"] if count else []
    console.message(f"{result.benchmark.name}: {', '.join(counts)}")
    _show_rejects(result.rejects)
    console.message(f"protocol: {protocol.metric}")
    if protocol.unverified:
        console.message(f"unverified: {protocol.unverified}")
    if protocol.judge_with:
        console.message(f"judge with: judgelm-batch {protocol.judge_with}")
    console.message(f"written: {', '.join(str(path) for path in result.paths)}")


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
    """Turn published judgments into run files, so that eval and all studies score them like one's own.

    LLMBar, JudgeBench, Auto-J and PandaLM outputs, AlpacaEval annotations, FastChat judgments, reviews
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
        write_json(results.json_out, {name: publication.files for name, publication in published.items()})
        if not is_stdout(results.json_out):
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
    results.write(_judgments_row(result))
    if not results.quiet:
        _show_judgments(result, out)


def _judgments_row(result: "JudgmentImportResult") -> dict[str, Any]:
    from judgelm.data.sources.source import publications

    counts, published = result.stats.row(), publications().judgments[result.source.name]
    return {
        "format": result.source.name,
        "judge": result.judge,
        "source": published.paper,
        "unverified": published.unverified,
        **{name: counts[name] for name in ("winners", "labels", "grades", "failures")},
        "rejected": len(result.rejects),
        **_by_reason(RejectCounts(result.rejects)),
    }


def _show_judgments(result: "JudgmentImportResult", out: Path) -> None:
    from judgelm.data.sources.source import publications

    stats, published = result.stats, publications().judgments[result.source.name]
    verdicts = {**stats.winners, **stats.labels, **({"grades": stats.grades} if stats.grades else {})}
    parts = [f"{name}: {count:,}" for name, count in verdicts.items()]
    parts += [f"{count:,} failed ({code})" for code, count in stats.failures.items()]
    console.message(f"{result.source.name}, judge {result.judge}: {', '.join(parts)}")
    if published.unverified:
        console.message(f"note: this format is unverified: {published.unverified}")
    _show_rejects(result.rejects)
    console.message(f"source: {published.paper}")
    console.message(f"written: {out}")
