"""`judgelm data overlap`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from judgelm.cli.console import console
from judgelm.cli.output import JsonOut, Quiet, is_stdout, write_json

if TYPE_CHECKING:
    from judgelm.data.duplicates import Overlap, OverlapKind

EXIT_OVERLAP = 2
_SHOWN = 100
_KINDS: "tuple[OverlapKind, ...]" = ("exact", "near", "passage")


def overlap_command(
    train: Annotated[Path, typer.Argument(metavar="TRAIN")],
    tests: Annotated[list[Path], typer.Argument(metavar="TEST...")],
    threshold: Annotated[float, typer.Option(min=0.7, max=1.0)] = 0.7,
    words: Annotated[int, typer.Option(min=0)] = 13,
    examples: Annotated[int, typer.Option(min=0)] = 3,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Find questions and answers of test files in a training file: equal, near, or sharing a passage.

    Options:
        train: The training file, in any format of samples.
        tests: Test files, in any format of samples.
        threshold: Similarity from which texts are near copies; 1 finds equal ones.
        words: Words of a passage that questions share; 0 looks for none.
        examples: Examples of each kind for each test file.

    Examples:
        judgelm data overlap train.jsonl pandalm.jsonl llmbar.jsonl
        judgelm data overlap train.jsonl test.jsonl --json overlap.json

    Exit codes: 0 no overlap, 1 usage or input error, 2 something of a test file is in the training file.
    """
    from judgelm.data.duplicates import IndexedTexts  # numpy and scipy take a second to load

    training = IndexedTexts(str(train), threshold=threshold, words=words)
    overlaps = [training.check(str(test), examples=examples) for test in tests]
    write_json(json_out, [_row(overlap) for overlap in overlaps])
    if not (quiet or is_stdout(json_out)):
        console.print(_table(train, training.rows, overlaps))
        for overlap in overlaps:
            _show_examples(overlap)
    if not all(overlap.clean for overlap in overlaps):
        raise typer.Exit(EXIT_OVERLAP)


def _row(overlap: "Overlap") -> dict[str, Any]:
    row = asdict(overlap)
    for name, counts in (
        ("question_overlaps", overlap.question_overlaps),
        ("answer_overlaps", overlap.answer_overlaps),
    ):
        row[name] = {kind: counts[kind] for kind in _KINDS}
    return row | {"clean": overlap.clean}


def _table(train: Path, rows: int, overlaps: "list[Overlap]") -> Table:
    table = Table(title=f"in {train} ({rows:,} rows)", title_justify="left")
    table.add_column("test file")
    for name in ("rows", "questions", "equal", "near", "passage", "answers", "equal", "near"):
        table.add_column(name, justify="right")
    for overlap in overlaps:
        questions, answers = overlap.question_overlaps, overlap.answer_overlaps
        counts = [overlap.rows, overlap.questions, *(questions[kind] for kind in _KINDS)]
        counts += [overlap.answers, answers["exact"], answers["near"]]
        table.add_row(overlap.path, *(f"{count:,}" for count in counts))
    return table


def _show_examples(overlap: "Overlap") -> None:
    if overlap.rejected:
        _print(f"{overlap.path}: {overlap.rejected:,} rows cannot be used and were not compared")
    for example in overlap.examples:
        text, of = (" ".join(part.split()) for part in (example.text, example.of))
        similarity = "" if example.similarity is None else f" ({example.similarity:.2f})"
        kind = {"exact": "equals that of", "near": f"is near that of{similarity}", "passage": "shares the passage"}
        _print(f"{overlap.path}: {example.part} {_cut(text)!r} {kind[example.kind]} {_cut(of)}")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _print(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
