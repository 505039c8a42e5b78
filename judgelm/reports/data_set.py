"""A data set in a folder: the sets that the builder writes, their card, their manifest and their report.

The report is one HTML file without scripts. It shows what `judgelm.data.builder.pipeline` counted: what was read, left
out, changed and written, and why. It computes nothing but shares, means and their intervals, and escapes all foreign
text.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Mapping
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
from judgelm.reports.data_set_tables import (
    WINNERS,
    Stage,
    appearances,
    findings,
    first_places,
    length_rows,
    score_figure,
    share,
    source_rows,
    stages,
)
from judgelm.reports.html import render_page
from judgelm.reports.pairs import clipped
from judgelm.reports.plots import LABEL_NAMES
from judgelm.reports.wording import bounds, percent
from judgelm.runs.run_files import input_identities
from judgelm.yaml_files import read_yaml

EXAMPLE_CAP = 3000
_WORDS = read_yaml(Path(__file__).with_name("data_set_words.yaml"))
DROPPED: dict[str, str] = _WORDS["dropped"]
AMBIGUOUS: dict[str, str] = _WORDS["ambiguous"]
_DESCRIPTIONS = ("README.md", "build.json", "report.html")


def render_data_report(built: BuildResult, options: BuildOptions, *, title: str) -> str:
    """The report as one self-contained HTML document; the same input gives the same text.

    Args:
        built: the result of `build`.
        options: its options.
        title: plain text.
    """
    counts = built.counts
    before, after, *held_out = stages(counts)
    return render_page(
        "data_report.html.j2",
        styles=("report.css", "data_report.css"),
        title=title,
        facts=data_set_facts(options),
        headline=data_set_headline(built, before, after),
        note=sums_note(built),
        stages=(before, after, *(stage for stage in held_out if stage.counts.pairs)),
        sources=source_rows(counts),
        findings=findings(counts),
        dependent=after.counts.pairs > after.units,
        lengths=length_rows(counts.words),
        first_places=first_places(before, after),
        models=len(appearances(before.counts)),
        references=_references(counts, before, after),
        swaps=_swaps(counts, before),
        ambiguous=[(kind, count, share(count, counts.ambiguous.total())) for kind, count in _ranked(counts.ambiguous)],
        examples=[_example(first, second) for _, first, second in counts.examples],
        built=built,
        options=json.dumps(dataclasses.asdict(options), indent=2, ensure_ascii=False),
        score_figure=Markup(score_figure(before, after)) if before.counts.scores else None,  # our own text alone
        winner_keys=dict(zip(WINNERS, LABEL_NAMES, strict=True)),
        ambiguous_words=AMBIGUOUS,
        drop_words=DROPPED,
    )


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
        part = share(referenced, stage.counts.pairs, stage.units)
        rows.append((f"rows judged with a reference, {stage.name}", referenced, part))
    return rows


def _swaps(counts: BuildCounts, before: Stage) -> list[tuple[str, int, Estimate | None]]:
    drawn = counts.swapped.total()
    return [(outcome, count, share(count, drawn, before.units)) for outcome, count in _ranked(counts.swapped)]


def _ranked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _example(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """A swapped pair for the template: the unchanged parts, and the row before and after."""
    judgments = []
    for name, field in (("Judgment", "text"), ("Judgment with the reference", "text_w_reference")):
        if before[field] or after[field]:
            texts = (clipped(row[field] or "", EXAMPLE_CAP) for row in (before, after))
            judgments.append((name, diff_words(*texts)))
    reference = before["reference"]
    return {
        "question": clipped(before["question_body"], EXAMPLE_CAP),
        "reference": None if reference is None else clipped(reference["text"], EXAMPLE_CAP),
        "epoch": after["epoch"],
        "before": _example_row(before, "AB", [(name, pieces) for name, (pieces, _) in judgments]),
        "after": _example_row(after, "BA", [(name, pieces) for name, (_, pieces) in judgments]),
    }


def _example_row(row: Mapping[str, Any], letters: str, judgments: list[tuple[str, list[DiffPiece]]]) -> dict[str, Any]:
    """The row's answers are (letter of the answer before the swap, model, text)."""
    answers = [
        (letter, row[f"answer{position}_model_id"] or "", clipped(row[f"answer{position}_body"], EXAMPLE_CAP))
        for position, letter in enumerate(letters, 1)
    ]
    return {"id": row["question_id"], "answers": answers, "judgments": judgments}


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


def data_set_facts(options: BuildOptions) -> list[tuple[str, str]]:
    """The build in a few labels."""
    drawn = "draw, p = {:g}"
    return [
        ("inputs", str(len(options.inputs))),
        ("seed", str(options.seed)),
        ("epochs", str(options.epochs)),
        ("swap", drawn.format(options.swap_prob) if options.swap == "draw" else options.swap),
        ("references", drawn.format(options.reference_drop_prob) if options.reference == "draw" else options.reference),
        ("format", options.format),
    ]


def sums_note(built: BuildResult) -> str | None:
    """A warning about counts that do not add up, which would be a bug of judgelm; None where all do."""
    counts = built.counts
    wrong = [f"the rows of {row.name}" for row in source_rows(counts) if not row.adds_up]
    if sum(counts.accepted.values()) != counts.before.pairs:
        wrong.append("the pairs kept")
    sizes = {name.partition(".")[0]: rows for name, rows in built.files.items()}
    for name, stage in (("train", counts.train), ("validation", counts.validation), ("test", counts.test)):
        if sizes.get(name, 0) != stage.pairs:
            wrong.append(f"the rows of the {name} file")
    return f"The numbers of {', '.join(wrong)} do not add up: do not trust this set, and report it." if wrong else None


def data_set_headline(built: BuildResult, before: Stage, after: Stage) -> list[str]:
    """The data set in a few sentences, the most important first."""
    sentences = [_rows(built), _sets(built, before, after), _balance(before, after), _scores(after)]
    sentences += [_swap_sentence(built.counts.swapped, before), _reference_sentence(built.counts.references)]
    return [sentence for sentence in sentences if sentence]


def _rows(built: BuildResult) -> str:
    *_, total = source_rows(built.counts)
    accepted = share(total.accepted, total.read)
    part = "" if accepted is None else f" ({percent(accepted.value)}, 95 % interval {bounds(accepted)})"
    return (
        f"Of {total.read:,} rows read, {total.accepted:,} were kept{part}, {total.dropped:,} dropped and "
        f"{total.rejected:,} rejected as unreadable."
    )


def _sets(built: BuildResult, before: Stage, after: Stage) -> str:
    held_out_pairs = built.counts.validation.pairs + built.counts.test.pairs
    held_out = f"{held_out_pairs:,} pairs on other questions are held out" if held_out_pairs else "no pair is held out"
    rows = f"The training set has {after.counts.pairs:,} rows made of {before.counts.pairs:,} pairs"
    return f"{rows}; {held_out}."


def _balance(before: Stage, after: Stage) -> str:
    first, was = after.decided, before.decided
    if first is None:
        return "No training row has a better answer, so a judge could only learn to write ties."
    earlier = "" if was is None else f", against {percent(was.value)} of {was.n:,} before augmentation"
    sentence = (
        f"Of the training rows that are no tie, the first answer wins {percent(first.value)} "
        f"(95 % interval {bounds(first)}, n = {first.n:,}){earlier}"
    )
    if first.low <= 0.5 <= first.high:
        return f"{sentence}: no preference for a position is visible."
    side = "first" if first.value > 0.5 else "second"
    return f"{sentence}: a judge could learn to prefer the {side} position. Swapping balances it."


def _scores(after: Stage) -> str:
    first, second = after.mean_score(1), after.mean_score(2)
    if first is None or second is None:
        return ""
    first_mean, second_mean = (f"{mean.value:.2f} ({mean.low:.2f} to {mean.high:.2f})" for mean in (first, second))
    means = f"{first_mean} points on average at position 1 and {second_mean} at position 2"
    return f"Its answers score {means}, n = {first.n:,} each."


def _swap_sentence(swapped: Counter[str], before: Stage) -> str:
    to_swap = swapped.total() - swapped["left as it was"]
    if not to_swap:
        return "No row was to be swapped."
    unclear = swapped["kept, its reason is ambiguous"] + swapped["swapped without an ambiguous reason"]
    unclear_share = share(unclear, to_swap, before.units * to_swap / swapped.total())
    assert unclear_share is not None
    return (
        f"{to_swap:,} of {swapped.total():,} rows drawn were to be swapped; in {percent(unclear_share.value)} of them "
        f"(95 % interval {bounds(unclear_share)}) a reason does not say clearly which answer it means."
    )


def _reference_sentence(references: Counter[str]) -> str:
    both = references["both judgments"]
    winner, score = (share(references[f"{change} changed"], both) for change in ("winner", "score"))
    if winner is None or score is None:
        return ""
    return (
        f"With the reference, {percent(score.value)} of {both:,} pairs judged both ways get another score "
        f"({bounds(score)}) and {percent(winner.value)} another winner ({bounds(winner)})."
    )
