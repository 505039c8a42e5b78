"""`judgelm data build`, `sample`, and `overlap`, for your own rows."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from judgelm.cli.console import EXIT_FAILURES, Results, console, echo, errors, result_table, write_json, write_rows
from judgelm.cli.options import parse_pairs
from judgelm.data.readers.inputs import input_files
from judgelm.data.readers.rows import RejectCounts
from judgelm.engines.base import EngineOptions
from judgelm.errors import ConfigError, RunError
from judgelm.jsonl import check_no_input, parse_json
from judgelm.yaml_files import read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgelm.data.builder.options import BuildOptions
    from judgelm.data.builder.pipeline import BuildResult
    from judgelm.data.overlap import Overlap, OverlapKind
    from judgelm.data.subsets import Subset


def build_command(
    config: Path,
    changes: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
    *,
    results: Results,
) -> None:
    """Clean, split, and augment labelled pairs into training and validation sets.

    Options:
        config: YAML file with the build options; for examples, see configs/data/.
        changes: Overrides for options in the file.

    Examples:
        judgelm data build --config configs/data/build.yaml
        judgelm data build --config configs/data/build.yaml seed=1 out=data/seed1

    Exit codes: 0 done, 1 usage or input error, 2 too many unreadable rows (max_reject_rate).
    """
    from judgelm.data.builder.options import build_options  # numpy and scipy take a second to load

    values = read_yaml(config) or {}
    if not isinstance(values, dict):
        raise ConfigError(f"{config}: expected a mapping of options, got {type(values).__name__}")
    options = build_options(values | parse_pairs(changes or (), "build"), str(config))
    with console.activity("reading") as show:
        built = _build(options, lambda stage, pairs: show(f"{stage}: {pairs:,} pairs"))
    console.print(_summary(built, options.out))
    write_json(results.json_out, json.loads((Path(options.out) / "build.json").read_text(encoding="utf-8")))
    rejected, read = sum(built.counts.rejected.values()), sum(built.counts.read.values())
    if rejected > options.max_reject_rate * read:
        finding = f"{rejected:,} of {read:,} rows ({rejected / read:.1%}) are unreadable"
        errors.print(f"{finding} (limit max_reject_rate={options.max_reject_rate}); see the rejects in {options.out}")
        raise typer.Exit(EXIT_FAILURES)


def _build(options: "BuildOptions", progress: "Callable[[str, int], None]") -> "BuildResult":
    from judgelm.data.builder.dataset_card import dataset_card, manifest
    from judgelm.data.builder.pipeline import build
    from judgelm.data.dataset_files import write_text
    from judgelm.runs.run_files import input_identities

    folder = Path(options.out)
    earlier = _earlier_files(folder)
    check_no_input([folder / name for name in (*earlier, "README.md", "build.json")], options.files_read)
    built = build(options, tokenizer=_tokenizer(options), progress=progress)
    for name in earlier - built.files.keys():
        (folder / name).unlink(missing_ok=True)
    inputs = input_identities([source.path for source in options.inputs])
    write_text(folder / "README.md", dataset_card(options, built))
    write_text(folder / "build.json", json.dumps(manifest(options, built, inputs), indent=1, ensure_ascii=False) + "\n")
    return built


def _earlier_files(folder: Path) -> set[str]:
    try:
        return set(json.loads((folder / "build.json").read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _tokenizer(options: "BuildOptions") -> Any:
    if options.tokenizer is None:
        return None
    from judgelm.engines.model_files import (
        load_tokenizer,
    )  # transformers is slow to import, and most builds do not use a tokenizer

    return load_tokenizer(options.tokenizer, None, EngineOptions(model=options.tokenizer))


def _summary(built: "BuildResult", out: str) -> Table:
    counts = built.counts
    rows = [("rows read", f"{sum(counts.read.values()):,}")]
    for outcome in ("rejected", "dropped", "repaired"):
        for (source, finding), number in sorted(getattr(counts, outcome).items()):
            rows.append((f"  {outcome}, {source}: {finding}", f"{number:,}"))
    rows.append(("clean pairs", f"{counts.before.pairs:,}"))
    for name, title in (("swapped", ""), ("ambiguous", "ambiguous reason: "), ("references", "reference: ")):
        for finding, number in sorted(getattr(counts, name).items()):
            rows.append((f"  {title}{finding}", f"{number:,}"))
    rows += [(name, f"{number:,}") for name, number in built.files.items()]
    for row in built.baselines:
        rules = (("first", row.first), ("longer", row.longer), ("model's win rate", row.model))
        words = ", ".join(f"{name} {share:.1%}" for name, share in rules if share is not None)
        rows.append((f"  {row.set} {row.stage} balancing: {words}", f"{row.decided:,}"))
    rows += [(f"no subset of {size:,} pairs", "too few pairs") for size in built.subsets.too_large]
    return result_table(f"data set in {out}", ("", ""), rows)


def sample_command(
    file: Annotated[str, typer.Argument(metavar="FILE")],
    out: Annotated[Path, typer.Option(metavar="OUT.jsonl")],
    per: Annotated[tuple[str, int] | None, typer.Option(metavar="FIELD N")] = None,
    size: Annotated[int | None, typer.Option(metavar="N")] = None,
    seed: int = 0,
    overwrite: bool = False,
    *,
    results: Results,
) -> None:
    """Draw a seeded random sample of rows, overall or for each value of a field.

    If a value has too few rows, the command keeps all of its rows and prints a message. OUT.sample.json records the
    settings.

    Options:
        file: Rows with ids: a file, folder, or pattern.
        out: Output file for the sampled rows, which are not changed.
        per: Maximum number of rows for each value of a field, such as category 100.
        size: Maximum number of rows in total.
        seed: Random seed; with the same seed, larger samples contain smaller samples.
        overwrite: Replace a different sample.

    Examples:
        judgelm data sample mmlu-pro.jsonl --per category 100 -o sampled.jsonl
        judgelm data sample questions.jsonl --size 1000 --seed 1 -o sampled.jsonl

    If OUT already contains this sample, it is left unchanged. Exit codes: 0 done, 1 usage or input error.
    """
    from judgelm.data.subsets import draw_subset
    from judgelm.runs.run_files import check_output_is_no_input, input_identities

    if (per is None) == (size is None):
        raise ConfigError("expected --per FIELD N, or --size N for the whole file")
    files = input_files(file)
    check_output_is_no_input(out, [file, *files])
    field, most = (None, size) if per is None else per
    assert most is not None
    record = {"per": field, "size": most, "seed": seed, "input": input_identities(files)}
    path = out.with_name(f"{out.name.removesuffix('.jsonl')}.sample.json")
    if not overwrite and _is_finished(out, path, record):
        if not results.quiet:
            echo(f"{out} already contains this sample")
        return
    rejects = RejectCounts()
    subset = draw_subset(file, field=field, size=most, seed=seed, on_reject=rejects)
    write_rows(out, subset.rows)
    counts = {value: {"drawn": drawn, "of": total} for value, (drawn, total) in subset.counts.items()}
    path.write_text(json.dumps({**record, "counts": counts}, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if results.write({"rows": len(subset.rows), "counts": counts}):
        _show(subset, most, rejects, out)


def _is_finished(out: Path, path: Path, record: dict[str, Any]) -> bool:
    if not out.exists():
        return False
    try:
        earlier = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        earlier = {}
    if {name: earlier.get(name) for name in record} == record:
        return True
    raise RunError(f"{out} already exists with different contents; choose a different -o or add --overwrite")


def _show(subset: "Subset", most: int, rejects: RejectCounts, out: Path) -> None:
    for line in rejects.lines():
        echo(f"skipped {line}", err=True)
    short = {value: drawn for value, (drawn, _) in subset.counts.items() if drawn < most}
    echo(f"wrote {len(subset.rows):,} of {sum(total for _, total in subset.counts.values()):,} rows to {out}")
    for value, drawn in short.items():
        echo(f"too few rows: {value} has {drawn:,} instead of {most:,}")


EXIT_OVERLAP = 2
_SHOWN = 100
_KINDS: "tuple[OverlapKind, ...]" = ("exact", "near", "passage")


def overlap_command(
    train: Annotated[Path, typer.Argument(metavar="TRAIN")],
    tests: Annotated[list[Path], typer.Argument(metavar="TEST...")],
    threshold: Annotated[float, typer.Option(min=0.7, max=1.0)] = 0.7,
    words: Annotated[int, typer.Option(min=0)] = 13,
    examples: Annotated[int, typer.Option(min=0)] = 3,
    *,
    results: Results,
) -> None:
    """Find training questions and answers that are equal or similar to test data, or share a passage with it.

    Options:
        train: Training file in any sample format.
        tests: Test files in any sample format.
        threshold: Minimum similarity for near matches; with 1, only equal texts match.
        words: Minimum number of words in a passage shared by two questions; 0 disables the passage search.
        examples: Number of examples of each kind to print per test file.

    Examples:
        judgelm data overlap train.jsonl pandalm.jsonl llmbar.jsonl
        judgelm data overlap train.jsonl test.jsonl --json overlap.json

    Exit codes: 0 no overlap, 1 usage or input error, 2 overlap found.
    """
    from judgelm.data.overlap import IndexedTexts

    training = IndexedTexts(str(train), threshold=threshold, words=words)
    overlaps = [training.check(str(test), examples=examples) for test in tests]
    if results.write([_row(overlap) for overlap in overlaps]):
        console.print(_table(train, training.rows, overlaps))
        for overlap in overlaps:
            _show_examples(overlap)
    if not all(overlap.clean for overlap in overlaps):
        raise typer.Exit(EXIT_OVERLAP)


def _row(overlap: "Overlap") -> dict[str, Any]:
    row = asdict(overlap)
    for name in ("question_overlaps", "answer_overlaps"):
        row[name] = {kind: getattr(overlap, name)[kind] for kind in _KINDS}
    return row | {"clean": overlap.clean}


def _table(train: Path, rows: int, overlaps: "list[Overlap]") -> Table:
    columns = ("test file", "rows", "questions", "equal", "near", "passage", "answers", "equal", "near")
    lines = []
    for overlap in overlaps:
        questions, answers = overlap.question_overlaps, overlap.answer_overlaps
        counts = [overlap.rows, overlap.questions, *(questions[kind] for kind in _KINDS)]
        counts += [overlap.answers, answers["exact"], answers["near"]]
        lines.append((overlap.path, *(f"{count:,}" for count in counts)))
    return result_table(f"found in {train} ({rows:,} rows)", columns, lines)


def _show_examples(overlap: "Overlap") -> None:
    if overlap.rejected:
        console.message(f"{overlap.path}: {overlap.rejected:,} unusable rows were not compared")
    for example in overlap.examples:
        text, of = (" ".join(part.split()) for part in (example.text, example.of))
        similarity = "" if example.similarity is None else f" ({example.similarity:.2f})"
        kind = {"exact": "is equal to", "near": f"is similar{similarity} to", "passage": "shares this passage:"}
        console.message(f"{overlap.path}: {example.part} {_cut(text)!r} {kind[example.kind]} {_cut(of)}")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
