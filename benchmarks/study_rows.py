"""Rows for studies: spoiled answers, sampled questions, a judge's own references, contrastive pairs.

    python data_tools/study_rows.py attention rows.jsonl -o spoiled.jsonl --check reversed_words
    python data_tools/study_rows.py questions hotpot_dev.json -o questions.jsonl --target 1000
    python data_tools/study_rows.py own-references run.jsonl -o references.jsonl --tau 0.8
    python data_tools/study_rows.py generator-prompts questions.jsonl -o prompts.jsonl
    python data_tools/study_rows.py pairs questions.jsonl --answers answers/generator.jsonl -o pairs.jsonl

`attention` spoils answers, which an attentive judge scores low: append them to the other rows, judge all with `--mode
rubric`, and `judgelm study self-bias` tells them apart. `questions` draws about a thousand questions of a QA set, with
every answer type. `own-references` writes the most frequent own answer of the judge to each question of a run with
self-answers, where enough of them agree, for `judgelm-batch --references` in any mode. `generator-prompts` lets a
generator argue for the right option of a multiple-choice question and for a random wrong one; `judgelm data answers
collect prompts.jsonl` collects its answers. `pairs` draws a right and a wrong response from these or other answers, for
mode `ssr`, and writes OUT.truth.jsonl for `judgelm study ssr`.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.contrastive_pairs import (
    contrastive_pair,
    generator_prompts,
    read_answers,
    read_solved_questions,
    source_question_id,
)
from judgelm.cli.console import echo
from judgelm.data.samples import SampleStream
from judgelm.data.sources.qa import TARGET, qa_row, read_qa, sample_by_type, type_counts
from judgelm.data.sources.rating_tables import attention_checks
from judgelm.data.sources.source import plain_row
from judgelm.errors import ConfigError, JudgelmError, RunError
from judgelm.jsonl import check_no_input, whole_file
from judgelm.parsing.short_answers import majority
from judgelm.runs.answers import read_self_answers


def main() -> int:
    """Read the options, make the rows, say how many."""
    options = parse_options()
    try:
        check_no_input([options.out], [options.file, *getattr(options, "answers", ())])
        rows = COMMANDS[options.command](options)
        write(options.out, rows, overwrite=options.overwrite)
    except JudgelmError as error:
        echo(f"error: {error}", err=True)
        return 1
    echo(f"{len(rows):,} rows in {options.out}", err=True)
    return 0


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    attention = ways.add_parser("attention", help="answers that must be scored low")
    attention.add_argument("--check", required=True, choices=("random_pairing", "reversed_words", "dropped_characters"))
    drawn = ways.add_parser("questions", help="a sample of a QA set by answer type")
    drawn.add_argument("--target", type=int, default=TARGET, help=f"about how many (default {TARGET})")
    own = ways.add_parser("own-references", help="a judge's own answers as references")
    own.add_argument("--tau", type=float, default=0.8, help="least agreement of its answers, 0 to 1 (default 0.8)")
    own.add_argument("--whole", action="store_true", help="the answer's whole text, its reasoning included")
    generating = ways.add_parser("generator-prompts", help="prompts for a right and for a wrong option")
    pairing = ways.add_parser("pairs", help="a right and a wrong response to each question")
    pairing.add_argument("--answers", required=True, nargs="+", metavar="FILE", help="of judgelm data answers collect")
    pairing.add_argument("--task", choices=("choice", "number"), default="choice", help="what responses end in")
    for way in (attention, drawn, own, generating, pairing):
        way.add_argument("file", metavar="FILE", help="a run file" if way is own else "rows that judgelm reads")
        way.add_argument("-o", "--out", required=True, type=Path, metavar="OUT.jsonl")
        way.add_argument("--overwrite", action="store_true", help="replace the files of an earlier run")
    for way in (attention, drawn, generating, pairing):
        way.add_argument("--seed", type=int, default=0, help="another seed draws otherwise")
    return parser.parse_args()


def spoiled(options: argparse.Namespace) -> list[Mapping[str, object]]:
    """Each row with its answers spoiled, `check` in its metadata."""
    samples = [sample for _, sample in SampleStream([options.file]).pairs()]
    try:
        return [plain_row(sample) for sample in attention_checks(samples, options.check, seed=options.seed)]
    except ValueError as error:
        raise ConfigError(f"{options.file}: {error}") from error


def questions(options: argparse.Namespace) -> list[Mapping[str, object]]:
    """The questions drawn; how many of each type is printed."""
    drawn = sample_by_type(list(read_qa(options.file)), target=options.target, seed=options.seed)
    for name, count in type_counts(drawn).most_common():
        echo(f"{name:>8} {count:>6,}", err=True)
    return [qa_row(sample) for sample in drawn]


def own_references(options: argparse.Namespace) -> list[Mapping[str, object]]:
    """The commonest own answer by sample id, where the gate is on."""
    if not 0 <= options.tau <= 1:
        raise ConfigError(f"--tau {options.tau}: it is a share of the judge's own answers, 0 to 1")
    rows: list[Mapping[str, object]] = []
    for key, solves in read_self_answers(options.file).solves.items():
        agreed = majority([solve.get("answer") for solve in solves])
        if agreed.passes(options.tau):
            text = next(solve["text"] for solve in solves if solve.get("answer") == agreed.answer)
            rows.append({"id": key, "reference": text if options.whole else agreed.answer})
    return rows


def generator_questions(options: argparse.Namespace) -> list[Mapping[str, object]]:
    """Two questions for each."""
    return [plain_row(sample) for sample in generator_prompts(read_solved_questions(options.file), seed=options.seed)]


def contrastive_pairs(options: argparse.Namespace) -> list[Mapping[str, object]]:
    """The pairs; their truths go into a file of their own."""
    texts: dict[str, list[str]] = {}
    for key, text in read_answers(options.answers):
        texts.setdefault(source_question_id(key), []).append(text)
    samples = list(read_solved_questions(options.file))
    pairs = [contrastive_pair(sample, texts.get(sample.id, []), options.task, seed=options.seed) for sample in samples]
    made = [drawn for drawn in pairs if drawn is not None]
    echo(f"{len(samples) - len(made):,} questions without a right or without a wrong response", err=True)
    check_absent(options.out, overwrite=options.overwrite)
    truths = options.out.with_name(f"{options.out.name.removesuffix('.jsonl')}.truth.jsonl")
    write(truths, [truth for _, truth in made], overwrite=options.overwrite)
    return [plain_row(sample) for sample, _ in made]


def write(out: Path, rows: Iterable[Mapping[str, object]], *, overwrite: bool) -> None:
    """The file, which appears only when it is complete.

    Raises:
        RunError: it is there already, or cannot be written.
    """
    check_absent(out, overwrite=overwrite)
    with whole_file(out) as file:
        for row in rows:
            file.write(row)


def check_absent(out: Path, *, overwrite: bool) -> None:
    """Refuse to replace a file that is there.

    Raises:
        RunError: it is there, and nobody said to replace it.
    """
    if out.exists() and not overwrite:
        raise RunError(f"{out}: is there already; choose another -o, or pass --overwrite")


COMMANDS = {
    "attention": spoiled,
    "questions": questions,
    "own-references": own_references,
    "generator-prompts": generator_questions,
    "pairs": contrastive_pairs,
}

if __name__ == "__main__":
    sys.exit(main())
