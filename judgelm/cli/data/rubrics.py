"""`judgelm data rubrics`: a model writes criteria, and labelled pairs show what they are worth."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.bounds import read_text
from judgelm.cli.console import Results, console, echo, printed_rejects, write_text
from judgelm.cli.options import Config, EngineFlags, LabelOptions, Overwrite
from judgelm.cli.tune import TuningJob, judge_pairs, labelled_pairs, make_folder
from judgelm.errors import ConfigError, InputError
from judgelm.studies.rubrics import (
    RubricSource,
    merged,
    rubric_scores,
    separation,
    split_pairs,
    writing_prompt,
    written_criteria,
)
from judgelm.studies.sentences import format_points, format_share

if TYPE_CHECKING:
    from judgelm.data.answers import AnswerGenerator
    from judgelm.data.labelled_set import LabelledSet
    from judgelm.records import Sample

Replies = dict[str, list[str]]
"""Usable criteria by the id of the prompt."""


def rubrics_command(
    rows: Annotated[str, typer.Argument(metavar="ROWS")],
    out: Annotated[Path, typer.Option(metavar="FOLDER")],
    model: Annotated[str, typer.Option("--model", "-m")],
    source: Annotated[RubricSource, typer.Option("--from")] = "pairs",
    guide: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    writer: Annotated[str | None, typer.Option(metavar="NAME=VALUE,...")] = None,
    prompts: Annotated[int, typer.Option(min=1)] = 20,
    count: Annotated[int, typer.Option(min=1)] = 5,
    held_out: Annotated[float, typer.Option(min=0.05, max=0.95)] = 0.5,
    seed: int = 0,
    overwrite: Overwrite = False,
    *,
    labels: LabelOptions,
    engine_flags: EngineFlags,
    results: Results,
    config: Config = None,
) -> None:
    """Let a model write criteria for mode checklist, and measure them on held-out labelled pairs.

    From pairs (what the better answer has and the other lacks) or a guide come criteria for a whole set: those that say
    the same are merged, those that separate nothing on the training pairs, or prefer the wrong answer, are dropped.
    FOLDER/criteria.yaml has what is left. From the questions come criteria for each
    row: FOLDER/rows.jsonl has the rows with them, which need no labels.

    Options:
        rows: Labelled pairs of any known format; for --from question rows with a question.
        out: Folder for the criteria, the replies and the judgments.
        model: Local folder, hub id or name of the judge, or its name on a server; it writes the criteria too.
        source: What the criteria are written from: pairs, question or guide.
        guide: Text file for --from guide.
        writer: Another model to write them, as judgelm data answers takes a generator.
        prompts: Maximum training pairs to write from.
        count: Criteria to ask for in a prompt.
        held_out: Share of the questions that the figures rest on.
        seed: Seed of the split and of the intervals.

    Examples:
        judgelm data rubrics labelled.jsonl -o rubric/ --model qwen-1.5b
        judgelm data rubrics q.jsonl -o rows/ --model my-judge --from question

    The same command again resumes, and writes and judges nothing twice. Exit codes: 0 done, 1 usage or input error, or
    no criterion is left, 130 interrupted (resumable).
    """
    if (guide is None) is (source == "guide"):
        raise ConfigError("--from guide and --guide FILE belong together; give both, or neither")
    from judgelm.data.answers import build_generator, parse_generator

    own = {"name": "writer", "model": model, "engine": engine_flags.engine, **engine_flags.judge_arguments()}
    del own["ignore_card"]
    generator = build_generator(own) if writer is None else parse_generator(writer)
    job = TuningJob(labels=Path(rows), folder=out, templates=(), criterion=None, rows=labels, overwrite=overwrite)
    make_folder(job)
    if source == "question":
        results.write(_of_questions(job, generator, count))
        return
    labelled = labelled_pairs(job, None)
    training, held = split_pairs(labelled, held_out, seed)
    replies, counts = _written(job, generator, _prompts(labelled, training[:prompts], guide, count))
    criteria = merged([text for texts in replies.values() for text in texts])
    counts["merged"] = sum(map(len, replies.values())) - len(criteria)
    if not criteria:
        raise InputError(f"{out}: no criterion that can be used ({_listed(counts)}); name a larger model as --writer")
    from judgelm.cli.run import loaded_judge
    from judgelm.modes import Pairwise
    from judgelm.modes.checklist import Checklist
    from judgelm.runs.run_files import read_judgments

    flags = engine_flags.judge_arguments()
    with loaded_judge(model, engine_flags.engine, quiet=results.quiet, reading="yes-no", **flags) as judge:
        judge_pairs(job, "training", Checklist(criteria=tuple(criteria)), judge, training, quiet=results.quiet)
        first = read_judgments(job.run("training"))
        outcomes = {text: separation(text, first, labelled) for text in criteria}
        counts.update(each.outcome for each in outcomes.values())
        useful = tuple(text for text, each in outcomes.items() if each.outcome == "kept")
        if not useful:
            raise InputError(f"{out}: no criterion is left ({_listed(counts)}); name a larger model as --writer")
        judge_pairs(job, "checklist", Checklist(criteria=useful), judge, held, quiet=results.quiet)
        judge_pairs(job, "yes-no", Pairwise(template="yes-no", tie_threshold=0.0), judge, held, quiet=results.quiet)
    runs = {name: read_judgments(job.run(name)) for name in ("checklist", "yes-no")}
    scores = rubric_scores(runs["checklist"], runs["yes-no"], labelled, held)
    write_text(out / "criteria.yaml", "".join(f"- {json.dumps(text, ensure_ascii=False)}\n" for text in useful))
    separations = {text: each._asdict() | {"outcome": each.outcome} for text, each in outcomes.items()}
    figures = {name: asdict(score) for name, score in scores.items()}
    if results.write({"counts": counts, "criteria": separations} | figures):
        echo(f"{_listed(counts)}; criteria in {out / 'criteria.yaml'}")
        echo(f"held-out pairs ordered as labelled: {format_share(scores['checklist'])}")
        echo(f"by the judge's plain yes-no: {format_share(scores['yes-no'])}; gain {format_points(scores['gain'])}")


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def _prompts(labelled: "LabelledSet", names: Sequence[str], guide: Path | None, count: int) -> "list[Sample]":
    """The prompts to the model that writes: one about the guide, or one about each pair."""
    if guide is not None:
        try:
            return [writing_prompt("guide", "guide", count, read_text(guide))]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{guide}: cannot be read as text in UTF-8 ({error}); check the file") from error
    pairs = [(labelled.samples[name], labelled.labels[name].winner) for name in names]
    return [
        writing_prompt("pairs", pair.id, count, pair.question, pair.answers if winner == 1 else pair.answers[::-1])
        for pair, winner in pairs
    ]


def _written(job: TuningJob, writer: "AnswerGenerator", asked: "Sequence[Sample]") -> tuple[Replies, Counter[str]]:
    """The usable criteria of each reply, by the prompt's id, and the counts."""
    from judgelm.data.answers import read_collected
    from judgelm.runs.answers import collect

    file = job.folder / "written.jsonl"
    collect(asked, writer, file, overwrite=job.overwrite)
    counts, replies, collected = Counter({"prompts": len(asked)}), Replies(), read_collected([str(file)])
    for prompt in asked:
        for answer in collected.get(prompt.id, ()):
            usable, unusable = written_criteria(answer.text or "")
            counts["prompts failed"] += answer.text is None
            counts.update({"criteria written": len(usable) + unusable, "not usable": unusable})
            replies.setdefault(prompt.id, []).extend(usable)
    return replies, counts


def _of_questions(job: TuningJob, writer: "AnswerGenerator", count: int) -> Counter[str]:
    """Write the rows with the criteria of their questions; a row without a usable criterion is left out."""
    from judgelm.data.answers import read_questions
    from judgelm.data.readers.files import read_rows
    from judgelm.data.readers.rows import Row

    path, columns, out = str(job.labels), job.rows.reading.columns, job.folder / "rows.jsonl"
    with printed_rejects("row left out") as rejects:
        questions = read_questions(path, on_reject=rejects, columns=columns)
    asked = [writing_prompt("question", each.id, count, each.question) for each in questions]
    replies, counts = _written(job, writer, asked)
    criteria = {each.question: merged(texts) for each in questions if (texts := replies.get(each.id))}
    rows = [row.data for row in read_rows(path, columns=columns) if isinstance(row, Row)]
    own = [criteria.get(str(row.get("question_body", row.get("question")))) for row in rows]
    lines = [json.dumps(row | {"criteria": each}, default=str) for row, each in zip(rows, own, strict=True) if each]
    counts["rows with criteria"] = len(lines)
    write_text(out, "".join(f"{line}\n" for line in lines))
    console.message(f"{_listed(counts)}; rows in {out}")
    return counts
