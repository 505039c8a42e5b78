"""A data set in a folder: the sets that the builder writes, their card, their manifest and their report.

The report is one HTML file without scripts. It shows what `judgelm.data.builder.pipeline` counted: what was read, left
out, changed and written, and why. It computes nothing but shares, means and their intervals, and escapes all foreign
text.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from judgelm.data.augmentation import DiffPiece, diff_words
from judgelm.data.builder.counts import BuildCounts
from judgelm.data.builder.options import BuildOptions
from judgelm.data.builder.pipeline import BuildResult, build, dataset_card, manifest
from judgelm.data.dataset_files import write_text
from judgelm.engines.base import EngineOptions
from judgelm.jsonl import check_no_input
from judgelm.metrics.resampling import Estimate
from judgelm.reports.data_set import plots as data_plots
from judgelm.reports.data_set import tables as data_tables
from judgelm.reports.data_set import wording as data_wording
from judgelm.reports.data_set.tables import Stage, share
from judgelm.reports.html import render_page
from judgelm.reports.pairs import clipped
from judgelm.reports.plots import LABEL_NAMES
from judgelm.runs.fingerprint import input_identities

EXAMPLE_CAP = 3000
_DESCRIPTIONS = ("README.md", "build.json", "report.html")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of an example as it is shown; `answers` are (letter of the answer before the swap, model, text)."""

    id: str
    answers: tuple[tuple[str, str, str], ...]
    judgments: tuple[tuple[str, list[DiffPiece]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A swapped pair: the unchanged parts, and the row before and after."""

    question: str
    reference: str | None
    epoch: int
    before: Row
    after: Row


def render_data_report(built: BuildResult, options: BuildOptions, *, title: str) -> str:
    """The report as one self-contained HTML document; the same input gives the same text.

    Args:
        built: the result of `build`.
        options: its options.
        title: plain text.
    """
    counts = built.counts
    before, after, *held_out = data_tables.stages(counts)
    lengths = data_tables.length_rows(counts.words)
    return render_page(
        "data_report.html.j2",
        styles=("report.css", "data_report.css"),
        title=title,
        facts=data_wording.facts(options),
        headline=data_wording.headline(built, before, after),
        note=data_wording.sums_note(built),
        stages=(before, after, *(stage for stage in held_out if stage.counts.pairs)),
        sources=data_tables.source_rows(counts),
        findings=data_tables.findings(counts),
        dependent=after.counts.pairs > after.units,
        lengths=lengths,
        matrices=data_tables.matrices(before.counts, after.counts) if before.counts.models else (),
        first_places=data_tables.first_places(before, after),
        models=len(data_tables.appearances(before.counts)),
        references=_references(counts, before, after),
        swaps=_swaps(counts, before),
        ambiguous=[(kind, count, share(count, counts.ambiguous.total())) for kind, count in _ranked(counts.ambiguous)],
        examples=[_example(first, second) for _, first, second in counts.examples],
        built=built,
        options=json.dumps(dataclasses.asdict(options), indent=2, ensure_ascii=False),
        figures=_figures(counts, before, after, lengths),
        winner_keys=dict(zip(data_tables.WINNERS, LABEL_NAMES, strict=True)),
        ambiguous_words=data_wording.AMBIGUOUS,
        drop_words=data_wording.DROPPED,
    )


def _figures(
    counts: BuildCounts, before: Stage, after: Stage, lengths: list[data_tables.LengthRow]
) -> dict[str, Markup]:
    """Figures with data. Their text is our own, so the SVG needs no escaping."""
    figures: dict[str, Markup] = {}
    if before.counts.scores:
        figures["scores"] = Markup(data_plots.score_figure(before, after))
    if before.counts.winners:
        figures["winners"] = Markup(data_plots.winner_figure(before, after))
    if lengths:
        figures["lengths"] = Markup(data_plots.length_figure(counts.words, lengths))
    return figures


def _references(counts: BuildCounts, before: Stage, after: Stage) -> list[tuple[str, int, Estimate | None]]:
    """Effects of references as (name, count, share); empty where no pair was judged with one."""
    if not before.counts.with_reference and not counts.references:
        return []
    both = counts.references["both judgments"]
    rows = [
        (f"{name} with the reference, of pairs judged both ways", counts.references[key], share(changed, both))
        for name, key in (("a score changes", "score changed"), ("the winner changes", "winner changed"))
        for changed in [counts.references[key]]
    ]
    for stage in (before, after):
        referenced = stage.counts.with_reference
        rows.append(
            (
                f"rows judged with a reference, {stage.name}",
                referenced,
                share(referenced, stage.counts.pairs, stage.units),
            )
        )
    return rows


def _swaps(counts: BuildCounts, before: Stage) -> list[tuple[str, int, Estimate | None]]:
    drawn = counts.swapped.total()
    return [(outcome, count, share(count, drawn, before.units)) for outcome, count in _ranked(counts.swapped)]


def _ranked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _example(before: Mapping[str, Any], after: Mapping[str, Any]) -> Example:
    judgments = []
    for name, field in (("Judgment", "text"), ("Judgment with the reference", "text_w_reference")):
        if before[field] or after[field]:
            texts = (clipped(row[field] or "", EXAMPLE_CAP) for row in (before, after))
            judgments.append((name, diff_words(*texts)))
    reference = before["reference"]
    return Example(
        question=clipped(before["question_body"], EXAMPLE_CAP),
        reference=None if reference is None else clipped(reference["text"], EXAMPLE_CAP),
        epoch=after["epoch"],
        before=_row(before, "AB", [(name, pieces) for name, (pieces, _) in judgments]),
        after=_row(after, "BA", [(name, pieces) for name, (_, pieces) in judgments]),
    )


def _row(row: Mapping[str, Any], letters: str, judgments: list[tuple[str, list[DiffPiece]]]) -> Row:
    answers = tuple(
        (letter, row[f"answer{position}_model_id"] or "", clipped(row[f"answer{position}_body"], EXAMPLE_CAP))
        for position, letter in enumerate(letters, 1)
    )
    return Row(id=row["question_id"], answers=answers, judgments=tuple(judgments))


def build_data_set(
    options: BuildOptions, *, progress: Callable[[str, int], None] = lambda stage, pairs: None
) -> BuildResult:
    """Build, and write beside the sets `README.md`, `build.json` and `report.html`.

    Raises:
        InputError: an input cannot be read, or no pair is left.
        ConfigError: a set would be empty, or an option does not fit.
        ModelError: the tokenizer cannot be loaded.
        RunError: the output cannot be written.
    """
    folder = Path(options.out)
    earlier = _earlier_files(folder)
    check_no_input([folder / name for name in (*earlier, *_DESCRIPTIONS)], options.files_read)
    built = build(options, tokenizer=_tokenizer(options), progress=progress)
    for name in earlier - built.files.keys():
        (folder / name).unlink(missing_ok=True)
    inputs = input_identities([source.path for source in options.inputs])
    write_text(folder / "README.md", dataset_card(options, built))
    write_text(folder / "build.json", json.dumps(manifest(options, built, inputs), indent=1, ensure_ascii=False) + "\n")
    write_text(folder / "report.html", render_data_report(built, options, title=f"Data set {folder.name}"))
    return built


def _earlier_files(folder: Path) -> set[str]:
    """Files of an earlier build in the folder, which must not be mistaken for this one's."""
    try:
        return set(json.loads((folder / "build.json").read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _tokenizer(options: BuildOptions) -> Any:
    if options.tokenizer is None:
        return None
    from judgelm.engines.model_files import load_tokenizer  # transformers takes seconds, and most need no tokenizer

    return load_tokenizer(options.tokenizer, None, EngineOptions(model=options.tokenizer))
