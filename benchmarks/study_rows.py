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
import math
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from benchmarks.contrastive_pairs import (
    contrastive_pair,
    generator_prompts,
    read_answers,
    read_solved_questions,
    source_question_id,
)
from judgelm.cli.console import echo
from judgelm.data.plain_rows import plain_row
from judgelm.data.samples import SampleStream
from judgelm.data.sources.qa import qa_row, read_qa
from judgelm.errors import ConfigError, JudgelmError, RunError
from judgelm.jsonl import atomic_write, check_no_input
from judgelm.parsing.short_answers import majority
from judgelm.records import Sample
from judgelm.runs.answers import read_self_answers

AttentionCheck = Literal["random_pairing", "reversed_words", "dropped_characters"]

MAX_DROPPED = 1 / 3
SENTENCE = re.compile(r"([^.!?\n]+)([.!?\n]*)")
TARGET = 1000
WHOLE_BELOW = 100


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
    attention.add_argument("--check", required=True, choices=get_args(AttentionCheck))
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
    with atomic_write(out) as file:
        for row in rows:
            file.write(row)


def check_absent(out: Path, *, overwrite: bool) -> None:
    """Refuse to replace a file that is there.

    Raises:
        RunError: it is there, and nobody said to replace it.
    """
    if out.exists() and not overwrite:
        raise RunError(f"{out}: is there already; choose another -o, or pass --overwrite")


def attention_checks(samples: Sequence[Sample], check: AttentionCheck, *, seed: int = 0) -> list[Sample]:
    """The samples with their answers spoiled; `metadata["check"]` names how, and ids get the check's name behind.

    Args:
        samples: at least two for `random_pairing`.
        check: which of the three.
        seed: the same seed spoils in the same way.

    Raises:
        ValueError: `random_pairing` of samples that cannot be paired with another's answers.
    """
    if check == "random_pairing":
        answers = of_others(samples, seed)
    elif check == "reversed_words":
        answers = [tuple(map(reversed_words, sample.answers)) for sample in samples]
    else:
        answers = [
            tuple(
                dropped_characters(text, seed=f"{seed}|{sample.id}|{index}")
                for index, text in enumerate(sample.answers)
            )
            for sample in samples
        ]
    return [
        replace(sample, id=f"{sample.id}#{check}", answers=new, metadata={**sample.metadata, "check": check})
        for sample, new in zip(samples, answers, strict=True)
    ]


def reversed_words(text: str) -> str:
    """The words of each sentence in reverse, sentences and their end marks in place."""
    return SENTENCE.sub(lambda match: reversed_sentence(match[1]) + match[2], text)


def dropped_characters(text: str, *, share: float = MAX_DROPPED, seed: int | str = 0) -> str:
    """The text without a random `share` of its characters, rounded down.

    Raises:
        ValueError: `share` is not in [0, 1/3]; the paper drops up to a third.
    """
    if not 0 <= share <= MAX_DROPPED:
        raise ValueError(f"dropped_characters: share: expected 0 to 1/3, got {share}")
    count = math.floor(len(text) * share + 1e-9)
    gone = set(random.Random(str(seed)).sample(range(len(text)), count))
    return "".join(letter for index, letter in enumerate(text) if index not in gone)


def of_others(samples: Sequence[Sample], seed: int) -> list[tuple[str, ...]]:
    """Each sample's answers replaced by those of another: samples in random order, each takes the next one's."""
    if len(samples) < 2:
        raise ValueError("random_pairing: needs at least two samples, or there is no other answer to take")
    order = list(range(len(samples)))
    random.Random(seed).shuffle(order)
    new_answers: list[tuple[str, ...]] = [()] * len(samples)
    for here, following in zip(order, [*order[1:], order[0]], strict=True):
        if len(samples[here].answers) != len(samples[following].answers):
            raise ValueError(
                f"random_pairing: sample {samples[here].id} has {len(samples[here].answers)} answers, "
                f"{samples[following].id} has {len(samples[following].answers)}; give samples with as many"
            )
        if samples[here].question == samples[following].question:
            raise ValueError(f"random_pairing: question of {samples[here].id} occurs twice; give each question once")
        new_answers[here] = samples[following].answers
    return new_answers


def reversed_sentence(sentence: str) -> str:
    """The words of one sentence in reverse."""
    words = sentence.split()
    lead = sentence[: len(sentence) - len(sentence.lstrip())]
    return lead + " ".join(reversed(words))


def excluded_types(data_set: str) -> frozenset[str]:
    """Answer types that are left out of a data set."""
    return frozenset({"bool", "date", "year"}) if data_set == "quoref" else frozenset({"bool"})


def sample_by_type(
    samples: Sequence[Sample], *, target: int = TARGET, whole_below: int = WHOLE_BELOW, seed: int = 0
) -> list[Sample]:
    """A subset of one data set's questions, in their own order.

    A type with fewer than `whole_below` questions is kept whole. Of another `target` times its share of all questions
    used are drawn, at most all of them; so the subset can exceed `target` by what the small types have above their
    share (the paper's have 1,000 to 1,124 questions). Ids and the seed decide what is drawn, not the order of the file.

    Args:
        samples: of one data set, with `answer_type` and `data_set` in their metadata.
        target: about how many to keep, at least 1.
        whole_below: types with fewer questions are kept whole.
        seed: another seed draws others.

    Raises:
        ConfigError: `target` is below 1.
    """
    if target < 1:
        raise ConfigError(f"target is {target}; it must be at least 1")
    used = [
        sample for sample in samples if type_of(sample) not in excluded_types(str(sample.metadata.get("data_set", "")))
    ]
    by_type: dict[str, list[str]] = defaultdict(list)
    for sample in used:
        by_type[type_of(sample)].append(sample.id)
    chosen_ids: set[str] = set()
    for name, ids in by_type.items():
        share = len(ids) if len(ids) < whole_below else min(len(ids), round(target * len(ids) / len(used)))
        drawing = np.random.default_rng([seed, *name.encode()])
        chosen_ids.update(drawing.choice(sorted(ids), size=share, replace=False).tolist())
    return [sample for sample in used if sample.id in chosen_ids]


def type_counts(samples: Sequence[Sample]) -> Counter[str]:
    """Number of questions of each answer type, as in the paper's Table 1."""
    return Counter(type_of(sample) for sample in samples)


def type_of(sample: Sample) -> str:
    """The answer type of a question."""
    return str(sample.metadata.get("answer_type", sample.category or "string"))


COMMANDS = {
    "attention": spoiled,
    "questions": questions,
    "own-references": own_references,
    "generator-prompts": generator_questions,
    "pairs": contrastive_pairs,
}

if __name__ == "__main__":
    sys.exit(main())
